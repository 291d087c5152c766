#!/usr/bin/env bash
# Holds that comments are sentences in the field's words: scripts/check-words.sh [ROOT]
#
# A comment does not begin with Of, Those, That of or The same, and the words that docs/design.md gave up for the field's
# do not come back as names. One line per violation; exits with 1 if there is any.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
folders=() && for each in src tests bench examples; do if [[ -d $each ]]; then folders+=("$each"); fi; done
begins='^[[:space:]]*(//+|\*) (Of|Those|That of|The same)\b'
given_up='\b(rehears\w*|Rehears\w*|home_on|rides|land_\w+|landed_?|update_served|Sign(Encode|Decode|Exchange|Mean)|is_coded|keep_as_codes|begin_beside|OwnTensor)\b'
if grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' -e "$begins" -e "$given_up" "${folders[@]}"; then
  echo "check-words: error: say what a comment is about, and the field's word (docs/design.md, Words)" >&2
  exit 1
fi
echo "check-words: comments begin with what they are about"
