#!/bin/sh
# Output: a command whose output cannot be written says so and fails. A file is replaced as a whole and
# keeps its mode; links and devices are written through. An interrupted search prints what it has found.
# JSON is one document. --quiet, --verbose and colours.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; head -n 20 "$work/out" "$work/err"; bad=1; }

tiny="--model llama-tiny --cluster h100:8 --gbs 8 --seq 128"
plan="--model llama3-8b --cluster dgx-h100:1 --gbs 8"
export XDG_DATA_HOME="$work/data"
fsdplan query $tiny --top 1 >"$work/out" 2>"$work/err" || complain "nothing is stored"

# Every command that prints, with standard output on a full disk, closed, or read by nobody.
while read -r words; do
  : >"$work/out"
  if test -c /dev/full; then
    fsdplan $words >/dev/full 2>"$work/err"
    test $? = 1 || complain "a full disk must be a failure: $words"
    grep -q "^fsdplan: standard output: " "$work/err" || complain "nothing says so: $words"
  fi
  fsdplan $words >&- 2>"$work/err"
  test $? = 1 || complain "a closed output must be a failure: $words"
  grep -q "^fsdplan: standard output: " "$work/err" || complain "nothing says so: $words"
  # a reader that ends early is no error
  { fsdplan $words; echo $? >"$work/status"; } 2>"$work/err" | :
  test ! -s "$work/err" || complain "words for a reader that left: $words"
done <<END
--help
--version
help sim
completion bash
__complete s
show --fields
show --model llama3-8b --format=json
sim $plan
sim $plan --sweep mbs=1,2 --format=csv
diff $plan --to strategy=optim_grads --format=json
lower $tiny
emit --as plan $plan
query $tiny --no-keep --format=csv
plot memory $tiny
report $tiny --top 1 --no-keep -o -
db list
db list --kind=plans --format=json
db export
db path
run --help
END

# With standard output closed, the store that is opened next does not take its number and its text.
(umask 077; fsdplan query $tiny --top 1 --db "$work/closed.db" >&- 2>"$work/err")
fsdplan db check --db "$work/closed.db" >"$work/out" 2>"$work/err" || complain "the store was printed into"

# A file that is replaced keeps its mode; links, FIFOs and devices are written through.
emit () { fsdplan emit --as plan $plan -o "$1" >"$work/out" 2>"$work/err" || complain "-o $1"; }
emit "$work/new"
echo old >"$work/kept"
chmod 751 "$work/kept"
emit "$work/kept"
test "$(stat -c %a "$work/kept")" = 751 || complain "the mode of a file was not kept"
cmp -s "$work/new" "$work/kept" || complain "a file was not replaced"
echo old >"$work/target"
ln -s target "$work/link"
ln -s nowhere "$work/dangling"
emit "$work/link"
emit "$work/dangling"
test -L "$work/link" || complain "a link was replaced"
for file in target nowhere; do
  cmp -s "$work/new" "$work/$file" || complain "$file was not written through a link"
done
mkfifo "$work/fifo"
cat "$work/fifo" >"$work/from-fifo" &
emit "$work/fifo"
wait
test -p "$work/fifo" || complain "a FIFO was replaced"
cmp -s "$work/new" "$work/from-fifo" || complain "a FIFO was not written"
{ echo before; fsdplan emit --as plan $plan -o /dev/stdout; } >"$work/both" 2>"$work/err"
{ echo before; cat "$work/new"; } | cmp -s - "$work/both" || complain "/dev/stdout cut off what was there"
if test -c /dev/full; then
  fsdplan emit --as plan $plan -o /dev/full >"$work/out" 2>"$work/err"
  test $? = 1 || complain "-o /dev/full must be a failure"
  grep -q "^fsdplan: /dev/full: " "$work/err" || complain "-o /dev/full is not named"
fi
fsdplan plot memory $tiny -o "$work/picture.txt" >"$work/out" 2>"$work/err" || complain "plot"
ln -s painted.txt "$work/other.txt"
fsdplan plot memory $tiny -o "$work/other.txt" >"$work/out" 2>"$work/err" || complain "plot"
cmp -s "$work/picture.txt" "$work/painted.txt" || complain "a picture was not written through a link"

# In JSON an error is a document, too, and the only one.
json () {
  status=$1 pattern=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err"
  test $? = "$status" || complain "must end with $status: $*"
  grep -q "$pattern" "$work/out" || complain "no $pattern: $*"
  test "$(grep -c '^[{[]' "$work/out")" = 1 || complain "not one document: $*"
}
json 2 '"status" : 2' fsdplan sim --format=json
json 2 '"message" : "there is no option' fsdplan show --nonsense --format json
json 3 '"status" : 3' fsdplan query $plan --memory 1GiB --no-keep --format=json
json 3 '"note" : "lacks' fsdplan query $plan --memory 1GiB --gpus 8 --tokens 1T --deadline 1d --no-keep --format=json
json 1 '"message" : "' fsdplan db list --db "$work/none.db" --format=json

# Ctrl-C while plans are scored: the query prints those found so far, and says that they are not all.
interrupted () { LD_PRELOAD=$top_builddir/tests/fake/interrupt.so INTERRUPT_AT=$1 fsdplan query $plan --no-keep ${2-}; }
if test -n "$(sh -c 'kill -INT $$; echo ignored' 2>/dev/null)"; then
  echo "# what started this ignores Ctrl-C, and so does all that it starts: it is not tried"
elif interrupted 0 --format=csv 2>/dev/null | grep -q '^1,'; then
  json 130 '"complete" : false' interrupted 60 --format=json
  grep -q '"rank" : 1' "$work/out" || complain "no answer of those found"
  grep -q "interrupted: this is the best so far" "$work/err" || complain "nothing says that more was to come"
  interrupted 60 >"$work/out" 2>"$work/err"
  test $? = 130 || complain "an interrupted query must end with 130"
  grep -q "^   1 " "$work/out" || complain "no table of those found"
  grep -q "interrupted: the best so far" "$work/out" || complain "nothing says that more was to come"
else
  echo "# LD_PRELOAD has no effect here: Ctrl-C is not tried"
fi
json 0 '"complete" : true' fsdplan query $tiny --no-keep --format=json

unset FSDPLAN_DEBUG_CHECK # which checks every schedule of a search: that takes too long here

# --quiet leaves out hints and steps; results and errors stay.
hint="--model llama-tiny --cluster h100-80gb:2 --gbs 4000000 --mbs 32"
fsdplan sim $hint >"$work/loud" 2>"$work/err"
grep -q "hint" "$work/err" || complain "there is no hint to leave out"
fsdplan sim $hint --quiet >"$work/out" 2>"$work/err"
cmp -s "$work/loud" "$work/out" || complain "--quiet prints another result"
test ! -s "$work/err" || complain "--quiet says $(cat "$work/err")"
fsdplan sim --quiet --model none >"$work/out" 2>"$work/err"
test $? = 2 && grep -q "^fsdplan: model: 'none'" "$work/err" || complain "--quiet leaves out an error"
fsdplan run --quiet --model llama-tiny --gbs 4 --seq 16 --steps 2 --db :memory: >"$work/out" 2>"$work/err" ||
  complain "run --quiet fails"
test ! -s "$work/err" && grep -q "^quantity" "$work/out" || complain "run --quiet says $(cat "$work/err")"
fsdplan run --quiet --model none >"$work/out" 2>"$work/err"
grep -q "^fsdplan: model: 'none'" "$work/err" || complain "run --quiet leaves out an error"

# --verbose says what was read, and when; results are the same.
XDG_DATA_HOME=$work/data fsdplan sim $hint --verbose >"$work/out" 2>"$work/err"
cmp -s "$work/loud" "$work/out" || complain "--verbose prints another result"
for told in "model llama-tiny: 4 layers" "cluster dgx-h100: 2 x" "parameters: " "store: $work/data/" "catalogue: in /" \
  "simulated" "done"; do
  grep -q "^fsdplan:  *[0-9.]* s: $told" "$work/err" || complain "--verbose does not say $told"
done
fsdplan sim --quiet --verbose 2>"$work/err" && complain "--quiet --verbose is taken"

# Colour: on a terminal that has it, unless NO_COLOR or --color=never is given; never in JSON and CSV.
escape=$(printf '\033')
coloured () { grep -q "$escape" "$work/$1"; }
big="sim --model llama3-70b --cluster dgx-h100:1 --gbs 8"
unset NO_COLOR
TERM=xterm fsdplan $big >"$work/out"
coloured out && complain "there is colour in a file"
fsdplan $big --color=always | sed "s/$escape\[[0-9;]*m//g" >"$work/plain"
cmp -s "$work/out" "$work/plain" || complain "colour changes words"
NO_COLOR=1 TERM=dumb fsdplan $big --color=always >"$work/out"
coloured out || complain "--color=always is without"
for format in csv json; do
  fsdplan $big --sweep mbs=1 --color=always --format=$format >"$work/out"
  coloured out && complain "there is colour in $format"
done
fsdplan query $plan --no-keep --top 2 --color=always | grep "^$escape\[1m *1 .*as above" >/dev/null ||
  complain "the best is not bold"
fsdplan sim --color=always --model none 2>"$work/err"
coloured err || complain "an error has no colour"
fsdplan sim --color=blue 2>&1 | grep -q "auto, always, never" || complain "--color=blue is taken"
if script -qc true /dev/null >/dev/null 2>&1 </dev/null; then
  terminal () { script -qc "env $1 fsdplan $big" /dev/null >"$work/out" </dev/null; }
  terminal "TERM=xterm" && coloured out || complain "there is no colour on a terminal"
  for without in "TERM=dumb" "TERM=xterm NO_COLOR=1"; do
    terminal "$without" && coloured out && complain "there is colour with $without"
  done
  script -qc "env TERM=xterm fsdplan $big --color=never" /dev/null >"$work/out" </dev/null
  coloured out && complain "there is colour with --color=never"
fi

exit $bad
