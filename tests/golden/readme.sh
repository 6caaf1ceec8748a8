#!/bin/sh
# Runs the console blocks of README.md and docs/, each file in a folder of its own with examples/ in
# it. A line "$ command" is run; the lines up to the next command are exactly what it prints, where a
# line "..." stands for any lines. In blocks opened with "```console like", for output with times in it, a line
# begins with the word that is shown, a number with any, and more lines may come between. Blocks
# opened with "```console no-run" are left alone.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# One file pair per command: N.command, N.expected or N.like.
split ()
{
  awk -v dir="$2" '
    /^```console *(like)? *$/ { inside = 1; end = /like/ ? ".like" : ".expected"; next }
    /^```/                    { inside = 0; next }
    inside && /^\$ /          { n++; file = sprintf ("%s/%03d", dir, n)
                                print substr ($0, 3) >(file ".command"); printf "" >(file end)
                                next }
    inside && n               { print >(file end) }' "$1"
}

# The expected text as a shell pattern: everything literal but "..." lines, which are *.
pattern ()
{
  awk '{ glue = skip; skip = $0 == "..."
         gsub (/[][\\*?]/, "\\\\&")
         printf ("%s%s", NR > 1 && !glue ? "\n" : "", skip ? "*" : $0) }' "$1"
}

# like FILE OUTPUT: the lines of FILE come in OUTPUT in their order, by their first words; blank lines
# do not count.
like ()
{
  awk 'function word(text) { return text ~ /^[0-9.]+$/ ? "a number" : text }
       NR == FNR { if (NF) wanted[++n] = word($1); next }
       i < n && word($1) == wanted[i + 1] { i++ }
       END { exit (i < n) }' "$1" "$2"
}

n=0 failed=0
COLUMNS=80 # of pictures
export COLUMNS
unset FSDPLAN_DEBUG_CHECK # of every schedule that a search tries
cd "$top_srcdir" || exit 99
for file in README.md docs/*.md docs/guide/*.md; do
  name=$(echo "${file%.md}" | tr / -)
  mkdir -p "$scratch/$name/work" && cd "$scratch/$name/work" && ln -s "$top_srcdir/examples" . || exit 99
  XDG_DATA_HOME=$scratch/$name/data # a store of its own
  export XDG_DATA_HOME
  split "$top_srcdir/$file" "$scratch/$name"
  for command in "$scratch/$name"/*.command; do
    [ -e "$command" ] || continue
    grep -q "^fsdplan plot" "$command" && ! command -v gnuplot >/dev/null && continue
    n=$((n + 1)) expected=${command%.command}.expected
    sh "$command" </dev/null >"$scratch/out" 2>"$scratch/err"
    status=$?
    if [ -e "$expected" ]; then
      case $(cat "$scratch/out") in
        $(pattern "$expected")) test $status -eq 0 && continue ;;
      esac
    else
      expected=${command%.command}.like
      like "$expected" "$scratch/out" && test $status -eq 0 && continue
    fi
    failed=$((failed + 1))
    echo "$file: exit status $status, or not the output shown, from:"
    cat "$command"
    diff -u "$expected" "$scratch/out"
    cat "$scratch/err"
  done
  [ "$name" != README ] || [ $n -gt 0 ] || { echo "no console block in README.md"; exit 1; }
done
echo "$n commands, $failed failed"
test $failed -eq 0
