#!/bin/sh
# The front of memory and time as query prints it, as JSON has it, and as plot pareto draws it: what is
# shown in order has less memory and more time from point to point, and it is the same front all three
# times.
set -u
unset FSDPLAN_DEBUG_CHECK # of every schedule that a search tries
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0 n=0

complain () { echo "$*"; bad=1; }

# Checks that lines of time and memory rise in time and fall in memory; with 1, neighbours may be
# printed alike.
falls () {
  awk -v alike="$1" 'NR > 1 && ($1 < time || $2 > memory || (!alike && ($1 == time || $2 == memory))) {
      exit 1
    }
    { time = $1; memory = $2 }'
}

# front MODEL CLUSTER GBS OPTION...
front () {
  what=$*
  model=$1 cluster=$2 gbs=$3
  shift 3
  set -- --model "$model" --cluster "$cluster" --gbs "$gbs" --front 200 "$@"
  fsdplan query "$@" --no-keep --format=json >"$work/json" || complain "no answer: $what"
  sed -n '/"pareto"/,/^  \]/s/.*"\(step_ms\|needed_mib\)" : \([0-9.]*\).*/\2/p' "$work/json" \
    | paste - - >"$work/whole"
  falls 0 <"$work/whole" || complain "in JSON more memory takes more time: $what"
  # the page's lines, joined: "front … at ms: MIB at MS, MIB at MS"
  fsdplan query "$@" --no-keep | sed -n '/^front/,/^searched/p' | sed '/^searched/d; s/^front//' \
    | tr -d '\n' | tr -s ' ' | sed 's/.*ms: //' | tr ',' '\n' | awk '{ print $3, $1 }' >"$work/card"
  falls 1 <"$work/card" || complain "on the card more memory takes more time: $what"
  fsdplan plot pareto "$@" | awk '$1 ~ /^[0-9]+$/ && $3 == "GiB" { print -$4, $2 }' >"$work/picture"
  falls 1 <"$work/picture" || complain "in the picture more memory takes more time: $what"
  for end in head tail; do
    whole=$($end -n 1 "$work/whole" | awk '{ printf "%.1f %.0f\n", $1, $2 }')
    gib=$($end -n 1 "$work/whole" | awk '{ printf "%.2f\n", $2 / 1024 }')
    test "$whole" = "$($end -n 1 "$work/card")" || complain "the card's $end is not JSON's: $what"
    $end -n 1 "$work/picture" | grep -q " $gib\$" || complain "the picture's $end is not JSON's: $what"
  done
  test "$(wc -l <"$work/whole")" = "$(wc -l <"$work/picture")" || complain "of other lengths: $what"
  n=$((n + 1))
}

front llama-tiny local-cpu:2 8 --seq 32 --set stack=native
if ! grep -q __asan_init "$(command -v fsdplan)"; then # which has the same figures, far later
  front llama3-8b dgx-h100:8 256 --set stack=fsdp2
  front gpt2 dgx-h100:1 256 --set stack=native --p-fits 0.99
fi
if [ "${FSDPLAN_SHARE:-1}" = 1 ]; then
  for p in 0.5 0.999; do
    front llama3-8b dgx-h100:8 256 --p-fits $p
    front llama3-8b dgx-h100:1 256 --set stack=nanotron --p-fits $p
    front llama3.2-1b dgx-a100:2 256 --set stack=fsdp2 --p-fits $p
  done
fi
echo "$n fronts"
exit $bad
