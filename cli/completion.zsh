#compdef fsdplan
# zsh completion for fsdplan, which says itself what a word can become.
_fsdplan ()
{
  local line word cur=${words[CURRENT]}
  local -a plain open texts open_texts
  local has_files=
  for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    word=${line%%$'\t'*}
    if [[ $line == $'\tfiles' ]]; then
      has_files=1
    elif [[ $word == *= ]]; then
      open+=("$word") open_texts+=("$word -- ${line#*$'\t'}")
    elif [[ -n $word ]]; then
      plain+=("$word") texts+=("$word -- ${line#*$'\t'}")
    fi
  done
  (($#plain)) && compadd -l -d texts -a plain
  (($#open)) && compadd -l -S '' -d open_texts -a open
  if [[ -n $has_files ]]; then
    compset -P '*='
    _files
  fi
}
if [[ $funcstack[1] == _fsdplan ]]; then
  _fsdplan "$@"
else
  compdef _fsdplan fsdplan
fi
