#!/usr/bin/env bash
# check-words.sh accepts comments that are sentences and names those that are not: check_words_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1

build_house() {
  mkdir -p "$house/src/nought/zero"
  printf '/// The tensors of this rank.\nint own; // those of all ranks\n' >"$house/src/nought/zero/tensors.h"
}

build_house
"$script" "$house" >/dev/null || fail "comments in order were refused"
for line in '/// Those of this rank.' '  // The same for files.' 'void land_updates();' 'bool is_coded(); // the field says quantized'; do
  build_house
  echo "$line" >>"$house/src/nought/zero/tensors.h"
  expect_violation "src/nought/zero/tensors.h:3:$line"
done

echo "every violation is caught"
