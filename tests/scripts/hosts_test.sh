#!/usr/bin/env bash
# Two hosts of two ranks train as one host of four, to the bit; a host that dies is named: hosts_test.sh HOSTS NOUGHT
#
# Exit code 77, for skipped, with a line that says why, where namespaces cannot be made.
set -euo pipefail
hosts=$1 nought=$2
skip() {
  echo "hosts_test: SKIPPED, no host was tried: $*" >&2
  exit 77
}
((EUID == 0)) || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip is not installed (apt-get install iproute2)"
unshare --net --uts --ipc --mount true 2>/dev/null || skip "this machine or container allows no namespaces (docker run --privileged)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() {
  echo "hosts_test: $*" >&2
  exit 1
}
for i in $(seq 200); do echo "The capital of country $i is a city, and a spider says hello to $i cats."; done >book.txt
cat >run.json <<'END'
{
  "model": {"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 64},
  "data": {"files": ["book.txt"], "tokenizer": "bytes", "seq_length": 32},
  "training": {"max_steps": 6, "per_device_train_batch_size": 2, "learning_rate": 3e-3, "save_steps": 1000},
  "deepspeed": {"zero_optimization": {"stage": 3}}
}
END
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
"$nought" train run.json --ranks 4 --quiet --set training.output_dir=one >one.log 2>&1 || fail "$(tail -3 one.log)"
"$hosts" 2 bash -c "\"$nought\" train run.json --hostfile \"\$HOSTS_FILE\" --quiet --set training.output_dir=two" \
  >two.log 2>&1 </dev/null || fail "$(tail -3 two.log)"
cmp one/model.safetensors two/model.safetensors || fail "two hosts have other bits than one"

# The doctor measures the link between them, and names a host that cannot be reached.
"$hosts" 2 bash -c "\"$nought\" doctor run.json --hostfile \"\$HOSTS_FILE\" && { echo \"h3 slots=1\" >>\"\$HOSTS_FILE\"
  ! \"$nought\" doctor run.json --hostfile \"\$HOSTS_FILE\"; }" >doctor.log 2>&1 </dev/null || true
grep -q "^h1  ok .*to h2 .* ms and .*B/s" doctor.log || fail "no link is measured: $(cat doctor.log)"
grep -q "^h3  wrong  it cannot be asked" doctor.log || fail "an unknown host is not named: $(cat doctor.log)"

# A host dies.
"$hosts" 2 --slots 1 bash -c "
  \"$nought\" train run.json --hostfile \"\$HOSTS_FILE\" --set training.output_dir=dies --set training.max_steps=100000 &
  until grep -q '\"step\": *5,' dies/metrics.jsonl 2>/dev/null; do sleep 0.05; done
  \"\$HOSTS_DIR/kill\" h2
  code=0; wait \$! || code=\$?
  left=\$(\"\$HOSTS_DIR/processes\" h1 | wc -l)
  exit \$code" >dies.log 2>&1 </dev/null && fail "a run without one of its hosts ended with 0"
grep -q "h2" dies.log || fail "the host that died is not named: $(tail -3 dies.log)"
