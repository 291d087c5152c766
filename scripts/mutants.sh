#!/usr/bin/env bash
# Puts known mistakes into the code, one at a time, and tells which of them the tests catch.
#
#   scripts/mutants.sh              all mistakes; a table and the share that is caught at the end
#   scripts/mutants.sh NAME...      these only; a name may be a shell pattern: 'zero/*'
#   scripts/mutants.sh --check      only tells whether every edit still applies; takes seconds
#   scripts/mutants.sh --list       names and what the mistakes are
#
# The mistakes are in scripts/mutants/*.txt, one file per folder of src/nought:
#
#   [name]                          what is wrong, in words, on the lines below
#   file: src/nought/...            the file that is changed
#   - a line, as it stands there    whole lines, exactly once in the file, one behind the other; a line that begins with
#   + the line with the mistake     a blank stands there before and after
#   test: TARGET FILTER             the test program and the --gtest_filter that should catch it
#   ctest: TARGET REGEX             or the tests of CTest after TARGET was built
#
# Works in a copy of the tracked and new files (MUTANTS_DIR, by default build/mutants), never in the tree itself. The
# copy is kept, so that a second run builds little. MUTANTS_JOBS: compilers at a time, by default one per core.
# Exit code: 0 if all mistakes are caught; 1 if one survives; 2 if an edit does not apply or compile, a test fails
# without any mistake, or a build is interrupted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
copy=${MUTANTS_DIR:-$root/build/mutants}
build=$copy/build/release
log=$copy/mutants.log
jobs=${MUTANTS_JOBS:-$(nproc)}
time_limit=300 # seconds for the tests of one mistake: one that hangs is caught
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

fail() {
  echo "mutants: error: $*" >&2
  exit 2
}

# --- the list ---

names=()
declare -A what file old new runner target filter

read_list() {
  local path=$1 folder name='' line number=0
  folder=$(basename "$1" .txt)
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    case $line in
      '#'*) ;;
      '') ;;
      '['*']')
        name=$folder/${line:1:-1}
        [[ -z ${file[$name]+set} ]] || fail "$path:$number: $name is there twice"
        names+=("$name")
        what[$name]='' file[$name]='' old[$name]='' new[$name]='' runner[$name]='' target[$name]='' filter[$name]=''
        ;;
      'file: '*) file[$name]=${line#file: } ;;
      'test: '* | 'ctest: '*)
        runner[$name]=${line%%: *}
        line=${line#*: }
        target[$name]=${line%% *} filter[$name]=${line#* }
        ;;
      '-'*) old[$name]+=${line:1}$'\n' ;;
      '+'*) new[$name]+=${line:1}$'\n' ;;
      ' '*) old[$name]+=${line:1}$'\n' new[$name]+=${line:1}$'\n' ;;
      *) what[$name]+=${what[$name]:+ }$line ;;
    esac
  done <"$path"
}

read_lists() {
  local path name
  for path in scripts/mutants/*.txt; do read_list "$path"; done
  for name in "${names[@]}"; do
    [[ -n ${what[$name]} ]] || fail "$name does not say what is wrong"
    [[ -n ${file[$name]} ]] || fail "$name names no file"
    [[ -n ${old[$name]} && ${old[$name]} != "${new[$name]}" ]] || fail "$name changes nothing"
    [[ -n ${runner[$name]} && -n ${filter[$name]} ]] || fail "$name names no test"
  done
}

# mutate NAME FILE: prints the file's content with the mistake; fails unless the old lines are there exactly once.
mutate() {
  local name=$1 path=$2 content before rest
  [[ -f $path ]] || { echo "$name: there is no file ${file[$name]}" >&2 && return 1; }
  content=$'\n'$(<"$path")$'\n'
  local lines=$'\n'${old[$name]}
  before=${content%%"$lines"*}
  [[ $before != "$content" ]] || { echo "$name: the old lines are not in ${file[$name]}" >&2 && return 1; }
  rest=${content:${#before}+${#lines}}
  [[ $'\n'$rest != *"$lines"* ]] || { echo "$name: the old lines are more than once in ${file[$name]}" >&2 && return 1; }
  printf '%s' "${before:1}${before:+$'\n'}${new[$name]}$rest"
}

check_edits() {
  local name bad=0
  for name in "${names[@]}"; do mutate "$name" "${file[$name]}" >/dev/null || bad=$((bad + 1)); done
  [[ $bad -eq 0 ]] || fail "$bad of ${#names[@]} edits do not apply"
  echo "mutants: all ${#names[@]} edits apply"
}

# --- the copy ---

# Brings the copy up to date. Files that did not change keep their times, so that nothing is built twice; those that an
# earlier run changed get new ones, for what was built from the mistake may be newer than they are.
update_copy() {
  mkdir -p "$copy"
  git ls-files -z -co --exclude-standard | while IFS= read -r -d '' path; do
    if [[ -e $path ]]; then printf '%s\0' "$path"; fi
  done | sort -z >"$copy/files.new"
  if [[ -f $copy/files ]]; then
    comm -z -23 "$copy/files" "$copy/files.new" | (cd "$copy" && xargs -0 -r rm -f --)
  fi
  mv "$copy/files.new" "$copy/files"
  tar -cf - --null -T "$copy/files" | tar -xf - -C "$copy"
  if [[ -f $copy/changed ]]; then
    while IFS= read -r path; do
      if [[ -e $copy/$path ]]; then touch "$copy/$path"; fi
    done <"$copy/changed"
    rm "$copy/changed"
  fi
  if [[ ! -f $build/build.ninja ]]; then (cd "$copy" && cmake --preset release -DNOUGHT_CUDA=OFF) >>"$log" 2>&1 || fail "see $log"; fi
}

# Fails if the targets do not compile. A build that something else has ended says nothing about the code: it ends the
# script. Ninja takes an interruption for itself and leaves with an exit code like any other, so its words decide.
not_compiled='interrupted by user|signal terminated program|unable to execute command|No space left on device|memory exhausted'
build_targets() {
  local output code=0
  output=$(cmake --build "$build" --parallel "$jobs" --target "$@" 2>&1) || code=$?
  printf '%s\n' "$output" >>"$log"
  [[ $code -eq 0 ]] && return
  if ((code > 128)) || grep -Eq "$not_compiled" <<<"$output"; then
    fail "the build of $* was interrupted: see $log"
  fi
  return 1
}

# run_tests NAME: the tests that should catch the mistake; 3 if there are none of that name.
run_tests() {
  local name=$1 output code=0
  if [[ ${runner[$name]} == test ]]; then
    output=$(timeout --kill-after=10 "$time_limit" "$build/bin/${target[$name]}" --gtest_filter="${filter[$name]}" \
      --gtest_brief=1 2>&1) || code=$?
    [[ $output != *'0 tests from 0 test suites ran'* ]] || code=3
  else
    output=$(timeout --kill-after=10 "$time_limit" ctest --test-dir "$build" -R "^${filter[$name]}\$" \
      --no-tests=ignore 2>&1) || code=$?
    [[ $output != *'No tests were found'* ]] || code=3
  fi
  printf '%s\n' "$output" >>"$log"
  return "$code"
}

# A test that fails without a mistake catches nothing.
check_without_mistakes() {
  local name
  local -A seen=()
  local targets
  targets=$(for name in "${selected[@]}"; do echo "${target[$name]}"; done | sort -u)
  # shellcheck disable=SC2086 # one word per target
  build_targets $targets || fail "the code without mistakes does not build: see $log"
  for name in "${selected[@]}"; do
    local key="${runner[$name]} ${target[$name]} ${filter[$name]}" code=0
    [[ -z ${seen[$key]+set} ]] || continue
    seen[$key]=1
    run_tests "$name" || code=$?
    [[ $code -ne 3 ]] || fail "$name: ${target[$name]} has no test ${filter[$name]}"
    [[ $code -eq 0 ]] || fail "$name: its test fails without the mistake: see $log"
  done
}

# --- one mistake ---

restore() {
  if [[ -n ${changed:-} ]]; then cp "$copy/original.tmp" "$copy/$changed"; fi # with a new time: it is built again
  changed=''
}
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

declare -A outcome seconds
try() {
  local name=$1 begin=$SECONDS code=0
  echo "=== $name" >>"$log"
  mutate "$name" "$copy/${file[$name]}" >"$copy/mutant.tmp" || fail "see above"
  cp "$copy/${file[$name]}" "$copy/original.tmp"
  echo "${file[$name]}" >>"$copy/changed"
  changed=${file[$name]}
  cp "$copy/mutant.tmp" "$copy/$changed"
  outcome[$name]=caught
  if build_targets "${target[$name]}"; then
    run_tests "$name" || code=$?
    [[ $code -ne 0 ]] || outcome[$name]=SURVIVED
    [[ $code -ne 124 ]] || outcome[$name]='caught (hangs)'
  else
    outcome[$name]='NO BUILD'
  fi
  restore
  seconds[$name]=$((SECONDS - begin))
  printf '%-15s %4d s  %s\n' "${outcome[$name]}" "${seconds[$name]}" "$name"
}

print_table() {
  local name caught=0 broken=0
  printf '\n%-60s %-15s %8s  %s\n' mistake outcome seconds 'test program'
  for name in "${selected[@]}"; do
    printf '%-60s %-15s %8d  %s\n' "$name" "${outcome[$name]}" "${seconds[$name]}" "${target[$name]}"
  done
  echo
  for name in "${selected[@]}"; do
    case ${outcome[$name]} in
      SURVIVED) echo "survived: $name: ${what[$name]}" ;;
      'NO BUILD') echo "does not compile: $name, see $log" && broken=$((broken + 1)) ;;
      *) caught=$((caught + 1)) ;;
    esac
  done
  echo "$caught of ${#selected[@]} mistakes are caught ($((100 * caught / ${#selected[@]}))%)"
  [[ $broken -eq 0 ]] || return 2
  [[ $caught -eq ${#selected[@]} ]]
}

# --- main ---

read_lists
case ${1:-} in
  --check) check_edits && exit 0 ;;
  --list)
    for name in "${names[@]}"; do printf '%-60s %s\n' "$name" "${what[$name]}"; done
    exit 0
    ;;
  -h | --help)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) fail "unknown option $1" ;;
esac

selected=()
if [[ $# -eq 0 ]]; then selected=("${names[@]}"); fi
declare -A is_selected=()
for pattern in "$@"; do
  found=0
  for name in "${names[@]}"; do
    # shellcheck disable=SC2053 # a pattern
    [[ $name == $pattern ]] || continue
    found=1
    [[ -n ${is_selected[$name]+set} ]] || selected+=("$name")
    is_selected[$name]=1
  done
  [[ $found -eq 1 ]] || fail "no mistake is called $pattern"
done

check_edits
mkdir -p "$copy"
: >"$log"
update_copy
check_without_mistakes
for name in "${selected[@]}"; do try "$name"; done
print_table
