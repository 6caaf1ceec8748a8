#!/bin/sh
# The file of defaults: each key works like its option, and the option overrides it; errors name the
# file and the line; and the guide's page lists every key and every environment variable that a source
# reads.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
export XDG_CONFIG_HOME="$work" XDG_DATA_HOME="$work/data"
mkdir fsdplan
bad=0

complain () { echo "$*"; bad=1; }
write_config () { printf '%s\n' "$@" >fsdplan/config.ini; }

# same A B: two commands print the same, apart from times and the numbers of plans.
same ()
{
  sh -c "$1" >a 2>a.err && sh -c "$2" >b 2>b.err || complain "fails: $1 / $2: $(cat a.err b.err)"
  cmp -s a b || complain "differ: $1 / $2: $(diff a b)"
}

job='--model llama-tiny --gbs 8 --seq 128'
query='query --no-keep --top 1 --format=csv'
write_config '# of ours' '' ' cluster = h100-80gb:2 ' 'headroom=20' 'params=defaults' 'price=3'
same "fsdplan sim $job" "fsdplan sim $job --cluster h100-80gb:2 --params defaults"
same "fsdplan sim $job --tokens 1B" "fsdplan sim $job --cluster h100-80gb:2 --params defaults --tokens 1B --price 3"
same "fsdplan $query $job" "fsdplan $query $job --cluster h100-80gb:2 --params defaults --headroom 20"
same "fsdplan $query $job --tokens 1B" "fsdplan $query $job --cluster h100-80gb:2 --tokens 1B --price 3"
same "fsdplan validate $top_srcdir/tests/golden/runs-small.csv" \
  "fsdplan validate --params defaults $top_srcdir/tests/golden/runs-small.csv"
# Options and plans override the file; a model in the file alone is used as it is.
fsdplan sim $job --cluster dgx-a100:1 | head -n 1 | grep -q dgx-a100 || complain "--cluster does not win"
fsdplan emit --as plan $job --cluster dgx-a100:1 >plan.txt
fsdplan sim --plan plan.txt | head -n 1 | grep -q dgx-a100 || complain "a plan's cluster does not win"
fsdplan show --model llama-tiny | head -n 1 | grep -q '^llama-tiny, family llama: ' || complain "show --model has a cluster"
fsdplan run --model llama-tiny --gbs 4 --seq 16 --steps 1 --db :memory: 2>err | grep -q '1 ranks' ||
  complain "run does not run here: $(cat err)"

# wrong WANTED LINE...: a file of these lines is refused with that message.
wrong ()
{
  wanted=$1
  shift
  write_config "$@"
  fsdplan sim $job >out 2>err
  status=$?
  test $status -eq 2 || complain "$*: exit status $status"
  grep -qF "$wanted" err || complain "$*: $(cat err)"
  test ! -s out || complain "$*: prints $(cat out)"
}
wrong "$work/fsdplan/config.ini:2: there is no 'cluser' to set: did you mean 'cluster'?" '# x' 'cluser=dgx-h100:1'
wrong "config.ini:1: 'cluster dgx-h100:1' is not KEY=VALUE" 'cluster dgx-h100:1'
wrong 'config.ini:1: price has no value' 'price='
wrong 'config.ini:3: price was said in line 1' 'price=1' '' 'price=2'
wrong "cluster=none, as $work/fsdplan/config.ini:1 says" 'cluster=none'
wrong 'params=none, as' 'cluster=dgx-h100:1' 'params=none'
wrong 'cluster=\x1b[31mred, as' "$(printf 'cluster=\033[31mred')" # which a terminal would act on
rm -r fsdplan/config.ini
mkdir fsdplan/config.ini
fsdplan sim $job --cluster dgx-h100:1 >/dev/null 2>err && complain "a folder is read"
grep -q 'config.ini' err || complain "of a folder: $(cat err)"
rmdir fsdplan/config.ini
fsdplan sim $job --cluster dgx-h100:1 >/dev/null || complain "no file is needed"

page=$top_srcdir/docs/guide/settings.md
for variable in $(cd "$top_srcdir" && grep -rhoE '(g_getenv|is_many|many) \("[A-Z_]+"' advise cli db exec planner plots sim |
  grep -oE '[A-Z_]{4,}' | sort -u); do
  grep -q "\`$variable\`" "$page" || complain "settings.md does not name $variable"
done
for key in $(sed -n 's/^  X ([A-Z]*, "\([a-z]*\)".*/\1/p' "$top_srcdir/cli/io/config.h"); do
  grep -q "^| \`$key\` |" "$page" || complain "settings.md does not name $key"
done
exit $bad
