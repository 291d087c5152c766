#!/usr/bin/env bash
# Runs the commands of a page in an empty folder: run_page.sh NOUGHT PAGE.md
#
# The commands are those of its ```sh blocks, in one shell. Each line of its ```text blocks must be a line of what they
# print, spaces at the ends aside.
set -euo pipefail
nought=$(realpath "$1")
page=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Lines between ```$1 and ```.
blocks() { awk -v kind="$1" '/^```/ { inside = $0 == "```" kind; next } inside' "$page"; }

mkdir "$folder/bin" "$folder/work"
ln -s "$nought" "$folder/bin/nought"
blocks sh >"$folder/commands.sh"
[[ -s $folder/commands.sh ]] || { echo "run_page: error: $page has no commands" >&2; exit 1; }
cd "$folder/work"
PATH="$folder/bin:$PATH" bash -euo pipefail "$folder/commands.sh" 2>&1 | tee "$folder/printed"

sed -E 's/^[[:space:]]+|[[:space:]]+$//g' "$folder/printed" >"$folder/lines"
missing=0
while IFS= read -r line; do
  line=$(sed -E 's/^[[:space:]]+|[[:space:]]+$//g' <<<"$line")
  [[ -z $line ]] || grep -qxF -- "$line" "$folder/lines" ||
    { echo "run_page: error: $page promises a line that was not printed: $line" >&2; missing=1; }
done < <(blocks text)
exit "$missing"
