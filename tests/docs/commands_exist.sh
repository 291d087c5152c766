#!/usr/bin/env bash
# Every command and flag that README.md and docs/ show is one that the program has: commands_exist.sh NOUGHT ROOT
#
# They are what follows the word nought in `...`, in indented lines and between ``` lines.
set -euo pipefail
nought=$(realpath "$1") root=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$root"

shown() {
  awk '/^```/ { inside = !inside; next } inside || /^    / { print FILENAME ": " $0 }' README.md docs/*.md
  for page in README.md docs/*.md; do
    awk '/^```/ { inside = !inside; next } !inside && !/^    /' "$page" | tr '\n' ' ' | grep -oE '`[^`]*`' | tr -d '`' | sed "s|^|$page: |"
  done
}
# PAGE: nought COMMAND [SUBCOMMAND] FLAG, each once; what comes behind | > ; and # is of another command
shown | sed -nE 's/^([^:]*): (.*[ \/(])?nought ([a-z]+)( [^|>;#]*)?([|>;#].*)?$/\1 \3\4/p' |
  awk '{ line = $1 " " $2; first = 3
         if ($2 == "bench" || $2 == "data" || $2 == "init" || $2 == "help") { if ($3 ~ /^[a-z]+$/) line = line " " $3; first = 4 }
         print line
         for (i = first; i <= NF; ++i) if ($i ~ /^--[a-z][a-z-]*$/ || $i ~ /^--[a-z][a-z-]*=/) { sub("=.*", "", $i); print line " " $i } }' |
  sort -u >"$work/uses"
[[ $(wc -l <"$work/uses") -gt 50 ]] || { echo "commands_exist: error: the pages show no commands" >&2; exit 1; }

wrong=0
while read -r page command rest; do
  [[ $command == help ]] && continue
  subcommand=${rest%% *} flag=${rest##* }
  [[ $subcommand == --* ]] && subcommand=
  help=$work/$command-$subcommand
  [[ -f $help ]] || "$nought" help "$command" $subcommand >"$help" 2>&1 ||
    { echo "commands_exist: error: $page: there is no command $command $subcommand" >&2; wrong=1; }
  [[ $flag != --* ]] || grep -qE -- "(^|[ ,])$flag([ ,=]|$)" "$help" ||
    { echo "commands_exist: error: $page: nought $command $subcommand has no flag $flag" >&2; wrong=1; }
done <"$work/uses"
exit $wrong
