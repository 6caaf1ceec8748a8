#!/bin/bash
# What a reviewer should not have to say: format, sizes, names, first lines, READMEs, commit titles.
# Prints every offence. Skips (77) when all else is well but the formatter's version is not here.
cd "$top_srcdir" || exit 99
shopt -s lastpipe # so that offences, at the end of a pipe, can set this:
failed=0
# offences TEXT: each line on stdin is one.
offences ()
{
  local lines
  lines=$(cat)
  [ -z "$lines" ] && return
  sed "s|\$|: $1|" <<<"$lines"
  failed=1
}

mapfile -t sources < <(find planner advise cli sim exec db plots tests -name '*.[ch]' | sort)
mapfile -t library < <(printf '%s\n' "${sources[@]}" | grep -Ev '^(tests|cli)/')

# Sizes: lines of a file and of a function (braces in the first column, as the formatter puts them).
wc -l "${sources[@]}" | awk '
  $2 ~ /\.c$/ && $2 != "total" && $1 >= 800 { print $2 }
  $2 ~ /\.h$/ && $2 !~ /(plan-fields|op-list|megatron-flags)\.h$/ && $1 >= 150 { print $2 }' |
  offences "too long (.h 150 lines, .c 800)"
awk '/^{$/ { start = FNR } /^}$/ { if (FNR - start > 60) print FILENAME ":" start }' "${sources[@]}" |
  offences "a function of more than 60 lines"

# First lines.
for file in "${sources[@]}"; do
  [[ $file == *.h ]] && continue
  [[ $(head -n 1 "$file") == '/* SPDX-License-Identifier: Apache-2.0 */' ]] || echo "$file:1"
  [[ $(grep -m 1 '^#include' "$file") == '#include "config.h"' ]] || echo "$file"
done | offences "starts with the SPDX comment, and includes config.h first"

# What make does not know is neither run nor shipped.
for file in tests/golden/*.test tests/exec/*.sh; do
  grep -q "${file#tests/}" tests/local.mk || echo "$file"
done | offences "not in tests/local.mk"

# Tables in the first comment of kernels, whose lines the formatter joins when one of them is too long.
grep -nE '[^ *].* (Per call|Checked with)  ' exec/cuda/kernels/*.cu | cut -d: -f1,2 |
  offences "a row of a table begins a line"

# Blanks.
grep -rnIP '\t' --include='*.[ch]' --include='*.md' --include='*.gp' --include='*.sql' \
  --include='*.ini' planner advise cli sim exec db plots tests | cut -d: -f1,2 | offences "tab"
grep -rnI ' $' planner advise cli sim exec db plots tests configure.ac Makefile.am README.md quickstart .ci |
  grep -vE '^tests/(fuzz/corpus/|golden/[^:]*\.expected:)' | cut -d: -f1,2 | offences "blank at the end of the line"

# Only the program prints and ends.
grep -nE '\b(exit|printf|fprintf|puts|fputs|g_print|g_printerr) \(' "${library[@]}" |
  cut -d: -f1,2 | offences "only cli prints and exits"

# A folder has a short README that names what lies in it and in its folders, but for those that have one
# of their own, `check-*.sh` too; of tests what lies in its folders is not named.
named_in ()
{
  local pattern
  grep -qE "(^|[^a-z0-9-])${2%.[ch]}([^a-z0-9-]|\$)" "$1" && return
  for pattern in $(grep -oE '[a-z0-9.-]*-\*[a-z0-9.-]*' "$1"); do
    [[ $2 == $pattern ]] && return
  done
  return 1
}
set -f # patterns stay patterns
for folder in planner advise cli sim exec exec/cuda db plots tests; do
  readme=$folder/README.md depth=9
  [ -e $readme ] || { echo "$readme is missing"; continue; }
  [ "$(wc -l <$readme)" -le 120 ] || echo "$readme has more than 120 lines"
  [ $folder = tests ] && depth=1
  find $folder -mindepth 1 -maxdepth $depth \
    \( -type d ! -name '.*' -o -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.gp' -o -name '*.sql' \
    -o -name '*.sh' \) -printf '%P\n' | sort | while read -r path; do
    [[ $path == */* && -e $folder/${path%%/*}/README.md ]] && continue
    named_in $readme "${path##*/}" || echo "$readme does not name $path"
  done
done | offences "a folder's README names, in 120 lines, what lies in it"
set +f

# Documents: lines as people see them, but for what programs print; and the files that they name.
mapfile -t documents < <(find . -maxdepth 3 -name '*.md' -not -path '*/build*' -printf '%P\n' | sort)
awk '
  FNR == 1 { is_code = 0 }
  /^ *```/ { is_code = !is_code }
  { seen = $0; gsub (/[\200-\277]/, "", seen) }
  !is_code && length (seen) > 120 { print FILENAME ":" FNR }' "${documents[@]}" |
  offences "a line of more than 120 characters"
[ "$(wc -l <README.md)" -le 200 ] || echo README.md | offences "more than 200 lines"

# there FILE NAME: a file, or a pattern of some, from the root or from where FILE lies. A program of
# tests stands for its source.
there ()
{
  local name=${2%%#*}
  [[ $name == *.tap ]] && name=${name%.tap}.c
  compgen -G "$name" >/dev/null || compgen -G "$(dirname "$1")/$name" >/dev/null
}
for file in "${documents[@]}"; do
  {
    awk '/^ *```/ { is_code = !is_code } !is_code' "$file" | grep -oE '`[^` ]+`' | tr -d '`' |
      grep -E '^[a-z0-9][A-Za-z0-9_.*-]*(/[A-Za-z0-9_.*-]+)+\.(c|h|cuh?|md|sh|csv|txt|ini|sql|gp|mk|m4|py|tap|test|h2m)$' |
      grep -vE 'NAME|^build'
    grep -oE '\]\([^)]+\)' "$file" | grep -vE 'https?:' | sed 's/^](//; s/)$//'
  } | sort -u | while read -r name; do
    there "$file" "$name" || echo "$file: $name"
  done
done | offences "there is no such file"

# Exported names start with their folder's prefix.
while read -r archive prefix; do
  nm -g --defined-only "$top_builddir/$archive" |
    awk -v prefix="$prefix" 'NF == 3 && $3 !~ /^_/ && index ($3, prefix) != 1 { print $3 }' |
    offences "exported by $archive without the prefix $prefix"
done <<'END'
libplanner.a plan_
libadvise.a advise_
libsim.a sim_
libexec.a exec_
libprobe.a exec_
libdb.a db_
libplots.a plot_
END

# Where there is a history: titles, and nothing generated in it.
if [ -e .git ] && git rev-parse --git-dir >/dev/null 2>&1; then
  git log --no-merges --format=%s 2>/dev/null |
    grep -vE '^[a-z0-9./-]+: [A-Z].{0,98}$' | offences "a title is 'area: Imperative sentence'"
  git log --no-merges --format=%s 2>/dev/null | grep -E '^.{101}' | offences "a title of over 100"
  git ls-files -ci --exclude-standard | offences "generated, but in git"
  git ls-files -o --exclude-standard | offences "neither in git nor ignored: a clone lacks it"
fi

# One version of the formatter has the say: others differ in details.
for format in clang-format-14 clang-format none; do
  [[ $($format --version 2>/dev/null) == *' version 14.'* ]] && break
done
if [ $format != none ]; then
  $format --dry-run --Werror "${sources[@]}" 2>&1 | grep 'error:' | cut -d: -f1 | uniq |
    offences "not as $format -i writes it"
elif [ $failed -eq 0 ]; then
  echo "format not checked: no clang-format 14"
  exit 77
fi
exit $failed
