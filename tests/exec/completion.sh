#!/bin/sh
# Completion of words: the program's own answers, and bash, zsh and fish by their installed scripts.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; bad=1; }

# offers WORDS WANTED: checks that each wanted word is offered for the last of WORDS ("," stands for an
# empty word).
offers () {
  set -f
  set -- "$2" $1
  wanted=$1
  shift
  for word; do
    shift
    test "$word" = , && word=
    set -- "$@" "$word"
  done
  fsdplan __complete "$@" >"$work/out" 2>"$work/err" </dev/null || complain "fails: $*"
  test ! -s "$work/err" || complain "complains: $*: $(cat "$work/err")"
  for w in $wanted; do
    cut -f 1 "$work/out" | grep -qxF -- "$w" || complain "no '$w' for: $*"
  done
  set +f
}

offers "s" "show sim"
offers "," "show sim diff lower plot run db help completion"
offers "-" "--help --version"
offers "help di" "diff"
offers "completion ," "bash zsh fish --help"
offers "show --mo" "--model --model-keys"
offers "show --model llama3-" "llama3-8b llama3-70b"
offers "show --model=llama3-" "--model=llama3-8b"
offers "show --model layers=4,hi" "layers=4,hidden="
offers "show --model family=qw" "family=qwen2 family=qwen3_moe"
offers "show --cluster dgx" "dgx-h100"
offers "sim --set stra" "strategy="
offers "sim --set strategy=optim" "strategy=optim strategy=optim_grads_params"
offers "sim --set=strategy=no" "--set=strategy=no_shard"
offers "sim --set recompute_modules=mlp+core" "recompute_modules=mlp+core_attn"
offers "sim --sweep recompute=none,f" "recompute=none,full"
offers "sim --model --set stack=meg" "" # --set is the model's value here
offers "sim --format ," "table csv json"
offers "sim --color ," "auto always never"
offers "plot mem" "memory"
offers "emit --as m" "megatron"
offers "emit --as=f" "--as=fsdp2 --as=fsdp1"
offers "emit --runtime ," "stack megatron fsdplan"
offers "plot --run 3 time" "timeline"
offers "db ," "list show export import delete check path"
offers "db list --kind me" "measurements"
offers "run --comm ," "self threads mpi"
offers "diff --to mbs=1 --db ," ""
offers "sim --set nonsense=" ""

# Every command and every option that help lists is offered.
for command in $(fsdplan __complete "" | cut -f 1); do
  test $command = help && continue
  for option in $(fsdplan $command --help | grep -oE '^ *(-[a-z], )?--[a-z0-9-]+' | grep -oE '\-\-[a-z0-9-]+'); do
    offers "$command $option" "$option"
  done
done

# The words as bash splits them at = and :, and what it then inserts.
if command -v bash >/dev/null; then
  fsdplan completion bash >"$work/fsdplan.bash"
  cat >"$work/try.bash" <<'END'
source "$1"
# try LINE: prints what the word at the end of LINE is completed to.
try ()
{
  COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=() COMPREPLY=()
  local word
  for word in $1; do
    while [[ $word =~ ^([^=:]*)([=:])(.*)$ ]]; do
      [[ -n ${BASH_REMATCH[1]} ]] && COMP_WORDS+=("${BASH_REMATCH[1]}")
      COMP_WORDS+=("${BASH_REMATCH[2]}")
      word=${BASH_REMATCH[3]}
    done
    [[ -n $word ]] && COMP_WORDS+=("$word")
  done
  [[ $1 == *[\ =:] ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _fsdplan
  printf '%s: %s\n' "$1" "${COMPREPLY[*]}"
}
cd "${1%/*}" && touch plan-a.txt plan-b.txt
while IFS= read -r line; do try "$line"; done
END
  cat >"$work/wanted" <<'END'
fsdplan s: show sim
fsdplan sim --set strat: strategy=
fsdplan sim --set strategy=optim_: optim_grads optim_grads_params
fsdplan sim --set=strategy=no: no_shard
fsdplan sim --set strategy=no_shard --for: --format
fsdplan db : list show export import delete check path --kind --format --dry-run --repair --db --color --quiet --verbose --help
fsdplan show --model=llama3-: llama3-8b llama3-70b
fsdplan show --model layers=4,hid: 4,hidden=
fsdplan diff plan-a: plan-a.txt
fsdplan sim --plan=plan-b: plan-b.txt
END
  sed 's/: .*//' "$work/wanted" |
    bash --norc "$work/try.bash" "$work/fsdplan.bash" >"$work/got" 2>"$work/err" ||
    complain "bash fails"
  test ! -s "$work/err" || complain "bash complains: $(cat "$work/err")"
  diff "$work/wanted" "$work/got" || complain "bash completes otherwise"
fi
if command -v zsh >/dev/null; then
  fsdplan completion zsh >"$work/_fsdplan"
  zsh -n "$work/_fsdplan" || complain "zsh cannot read its script"
fi

if command -v fish >/dev/null; then
  fsdplan completion fish >"$work/fsdplan.fish"
  cat >"$work/wanted" <<'END'
fsdplan s: show sim
fsdplan sim --set strategy=optim_: strategy=optim_grads strategy=optim_grads_params
fsdplan sim --set=strategy=no: --set=strategy=no_shard
fsdplan show --model=llama3-: --model=llama3-8b --model=llama3-70b
fsdplan diff plan-a: plan-a.txt
fsdplan sim --plan=plan-b: --plan=plan-b.txt
END
  (
    cd "$work" && touch plan-a.txt plan-b.txt
    sed 's/: .*//' wanted | while IFS= read -r line; do
      HOME=$work fish --no-config -c "source fsdplan.fish; complete -C '$line'" </dev/null >got-one 2>>fish-err
      echo "$line: $(cut -f 1 got-one | tr '\n' ' ' | sed 's/ $//')"
    done >got
  )
  test ! -s "$work/fish-err" || complain "fish complains: $(cat "$work/fish-err")"
  diff "$work/wanted" "$work/got" || complain "fish completes otherwise"
fi

test $bad = 1 && exit 1
command -v bash >/dev/null || exit 77
