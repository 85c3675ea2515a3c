"""Attention, forward and backward, against PyTorch's fused kernel and the `entmax` package.

Eight heads of 64 features in float32; queries, keys and values are independent and normal, so
that scores have deviation 1 where nothing else is said: the case in which nothing but the size of
a score says whether its key matters. Memory is the growth of the process's peak, four heads.
"""

import math
import subprocess
import sys
import time
from functools import partial

import entmax as package
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from eotcourse import ALiBi, LogPrior, Shannon, Tsallis, alibi_slopes, attention

from .harness import Row, judge, main, medians, shrunk, without

HEADS, FEATURES = 8, 64
# must and aim by length, for alpha 2 and 1.5: times the fused kernel.
FORWARD_BACKWARD = {2048: ((0.35, 0.20), (0.48, 0.28)), 4096: ((0.30, 0.16), (0.40, 0.22))}
CAUSAL = {2048: ((0.48, 0.28), (0.60, 0.36)), 4096: ((0.40, 0.22), (0.50, 0.28))}
FORWARD = {4096: ((1.0, 0.65), (1.3, 0.85))}
DEVIATIONS = (0.1, 0.5, 1, 2, 4, 8)
WORST = {2.0: (1.6, 1.25), 1.5: (1.6, 1.25), 4 / 3: (3.0, 1.6), 1.2: (3.0, 1.6)}
MEMORY = {1.5: (300, 160), 2.0: (200, 110)}
PEAK = """
import re, sys, torch
from eotcourse import LogPrior, Shannon, Tsallis, attention
n, heads, warm = map(int, sys.argv[1:4])
torch.set_num_threads(1)
def make(n):
    inputs = [torch.randn(1, heads, n, 64, requires_grad=True) for _ in range(3)]
    return inputs, torch.randn(1, heads, n, 64), eval(sys.argv[4])
def run(inputs, upstream, rule):
    attention(*inputs, regularizer=rule).backward(upstream)
def status(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
if warm:
    run(*make(warm))
problem = make(n)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
run(*problem)
print(status("VmHWM") - before)
"""


def name_of(alpha):
    return f"alpha {alpha:.3g}"


class Problem:
    """Random inputs of one length, and ways to run a function of them."""

    def __init__(self, n, deviation=1.0):
        generator = torch.Generator().manual_seed(n)
        self.n = shrunk(n)
        shape = (1, HEADS, self.n, FEATURES)
        q, k, v, self.upstream = (torch.randn(shape, generator=generator) for _ in range(4))
        self.tensors = [x.requires_grad_() for x in (q * deviation, k, v)]

    def both(self, f, *parameters):
        def run():
            for x in (*self.tensors, *parameters):
                x.grad = None
            f(*self.tensors).backward(self.upstream)

        return run

    def forward(self, f):
        def run():
            with torch.no_grad():
                f(*self.tensors)

        return run


def tsallis(alpha, **arguments):
    return lambda q, k, v: attention(q, k, v, regularizer=Tsallis(alpha), **arguments)


def by_package(f):
    """Attention as one builds it on a map of the package."""
    return lambda q, k, v: f(q @ k.mT / math.sqrt(FEATURES)) @ v


def times_fused(goal, n, goals, repeats, causal=False, forward_only=False):
    """alpha 2 and 1.5 against the fused kernel of the same causality."""
    problem = Problem(n)
    run = problem.forward if forward_only else problem.both
    maps = {"fused": run(lambda q, k, v: sdpa(q, k, v, is_causal=causal))}
    rows = []
    for alpha, aims in zip((2.0, 1.5), goals):
        maps[name_of(alpha)] = run(tsallis(alpha, is_causal=causal))
        kind = "forward" if forward_only else "causal" if causal else "both passes"
        what = f"n={n} {name_of(alpha)}, {kind}: times SDPA"
        rows.append(Row(goal, what, name_of(alpha), "fused", False, *aims))
    return judge(rows, medians(maps, repeats, f"{goal} n={n}"))


def sweep(repeats):
    """The largest ratio to the fused kernel over deviations of the scores."""
    worst = {}
    for deviation in DEVIATIONS:
        problem = Problem(2048, deviation)
        maps = {name_of(alpha): problem.both(tsallis(alpha)) for alpha in WORST}
        maps["fused"] = problem.both(sdpa)
        seconds = medians(maps, repeats, f"C8 deviation {deviation}")
        for alpha in WORST:
            ratio = seconds[name_of(alpha)] / seconds["fused"]
            worst[name_of(alpha)] = max(worst.get(name_of(alpha), 0), ratio)
    rows = [
        Row("C8", f"n=2048 {name_of(a)}, worst deviation: times SDPA", name_of(a), "1", False, *g)
        for a, g in WORST.items()
    ]
    return judge(rows, {**worst, "1": 1.0})


def general(repeats):
    problem = Problem(2048)
    maps = {"fused": problem.both(sdpa), "alpha 4/3": problem.both(tsallis(4 / 3))}
    row = Row("C9", "n=2048 alpha 4/3: times SDPA", "alpha 4/3", "fused", False, 1.3, 0.7)
    return judge([row], medians(maps, repeats, "C9"))


def times_package(repeats):
    problem = Problem(2048)
    peers = {2.0: package.sparsemax, 1.5: package.entmax15}
    maps, rows = {}, []
    for alpha, peer in peers.items():
        name = name_of(alpha)
        maps[name] = problem.both(tsallis(alpha))
        maps[f"package, {name}"] = problem.both(by_package(lambda s, f=peer: f(s, -1)))
        what = f"n=2048 {name}: times faster than on the package"
        rows.append(Row("C10", what, name, f"package, {name}", True, 20, 40))
    return judge(rows, medians(maps, min(repeats, 3), "C10"))


def peak(n, heads, rule, warm=0):
    """Peak growth of a fresh process over both passes, in MiB.

    Its first call has the length `warm`, if given: what that loads isn't counted then.
    """
    command = [sys.executable, "-c", PEAK, str(n), str(heads), str(warm), rule]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def memory(repeats):
    """Peak growth of a fresh process in MiB, and its growth with the length."""
    grown = {"1": 1.0}
    rows = []
    for alpha, goals in MEMORY.items():
        for n in (8192, 16384):
            grown[f"{n} {alpha}"] = peak(shrunk(n), 4, f"Tsallis({alpha})")
        name = name_of(alpha)
        what = f"n=16384 {name}, four heads: MiB"
        rows.append(Row("C11", what, f"16384 {alpha}", "1", False, *goals))
        what = f"{name}: memory at 16384 / at 8192"
        rows.append(Row("C11", what, f"16384 {alpha}", f"8192 {alpha}", False, 2.2, 2.0))
    return judge(rows, grown)


def alibi(repeats):
    """Causal ALiBi without a matrix of biases, and what is left of its digits at n = 8192."""
    problem = Problem(2048)
    regularizer = Shannon(ALiBi(alibi_slopes(HEADS)))

    def ours(q, k, v):
        return attention(q, k, v, is_causal=True, regularizer=regularizer)

    def fused(q, k, v):
        return sdpa(q, k, v, is_causal=True)

    maps = {
        "both": problem.both(ours), "fused": problem.both(fused),
        "forward": problem.forward(ours), "fused forward": problem.forward(fused),
    }  # fmt: skip
    seconds = medians(maps, repeats, "C12")
    q, k, v = (x.detach() for x in Problem(8192).tensors)
    last = q[..., -256:, :]
    exact = attention(
        last.double(), k.double(), v.double(), is_causal=True, regularizer=regularizer,
        causal_align="bottom_right", backend="dense",
    )  # fmt: skip
    seconds["error"] = float((ours(q, k, v)[..., -256:, :] - exact).abs().max())
    seconds["1"] = 1.0
    what = "n=2048 causal ALiBi"
    return judge([
        Row("C12", f"{what}, both passes: times SDPA without", "both", "fused", False, 1.3, 1.1),
        Row("C12", f"{what}, forward: times SDPA without", "forward", "fused forward", False,
            1.2, 1.05),
        Row("C12", "n=8192 causal ALiBi: largest error", "error", "1", False, 5e-6, 1e-6),
    ], seconds)  # fmt: skip


def windows(repeats):
    """Causal ALiBi, forward: keys outside its heads' windows are left out before they have scores.

    The time grows with the length once the widest window is shorter than it. That of softmax, for
    the slope 1/256, is about 7,000 keys: its growth is that from 8192 to 16384.
    """
    rules = {
        "softmax": (Shannon, 8192, (0.65, 0.35)),
        "alpha 1.5": (partial(Tsallis, 1.5), 4096, (0.45, 0.22)),
    }
    seconds, rows = {}, []
    for n in (4096, 8192, 16384):
        problem = Problem(n)
        maps = {f"fused {n}": problem.forward(partial(sdpa, is_causal=True))} if n == 8192 else {}
        for name, (rule, short, _) in rules.items():
            if n not in (short, 2 * short):
                continue
            regularizer = rule(prior=ALiBi(alibi_slopes(HEADS)))
            maps[f"{name} {n}"] = problem.forward(
                partial(attention, is_causal=True, regularizer=regularizer)
            )
        seconds |= medians(maps, min(repeats, 5), f"C13 n={n}")
    for name, (_, short, goals) in rules.items():
        what = f"causal ALiBi {name}, forward: "
        rows.append(
            Row("C13", f"n=8192 {what}times SDPA", f"{name} 8192", "fused 8192", False, *goals)
        )
        growth = f"{what}time at {2 * short} / {short}"
        long, short = f"{name} {2 * short}", f"{name} {short}"
        rows.append(Row("C13", growth, long, short, False, 2.6, 2.1))
    return judge(rows, seconds)


def prior(repeats):
    """A prior over keys, fixed and learned."""
    problem = Problem(2048)
    log_pi = torch.randn(problem.n, generator=torch.Generator().manual_seed(1))
    learned = torch.nn.Parameter(log_pi.clone())

    def ours(values):
        regularizer = Shannon(LogPrior(values))
        return lambda q, k, v: attention(q, k, v, regularizer=regularizer)

    maps = {
        "fused": problem.both(sdpa),
        "fixed": problem.both(ours(log_pi)),
        "learned": problem.both(ours(learned), learned),
    }
    rows = [
        Row("C14", "n=2048 fixed prior: times SDPA without", "fixed", "fused", False, 1.10, 1.03),
        Row("C14", "n=2048 learned prior: times SDPA without", "learned", "fused", False,
            1.30, 1.12),
        Row("C14", "n=2048 learned prior, eight heads: MiB", "MiB", "1", False, 60, 42),
    ]  # fmt: skip
    found = medians(maps, repeats, "C14")
    rule = "Shannon(LogPrior(torch.nn.Parameter(torch.zeros(n))))"
    return judge(rows, {**found, "MiB": peak(problem.n, HEADS, rule, warm=512), "1": 1.0})


def against_flex(repeats):
    """Causal ALiBi against flex_attention, which a CPU has compiled and forward only."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    row = Row("C12", "n=1024 causal ALiBi, forward: times compiled flex", "forward", "flex", False,
              1.1, 0.9)  # fmt: skip
    problem = Problem(1024)
    regularizer = Shannon(ALiBi(alibi_slopes(HEADS)))
    later = create_block_mask(
        lambda b, h, i, j: i >= j, None, None, problem.n, problem.n, device="cpu"
    )
    compiled = torch.compile(flex_attention, dynamic=False)

    def biased(score, batch, head, i, j):
        # The slopes of eight heads, 1/2, 1/4 and so on, in the way that is fastest there: with a
        # tensor of slopes the compiled kernel returns NaN.
        return score - (i - j) / (2.0 * (1 << head))

    def flex(q, k, v):
        return compiled(q, k, v, score_mod=biased, block_mask=later)

    def ours(q, k, v):
        return attention(q, k, v, is_causal=True, regularizer=regularizer)

    problem.tensors = [x.detach() for x in problem.tensors]
    try:
        found = flex(*problem.tensors)
    except Exception as error:  # no compiler, or a kind that isn't supported
        return [without(row, f"flex_attention: {type(error).__name__}")]
    apart = float((found - ours(*problem.tensors)).abs().max())
    if not apart < 1e-4:
        what = "NaN" if math.isnan(apart) else f"other numbers, by {apart:.2g}"
        return [without(row, f"compiled flex_attention returns {what} here")]
    maps = {"forward": problem.forward(ours), "flex": problem.forward(flex)}
    return judge([row], medians(maps, repeats, "C12 flex"))


def threads(repeats):
    """Two threads, by the clock on the wall: to be reported, since other programs move it."""
    problem = Problem(2048)
    maps = {"fused": problem.both(sdpa)}
    rows = []
    for alpha, aim in ((2.0, 0.25), (1.5, 0.35)):
        name = name_of(alpha)
        maps[name] = problem.both(tsallis(alpha))
        what = f"n=2048 {name}, two threads, wall clock: times SDPA"
        rows.append(Row("C16", what, name, "fused", False, None, aim))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seconds = medians(maps, repeats, "C16", clock=time.perf_counter)
    finally:
        torch.set_num_threads(before)
    return judge(rows, seconds)


STEPS = {
    **{f"C5 n={n}": partial(times_fused, "C5", n, g) for n, g in FORWARD_BACKWARD.items()},
    **{f"C6 n={n}": partial(times_fused, "C6", n, g, causal=True) for n, g in CAUSAL.items()},
    **{f"C7 n={n}": partial(times_fused, "C7", n, g, forward_only=True) for n, g in FORWARD.items()},
    "C8": sweep,
    "C9": general,
    "C10": times_package,
    "C11": memory,
    "C12": alibi,
    "C12 flex": against_flex,
    "C13": windows,
    "C14": prior,
    "C16": threads,
}

if __name__ == "__main__":
    main(__doc__, STEPS)
