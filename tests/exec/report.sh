#!/bin/sh
# The page that report writes: it is well formed, its pictures do not share ids, it runs no script and
# loads nothing, it says the same as query, emit and plot, its front is marked where it is drawn, and
# words from outside cannot become markup. A page is written completely, or not at all.
set -u
command -v gnuplot >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_DATA_HOME="$work/data"
unset FSDPLAN_DEBUG_CHECK # other tests run these plans with it
bad=0

complain () { echo "$*"; bad=1; }

# check PAGE: every element is closed in order, every id is unique, and every reference is to one of
# them.
check () {
  tr '\n' ' ' <"$1" | sed 's/<style>.*<\/style>//; s/</\n</g' | tail -n +2 | awk '
      function fail(why) { print why ": " substr($0, 1, 100); failed = 1 }
      !/^<[^<>]*>[^<>]*$/ { fail("no tag and words") }
      /&/ { text = $0; gsub(/&(lt|gt|amp|quot|#39);/, "", text); if (text ~ /&/) fail("a bare &") }
      /^<!DOCTYPE html>/ { next }
      { name = $0; sub(/^<\/?/, "", name); sub(/[ \/>].*/, "", name) }
      /^<\// { if (open[n--] != name) fail("closes another element"); next }
      !/^<[^>]*\/>/ { open[++n] = name }
      match($0, / id="[^"]*"/) { id = substr($0, RSTART + 5, RLENGTH - 6); if (ids[id]++) fail("an id again") }
      { tag = $0; sub(/>.*/, "", tag) }
      tag ~ / on[a-z]*=/ || tag ~ /^<(script|a|img|image|link|iframe|object|base)([ \/]|$)/ { fail("runs or links") }
      { rest = tag
        while (match(rest, /(href="|src="|url\()[^")]*/))
          {
            reference = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (sub(/^[^#]*#/, "", reference) == 0) fail("refers to something outside of the page")
            wanted[reference] = $0
          } }
      END {
        if (n) { print n " elements are not ended, the last is " open[n]; failed = 1 }
        for (id in wanted) if (!ids[id]) { print "no " id " for " wanted[id]; failed = 1 }
        if (NR < 500) { print "a page of " NR " elements"; failed = 1 }
        exit failed
      }' || complain "$1 is not well formed"
  sed '/<style>/,/<\/style>/!d' "$1" | grep -E 'url\(|@import' && complain "$1: its style loads something"
}

words () { sed 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&#39;/'\''/g; s/&amp;/\&/g'; }

question="--model llama3-8b --cluster dgx-h100:1 --gbs 128 --top 3"
fsdplan report $question -o "$work/page.html" 2>"$work/err" || complain "$(cat "$work/err")"
cp "$work/page.html" "$work/first.html"
check "$work/page.html"

# The same command makes the same page, except for the plans off the front, which depend on the order of
# the search.
same () { sed '/aria-label="memory against throughput"/,/<\/svg>/d; /searched/d' "$1"; }
fsdplan report $question -o "$work/page.html"
same "$work/first.html" >"$work/same"
same "$work/page.html" | diff "$work/same" - || complain "another page for the same question"
fsdplan report --model llama-tiny --cluster h100:8 --gbs 8 --top 1 --no-keep -o - | tail -n 1 |
  grep -qx "</html>" || complain "-o - is standard output"

# It has the answers of query, its reasons, and all of its front.
fsdplan query $question --format=json >"$work/query.json"
words <"$work/page.html" >"$work/words"
grep -oE '"(step_ms|why|needed_mib)" : .*' "$work/query.json" | sed 's/^[^:]*: //; s/,$//; s/^"//; s/"$//' |
  while read -r value; do
    case $value in
      *[!0-9.]*) grep -qF ">$value" "$work/words" ;;
      *) grep -qE ">($(printf '%.0f|%.1f' "$value" "$value"))<" "$work/words" ;;
    esac || echo "$value"
  done >"$work/missing"
test ! -s "$work/missing" || complain "not in the page: $(cat "$work/missing")"
test "$(grep -c '"step_ms"' "$work/query.json")" -gt 8 || complain "too little to look for"

# Each point of the front is marked where gnuplot drew one, with its time and plan.
tr '\n' ' ' <"$work/page.html" | sed 's/<svg/\n<svg/g' | sed -n 2p | sed 's/</\n</g' | awk '
    match($0, /translate\([0-9.]+,[0-9.]+\) scale/) { at = substr($0, RSTART + 10, RLENGTH - 17); drawn[at] }
    /class="point"/ { n++ }
    /^<circle cx/ {
      split($0, word, "\"")
      for (other in marked)
        {
          split(other, xy, ",")
          apart = sqrt((xy[1] - word[2]) ^ 2 + (xy[2] - word[4]) ^ 2)
          if (word[6] > 2 && marked[other] > 2 && apart < word[6] + marked[other] - 0.02) covers++
        }
      marked[word[2] "," word[4]] = word[6]
      for (at in drawn)
        {
          split(at, xy, ",")
          if ((xy[1] - word[2]) ^ 2 + (xy[2] - word[4]) ^ 2 < 4) { found++; break }
        }
    }
    END { if (n < 5 || found != n || covers)
            { print n " points are marked, " found " where one is, " covers + 0 " cover another"; exit 1 } }' ||
  complain "the front is not marked"
fronts=$(sed -n '/"pareto"/,/\]/p' "$work/query.json" | grep -c '"step_ms"')
test "$(grep -c 'class="point"' "$work/page.html")" = "$fronts" || complain "$fronts are on the front"

# The script is what emit writes, and the plan is read back.
texts () { sed -n '/<pre>/,/<\/pre>/p' "$work/page.html" | words | sed 's/^.*<pre>//; s/<\/pre>.*$//'; }
fsdplan emit --plan @1 >"$work/script"
fsdplan emit --plan @1 --as plan >"$work/plan"
texts | sed '/^# plan /,$d' | sed '/^$/d' >"$work/got"
sed '/^$/d' "$work/script" | diff - "$work/got" >"$work/out" || complain "another script: $(cat "$work/out")"
texts | sed -n '/^# plan /,$p' | sed '/^$/d' | diff - "$work/plan" || complain "another plan"

# Words from outside: a model's folder, and a store.
hostile="$work/<img src=x onerror=alert(1)>&\"'"
mkdir "$hostile"
cat >"$hostile/config.json" <<'END'
{ "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 64,
  "intermediate_size": 128, "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "vocab_size": 512 }
END
fsdplan report --model "$hostile" --cluster h100:8 --gbs 8 --top 2 --db "$hostile/<b>store.db" \
  -o "$work/hostile.html" 2>"$work/err" || complain "$(cat "$work/err")"
check "$work/hostile.html"
grep -q '&lt;img src=x onerror=alert(1)&gt;&amp;&quot;' "$work/hostile.html" || complain "no hostile name"
grep '<img\|<b>' "$work/hostile.html" && complain "a name became markup"

# Stages of a pipeline; a step that is too long for a simulation op by op.
fsdplan report --model llama3-8b --cluster dgx-h100:2 --gbs 64 --set stack=megatron --set pp=2 --set strategy=optim \
  --set mbs=1 --set tp=2 --top 1 --no-keep -o "$work/stages.html" || complain "no page of a pipeline"
check "$work/stages.html"
grep -q 'stage 1' "$work/stages.html" && grep -q 'time and memory of each stage' "$work/stages.html" ||
  complain "no stages"
fsdplan report --model llama3-8b --cluster dgx-h100:1 --gbs 8192 --set mbs=1 --set tp=2 --top 1 --no-keep \
  -o "$work/long.html" || complain "no page of a long step"
check "$work/long.html"
grep -q 'aria-label="memory over a step"' "$work/long.html" && complain "a long step is drawn"
grep -q 'ops' "$work/long.html" || complain "nothing says that a step is too long"

# refuse STATUS WORDS OPTION...: checks that the command is refused with these words, and leaves the old
# page.
refuse () {
  status=$1 pattern=$2
  shift 2
  fsdplan report "$@" >"$work/out" 2>"$work/err"
  test $? = "$status" || complain "must end with $status: $*"
  grep -q -- "$pattern" "$work/err" || complain "nothing says $pattern: $*: $(cat "$work/err")"
  test ! -s "$work/out" || complain "something was printed: $*"
}
echo old >"$work/old.html"
tiny="--model llama-tiny --cluster h100:8 --gbs 8 --seq 128 --top 1 --no-keep"
refuse 3 "nothing fits\|fits" $question --memory 1GiB -o "$work/old.html"
refuse 2 "-o FILE is needed" $question
refuse 2 "gbs is needed" --model llama3-8b --cluster dgx-h100:1 -o "$work/old.html"
refuse 2 "--from-megatron is for query" --from-megatron "$work/script" --cluster dgx-h100:1 -o "$work/old.html"
refuse 2 "several --cluster are compared by query" $question --cluster dgx-h100:2 -o "$work/old.html"
refuse 2 "several stacks are compared by query" $question --set stack=fsdp2,megatron -o "$work/old.html"
refuse 2 "no option" $question --max seq -o "$work/old.html"
refuse 1 "$work/none/page.html: " $tiny -o "$work/none/page.html"
refuse 1 "s a directory" $tiny -o "$work"
test -c /dev/full && refuse 1 "^fsdplan: /dev/full: " $tiny -o /dev/full
mkdir "$work/bin"
ln -s "$(command -v fsdplan)" "$work/bin"
PATH=$work/bin "$work/bin/fsdplan" report $tiny -o "$work/old.html" 2>"$work/err"
test $? = 1 || complain "no gnuplot must be a failure"
grep -q "gnuplot is needed" "$work/err" || complain "nothing says that gnuplot is needed"
test "$(cat "$work/old.html")" = old || complain "a page that could not be made was written"

# A stored run, whose number is not its plan's: its prediction and measurement, losses, a step; and a
# run from another store, without traces.
fsdplan run --model llama-tiny --ranks 2 --threads 1 --gbs 8 --seq 32 --steps 25 >"$work/run.txt" 2>/dev/null ||
  complain "does not run"
fsdplan report --run 1 -o "$work/run.html" 2>"$work/err" || complain "$(cat "$work/err")"
check "$work/run.html"
test "$(grep -c '<svg' "$work/run.html")" = 3 || complain "a run has losses, a timeline and memory"
sed 's/<[^>]*>/ /g' "$work/run.html" | sed 's/  */ /g; s/^ //; s/ $//' >"$work/words"
sed -n '/^quantity/,/^$/p' "$work/run.txt" | grep -E '_(ms|mib) ' | while read -r what predicted measured error; do
  grep -qxF "$what $predicted $measured $error" "$work/words" || echo "$what $predicted $measured $error"
done >"$work/missing"
test ! -s "$work/missing" || complain "not in the page of a run: $(cat "$work/missing")"
test "$(grep -cE "^[a-z_]+_mib [0-9.]+ [0-9.]+ " "$work/words")" -ge 3 || complain "no memory in the page of a run"
test "$(sed -n '/^Losses/,/^A step/p' "$work/words" | grep -cE '^[0-9]+ [0-9.]+ [0-9.]+ [0-9.]+$')" = 20 ||
  complain "the first and last ten of 25 steps"
fsdplan plot timeline --run 1 >/dev/null 2>"$work/err" || complain "a run's picture: $(cat "$work/err")"
fsdplan db export --format=json >"$work/store.json"
fsdplan db import "$work/store.json" --db "$work/other.db" >/dev/null
fsdplan report --run 1 --db "$work/other.db" -o "$work/bare.html" 2>"$work/err" || complain "$(cat "$work/err")"
test "$(grep -c '<svg' "$work/bare.html")" = 1 || complain "a run without traces has its losses"
fsdplan report --run 1 --gbs 8 -o "$work/no.html" 2>"$work/err" && complain "a run with a batch"
grep -q 'leave out' "$work/err" || complain "$(cat "$work/err")"
fsdplan report --run 7 -o "$work/no.html" 2>/dev/null && complain "a run that there is not"
test ! -e "$work/no.html" || complain "a page of no run"
exit $bad
