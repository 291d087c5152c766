#!/usr/bin/env python3
"""Compares `nought simulate` with published step times, and fits its constants to them.

    scripts/fit-simulator.py [--program build/release/bin/nought] [--rows FILE]          the table of errors, in Markdown
    scripts/fit-simulator.py --fit [--rounds N]                                          writes fitted.json again

The fit minimises the mean |log(predicted / published)| of each generation's rows, with a penalty on those beyond 20%
and a slight pull towards typical values, one constant at a time. It begins with these. Bounds keep each within what
its name can mean.
"""
import argparse
import collections
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FITTED = os.path.join(ROOT, "src/nought/simulate/fitted.json")
BOUNDS = {
    "products": (0.5, 0.95), "knee": (20, 600), "fp8": (0.5, 1.0), "attention": (0.1, 0.6), "passes": (6, 40),
    "exchange": (0.1, 1.0), "link": (0.4, 1.0), "network": (0.3, 0.95), "latency": (2e-6, 6e-5), "overlap": (0, 0.95),
    "contention": (0.02, 0.6), "fixed": (2e-3, 0.08), "permutation": (2, 40), "experts": (0.3, 1.0), "operations": (2e-6, 3e-4),
}
# What is typical of such machines: a constant that the rows say little of stays near it.
TYPICAL = {
    "products": 0.7, "knee": 150, "fp8": 0.85, "attention": 0.25, "passes": 16, "exchange": 1.0, "link": 0.8,
    "network": 0.7, "latency": 1e-5, "overlap": 0.7, "contention": 0.25, "fixed": 0.03, "permutation": 6,
    "experts": 0.8, "operations": 3e-5,
}
PULL = 0.002  # per constant and factor of e
# One sweep of one host says what a link reaches, and no rows are of experts inside a host of the first two: these are not
# fitted to step times.
FIXED = {"h100": {"exchange", "link"}, "a100": {"exchange"}, "blackwell": {"link"}}


def generation(hardware):
    if hardware.startswith("a100"):
        return "a100"
    return "h100" if hardware.startswith("h") else "blackwell"


def has_experts(published, row):
    return bool(published["models"][row["model"]].get("moe"))


def predict(program, rows_file, constants):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(constants, file)
        file.flush()
        answer = subprocess.run([program, "simulate", "--rows", rows_file, "--json", "--constants", file.name],
                                check=True, capture_output=True, text=True).stdout
    return {row["id"]: row for row in json.loads(answer)["rows"]}


def measured(published):
    return [row for row in published["rows"] if row.get("step_seconds")]


def cost(published, predicted, of, constants):
    total = count = 0
    for row in measured(published):
        if generation(row["hardware"]) != of:
            continue
        error = abs(math.log(predicted[row["id"]]["step_seconds"] / row["step_seconds"]))
        total += error + 3 * max(error - 0.2, 0)
        count += 1
    pull = sum(abs(math.log(max(value, 1e-9) / TYPICAL[key])) for key, value in constants[of].items())
    return total / max(count, 1) + PULL * pull


def fit(program, rows_file, published, constants, rounds, only):
    for of, values in constants.items():
        if only and of != only:
            continue
        for key in values:
            if key not in FIXED.get(of, ()):
                values[key] = TYPICAL[key]
        best = cost(published, predict(program, rows_file, constants), of, constants)
        step = 0.3
        for _ in range(rounds):
            improved = False
            for key, (low, high) in BOUNDS.items():
                if key in FIXED.get(of, ()):
                    continue
                for sign in (1, -1):
                    before = values[key]
                    values[key] = min(max(before * (1 + sign * step), low), high)
                    if before == 0:
                        values[key] = low + (high - low) * step / 5
                    now = cost(published, predict(program, rows_file, constants), of, constants)
                    if now < best - 1e-6:
                        best, improved = now, True
                        break
                    values[key] = before
            if not improved:
                step /= 2
                if step < 0.01:
                    break
        print(f"{of}: {best:.4f}", file=sys.stderr)
    for values in constants.values():
        for key in values:
            values[key] = float(f"{values[key]:.3g}")


def write_constants(constants):
    lines = []
    for name, values in constants.items():
        pairs = ", ".join(f'"{key}": {value:g}' for key, value in values.items())
        lines.append(f'  "{name}": {{{pairs}}}')
    with open(FITTED, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def line_of(name, errors):
    values = [abs(error) for _, error in errors]
    worst = max(errors, key=lambda each: abs(each[1]))
    bias = 100 * sum(error for _, error in errors) / len(errors)
    print(f"| {name} | {len(values)} | {100 * sum(values) / len(values):.1f} | {bias:+.1f} | "
          f"{100 * worst[1]:+.0f} | {worst[0]} |")


def print_errors(published, predicted, every):
    tables, groups = collections.OrderedDict(), collections.OrderedDict()
    for row in measured(published):
        error = predicted[row["id"]]["step_seconds"] / row["step_seconds"] - 1
        experts = has_experts(published, row)
        name = f"{row['table']}, {generation(row['hardware'])}{', experts' if experts else ''}"
        tables.setdefault(name, []).append((row["id"], error))
        group = "experts" if experts else f"{generation(row['hardware'])}, dense"
        groups.setdefault(group, []).append((row["id"], error))
        if every:
            parts = {key: round(value, 3) for key, value in predicted[row["id"]]["parts"].items()}
            print(f"{100 * error:+6.1f}% {row['step_seconds']:9.3f} {row['id']} {parts}")
    print("| rows | number | mean error, % | bias, % | worst, % | worst row |\n|---|---|---|---|---|---|")
    for name, errors in list(tables.items()) + [(f"**{key}**", value) for key, value in groups.items()]:
        line_of(name, errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bin/nought"))
    parser.add_argument("--rows", default=os.path.join(ROOT, "tests/golden/scale/published.json"))
    parser.add_argument("--constants", default=FITTED)
    parser.add_argument("--fit", action="store_true", help="fit the constants and write them")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", help="fit this generation alone")
    parser.add_argument("--every", action="store_true", help="print every row with its parts")
    options = parser.parse_args()
    with open(options.rows) as file:
        published = json.load(file)
    with open(options.constants) as file:
        constants = json.load(file)
    if options.fit:
        fit(options.program, options.rows, published, constants, options.rounds, options.only)
        write_constants(constants)
    print_errors(published, predict(options.program, options.rows, constants), options.every)


if __name__ == "__main__":
    main()
