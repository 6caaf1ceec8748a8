#!/bin/sh
# There is a manual page for the program and for every command. It has the command's summary and
# options, names the pages of all other commands, and man reads it without a warning. Skipped where
# help2man made no pages.
set -u
cd "${top_builddir:-.}" || exit 99
test -e fsdplan.1 || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; bad=1; }

# The programs that "fsdplan run" replaces itself by have pages of their own, which name no others.
is_other_name () { case $1 in fsdplan-exec-*) return 0 ;; esac; return 1; }

fsdplan __complete "" >"$work/commands"
while IFS="$(printf '\t')" read -r command summary; do
  page=fsdplan-$command.1
  test "$command" = help && continue
  test -e "$page" || { complain "no $page: see cli/local.mk"; continue; }
  tr -d '\\' <"$page" >"$work/plain"
  grep -qxF "fsdplan-$command - $summary" "$work/plain" || complain "$page: another summary"
  for option in $(fsdplan "$command" --help | grep -oE -e '--[a-z-]+=' | sort -u); do
    sed 's/f[BIRP],*//g' "$work/plain" | grep -qF -e "$option" || complain "$page: no $option"
  done
  for other in fsdplan.1 fsdplan-*.1; do
    test "$other" = "$page" || is_other_name "$other" ||
      grep -qF "fsdplan\\-$command (1)" "$other" || complain "$other does not name $page"
  done
done <"$work/commands"

# mandoc knows no date without a day, which is how help2man writes it.
for page in fsdplan.1 fsdplan-*.1; do
  is_other_name "$page" && continue
  if command -v man >/dev/null; then
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" >/dev/null 2>"$work/err"
    test ! -s "$work/err" || complain "$page: $(cat "$work/err")"
  fi
  if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$page" | grep -v "cannot parse date" >"$work/err"
    test ! -s "$work/err" || complain "$page: $(cat "$work/err")"
  fi
done
exit $bad
