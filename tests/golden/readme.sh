#!/bin/sh
# Runs the README's console blocks. A line "$ command" is run in an empty folder; the lines up to the
# next command are exactly what it prints, where a line "..." stands for any lines. Blocks opened
# with "```console no-run" are left alone.
readme=$top_srcdir/README.md
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/work" && cd "$scratch/work" || exit 99
XDG_DATA_HOME=$scratch/data # a store of its own
export XDG_DATA_HOME

# One file pair per command: N.command, N.expected.
awk -v dir="$scratch" '
  /^```console *$/     { inside = 1; next }
  /^```/               { inside = 0; next }
  inside && /^\$ /     { n++; file = sprintf ("%s/%03d", dir, n)
                         print substr ($0, 3) >(file ".command"); printf "" >(file ".expected")
                         next }
  inside && n          { print >(file ".expected") }' "$readme"

# The expected text as a shell pattern: everything literal but "..." lines, which are *.
pattern ()
{
  awk '{ glue = skip; skip = $0 == "..."
         gsub (/[][\\*?]/, "\\\\&")
         printf ("%s%s", NR > 1 && !glue ? "\n" : "", skip ? "*" : $0) }' "$1"
}

n=0 failed=0
for file in "$scratch"/*.command; do
  [ -e "$file" ] || { echo "no console block in $readme"; exit 1; }
  n=$((n + 1))
  sh "$file" </dev/null >"$scratch/out" 2>"$scratch/err"
  status=$?
  case $(cat "$scratch/out") in
    $(pattern "${file%.command}.expected")) test $status -eq 0 && continue ;;
  esac
  failed=$((failed + 1))
  echo "README.md: exit status $status, or not the output shown, from:"
  cat "$file"
  diff -u "${file%.command}.expected" "$scratch/out"
  cat "$scratch/err"
done
echo "$n commands, $failed failed"
test $failed -eq 0
