#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The best plan for each length of sequence, a line each: sh examples/sweep.sh llama3-8b dgx-h100:1 128
set -eu
test $# -eq 3 || { echo "usage: sweep.sh MODEL CLUSTER GBS" >&2; exit 2; }
head=yes
for seq in 2048 4096 8192; do
  rows=$(fsdplan query --model "$1" --cluster "$2" --gbs "$3" --seq $seq --top 1 --no-keep --format=csv)
  test $head = no || echo "seq,$(echo "$rows" | head -n 1)"
  head=no
  echo "$rows" | tail -n +2 | sed "s/^/$seq,/"
done
