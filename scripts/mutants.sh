#!/usr/bin/env bash
# Puts known mistakes into the code, one at a time, and tells which of them the tests catch.
#
#   scripts/mutants.sh              all mistakes; at the end a table by folder, and what survived
#   scripts/mutants.sh NAME...      these only; a name may be a shell pattern: 'zero/*'
#   scripts/mutants.sh --resume     leaves out what has an outcome from an earlier run, so that parts add up (also with NAME...)
#   scripts/mutants.sh --table      only prints the outcomes so far
#   scripts/mutants.sh --check      only tells whether every edit still applies; takes seconds
#   scripts/mutants.sh --list       names and what the mistakes are
#
# The mistakes are in scripts/mutants/*.txt, one file per folder of src/nought:
#
#   [name] PROGRAM FILTER           the test program and the --gtest_filter that should catch it; ctest:REGEX names tests of
#                                   CTest in place of a filter
#   What is wrong, in words.
#   survives: why no test tells     only where that is known: it does not fail the run
#     old code => new code          indented, on one line or several
#
# The old code must be there exactly once in the folder, in whatever file. It is compared token by token: white space, line
# breaks and comments do not matter. Where it needs one, a place stands before it:
#
#     in Reducer::finish: old => new          in the definitions of a function or class of this name
#     in comm/: old => new                    in another folder than the list's own
#     in comm/Reduction::run: old => new
#
# The tree itself is never changed, and a mistake costs the compilation of one file: the changed file is compiled beside the
# tree, and linked before what is built of the house in MUTANTS_BUILD, by default build/release (scripts/mutants.pl). That has
# to be a build by g++. Outcomes and logs are kept in MUTANTS_DIR, by default build/mutants. MUTANTS_JOBS mistakes are tried at
# a time, by default one for each core.
# Exit code: 0 if all mistakes are caught; 1 if one survives; 2 if an edit does not apply or compile, a test fails
# without any mistake, or a build is interrupted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
top=${MUTANTS_DIR:-$root/build/mutants}
build=${MUTANTS_BUILD:-$root/build/release}
jobs=${MUTANTS_JOBS:-$(nproc)}
outcomes=$top/outcomes # a line for each: name, outcome, seconds
clean=$top/clean       # tests that pass without a mistake: program, filter, seconds
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

fail() {
  echo "mutants: error: $*" >&2
  if [[ -f $top/queue ]]; then : >"$top/queue"; fi # the other jobs end after what they do now
  exit 2
}

# --- the list ---

names=()
declare -A file program filter survives what
read_lists() {
  local name path test pattern why words list
  list=$(perl scripts/mutants.pl list)
  while IFS=$'\t' read -r name path test pattern why words; do
    names+=("$name")
    file[$name]=$path program[$name]=$test filter[$name]=$pattern survives[$name]=${why#-} what[$name]=$words
  done <<<"$list"
}

# --- building and testing ---

# Runs the rest of the arguments and adds what they print to the log of this job. What else than the code has ended a build
# ends the script: ninja takes an interruption for itself and leaves with an exit code like any other, so its words decide.
not_compiled='interrupted by user|signal terminated program|unable to execute command|No space left on device|memory exhausted'
builds() {
  local log=$1 output code=0
  shift
  output=$("$@" 2>&1) || code=$?
  printf '%s\n' "$output" >>"$log"
  [[ $code -eq 0 ]] && return
  if ((code > 128)) || grep -Eq "$not_compiled" <<<"$output"; then
    fail "a build was interrupted: see $log"
  fi
  return 1
}

# build_mutant NAME FOLDER: its programs, in FOLDER. The commands run in the build folder.
build_mutant() {
  perl scripts/mutants.pl build "$1" "$2" "$build" || return
  cd "$build"
  tr '\n' '\0' <"$2/compile" | xargs -0 -P "$(nproc)" -n 1 sh -c && sh -e "$2/link"
}

# run_tests LOG FOLDER PROGRAM FILTER SECONDS: runs the tests of the program in FOLDER; ends with the first failure, or after
# so many seconds. Whatever programs the tests start are those in FOLDER, too.
run_tests() {
  local log=$1 folder=$2 test=${3%%+*} pattern=$4 limit=$5 code=0
  local commands=$top/command.$BASHPID # of this job: within a pipeline BASHPID is another one
  if [[ $pattern == ctest:* ]]; then
    ctest --test-dir "$build" -N -V -R "^${pattern#ctest:}\$" |
      sed -n "s|$build/bin/|$folder/|g;s|^[0-9]*: Test command: ||p;s|^[0-9]*:  \([A-Z_]*=.*\)|export '\1'|p" |
      awk '/^export/ { print; next } { commands[++n] = $0 } END { for (i = 1; i <= n; ++i) print commands[i] }' >"$commands"
    timeout --kill-after=10 "$limit" sh -e "$commands" >>"$log" 2>&1 || code=$?
    rm -f "$commands"
  else
    {
      PATH=$top/path:$PATH NOUGHT_BIN=$build/bin MUTANT_BIN=$folder /usr/bin/timeout --kill-after=10 "$limit" \
        "$folder/$test" --gtest_filter="$pattern" --gtest_fail_fast --gtest_brief=1 || code=$?
    } >>"$log" 2>&1 # also what bash says of a program that crashes
  fi
  return "$code"
}

# Tests start programs by timeout(1). This one takes the program with the mistake, if there is one.
make_path() {
  mkdir -p "$top/path"
  cat >"$top/path/timeout" <<'EOF'
#!/usr/bin/env bash
arguments=()
for each in "$@"; do
  if [[ $each == "$NOUGHT_BIN"/* && -e $MUTANT_BIN/${each##*/} ]]; then each=$MUTANT_BIN/${each##*/}; fi
  arguments+=("$each")
done
exec /usr/bin/timeout "${arguments[@]}"
EOF
  chmod +x "$top/path/timeout"
}

# has_tests PROGRAM FILTER: whether each part of the filter matches a test.
has_tests() {
  local part parts
  if [[ $2 == ctest:* ]]; then
    [[ $(ctest --test-dir "$build" -N -R "^${2#ctest:}\$") != *'Total Tests: 0'* ]]
    return
  fi
  IFS=: read -ra parts <<<"$2"
  for part in "${parts[@]}"; do
    [[ $("$build/bin/${1%%+*}" --gtest_list_tests --gtest_filter="$part" 2>/dev/null) == *$'\n  '* ]] || return 1 # an indented name
  done
}

# --- jobs ---

# take: prints the first line of the queue and removes it; fails if there is none. Several jobs may take at once.
take() {
  local line
  (
    flock 9
    line=$(head -n 1 "$top/queue")
    [[ -n $line ]] || exit 1
    sed -i 1d "$top/queue"
    printf '%s\n' "$line"
  ) 9>"$top/queue.lock"
}

# in_jobs COMMAND: runs it as `COMMAND LOG` in each job at once; fails as the last that fails.
in_jobs() {
  local job pids=() pid code=0
  for ((job = 1; job <= jobs; ++job)); do
    "$1" "$top/log.$job" &
    pids+=($!)
  done
  # shellcheck disable=SC2064 # these processes
  trap "kill ${pids[*]} 2>/dev/null; wait; exit 130" INT TERM
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  trap - INT TERM
  [[ $code -eq 0 ]] || exit "$code"
}

# A test that fails without a mistake catches nothing. What passed before is not run again as long as the tree is the same.
check_without_mistakes() {
  local name key targets tree
  [[ -f $build/build.ninja ]] || fail "there is no build in $build: scripts/build.sh makes one"
  tree=$(git ls-files -z -co --exclude-standard -- src tests cmake '*CMake*' | xargs -0 sha1sum 2>/dev/null | sha1sum)
  [[ $(cat "$top/tree" 2>/dev/null) == "$tree" ]] || : >"$clean"
  echo "$tree" >"$top/tree"
  targets=$(for name in "${selected[@]}"; do tr '+' '\n' <<<"${program[$name]}"; done | sort -u)
  # shellcheck disable=SC2086 # one word per target
  builds "$top/log" cmake --build "$build" --parallel --target $targets || fail "the code without mistakes does not build: see $top/log"
  for name in "${selected[@]}"; do
    key=${program[$name]}$'\t'${filter[$name]}
    grep -qF "$key"$'\t' "$clean" || printf '%s\n' "$key"
  done | sort -u >"$top/queue"
  in_jobs check_tests
}

check_tests() {
  local log=$1 line test pattern begin
  while line=$(take); do
    IFS=$'\t' read -r test pattern <<<"$line"
    has_tests "$test" "$pattern" || fail "$test has no test $pattern"
    begin=$SECONDS
    run_tests "$log" "$build/bin" "$test" "$pattern" 600 || fail "$test $pattern fails without a mistake: see $log"
    printf '%s\t%s\t%d\n' "$test" "$pattern" $((SECONDS - begin)) >>"$clean"
  done
}

try_selected() {
  printf '%s\n' "${selected[@]}" >"$top/queue"
  in_jobs try_queue
}

try_queue() {
  local name
  while name=$(take); do try "$1" "$name"; done
}

# The tests of a mistake may take five times as long as without it: one that hangs is caught.
try() {
  local log=$1 name=$2 folder=$top/tried/$2 begin=$SECONDS code=0 outcome=caught usual
  echo "=== $name" >>"$log"
  mkdir -p "$folder"
  usual=$(awk -F '\t' -v test="${program[$name]}" -v pattern="${filter[$name]}" \
    '$1 == test && $2 == pattern { print $3 }' "$clean" | tail -n 1)
  if builds "$log" build_mutant "$name" "$folder"; then
    run_tests "$log" "$folder" "${program[$name]}" "${filter[$name]}" $((60 + 5 * usual)) || code=$?
    [[ $code -ne 0 ]] || outcome=SURVIVED
    [[ $code -ne 124 ]] || outcome='caught (hangs)'
  else
    outcome='NO BUILD'
  fi
  rm -rf "$folder"
  printf '%s\t%s\t%d\n' "$name" "$outcome" $((SECONDS - begin)) >>"$outcomes"
  printf '%-15s %4d s  %s\n' "$outcome" $((SECONDS - begin)) "$name"
}

# --- outcomes ---

declare -A outcome
read_outcomes() {
  local name result seconds
  while IFS=$'\t' read -r name result seconds; do outcome[$name]=$result; done < <(cat "$outcomes" 2>/dev/null)
}

# A line for each folder, then what was not caught. Fails with 1 or 2 as the script does.
print_table() {
  local name folder caught=0 survived=0 known=0 broken=0 missing=0
  local -A all=() by_caught=() by_survived=()
  for name in "${selected[@]}"; do
    folder=${name%%/*}
    all[$folder]=$((${all[$folder]:-0} + 1))
    case ${outcome[$name]:-} in
      caught*) by_caught[$folder]=$((${by_caught[$folder]:-0} + 1)) caught=$((caught + 1)) ;;
      SURVIVED)
        by_survived[$folder]=$((${by_survived[$folder]:-0} + 1))
        if [[ -n ${survives[$name]} ]]; then known=$((known + 1)); else survived=$((survived + 1)); fi
        ;;
      'NO BUILD') broken=$((broken + 1)) ;;
      *) missing=$((missing + 1)) ;;
    esac
  done
  printf '\n| folder | mistakes | caught | survived |\n| --- | ---: | ---: | ---: |\n'
  for folder in $(printf '%s\n' "${!all[@]}" | sort); do
    printf '| `%s` | %d | %d | %d |\n' "$folder" "${all[$folder]}" "${by_caught[$folder]:-0}" "${by_survived[$folder]:-0}"
  done
  printf '| all | %d | %d | %d |\n\n' "${#selected[@]}" "$caught" $((survived + known))
  for name in "${selected[@]}"; do
    case ${outcome[$name]:-} in
      SURVIVED) echo "survived: $name: ${what[$name]}${survives[$name]:+ Known: ${survives[$name]}}" ;;
      'NO BUILD') echo "does not compile: $name, see the logs in $top" ;;
    esac
  done
  [[ $missing -eq 0 ]] || echo "$missing mistakes have not been tried"
  echo "$caught of ${#selected[@]} mistakes are caught ($((100 * caught / ${#selected[@]}))%)"
  [[ $broken -eq 0 ]] || return 2
  [[ $survived -eq 0 ]]
}

# --- main ---

mode=run
case ${1:-} in
  --check) exec perl scripts/mutants.pl check ;;
  --list) mode=list ;;
  --table) mode=table ;;
  --resume) mode=resume ;;
  -h | --help)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) fail "unknown option $1" ;;
esac
[[ $mode == run ]] || shift

read_lists
selected=()
if [[ $# -eq 0 ]]; then selected=("${names[@]}"); fi
for pattern in "$@"; do
  found=0
  for name in "${names[@]}"; do
    # shellcheck disable=SC2053 # a pattern
    [[ $name == $pattern ]] || continue
    found=1
    [[ " ${selected[*]} " == *" $name "* ]] || selected+=("$name")
  done
  [[ $found -eq 1 ]] || fail "no mistake is called $pattern"
done
if [[ $mode == list ]]; then
  for name in "${selected[@]}"; do printf '%-60s %s\n' "$name" "${what[$name]}"; done
  exit 0
fi
wanted=("${selected[@]}")
if [[ $mode != table ]]; then
  perl scripts/mutants.pl check
  mkdir -p "$top"
  touch "$outcomes" "$clean"
  if [[ $mode == run ]]; then
    printf '%s\n' "${selected[@]}" | awk -F '\t' 'NR == FNR { again[$1] = 1; next } !($1 in again)' - "$outcomes" >"$outcomes.new"
    mv "$outcomes.new" "$outcomes"
  else
    read_outcomes
    selected=()
    for name in "${wanted[@]}"; do [[ -n ${outcome[$name]+set} ]] || selected+=("$name"); done
  fi
  if [[ ${#selected[@]} -gt 0 ]]; then
    rm -f "$top"/log*
    make_path
    check_without_mistakes
    try_selected
  fi
  selected=("${wanted[@]}")
fi
read_outcomes
print_table
