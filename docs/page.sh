#!/bin/sh
# page.sh CMARK STYLE FILE.md: the document as a page of HTML. It loads nothing; links to other
# documents become links to their pages. Its first line leads to the guide and its neighbours.
set -eu
name=${3#"${0%docs/page.sh}"}
up=$(printf '%s' "$name" | sed 's,[^/]*$,,; s,[^/]*/,../,g')
title=$(sed -n '1s/^# //p' "$3" | sed 's/&/\&amp;/g; s/</\&lt;/g')
cat <<END
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
$(cat "$2")
</style>
</head>
<body>
<nav><a href="${up}README.html">fsdplan</a> <a href="${up}docs/guide/README.html">Guide</a>
<a href="${up}docs/glossary.html">Glossary</a> <a href="${up}CHANGES.html">Changes</a></nav>
END
"$1" --to html --extension table --extension autolink "$3" |
  sed 's/href="\([^":]*\)\.md\(#[^"]*\)\{0,1\}"/href="\1.html\2"/g'
printf '</body>\n</html>\n'
