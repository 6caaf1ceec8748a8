# bash completion for fsdplan, which says itself what a word can become.
_fsdplan ()
{
  local words=() word line cur reply=() i
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    # bash cuts words at = and : but what is typed without a blank is one word.
    if [[ ${#words[@]} -gt 0 && ($word == [=:]* || ${words[-1]} == *[=:]) ]] &&
      ! [[ -z $word && ${COMP_LINE:0:COMP_POINT} == *[[:blank:]] ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  cur=${words[-1]}
  while IFS= read -r line; do
    if [[ $line == $'\tfiles' ]]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r word; do
        reply+=("${cur%"${cur##*=}"}$word")
      done < <(compgen -f -- "${cur##*=}")
    else
      reply+=("${line%%$'\t'*}")
    fi
  done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
  [[ ${#reply[@]} -eq 1 && ${reply[0]} == *= ]] && compopt -o nospace 2>/dev/null
  # It replaces only what stands behind the last cut.
  i=${cur%"${cur##*[=:]}"}
  [[ $COMP_WORDBREAKS == *[=:]* ]] || i=
  COMPREPLY=("${reply[@]#"$i"}")
}
complete -F _fsdplan fsdplan
