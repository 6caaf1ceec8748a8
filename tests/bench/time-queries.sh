#!/bin/sh
# Seconds that searches take, how many plans and schedules they go through, and the memory that they
# hold, looked at twenty times a second. A search that is not done after two minutes is interrupted, and
# says so: its answers are the best so far.
program=$1
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
# query ARGUMENTS
query ()
{
  echo "query $*:"
  timeout --signal=INT 120 "$program" query --no-keep "$@" >"$said" 2>/dev/null &
  timer=$! held='' now=
  while kill -0 $timer 2>/dev/null; do
    for child in $(cat "/proc/$timer/task/$timer/children" 2>/dev/null); do
      now=$(sed -n 's/^VmHWM:[[:space:]]*//p' "/proc/$child/status" 2>/dev/null)
    done
    held=${now:-$held}
    sleep 0.05
  done
  tail -n 2 "$said" | sed 's/^/  /'
  echo "  held ${held:-too short to see}"
}
query --model llama3.2-1b --cluster rtx4090:1 --gbs 64 --seq 4096 --memory 32GiB
query --model llama3-70b --cluster dgx-h100:8 --gbs 1024 --seq 8192
query --model llama3.1-405b --cluster dgx-h100:2048 --gbs 16384
query --model llama3-70b --cluster dgx-h100:8 --gbs 1024 --seq 8192 \
  --allow mixed,lowbit,moments,offload
# The same task for each GPU, from 8 of them to 131,072.
for nodes in 1 16 256 4096 16384; do
  query --model llama3-8b --cluster dgx-h100:$nodes --gbs $((128 * nodes)) --seq 8192
done
