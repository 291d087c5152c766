#!/usr/bin/env bash
# Pages of nought report in headless Chromium: scripts/page-test.sh [FOLDER]
#
# Makes runs and their pages, then holds what docs/report.md promises by scripts/page-test.py: a run that was resumed twice on 2
# ranks, one that ended with a value that is not finite, one that was killed, one without a step, one of 100,000 steps, eight
# in one page, and a run and a title that are markup. Screenshots and pages lie in FOLDER, by default build/page-test. Needs
# chromium, python3 and build/release/bin/nought.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=${1:-build/page-test}
nought=$PWD/build/release/bin/nought

fail() {
  echo "page-test: error: $*" >&2
  exit 1
}
command -v chromium >/dev/null || fail "chromium is not installed: apt install chromium"
command -v python3 >/dev/null || fail "python3 is not installed"
[[ -x $nought ]] || fail "there is no build/release/bin/nought: scripts/build.sh"

rm -rf "$work"
mkdir -p "$work"
train() {
  local settings=(model.num_hidden_layers=1 data.seq_length=32 'data.files=["examples/generate.cpp"]' training.bf16=false
    deepspeed.bf16.enabled=false training.logging_steps=1 training.save_steps=4 training.output_dir="$work/resumed"
    training.max_steps="$1")
  OMP_NUM_THREADS=1 "$nought" train examples/quickstart.json --ranks 2 "${settings[@]/#/--set=}" "${@:2}" >"$work/log" 2>&1 ||
    fail "training: $(tail -3 "$work/log")"
}
train 6
train 10 --resume
train 14 --resume

python3 - "$work" <<'END'
import json, math, pathlib, shutil, sys
work = pathlib.Path(sys.argv[1])
record = json.loads((work / "resumed/run_record.json").read_text())
def run(name, steps, change=lambda line: line, **facts):
    folder = work / name
    folder.mkdir()
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            line = {"step": step, "loss": 2 + 3 * math.exp(-step / (steps / 5)) + 0.1 * math.sin(7 * step), "grad_norm": 1 + 0.5 * math.cos(step),
                    "lr": 1e-3 * min(1, step / 100), "tokens_per_second": 1000 + step % 7, "mfu": 0.25, "bytes_sent": 64, "time": 1000 + step, "skipped": False}
            file.write(json.dumps(change(line)) + "\n")
    (folder / "run_record.json").write_text(json.dumps({**record, **facts}))
run("long", 100000)
def nan(line):
    return {**line, "loss": None, "nonfinite": "loss of rank 1"} if line["step"] > 17 else line
run("nan", 20, nan, status="failed", error="the loss of rank 1 is not finite")
run("killed", 9, status="running")
run("empty", 0)
for number in range(8): run(f"run {number}", 200, lambda line: {**line, "loss": line["loss"] + number / 10})
run("<img src=x onerror=alert(1)>", 5)
END

cd "$work"
page() {
  local file=$1
  shift
  "$nought" report "$@" -o "$file" >log || fail "nought report $file"
}
page resumed.html resumed
page nan.html nan
page killed.html killed
page empty.html empty
page long.html long
page eight.html run\ *
page markup.html '<img src=x onerror=alert(1)>' resumed --title '</script><img src=x>'
(($(stat -c %s long.html) < 5000000)) || fail "100,000 steps are a page of more than 5 MB"
python3 "$OLDPWD/scripts/page-test.py" . resumed.html nan.html killed.html empty.html long.html eight.html markup.html
