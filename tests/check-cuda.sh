#!/bin/bash
# What nvcc makes of a kernel by the flags that configure chose: code of its own for the data-centre
# GPUs of three generations (two where nvcc does not know the third), Hopper's with what it alone has,
# and text that later ones translate for themselves. Skips (77) without nvcc, and where flags were
# given by hand.
cd "$top_builddir" || exit 99
nvcc=$(sed -n 's/^NVCC = //p' Makefile)
flags=$(sed -n 's/^NVCCFLAGS = //p' Makefile)
[ -x "$nvcc" ] || { echo "no nvcc" && exit 77; }
grep -q '^ac_cv_env_NVCCFLAGS_set=set' config.log && { echo "flags by hand: $flags" && exit 77; }

newest=90
wanted='elf,sm=80 elf,sm=90a'
"$nvcc" --list-gpu-arch | grep -qx compute_100 && newest=100 && wanted+=' elf,sm=100'
wanted+=" ptx,sm=$newest"

kernel=$(mktemp --suffix=.cu) || exit 99
trap 'rm -f "$kernel"' EXIT
echo '__global__ void kernel () {}' >"$kernel"
# shellcheck disable=SC2086 # flags are words
images=$("$nvcc" $flags --dryrun -c "$kernel" -o /dev/null 2>&1 |
  grep -o 'kind=[a-z]*,sm=[0-9a-z]*' | sed 's/kind=//')
for image in $wanted; do
  grep -qx "$image" <<<"$images" || { echo "no $image among:" $images && exit 1; }
done
[ "$(wc -l <<<"$images")" -eq "$(wc -w <<<"$wanted")" ] || { echo "more than $wanted:" $images && exit 1; }
