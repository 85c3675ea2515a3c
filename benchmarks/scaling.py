"""Time and memory of attention against the length, and against the share of keys with weight.

Both passes, eight heads of 64 features in float32, one thread. A point has the CPU seconds (median
of few rounds, so that they say something about this machine only), the ratio to the fused kernel
of the same causality at the same length in the same run, and the growth of the peak of a process
of its own in MiB, inputs excluded, outputs and gradients included. Whatever forms whole matrices of
scores stops early.
"""

import math
import subprocess
import sys
from functools import partial
from unittest.mock import patch

import entmax as package
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from eotcourse import ALiBi, Shannon, Tsallis, alibi_slopes, attention
from eotcourse.engine import blockwise

from .attention import HEADS, Problem, by_package, tsallis
from .harness import medians

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)


def with_biases(n):
    """The fused kernel with the biases of causal ALiBi as a matrix, made once."""
    i = torch.arange(n)
    matrix = alibi_slopes(HEADS).float()[:, None, None] * (i - i[:, None])
    matrix.masked_fill_(i > i[:, None], -math.inf)
    return lambda q, k, v: sdpa(q, k, v, matrix[None])


def alibi(n):
    regularizer = Shannon(ALiBi(alibi_slopes(HEADS)))
    return lambda q, k, v: attention(q, k, v, is_causal=True, regularizer=regularizer)


# By name: the largest length, the peer it is a multiple of, and the function of q, k, v for a
# length.
WAYS = {
    "SDPA": (16384, "SDPA", lambda n: sdpa),
    "alpha 1.5": (16384, "SDPA", lambda n: tsallis(1.5)),
    "alpha 2": (16384, "SDPA", lambda n: tsallis(2.0)),
    "softmax, matrix of weights": (4096, "SDPA", lambda n: by_package(lambda s: s.softmax(-1))),
    "package, alpha 1.5": (2048, "SDPA", lambda n: by_package(lambda s: package.entmax15(s, -1))),
    "package, alpha 2": (2048, "SDPA", lambda n: by_package(lambda s: package.sparsemax(s, -1))),
    "SDPA, causal": (
        16384, "SDPA, causal", lambda n: lambda q, k, v: sdpa(q, k, v, is_causal=True)
    ),
    "ALiBi": (16384, "SDPA, causal", alibi),
    "SDPA, matrix of biases": (4096, "SDPA, causal", with_biases),
}  # fmt: skip
PEAK = """
import os, re, sys, torch
from benchmarks.attention import Problem
from benchmarks.scaling import WAYS
torch.set_num_threads(1)
def status(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
def grown(make, n):
    def run(problem):
        problem.both(make(problem.n))()
    run(Problem(48))  # what the first call loads isn't the length's
    problem = Problem(n)
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    run(problem)
    return status("VmHWM") - before
for name in sys.argv[2:]:
    if os.fork() == 0:
        print(grown(WAYS[name][2], int(sys.argv[1])), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{name}: no memory measured")
"""


def peaks(names, n):
    """MiB by which the peak of a process grows that does nothing else, for each of the names."""
    command = [sys.executable, "-c", PEAK, str(n), *names]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(zip(names, map(float, found.split()), strict=True))


def rounds(n, repeats):
    """Fewer where a call takes seconds."""
    return max(1, min(repeats, 24576 // n))


def at_length(n, repeats):
    """A point for every way that goes so far."""
    problem = Problem(n)
    ways = {name: way for name, way in WAYS.items() if n <= way[0]}
    calls = {name: problem.both(make(problem.n)) for name, (_, _, make) in ways.items()}
    seconds = medians(calls, rounds(n, repeats), f"scaling n={n}")
    del calls, problem
    mib = peaks(list(ways), n)
    return [
        {
            "way": name, "n": n, "seconds": seconds[name], "peer": peer,
            "ratio": seconds[name] / seconds[peer], "mib": mib[name],
        }
        for name, (_, peer, _) in ways.items()
    ]  # fmt: skip


# Weights are sparse where scores differ: deviations that give one key in a thousand up to a half.
DEVIATIONS = {
    1.5: (0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 2.0),
    2.0: (0.003, 0.006, 0.012, 0.018, 0.03, 0.05, 0.1, 0.3, 1.0),
}


def by_density(n, alpha, repeats):
    """The two ways of the engine against the fused kernel, each held on for all blocks."""
    points = []
    for deviation in DEVIATIONS[alpha]:
        problem = Problem(n, deviation)
        with torch.no_grad():
            q, k, _ = problem.tensors
            some = q[:, :, : problem.n // 4] @ k.mT
            share = Tsallis(alpha)(some, math.sqrt(q.shape[-1])).gt(0).float().mean()
        most = blockwise._LONGEST
        held = {"sparse": (1.0, math.inf), "blocks": (0.0, 0), "chosen": (blockwise._DENSEST, most)}

        def holding(limits, run):
            def held_on():
                with patch.multiple(blockwise, _DENSEST=limits[0], _LONGEST=limits[1]):
                    run()

            return held_on

        calls = {name: holding(x, problem.both(tsallis(alpha))) for name, x in held.items()}
        calls["SDPA"] = problem.both(sdpa)
        seconds = medians(calls, min(repeats, 3), f"density, deviation {deviation}")
        ratios = {name: seconds[name] / seconds["SDPA"] for name in held}
        points.append({"deviation": deviation, "density": float(share), "alpha": alpha, "n": n}
                      | ratios)  # fmt: skip
    return points


STEPS = {f"n={n}": partial(at_length, n) for n in LENGTHS}
STEPS |= {f"density alpha={alpha:g}": partial(by_density, 2048, alpha) for alpha in DEVIATIONS}
QUICK = ("n=256", "density alpha=2")
