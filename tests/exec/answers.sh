#!/bin/sh
# From a question to a job: emit writes what starts every answer of query, for each stack and for
# several models and clusters, or the answer runs here. Answers that hazards forbid are never given.
set -u
unset FSDPLAN_DEBUG_CHECK # of every schedule that a search tries
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0 n=0

complain () { echo "$*"; cat "$work/err"; bad=1; }

# ids MODEL CLUSTER OPTION...: prints the numbers of the best answers.
ids () {
  model=$1 cluster=$2
  shift 2
  fsdplan query --model "$model" --cluster "$cluster" --db "$work/plans.db" --top 3 --format=csv "$@" \
    2>"$work/err" | sed -n 's/^[0-9]*,@\([0-9]*\),.*/\1/p'
}

# emits MODEL CLUSTER GBS SEQ OPTION...: there are answers, and emit writes each of them.
emits () {
  model=$1 cluster=$2 gbs=$3 seq=$4
  shift 4
  answers=$(ids "$model" "$cluster" --gbs "$gbs" --seq "$seq" "$@")
  test -n "$answers" || complain "no answer: $model $cluster $*"
  for id in $answers; do
    n=$((n + 1))
    fsdplan emit --plan "@$id" --db "$work/plans.db" >"$work/out" 2>"$work/err" \
      || complain "not written: @$id of $model $cluster $*"
    ! grep -q 'changes what is learned\|cannot be run yet' "$work/out" || complain "hazard: $model $*"
    case $* in
      *stack=native*) grep -q -e '--backend cuda' "$work/out" || complain "no backend: $model $*" ;;
    esac
  done
}

for stack in megatron-fsdp megatron fsdp2 fsdp1 nanotron native; do
  model=llama3.2-1b
  test $stack != nanotron || model=llama2-7b # its llama supports no scaled positions
  emits $model dgx-a100:2 64 4096 --set stack=$stack
done
emits deepseek-v3 dgx-b200:32 2048 4096
if [ "${FSDPLAN_SHARE:-1}" = 1 ]; then
  for model in mixtral-8x7b qwen2-57b-a14b qwen3-30b-a3b deepseek-v2-lite glm-4.5-air gpt-oss-20b; do
    emits $model dgx-h100:8 512 4096
  done
  for stack in megatron-fsdp megatron fsdp2 fsdp1 nanotron native; do
    emits llama3-8b dgx-h100:1 64 4096 --set stack=$stack
  done
  for stack in megatron-fsdp megatron fsdp2 fsdp1; do
    emits gpt2 h100-80gb:1 32 1024 --set stack=$stack
  done
  for stack in megatron-fsdp fsdp2; do
    emits llama3-70b dgx-h100:8 512 4096 --set stack=$stack
    emits gemma2-9b dgx-b200:1 32 4096 --set stack=$stack --allow lowbit,moments,mixed --set tp=1
  done
fi

# An answer for this machine is not written, but run, on as many ranks as it is for.
for id in $(ids llama-tiny local-cpu:2 --gbs 8 --seq 32 --set stack=native); do
  n=$((n + 1))
  fsdplan run --plan "@$id" --db "$work/plans.db" --steps 1 >"$work/out" 2>"$work/err" \
    && grep -q 'with 2 ranks' "$work/out" || complain "does not run: @$id"
done
echo "$n answers"
test $n -ge 15 || complain "too few answers"
exit $bad
