#!/bin/sh
# The documents as HTML: each is there, is one complete page with its title, tables and blocks, loads
# nothing from elsewhere, and links only to files that exist. Skipped where configure found no
# generator.
set -u
grep -q "^CMARK='.*[a-z]'" "$top_builddir/config.log" || exit 77
cd "$top_builddir" || exit 99
bad=0

complain () { echo "$*"; bad=1; }

for source in "$top_srcdir"/README.md "$top_srcdir"/python/README.md "$top_srcdir"/docs/*.md "$top_srcdir"/docs/guide/*.md \
  "$top_srcdir"/docs/schema/*.md; do
  name=${source#"$top_srcdir"/} page=${source#"$top_srcdir"/}
  page=${page%.md}.html
  test -e "$page" || { complain "no $page: see documents in Makefile.am"; continue; }
  head -n 1 "$page" | grep -qx '<!DOCTYPE html>' && tail -n 1 "$page" | grep -qx '</html>' ||
    complain "$page: not a whole page"
  grep -qxF "<title>$(sed -n '1s/^# //p' "$source")</title>" "$page" || complain "$page: another title"
  test "$(grep -c '^```' "$source")" -eq $((2 * $(grep -c '<pre>' "$page"))) ||
    complain "$page: other blocks than $name"
  test "$(grep -c '^| *-[- |:]*$' "$source")" -eq "$(grep -c '<table>' "$page")" ||
    complain "$page: other tables than $name"
  grep -nE '<(script|link|img|iframe)|@import|url\(' "$page" && complain "$page: loads something"
  for link in $(grep -oE 'href="[^"#]+' "$page" | sed 's/href="//' | grep -v '^http' | sort -u); do
    test -e "$(dirname "$page")/$link" || test -e "$top_srcdir/$(dirname "$name")/${link%.html}.md" ||
      test -e "$top_srcdir/$(dirname "$name")/$link" || complain "$page: no $link"
  done
done
exit $bad
