"""Ratios that repeat on a busy machine: one thread, CPU time, interleaved medians."""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from typing import NamedTuple

import torch


class Row(NamedTuple):
    """One line of a result: how many times `peer` goes into `ours`, or the other way round.

    `more` says that the ratio is peer / ours, which should be large; otherwise it is ours / peer,
    which should be small. `must` and `aim` are the goals for it; without a `must` it is reported
    only.
    """

    goal: str
    what: str
    ours: str
    peer: str
    more: bool
    must: float | None
    aim: float


def shrunk(n):
    """The length n, or a short one where only the code is tried and times mean nothing."""
    return max(48, n // int(os.environ.get("BENCHMARKS_SHRINK", 1)))


def keep_memory():
    """Ask glibc to reuse freed memory instead of giving it back to the system.

    Fresh pages cost more than the arithmetic measured here, and who gets them is a matter of luck.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError, OSError):
        return  # another C library, with its own habits
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 1 << 30)
    mallopt(mmap_threshold, 1 << 25)


def medians(candidates, repeats, progress=None, clock=time.process_time):
    """Median CPU seconds of each function of a dict, called in turn.

    Every counted call follows an uncounted one, so that no candidate pays for its predecessor.
    """
    times = {name: [] for name in candidates}
    for i in range(repeats):
        for name, function in candidates.items():
            function()
            start = clock()
            function()
            times[name].append(clock() - start)
        if progress is not None:
            print(f"\r{progress}: round {i + 1} of {repeats}", end="", file=sys.stderr, flush=True)
    if progress is not None:
        print(file=sys.stderr)
    return {name: statistics.median(rounds) for name, rounds in times.items()}


def forward_backward(f, x, upstream):
    """A function without arguments that evaluates `f` at `x` and its gradient."""

    def run():
        x.grad = None
        f(x).backward(upstream)

    return run


def judge(rows, seconds):
    """Each row with its ratio and whether it reaches its goals, as dicts for printing and JSON."""
    results = []
    for row in rows:
        ratio = seconds[row.ours] / seconds[row.peer]
        reached = 1 / ratio if row.more else ratio
        ok = (lambda goal: reached >= goal) if row.more else (lambda goal: reached <= goal)
        if ok(row.aim):
            verdict = "aim"
        elif row.must is None:
            verdict = "report"
        else:
            verdict = "must" if ok(row.must) else "MISSED"
        results.append({**row._asdict(), "reached": reached, "verdict": verdict, "note": ""})
    return results


def without(row, why):
    """The result of a row that can't be measured here."""
    return {**row._asdict(), "reached": None, "verdict": "not run", "note": why}


def line(result):
    """A result as a line of text."""
    sense = ">=" if result["more"] else "<="
    reached = "-" if result["reached"] is None else f"{result['reached']:.3g}"
    must = "-" if result["must"] is None else f"{result['must']:g}"
    note = f"  {result['note']}" if result["note"] else ""
    return (
        f"{result['goal']:5} {result['what']:60} {reached:>8}   "
        f"must {sense} {must:<5} aim {sense} {result['aim']:<5g} {result['verdict']}{note}"
    )


def main(description, steps):
    """The command line that every benchmark has; exits with 1 when a `must` is missed.

    `steps` are functions of the number of rounds, by name; each returns results, as `judge` makes
    them.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=9, help="counted rounds (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="goals are for 1 (the default)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_memory()
    results = []
    for step in steps.values():
        found = step(arguments.repeats)
        print(*map(line, found), sep="\n", flush=True)
        results += found
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            record = {"torch": torch.__version__, **vars(arguments), "rows": results}
            json.dump(record, file, indent=1)
    sys.exit(any(r["verdict"] == "MISSED" for r in results))
