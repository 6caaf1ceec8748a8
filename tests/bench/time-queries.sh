#!/bin/sh
# Seconds that searches take, and how many plans and schedules they go through. A search that is not
# done after two minutes is interrupted, and says so: its answers are the best so far.
program=$1
# query ARGUMENTS
query ()
{
  echo "query $*:"
  timeout --signal=INT 120 "$program" query --no-keep "$@" 2>/dev/null | tail -n 2 | sed 's/^/  /'
}
query --model llama3.2-1b --cluster rtx4090:1 --gbs 64 --seq 4096 --memory 32GiB
query --model llama3-70b --cluster dgx-h100:8 --gbs 1024 --seq 8192
query --model llama3.1-405b --cluster dgx-h100:2048 --gbs 16384
query --model llama3-70b --cluster dgx-h100:8 --gbs 1024 --seq 8192 \
  --allow mixed,lowbit,moments,offload
