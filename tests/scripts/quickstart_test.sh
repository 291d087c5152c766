#!/usr/bin/env bash
# quickstart.sh goes from nothing to generated text, says what it does, and ends with one line where it cannot; with
# stand-ins for installing and building: quickstart_test.sh SCRIPTS NOUGHT RUN.json
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
scripts=$1 nought=$2 run=$3
mkdir -p "$house/scripts" "$house/build/release/bin" "$house/examples" "$house/elsewhere"
cp "$scripts/quickstart.sh" "$scripts/progress.sh" "$house/scripts"
cp "$run" "$house/examples/quickstart.json"
ln -s "$nought" "$house/build/release/bin/nought"
for script in install-deps.sh build.sh; do
  printf '#!/bin/sh\necho "$(basename "$0") $*" >>"%s/ran"\n' "$house" >"$house/scripts/$script"
  chmod +x "$house/scripts/$script"
done
for i in {1..300}; do echo "int line_$i = $((i % 7));"; done >"$house/text.h"

small=(--set 'data.files=["'"$house"'/text.h"]' --set model.num_hidden_layers=1 --set model.hidden_size=32
  --set model.intermediate_size=32 --set training.max_steps=150)
# quickstart CODE [OPTION]...: it ends with this exit code, from another folder and without a terminal.
quickstart() {
  local code=$1 status=0
  shift
  (cd "$house/elsewhere" && ../scripts/quickstart.sh "${small[@]}" "$@") </dev/null >"$house/out.txt" 2>&1 || status=$?
  [[ $status -eq $code ]] || fail "exit code $status, expected $code: $(<"$house/out.txt")"
}
shown() { grep -Eq -- "$1" "$house/out.txt" || fail "not shown: $1 in $(<"$house/out.txt")"; }

for _ in first second; do
  quickstart 0
  shown '^note: all 150 steps, about .* as 4m00s is enough'
  shown '^step +150/150 '
  for phase in install build train generate 'in all'; do shown "^$phase +[0-9]+s\$"; done
  shown '^The first training step was made [0-9]+s after the start\.$'
  shown "^What to do next in $house:"
  ! grep -q $'\r' "$house/out.txt" || fail "carriage returns without a terminal"
done
[[ $(sort -u "$house/ran" | paste -sd '|') == 'build.sh release nought|install-deps.sh ' ]] || fail "ran $(<"$house/ran")"

# What it says can be done next can be done.
cd "$house"
mkdir docs && cp text.h docs/own.md
for each in 'generate again' 'talk to it' 'go on to step 1200' 'train on your text' 'look at the losses'; do
  command=$(sed -n "s/^  $each  *//p" out.txt)
  [[ -n $command ]] || fail "no command for: $each"
  [[ $command != *' train '* ]] || command+=" $(printf '%q ' "${small[@]}")"
  [[ $command != *own* ]] || command=${command//text.h/docs\/own.md}
  [[ $command != *resume* ]] || command+=' --set training.max_steps=152'
  bash -c "$command" </dev/null >next.txt 2>&1 || fail "$command: $(<next.txt)"
done

# A phase that fails is named, with what it said.
printf '#!/bin/sh\necho "no compiler" >&2\nexit 3\n' >scripts/build.sh
quickstart 1
shown '^no compiler$'
shown '^quickstart: error: build failed, for the reason above'
rm -r out
echo "a file" >out
quickstart 1
[[ $(<out.txt) == "quickstart: error: cannot write to "* && $(wc -l <out.txt) -eq 1 ]] || fail "$(<out.txt)"
