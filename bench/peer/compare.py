#!/usr/bin/env python3
"""Runs Nought and the PyTorch peer in turn on the same work and prints the ratio of their tokens per second."""
import argparse
import json
import os
import statistics
import subprocess
import sys

WORKS = {
    "W1": ("gpt2", 4, 1024),
    "W2": ("llama", 2, 2048),
    "W3": ("gpt2", 4, 64),
}
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_step.py")


def run(command, environment):
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def nought(program, work, options):
    """Tokens per second, and the matrix peak that was measured beside it, of each sample."""
    command = [program, "bench", "step", work, "--samples", str(options.steps), "--json"]
    figure = run(command, {"OMP_NUM_THREADS": str(options.threads)})["figures"][0]
    return figure["rate"], figure["limit"]["rate"], figure["limit"]["fraction"]


def peer(work, mode, options):
    model, rows, length = WORKS[work]
    command = [sys.executable, PEER, "--model", model, "--rows", str(rows), "--length", str(length), "--steps",
               str(options.steps), "--threads", str(options.threads), "--mode", mode]
    environment = {
        "OMP_NUM_THREADS": str(options.threads),
        "LD_PRELOAD": "libtcmalloc.so.4",
        "ATEN_CPU_CAPABILITY": "avx512",
        "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": str(1 << 40),
    }
    return statistics.median(run(command, environment)["tokens_per_second"])


def spread(values, form):
    return "  ".join(f"{form(f(values)):>8}" for f in (min, statistics.median, max))


def compare(work, options):
    modes = ["autocast", "master"]
    best = max(modes, key=lambda mode: peer(work, mode, options))
    ours, theirs, peaks, fractions = [], [], [], []
    for _ in range(options.rounds):
        rate, peak, fraction = nought(options.nought, work, options)
        ours.append(rate), peaks.append(peak), fractions.append(fraction)
        theirs.append(peer(work, best, options))
    ratios = [a / b for a, b in zip(ours, theirs)]
    model, rows, length = WORKS[work]
    print(f"\n{work}: {model}, {rows} x {length} tokens, {options.threads} threads, {options.rounds} rounds"
          f"                    min    median       max")
    print(f"  Nought, tokens/s                    {spread(ours, '{:.0f}'.format)}")
    print(f"  PyTorch ({best}), tokens/s{' ' * (12 - len(best))}{spread(theirs, '{:.0f}'.format)}")
    print(f"  ratio                               {spread(ratios, '{:.2f}'.format)}")
    print(f"  matrix peak, GFLOP/s                {spread(peaks, lambda v: f'{v / 1e9:.0f}')}")
    print(f"  Nought, of the peak                 {spread(fractions, '{:.0%}'.format)}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("works", nargs="*", default=list(WORKS), metavar="WORK", help="W1, W2, W3; default: all")
    arguments.add_argument("--nought", required=True, help="the program")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=3, help="steps in each run, after those that warm up")
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    for work in options.works:
        if work not in WORKS:
            arguments.error(f"unknown work {work}: {', '.join(WORKS)}")
    for work in options.works:
        compare(work, options)


if __name__ == "__main__":
    main()
