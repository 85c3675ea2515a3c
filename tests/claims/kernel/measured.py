"""Claims of the page "When to use which"."""

import functools

import numpy as np
import torch
from claims import claim
from torch.utils.flop_counter import FlopCounterMode

from eotcourse import Tsallis, attention

aten = torch.ops.aten


def raw(f):
    """The counter then passes tensors, not their shapes."""
    f._get_raw = True
    return f


@raw
def gathered(table, index, *rest, **more):
    return 2 * index.numel() * table.shape[1]


@raw
def products(pairs, a, b, **more):
    return 2 * pairs._nnz() * a.shape[1]


@raw
def added(c, a, b, **more):
    return 2 * a.numel() * b.shape[-1]


KEPT = {
    aten._embedding_bag: gathered,
    aten._embedding_bag_forward_only: gathered,
    aten.sparse_sampled_addmm: products,
}


def counted(n, m, d, alpha, deviation, backend, seed):
    """Pairs, pairs with weight, and operations (all, on kept pairs) of one pass and of both."""
    g = torch.Generator().manual_seed(seed)
    q, upstream = torch.randn(2, 2, n, d, generator=g, dtype=torch.float64)
    k, v = torch.randn(2, 2, m, d, generator=g, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (deviation * q, k, v)]
    rule = Tsallis(alpha)
    support = int((rule(leaves[0] @ leaves[1].mT, d**0.5) > 0).sum())
    found = []
    with FlopCounterMode(display=False, custom_mapping={**KEPT, aten.baddbmm_: added}) as counter:
        out = attention(*leaves, regularizer=rule, backend=backend)
        for _ in range(2):
            by = counter.get_flop_counts()["Global"]
            found.append((sum(by.values()), sum(by.get(op, 0) for op in KEPT)))
            if len(found) == 1:
                out.backward(upstream)
    return 2 * n * m, support, *found


@functools.cache
def sparse_runs():
    rng, runs = np.random.default_rng(0), []
    for i in range(40):
        n, m, d = int(rng.integers(3, 40)), int(rng.integers(128, 300)), int(rng.choice([4, 7, 16]))
        alpha, deviation = (1.5, 2.0, 1.7)[i % 3], float(rng.uniform(3, 8))
        runs.append((d, *counted(n, m, d, alpha, deviation, "blockwise", i)))
    return runs


def dense(N, d):
    return 4 * N * d, 12 * N * d, 14 * N * d


def sparse(N, S, d):
    return 2 * N * d + 2 * S * d, 2 * N * d + 10 * S * d


@claim(
    "prop-sparsity-saves",
    part="(a) dense",
    tol=1e-12,
    instances=60,
    real=dict(dense=dense),
    mutants={
        "scores for nothing": dict(dense=lambda N, d: (2 * N * d, 12 * N * d, 14 * N * d)),
        "a backward pass costs as much as a forward pass": dict(
            dense=lambda N, d: (4 * N * d, 8 * N * d, 10 * N * d)
        ),
        "recomputed weights are free": dict(dense=lambda N, d: (4 * N * d, 12 * N * d, 12 * N * d)),
        "a multiplication and an addition are one": dict(
            dense=lambda N, d: tuple(x / 2 for x in dense(N, d))
        ),
        "features don't matter": dict(dense=lambda N, d: dense(N, 8)),
    },
)
def dense_products(impl):
    """Torch's own counter of operations, on attention that keeps its weights, and on attention by
    blocks of rows too short to be screened: distance from the formula, in relative terms."""
    rng = np.random.default_rng(1)
    for i in range(60):
        n, m, d = int(rng.integers(2, 50)), int(rng.integers(2, 90)), int(rng.choice([3, 8, 16]))
        alpha = (1.5, 2.0, 1.2)[i % 3]
        N, _, (one, _), (kept, _) = counted(n, m, d, alpha, 1.0, "dense", i)
        _, _, (again, _), (both, _) = counted(n, m, d, alpha, 1.0, "blockwise", i)
        ours = impl.dense(N, d)
        yield max(abs(x / y - 1) for x, y in zip((*ours, ours[0]), (one, kept, both, again)))


@claim(
    "prop-sparsity-saves",
    part="(b) sparse",
    tol=1e-12,
    instances=40,
    real=dict(sparse=sparse),
    mutants={
        "scores only where there is weight": dict(
            sparse=lambda N, S, d: (4 * S * d, 12 * S * d)
        ),
        "scores computed again": dict(
            sparse=lambda N, S, d: (2 * N * d + 2 * S * d, 4 * N * d + 10 * S * d)
        ),
        "output over all keys": dict(sparse=lambda N, S, d: (4 * N * d, 4 * N * d + 8 * S * d)),
        "values get no gradient": dict(
            sparse=lambda N, S, d: (2 * N * d + 2 * S * d, 2 * N * d + 8 * S * d)
        ),
        "every key has weight": dict(sparse=lambda N, S, d: sparse(N, N, d)),
    },
)
def sparse_products(impl):
    """Torch's counter, told how many operations a gather and a sampled product are, on attention
    by blocks with long rows of few weights, which are counted in the dense weights."""
    for d, N, S, (one, _), (both, _) in sparse_runs():
        ours = impl.sparse(N, S, d)
        yield max(abs(x / y - 1) for x, y in zip(ours, (one, both)))


def ratios(kappa, sigma, rho):
    return (1 + sigma + kappa * rho) / 2, (1 + sigma + 5 * kappa * rho) / 7


def break_even(kappa, sigma):
    return (1 - sigma) / kappa, (6 - sigma) / (5 * kappa)


def floors(sigma):
    return (1 + sigma) / 2, (1 + sigma) / 7


@claim(
    "prop-sparsity-saves",
    part="(c) ratio and break-even",
    tol=1e-9,
    instances=20,
    real=dict(ratios=ratios, break_even=break_even, floors=floors),
    mutants={
        "kept pairs cost as much as others": dict(ratios=lambda k, s, r: ratios(1, s, r)),
        "finding them is free": dict(ratios=lambda k, s, r: ratios(k, 0, r)),
        "the dense one keeps its weights": dict(
            ratios=lambda k, s, r: (ratios(k, s, r)[0], ratios(k, s, r)[1] * 7 / 6)
        ),
        "one product on kept pairs": dict(
            ratios=lambda k, s, r: (ratios(k, s, r)[0], (1 + s + k * r) / 7)
        ),
        "both passes as forward": dict(
            break_even=lambda k, s: (break_even(k, s)[0], break_even(k, s)[0])
        ),
        "seven for six": dict(
            break_even=lambda k, s: (break_even(k, s)[0], (7 - s) / (5 * k))
        ),
        "no floor": dict(floors=lambda s: (0.0, 0.0)),
    },
    covers=("eq-sparse-ratio", "eq-break-even"),
)
def costs(impl):
    """Two runs of different density, their counted operations priced; the line through the two
    gives the ratios between, the floor at density 0 and the density where it is 1."""
    rng, runs = np.random.default_rng(2), sparse_runs()
    for i in range(20):
        kappa, sigma = float(rng.uniform(2, 20)), float(rng.uniform(0, 0.9))
        points = []
        for d, N, S, *passes in (runs[i], runs[39 - i]):
            whole = [x for x, j in zip(dense(N, d), (0, 1, 2)) if j != 1]
            prices = [(all_ - kept) * (1 + sigma) + kept * kappa for all_, kept in passes]
            points.append((S / N, *(x / y for x, y in zip(prices, whole))))
        (r0, *y0), (r1, *y1) = points
        slopes = [(b - a) / (r1 - r0) for a, b in zip(y0, y1)]
        at_0 = [a - slope * r0 for a, slope in zip(y0, slopes)]
        at_1 = [(1 - a) / slope for a, slope in zip(at_0, slopes)]
        yield max(
            *(abs(x - y) for x, y in zip(impl.ratios(kappa, sigma, r0), y0)),
            *(abs(x - y) for x, y in zip(impl.floors(sigma), at_0)),
            *(abs(x / y - 1) for x, y in zip(impl.break_even(kappa, sigma), at_1)),
        )
