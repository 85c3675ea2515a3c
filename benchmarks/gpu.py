"""The Triton kernels on a GPU: right first, then timed against their peers, in under six minutes.

python -m benchmarks.gpu [--budget 330] [--json gpu.jsonl]

Sixteen heads of 64 features in bfloat16, 65536 tokens in all, so that a shorter sequence comes in
a larger batch. Every measurement is printed and appended to the file at once, as one JSON object;
when the budget is spent, what is left is named and not begun. Peers: PyTorch's flash attention
(without any bias), its compiled `flex_attention` with the same bias, and adasplash where it is
installed. Independent scores have no blocks without weight at these lengths, so that blocks can
only be skipped where the inputs have structure: the planted ones have groups of blocks which
attend to each other alone, and the share of blocks that are live is measured and told.

Without a card --dry-run does all of it at toy sizes in Triton's interpreter; its times mean
nothing. The exit status is 1 if a result is wrong, 2 if there is no card.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import time
from typing import NamedTuple

import torch
from torch.nn import functional as F

from eotcourse import ALiBi, Causal, LogPrior, Shannon, Tsallis, alibi_slopes, attention


class Sizes(NamedTuple):
    """What is measured, and at which lengths; planted groups change every `block` positions."""

    tokens: int
    heads: int
    features: int
    short: int
    middle: int
    long: int
    odd: tuple
    largest: int
    block: int


CARD = Sizes(65536, 16, 64, 2048, 8192, 32768, (517, 1037), 131072, 128)
TOY = Sizes(16, 1, 16, 16, 16, 32, (5, 19), 16, 16)


# ---------------------------------------------------------------- inputs


def independent(sizes, n, deviation, dtype, device):
    """Queries, keys, values and an upstream gradient, all normal; `deviation` of the scores."""
    generator = torch.Generator(device).manual_seed(n)
    shape = (max(1, sizes.tokens // n), sizes.heads, n, sizes.features)
    q, *others = (torch.randn(shape, generator=generator, device=device) for _ in range(4))
    return [x.to(dtype) for x in (q * deviation, *others)]


def planted(sizes, n, groups, chosen, dtype, device):
    """Inputs in which a block of queries attends to the keys of `chosen` groups out of `groups`.

    Every block of keys belongs to one group, in turn; within its groups a query's scores are
    independent with deviation 1, and those of all others lie far below. So the share of blocks
    that have weight is at most chosen / groups.
    """
    q, k, v, upstream = independent(sizes, n, 1.0, torch.float32, device)
    number = torch.arange(n, device=device) // sizes.block
    group = number % groups
    lift = math.sqrt(12 * math.sqrt(sizes.features))
    q[..., :groups] = 0
    k[..., :groups] = lift * F.one_hot(group, groups)
    for c in range(chosen):
        q[..., :groups] += lift * F.one_hot((number + c) % groups, groups)
    return [x.to(dtype) for x in (q, k, v, upstream)]


def live_share(q, k, alpha, causal):
    """The share of pairs of blocks with any weight, among those that causality leaves."""
    from eotcourse.engine import kernels

    q, k = (x.flatten(0, 1).contiguous() for x in (q, k))
    far = 1 << 30
    arguments = alpha, 1, 1 / math.sqrt(q.shape[-1]), 0, far, 0 if causal else far, False
    alphas = torch.full((len(q),), alpha, device=q.device)
    live = kernels._forward(q, k, k, alphas, None, None, *arguments)[-1]
    low, high = live.shape[1:]
    rows, columns = kernels._blocks(kernels._width(q.shape[-1]), q.dtype)
    possible = low * high
    if causal:
        possible = sum(min(high, -(-(i + 1) * rows // columns)) for i in range(low))
    return float(live.sum()) / (len(live) * possible)


# ---------------------------------------------------------------- who is measured


def ours(regularizer, causal):
    return functools.partial(
        attention, regularizer=regularizer, is_causal=causal, backend="triton"
    )  # fmt: skip


def flash(causal, device):
    """PyTorch's flash attention, and nothing else that PyTorch might take for it."""
    if device == "cpu":
        return functools.partial(F.scaled_dot_product_attention, is_causal=causal)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def f(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return f


def flex(change, n, causal, device):
    """`flex_attention` with `change` of the scores, compiled where there is a card."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = flex_attention if device == "cpu" else torch.compile(flex_attention, dynamic=False)
    mask = None
    if causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device=device)
    return functools.partial(compiled, score_mod=change, block_mask=mask)


def adasplash():
    """The package's attention, or None where it isn't installed."""
    if importlib.util.find_spec("adasplash") is None:
        return None
    return importlib.import_module("adasplash").adasplash


def biases(sizes, n, device):
    """ALiBi and a prior over keys, as our regulariser and as a change of scores, by name."""
    slopes = alibi_slopes(sizes.heads).float().to(device)
    generator = torch.Generator(device).manual_seed(1)
    log_pi = torch.randn(n, generator=generator, device=device)
    return {
        "ALiBi": (
            Shannon(ALiBi(slopes)), lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()
        ),
        "prior": (Shannon(LogPrior(log_pi)), lambda s, b, h, i, j: s + log_pi[j]),
    }  # fmt: skip


# ---------------------------------------------------------------- measuring


class Run:
    """Clock, file and card of one run."""

    def __init__(self, device, budget, path, sizes):
        self.device, self.path, self.sizes = device, path, sizes
        self.start, self.budget = time.monotonic(), budget
        self.wrong = 0

    def left(self):
        return self.budget - (time.monotonic() - self.start)

    def write(self, **row):
        """Print a row and append it to the file."""
        row["second"] = round(time.monotonic() - self.start, 1)
        print("  ".join(f"{name} {show(x)}" for name, x in row.items()), flush=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def milliseconds(self, f):
        """Median time of a call, after calls that aren't counted."""
        if self.device == "cpu":
            start = time.perf_counter()
            f()
            return 1000 * (time.perf_counter() - start)
        from triton.testing import do_bench

        return do_bench(f, warmup=50, rep=200, return_mode="median")

    def compare(self, goal, what, inputs, candidates, both, goals, **more):
        """Time our candidate, the first, and its peers; a row each, with times faster than peer.

        `goals` has the least ratio (must, aim) for a peer by name.
        """
        *tensors, upstream = inputs
        ours = None
        for name, f in candidates.items():
            row = dict(goal=goal, what=what, passes="both" if both else "forward", name=name)
            try:
                ms = self.milliseconds(calls(f, tensors, upstream, both))
            except Exception as error:  # a peer that doesn't run here must not end the run
                self.write(**row, failed=f"{type(error).__name__}: {error}"[:300])
                self.wrong += ours is None
                if ours is None:
                    return
                continue
            row.update(ms=ms, **more)
            if ours is None:
                ours = ms
            else:
                row["times_faster"] = ms / ours
                if name in goals:
                    row["must"], row["aim"] = goals[name]
            self.write(**row)


def show(x):
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def calls(f, tensors, upstream, both):
    """A function without arguments: one pass, or both."""
    if not both:
        def run():
            with torch.no_grad():
                f(*tensors)
    else:
        tensors = [x.detach().requires_grad_() for x in tensors]

        def run():
            torch.autograd.grad(f(*tensors), tensors, upstream)

    return run


# ---------------------------------------------------------------- whether the results are right


def problems(dtype, device):
    """What is checked: regulariser and causality, by name. Every one takes some compiling."""

    def learned(x):
        return torch.nn.Parameter(torch.tensor(x, device=device))

    slopes = [0.5, 0.05]
    found = {
        "softmax, causal ALiBi": (Shannon(ALiBi(learned(slopes))), True),
        "alpha learned, causal": (Tsallis(learned([1.2, 1.7])), True),
    }
    if dtype == torch.bfloat16:
        found["softmax"] = (Shannon(), False)
        found["alpha 1.5, ALiBi"] = (Tsallis(1.5, ALiBi(learned(slopes)) + Causal()), False)
        found["alpha 2"] = (Tsallis(2.0), False)
    return found


def results(f, inputs, parameters):
    """Output and gradients."""
    *tensors, upstream = inputs
    tensors = [x.detach().requires_grad_() for x in tensors]
    out = f(*tensors)
    grads = torch.autograd.grad(out, (*tensors, *parameters), upstream.to(out.dtype))
    return [x.detach().double() for x in (out, *grads)]


def worst(found, wanted):
    """The largest relative error, in the norm."""
    return max(float((x - y).norm() / (1e-3 + y.norm())) for x, y in zip(found, wanted))


def check(run):
    """Compares every problem with the dense specification in float64, given the same inputs.

    Softmax in bfloat16 may be twice as far off as PyTorch's flash attention.
    """
    n, m = run.sizes.odd
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2)):
        small = run.sizes._replace(tokens=m, heads=2)
        q, *_, upstream = independent(small, n, 2.0, dtype, run.device)
        _, k, v, _ = independent(small, m, 1.0, dtype, run.device)
        q, k, v, upstream = (x[:1] for x in (q, k, v, upstream))
        exact = [x.double() for x in (q, k, v, upstream)]
        for name, (regularizer, causal) in problems(dtype, run.device).items():
            parameters = list(regularizer.parameters())
            arguments = dict(
                regularizer=regularizer, is_causal=causal, causal_align="bottom_right"
            )
            f = functools.partial(attention, **arguments, backend="triton")
            dense = functools.partial(attention, **arguments, backend="dense")
            row = dict(goal="G8", what=name, dtype=str(dtype), limit=most)
            wanted = results(dense, exact, parameters)
            try:
                row["error"] = worst(results(f, (q, k, v, upstream), parameters), wanted)
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:300]
            if name == "softmax" and run.device != "cpu":
                peer = results(flash(False, run.device), (q, k, v, upstream), [])
                row["limit"] = max(2 * worst(peer, wanted), 1e-3)
            row["right"] = row.get("error", math.inf) <= row["limit"]
            run.wrong += not row["right"]
            run.write(**row)


# ---------------------------------------------------------------- the plan


def softmax(run, n, both):
    """G1, G2: causal softmax with a bias."""
    goals = {"flex": (0.8, 1.0)} if both else {"flex": (0.9, 1.15), "flash": (0.85, 1.1)}
    inputs = independent(run.sizes, n, 1.0, torch.bfloat16, run.device)
    for name, (regularizer, change) in biases(run.sizes, n, run.device).items():
        if name == "prior" and n != run.sizes.middle:
            continue
        candidates = {
            "ours": ours(regularizer, True), "flash": flash(True, run.device),
            "flex": flex(change, n, True, run.device),
        }  # fmt: skip
        what = f"causal softmax, {name}, n={n}"
        run.compare("G2" if both else "G1", what, inputs, candidates, both, goals)


def entmax(run, n, deviation):
    """G3: causal alpha = 1.5 on independent scores."""
    inputs = independent(run.sizes, n, deviation, torch.bfloat16, run.device)
    candidates = {"ours": ours(Tsallis(1.5), True), "flash": flash(True, run.device)}
    if adasplash() is not None and run.device != "cpu":
        candidates["adasplash"] = functools.partial(adasplash(), alpha=1.5, is_causal=True)
    what = f"causal alpha 1.5, independent, deviation {deviation:.3g}, n={n}"
    share = live_share(*inputs[:2], 1.5, True)
    run.compare("G3", what, inputs, candidates, True, {"adasplash": (1.0, 1.4)}, live=share)


def sparse(run, n, groups, chosen, goal):
    """G4: planted blocks, most of which have no weight."""
    inputs = planted(run.sizes, n, groups, chosen, torch.bfloat16, run.device)
    candidates = {"ours": ours(Tsallis(1.5), False), "flash": flash(False, run.device)}
    if adasplash() is not None and run.device != "cpu":
        candidates["adasplash"] = functools.partial(adasplash(), alpha=1.5, is_causal=False)
    what = f"alpha 1.5, planted {chosen} of {groups}, n={n}"
    share = live_share(*inputs[:2], 1.5, False)
    run.compare("G4", what, inputs, candidates, True, {"flash": goal}, live=share)


def dense(run, n):
    """G5: the forward pass where nothing can be skipped."""
    inputs = independent(run.sizes, n, 1.0, torch.bfloat16, run.device)
    candidates = {"ours": ours(Tsallis(1.5), False), "flash": flash(False, run.device)}
    what = f"alpha 1.5, independent, n={n}"
    run.compare("G5", what, inputs, candidates, False, {"flash": (1 / 3, 1 / 2)})


def general(run, n):
    """G6: any alpha against alpha = 1.5."""
    inputs = independent(run.sizes, n, 1.0, torch.bfloat16, run.device)
    orders = torch.linspace(1.2, 1.8, run.sizes.heads, device=run.device)
    for name, alpha in (("4/3", 4 / 3), ("of heads", torch.nn.Parameter(orders))):
        candidates = {"ours": ours(Tsallis(alpha), False), "alpha 1.5": ours(Tsallis(1.5), False)}
        what = f"alpha {name}, n={n}"
        run.compare("G6", what, inputs, candidates, True, {"alpha 1.5": (1 / 2, 1 / 1.4)})


def memory(run, n):
    """G7: the peak above the inputs, both passes."""
    small = run.sizes._replace(tokens=n, heads=min(8, run.sizes.heads))
    *tensors, upstream = independent(small, n, 1.0, torch.bfloat16, run.device)
    candidates = {"flash": flash(True, run.device)}
    candidates |= {"softmax": ours(Shannon(), True), "alpha 1.5": ours(Tsallis(1.5), True)}
    for name, f in candidates.items():
        peak = 0.0
        if run.device != "cpu":
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        calls(f, tensors, upstream, True)()
        if run.device != "cpu":
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        run.write(goal="G7", what=f"causal, n={n}", name=name, mebibytes=peak)


def plan(sizes):
    """What is measured, in this order, with the seconds that have to be left to begin it."""
    short, middle, long = sizes.short, sizes.middle, sizes.long
    return [
        ("G1", 25, lambda run: softmax(run, middle, False)),
        ("G3", 30, lambda run: entmax(run, middle, 1.0)),
        ("G4", 20, lambda run: sparse(run, long, 10, 1, (1.5, 2.5))),
        ("G4", 20, lambda run: sparse(run, long, 5, 2, (1.0, 1.3))),
        ("G5", 10, lambda run: dense(run, middle)),
        ("G2", 30, lambda run: softmax(run, middle, True)),
        ("G6", 30, lambda run: general(run, middle)),
        ("G3", 30, lambda run: entmax(run, long, math.sqrt(6))),
        ("G7", 15, lambda run: memory(run, sizes.largest)),
        ("G1", 20, lambda run: softmax(run, short, False)),
        ("G1", 20, lambda run: softmax(run, long, False)),
        ("G2", 25, lambda run: softmax(run, long, True)),
        ("G5", 10, lambda run: dense(run, long)),
    ]


def carry_out(run):
    """Checks, then the plan, as far as the budget goes."""
    check(run)
    for number, (goal, seconds, measure) in enumerate(plan(run.sizes)):
        if run.left() < seconds:
            run.write(goal=goal, skipped=f"part {number}: {run.left():.0f} s left of its {seconds}")
            continue
        try:
            measure(run)
        except Exception as error:  # what comes after may still be measured
            run.wrong += 1
            run.write(goal=goal, failed=f"part {number}: {type(error).__name__}: {error}"[:300])
    run.write(goal="all", wrong=run.wrong, finished=True)
    return 1 if run.wrong else 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=330, help="seconds (default 330)")
    parser.add_argument("--json", default="gpu.jsonl", help="rows are appended to it")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes, interpreted")
    arguments = parser.parse_args(arguments)
    if importlib.util.find_spec("triton") is None:
        print("There is no Triton here: these kernels need it (Linux).", file=sys.stderr)
        return 2
    if arguments.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"
        from eotcourse.engine import kernels

        kernels._blocks = lambda *_: (TOY.block, TOY.block)
        device, sizes, card = "cpu", TOY, "none: interpreted at toy sizes"
    elif torch.cuda.is_available():
        device, sizes, card = "cuda", CARD, torch.cuda.get_device_name()
    else:
        print("There is no CUDA card here; try --dry-run.", file=sys.stderr)
        return 2
    run = Run(device, arguments.budget, arguments.json, sizes)
    versions = {name: version_of(name) for name in ("torch", "triton", "adasplash")}
    run.write(goal="what", card=card, **versions, **sizes._asdict())
    return carry_out(run)


def version_of(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    sys.exit(main())
