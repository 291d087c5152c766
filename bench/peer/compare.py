#!/usr/bin/env python3
"""Runs Nought and PyTorch in turn on the same work and prints the ratio of their tokens per second."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import settings
from shapes import SHAPES

WORKS = {
    "W1": ("gpt2", 4, 1024),
    "W2": ("llama", 2, 2048),
    "W3": ("gpt2", 4, 64),
    "W4": ("gpt2", 32, 1024),
    "W5": ("olmoe", 4, 1024),
    "W6": ("qwen3_5", 2, 1024),
    "LORA": ("llama", 2, 512),
}
TAKES_TRANSFORMERS = ["W5", "W6", "LORA"]
LORA_RANK = 16
ON_CPU, ON_GPU = ["W1", "W2", "W3"], ["W4"]  # what is compared unless works are named
ROOT = os.path.normpath(os.path.join(settings.FOLDER, "..", ".."))
NOUGHT = os.path.join(ROOT, "build", "release", "bin", "nought")


def fail(message):
    print(f"compare: error: {message}", file=sys.stderr)
    sys.exit(1)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"compare: error: {message}; bench/compare.sh --help lists the options", file=sys.stderr)
        sys.exit(2)


def run(command, environment, limit=None):
    """(exit code, stdout, last line of stderr); 124 if it was ended after `limit` seconds."""
    environment = {**os.environ, **environment}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return 124, "", f"ended after {limit:.0f} s"
    return done.returncode, done.stdout, (done.stderr.strip() or "no message").splitlines()[-1]


def output_of(command, environment):
    code, output, message = run(command, environment)
    return output if code == 0 else fail(f"{' '.join(command)} ended with {code}: {message}")


def lora_run(dtype):
    """The config.json of the model, and a run that trains what add_adapter() of train_step.py adds to it."""
    model, rows, length = WORKS["LORA"]
    shape = SHAPES[model]
    config = {
        "model_type": "llama", "vocab_size": shape["vocab"], "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"], "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"],
        "max_position_embeddings": length, "tie_word_embeddings": True}
    return config, {
        "adapter": {"r": LORA_RANK, "lora_alpha": 2 * LORA_RANK, "target_modules": "all-linear"},
        "data": {"files": ["none.txt"], "tokenizer": "bytes", "seq_length": length},  # no data is read
        "training": {"max_steps": 10, "per_device_train_batch_size": rows, "learning_rate": 1e-4, "weight_decay": 0.1,
                     "bf16": dtype == "bf16", "output_dir": "out"}}


class Nought:
    def __init__(self, options):
        self.options = options
        self.program = options.nought or NOUGHT
        self.environment = {"OMP_NUM_THREADS": str(options.threads)}
        if options.isa:
            self.environment["NOUGHT_ISA"] = options.isa

    def info(self):
        lines = output_of([self.program, "info"], self.environment).splitlines()
        pairs = [line.strip().split("  ", 1) for line in lines[1:]]
        return lines[0], {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}

    def arguments(self, work):
        """What names the work to `nought bench step`."""
        if work != "LORA":
            return [work, "--dtype", self.options.dtype]
        model, run = lora_run(self.options.dtype)
        folder = os.path.join(settings.BUILT, "lora")  # of a model without weights, which a step of random ones takes
        os.makedirs(folder, exist_ok=True)
        for name, content in (("config.json", model), ("run.json", {"model": folder, **run})):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
        return [os.path.join(folder, "run.json")]

    def step(self, work):
        """Tokens per second, and model FLOPs per token and the matrix peak, which was measured beside the step."""
        command = [self.program, "bench", "step", *self.arguments(work), "--samples", str(self.options.steps)]
        command += ["--device", self.options.device, "--json"]
        figure = json.loads(output_of(command, self.environment))["figures"][0]
        if self.options.device == "cuda":  # whose peak is not known
            return figure["rate"], 0, 0
        rate, limit = figure["rate"], figure["limit"]
        return rate, limit["fraction"] * limit["rate"] / rate, limit["rate"]


class Peer:
    FIRST_LIMIT, COMPILE_LIMIT = 900, 300  # seconds

    def __init__(self, python, options):
        self.python, self.options = python, options
        self.caps = settings.cap(options.isa)
        show = "import torch; print(torch.__version__); print(torch.__config__.show())"
        version, *config = output_of([python, "-c", show], self.caps).splitlines()
        libraries = [line.strip("- ").split(" for ")[0] for line in config if line.startswith("  - Intel(R)")]
        self.version, self.libraries = version, "; ".join(libraries)

    def is_old(self):
        """Debian's, without what PyTorch 2 brought."""
        return self.version.startswith("1.")

    def step(self, work, setting, limit=None):
        """Tokens per second of each step, or none; and what went wrong."""
        model, rows, length = WORKS[work]
        command = [self.python, os.path.join(settings.FOLDER, "train_step.py"), "--model", model, "--rows", str(rows)]
        command += ["--length", str(length), "--steps", str(self.options.steps), "--threads", str(self.options.threads)]
        command += ["--device", self.options.device]
        command += ["--lora", str(LORA_RANK)] if work == "LORA" else []
        environment = {**self.caps, **setting.environment(self.options.threads)}
        code, output, message = run(command + setting.arguments(), environment, limit)
        return (json.loads(output)["tokens_per_second"], "") if code == 0 else ([], message)

    def best_setting(self, work, modes):
        shortest = self.FIRST_LIMIT / 4

        def rate_of(setting):
            nonlocal shortest
            limit = max(60, 4 * shortest) + (self.COMPILE_LIMIT if setting.graph == "compiled" else 0)
            start = time.monotonic()
            rates, message = self.step(work, setting, limit)
            rate = max(rates, default=0)  # other programs make steps slower and never faster
            if rate:
                shortest = min(shortest, time.monotonic() - start)
            print(f"  {f'{rate:.0f} tokens/s' if rate else 'did not run':>15}  {setting}"
                  f"{': ' + message if message else ''}", flush=True)
            return rate

        best = settings.search(modes, self.is_old(), rate_of, has_experts=WORKS[work][0] == "olmoe")
        return best or fail(f"no setting of PyTorch ran on {work}")


def spread(values, form):
    return "  ".join(f"{form(f(values)):>8}" for f in (min, statistics.median, max))


def compare(work, nought, peer, modes, options):
    model, rows, length = WORKS[work]
    if work == "LORA":
        model += f", an adapter of rank {LORA_RANK}"
    print(f"\n{work}: {model}, {rows} x {length} tokens, {options.dtype}, threads: {options.threads}")
    if options.device == "cuda":
        best = settings.ON_GPU
        print(f"PyTorch's setting: {best}", flush=True)
    elif options.guess:
        best = settings.first_guess(modes, peer.is_old())
        print(f"PyTorch's setting: {best}", flush=True)
    else:
        print(f"PyTorch's settings, one change at a time, {options.steps} steps each:", flush=True)
        best = peer.best_setting(work, modes)
        print(f"won: {best}", flush=True)
    ours, theirs, peaks, tokens_flops = [], [], [], 0
    for i in range(options.rounds):
        rate, tokens_flops, peak = nought.step(work)
        ours.append(rate), peaks.append(peak)
        rates, message = peer.step(work, best)
        theirs.append(statistics.median(rates) if rates else fail(f"PyTorch did not run again on {work}: {message}"))
        print(f"round {i + 1} of {options.rounds}: Nought {ours[-1]:.1f}, PyTorch {theirs[-1]:.1f} tokens/s, "
              f"ratio {ours[-1] / theirs[-1]:.2f}", flush=True)

    def line(name, values, form):
        print(f"  {name:<36}{spread(values, form)}", flush=True)

    def of_peak(rates):
        return [rate * tokens_flops / peak for rate, peak in zip(rates, peaks)]

    print(f"{work}, {options.rounds} rounds{'min':>33}{'median':>10}{'max':>10}")
    line("Nought, tokens/s", ours, "{:.1f}".format)
    line("PyTorch, tokens/s", theirs, "{:.1f}".format)
    line("ratio", [a / b for a, b in zip(ours, theirs)], "{:.2f}".format)
    if options.device == "cuda":
        return
    line("matrix peak, GFLOP/s", [peak / 1e9 for peak in peaks], "{:.0f}".format)
    line("Nought, of the peak", of_peak(ours), "{:.0%}".format)
    line("PyTorch, of the peak", of_peak(theirs), "{:.0%}".format)


def parse():
    arguments = Parser(prog="bench/compare.sh", description=__doc__)
    arguments.add_argument("works", nargs="*", metavar="WORK", help="W1, W2, W3, W4, W5, W6; default: the first three, with "
                           "--device cuda W4; W5, of experts, and W6, of the delta rule, compare with transformers' models")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                           help="where both compute; cuda takes a Python that has a PyTorch for it: --python")
    arguments.add_argument("--quick", action="store_true", help="W3 alone, two rounds")
    arguments.add_argument("--lora", action="store_true", help=f"an adapter of rank {LORA_RANK} on every linear layer of "
                           "the Llama of W2, 2 x 512 tokens, beside peft's")
    arguments.add_argument("--dtype", choices=list(settings.MODES), default="bf16")
    arguments.add_argument("--isa", choices=["avx2", "avx512", "avx512_bf16"], help="cap both; default: all this CPU has")
    arguments.add_argument("--mode", choices=settings.MODES["bf16"], action="append", metavar="MODE",
                           help="how PyTorch uses bf16: autocast, master (bf16 weights with fp32 copies) or widen (the "
                           "same, and products of values widened to fp32); may be repeated; default: the fastest")
    arguments.add_argument("--guess", action="store_true", help="try no settings: take the usual one at once")
    arguments.add_argument("--rounds", type=int, help="default: 5")
    arguments.add_argument("--steps", type=int, default=3, help="steps in each run, after those that warm up")
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--debian", action="store_true", help="Debian's PyTorch instead of the newest")
    arguments.add_argument("--python", metavar="PATH", help="a Python that has a PyTorch of yours")
    arguments.add_argument("--nought", metavar="PATH", help="a program that is built already, instead of building one")
    options = arguments.parse_args()
    for name in ("rounds", "steps", "threads"):
        if getattr(options, name) is not None and not 1 <= getattr(options, name) <= 1000:
            arguments.error(f"--{name} must be 1 to 1000, got {getattr(options, name)}")
    if options.quick and options.works:
        arguments.error(f"--quick runs W3, and {options.works[0]} was named too")
    if options.lora and (options.quick or options.works or options.debian):
        arguments.error("--lora is a work of its own, which takes peft: without --quick, --debian and WORK")
    if options.mode and options.dtype == "f32":
        arguments.error("--mode is for bf16, and --dtype is f32")
    for work in options.works:
        if work not in WORKS or work == "LORA":
            arguments.error(f"unknown work {work}: {', '.join(name for name in WORKS if name != 'LORA')}")
    for work in TAKES_TRANSFORMERS:
        if work in options.works and options.debian:
            arguments.error(f"{work} takes transformers, which is not for Debian's PyTorch")
    if options.device == "cuda" and (options.quick or options.debian or options.isa):
        arguments.error("--device cuda goes without --quick, --debian and --isa, which are for a CPU")
    options.python = options.python or ("python3" if options.device == "cuda" else None)
    everything = ON_GPU if options.device == "cuda" else ON_CPU
    options.works = ["LORA"] if options.lora else ["W3"] if options.quick else options.works or everything
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def prepare(options):
    """Builds Nought and installs the peer; the Python that has it."""
    if not options.nought:
        print("compare: building Nought", flush=True)
        output_of([os.path.join(ROOT, "scripts", "build.sh"), "release", "nought"], {})
    install = [os.path.join(settings.FOLDER, "install.sh"), "debian" if options.debian else "newest"]
    install += ["transformers"] * any(work in options.works for work in TAKES_TRANSFORMERS) + ["peft"] * options.lora
    python = options.python
    if not python:
        done = subprocess.run(install, stdout=subprocess.PIPE, text=True, check=False)
        python = done.stdout.strip() if done.returncode == 0 else sys.exit(1)
    if options.device == "cuda":
        return python
    os.makedirs(settings.BUILT, exist_ok=True)
    source = os.path.join(settings.FOLDER, "mkl_as_on_intel.c")
    output_of(["gcc", "-shared", "-fPIC", "-o", os.path.join(settings.BUILT, "mkl_as_on_intel.so"), source], {})
    return python


def main():
    options = parse()
    peer, nought = Peer(prepare(options), options), Nought(options)
    version, info = nought.info()
    print(version)
    for name in ("CPU", "CPU features", "instructions", "peak in f32", "peak in bf16"):
        print(f"  {name:<15}{info[name]}")
    print(f"PyTorch {peer.version}: {peer.libraries}")
    if options.isa:
        print(f"  capped by {' '.join(f'{name}={peer.caps[name]}' for name in list(peer.caps)[:3])}")
    modes = options.mode or settings.MODES[options.dtype]
    isa = info["instructions"].split(",")[0]
    if "bf16" not in isa and "amx" not in isa:  # the slow ones last, so that they are soon known to be slow
        modes = sorted(modes, key=lambda mode: mode != "widen")
    for work in options.works:
        compare(work, nought, peer, modes, options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
