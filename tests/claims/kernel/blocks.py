"""Claims of the page "Blockwise attention"."""

import math

import numpy as np
import torch
from claims import claim

from eotcourse import Tsallis, attention

ORDERS = (1.25, 1.5, 2.0, 2.5)


def exp_order(x, alpha):
    return np.maximum(1 + (alpha - 1) * x, 0) ** (1 / (alpha - 1))


def by_halving(theta, alpha):
    """The soft maxima of rows of scaled scores, by cutting a bracket in two sixty times."""
    top = theta.max(-1)
    low, high = top - 1.0, top + np.log(theta.shape[-1]) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        heavy = exp_order(theta - middle[..., None], alpha).sum(-1) > 1
        low, high = np.where(heavy, middle, low), np.where(heavy, high, middle)
    return (low + high) / 2


def weights(theta, alpha):
    return exp_order(theta - by_halving(theta, alpha)[..., None], alpha)


def soft_maximum(theta, alpha):
    return float(Tsallis(alpha).threshold(torch.as_tensor(theta, dtype=torch.float64)))


def edge(alpha):
    return 1 / (alpha - 1)


# ------------------------------------------------------------------- lists of pairs


def problem(rng, alpha):
    """Queries, keys, values, upstream gradients, biases, temperature; no key near the edge."""
    while True:
        q, k = rng.normal(size=(3, 4)), rng.normal(size=(8, 4))
        v, g = rng.normal(size=(8, 2)), rng.normal(size=(3, 2))
        bias, tau = rng.normal(0, 0.5, (3, 8)), float(rng.choice([0.6, 1.3, 2.3]))
        bias[0, 5] = -np.inf
        theta = q @ k.T / tau + bias
        gap = theta - by_halving(theta, alpha)[:, None] + edge(alpha)
        if np.abs(gap).min() > 0.02:
            return q, k, v, g, bias, tau


def loss(q, k, v, g, bias, tau, alpha):
    return float((g * (weights(q @ k.T / tau + bias, alpha) @ v)).sum())


def slope(f, h=1e-5):
    return (f(h) - f(-h)) / (2 * h)


def respond(p, alpha):
    return p ** (2 - alpha)


def mean_of(u, x, output):
    return (u * x).sum() / u.sum()


def on_support(theta, alpha, start):
    """Keys of a block of four with weight in the row, and their weights."""
    p = weights(theta, alpha)[start:start + 4]
    j = np.flatnonzero(p > 0)
    return j + start, p[j]


def listed(impl, q, k, v, g, bias, tau, alpha):
    """Gradients of queries, keys and values, and z row by row, from pairs of two blocks of keys."""
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    rows = []
    theta = impl.scores(q, k, tau) + bias
    for i in range(len(q)):
        parts = [impl.pairs(theta[i], alpha, start) for start in (0, 4)]
        j, p = (np.concatenate(x) for x in zip(*parts, strict=True))
        u, x = impl.respond(p, alpha), v[j] @ g[i]
        z = u * (x - impl.mean(u, x, g[i] @ (p @ v[j]))) / tau
        dq[i] = z @ k[j]
        np.add.at(dk, j, z[:, None] * q[i])
        np.add.at(dv, j, p[:, None] * g[i])
        rows.append((j, p, z))
    return dq, dk, dv, rows


def with_zeros(theta, alpha, start):
    return np.arange(start, start + 4), weights(theta, alpha)[start:start + 4]


def shifted(theta, alpha, start):
    j, p = on_support(theta, alpha, start)
    return (np.minimum(j + 1, len(theta) - 1), p) if start else (j, p)


def first_block(theta, alpha, start):
    j, p = on_support(theta, alpha, start)
    return (j, p) if start == 0 else (j[:0], p[:0])


def screened(theta, alpha, start):
    j, p = on_support(theta, alpha, start)
    keep = theta[j] > theta.max() - 0.5 * edge(alpha)
    return j[keep], p[keep]


PAIRS = dict(
    scores=lambda q, k, tau: q @ k.T / tau, pairs=on_support, respond=respond, mean=mean_of
)


@claim(
    "prop-support-suffices",
    part="(a) outputs and gradients of queries, keys and values",
    result="T3.13",
    tol=1e-6,
    instances=60,
    real=PAIRS,
    mutants={
        "softmax's baseline": dict(mean=lambda u, x, output: output),
        "no baseline": dict(mean=lambda u, x, output: 0.0),
        "plain mean": dict(mean=lambda u, x, output: x.mean()),
        "softmax's response": dict(respond=lambda p, al: p),
        "indicator for every order": dict(respond=lambda p, al: np.ones_like(p)),
        "zero to the zero": dict(pairs=with_zeros, respond=lambda p, al: p ** max(2 - al, 0)),
        "second block one key late": dict(pairs=shifted),
        "first block only": dict(pairs=first_block),
        "half the reach below the largest score": dict(pairs=screened),
        "temperature twice": dict(scores=lambda q, k, tau: q @ k.T / tau**2),
        "temperature missing": dict(scores=lambda q, k, tau: q @ k.T),
    },
)
def from_pairs(impl):
    """Gradients from the listed pairs of two blocks, along random directions of queries, keys and
    values, against differences of a loss whose weights are found by halving."""
    rng = np.random.default_rng(0)
    for i in range(60):
        alpha = ORDERS[i % 4]
        q, k, v, g, bias, tau = problem(rng, alpha)
        dq, dk, dv, _ = listed(impl, q, k, v, g, bias, tau, alpha)
        a, b, c = (rng.normal(size=x.shape) for x in (q, k, v))
        errors = (
            (dq * a).sum() - slope(lambda h: loss(q + h * a, k, v, g, bias, tau, alpha)),
            (dk * b).sum() - slope(lambda h: loss(q, k + h * b, v, g, bias, tau, alpha)),
            (dv * c).sum() - slope(lambda h: loss(q, k, v + h * c, g, bias, tau, alpha)),
        )
        yield np.abs(errors).max()


def alpha_slope(p, alpha):
    u = p ** (2 - alpha)
    share, h, a = u / u.sum(), -p * np.log(p), alpha - 1
    return (p - share) / a**2 + (h - share * h.sum()) / a


def entropy_only(p, alpha):
    u = p ** (2 - alpha)
    h = -p * np.log(p)
    return (h - u / u.sum() * h.sum()) / (alpha - 1)


@claim(
    "prop-support-suffices",
    part="(b) biases and alpha",
    result="T3.13",
    tol=1e-6,
    instances=60,
    real=dict(PAIRS, bias=lambda z, tau: tau * z, slope=alpha_slope),
    mutants={
        "biases are raw scores": dict(bias=lambda z, tau: z),
        "biases divided": dict(bias=lambda z, tau: z / tau),
        "softmax's baseline": dict(mean=lambda u, x, output: output),
        "entropies alone": dict(slope=entropy_only),
        "alpha slope of the other sign": dict(slope=lambda p, al: -alpha_slope(p, al)),
        "second block one key late": dict(pairs=shifted),
    },
)
def other_inputs(impl):
    """Gradients in the biases, along a random direction, and in alpha from the listed pairs,
    against differences of a loss whose weights are found by halving."""
    rng = np.random.default_rng(1)
    for i in range(60):
        alpha = ORDERS[i % 4]
        q, k, v, g, bias, tau = problem(rng, alpha)
        rows = listed(impl, q, k, v, g, bias, tau, alpha)[3]
        to = rng.normal(size=bias.shape)
        by_bias = sum(impl.bias(z, tau) @ to[r, j] for r, (j, _, z) in enumerate(rows))
        by_alpha = sum(v[j] @ g[r] @ impl.slope(p, alpha) for r, (j, p, _) in enumerate(rows))
        yield max(
            abs(by_bias - slope(lambda h: loss(q, k, v, g, bias + h * to, tau, alpha))),
            abs(by_alpha - slope(lambda h: loss(q, k, v, g, bias, tau, alpha + h))),
        )


def engine_gradients(q, k, v, g, bias, tau, alpha):
    leaves = [torch.as_tensor(x).requires_grad_() for x in (q, k, v)]
    out = attention(
        *leaves, torch.as_tensor(bias), scale=1 / tau, regularizer=Tsallis(alpha),
        backend="blockwise",
    )  # fmt: skip
    return [x.numpy() for x in torch.autograd.grad(out, leaves, torch.as_tensor(g))]


@claim(
    "prop-support-suffices",
    part="(c) temperature",
    result="T3.13",
    tol=1e-6,
    instances=60,
    real=dict(
        gradients=engine_gradients, heat=lambda q, k, dq, dk, tau: -(q * dq).sum() / tau
    ),
    mutants={
        "sign": dict(heat=lambda q, k, dq, dk, tau: (q * dq).sum() / tau),
        "not divided": dict(heat=lambda q, k, dq, dk, tau: -(q * dq).sum()),
        "divided twice": dict(heat=lambda q, k, dq, dk, tau: -(q * dq).sum() / tau**2),
        "queries and keys": dict(
            heat=lambda q, k, dq, dk, tau: -((q * dq).sum() + (k * dk).sum()) / tau
        ),
        "gradients of softmax": dict(
            gradients=lambda q, k, v, g, b, tau, al: engine_gradients(q, k, v, g, b, tau, 1.0)
        ),
    },
)
def from_queries(impl):
    """The gradient in the temperature from queries and their gradients, which the package finds
    block by block, against a difference of a loss whose weights are found by halving."""
    rng = np.random.default_rng(2)
    for i in range(60):
        alpha = ORDERS[i % 4]
        q, k, v, g, bias, tau = problem(rng, alpha)
        dq, dk, _ = impl.gradients(q, k, v, g, bias, tau, alpha)
        heat = impl.heat(q, k, dq, dk, tau)
        yield abs(heat - slope(lambda h: loss(q, k, v, g, bias, tau + h, alpha)))


# ------------------------------------------------------------------- screening


def grouped(rng, n, size):
    """A row of scores, some of them forbidden, and groups of keys, up to `size` in each."""
    theta = rng.normal(0, rng.choice([0.3, 1.0, 2.0]), n)
    theta[1:][rng.random(n - 1) < 0.1] = -np.inf
    order, groups = rng.permutation(n), []
    while len(order):
        cut = int(rng.integers(1, size + 1))
        groups.append(order[:cut])
        order = order[cut:]
    return theta, groups


def maxima(theta, groups):
    return np.array([theta[x].max() for x in groups])


def overlapping(theta, groups):
    """Each group also has the first key of the next one."""
    return maxima(theta, [np.append(x, y[0]) for x, y in zip(groups, groups[1:] + groups[:1])])


@claim(
    "thm-group-screening",
    part="(a) a lower bound",
    result="T3.13",
    tol=1e-9,
    instances=200,
    real=dict(maxima=maxima, low=lambda m, slack: m - slack, solve=soft_maximum),
    mutants={
        "upper bounds": dict(low=lambda m, slack: m + slack),
        "a key in two groups": dict(maxima=overlapping),
        "sums of groups": dict(
            maxima=lambda th, gr: np.array([np.exp(th[x]).sum() for x in gr])
        ),
        "log-sum-exp": dict(solve=lambda x, al: float(np.logaddexp.reduce(x))),
        "the upper end of the bracket": dict(
            solve=lambda x, al: x.max() + (1 - len(x) ** (1 - al)) / (al - 1)
        ),
    },
)
def from_below(impl):
    """The soft maximum of lowered group maxima against that of the row, found by halving: not
    above it; every fourth time the maxima are exact, every eighth a group isn't looked at."""
    rng = np.random.default_rng(3)
    for i in range(200):
        alpha = ORDERS[i // 8 % 4]
        theta, groups = grouped(rng, int(rng.integers(2, 40)), int(rng.integers(1, 9)))
        top = impl.maxima(theta, groups)
        slack = np.zeros(len(top)) if i % 4 == 0 else rng.exponential(0.3, len(top))
        low = impl.low(top, slack)
        if i % 8 == 1 and len(low) > 1:
            low[np.argmin(low)] = -np.inf
        yield max(0.0, impl.solve(low, alpha) - float(by_halving(theta, alpha)))


@claim(
    "thm-group-screening",
    part="(b) nothing is lost",
    result="T3.13",
    tol=1e-9,
    instances=200,
    real=dict(
        low=lambda m, slack: m - slack,
        high=lambda m, slack: m + slack,
        early=lambda ell, slack: ell - slack,
        cut=lambda ell, alpha: ell - edge(alpha),
        test=lambda theta, x, high: high,
    ),
    mutants={
        "lower bounds in the test": dict(high=lambda m, slack: m - slack),
        "upper bounds in the soft maximum": dict(low=lambda m, slack: m + 2 * slack),
        "a solver from above": dict(early=lambda ell, slack: ell + slack),
        "means in the test": dict(test=lambda theta, x, high: theta[x].mean()),
        "without the edge": dict(cut=lambda ell, al: ell),
        "edge of order 2 for all": dict(cut=lambda ell, al: ell - min(1.0, edge(al))),
        "edge multiplied": dict(cut=lambda ell, al: ell - min(al - 1, edge(al))),
    },
)
def nothing_lost(impl):
    """Groups excluded by bounds from both sides: the weight they have by halving over the row, and
    the change of the weights of all others when they are gone."""
    rng = np.random.default_rng(4)
    for i in range(200):
        alpha = ORDERS[i % 4]
        theta, groups = grouped(rng, int(rng.integers(4, 60)), int(rng.integers(1, 9)))
        top = maxima(theta, groups)
        low = impl.low(top, rng.exponential(0.2, len(top)))
        high = impl.high(top, rng.exponential(0.2, len(top)))
        ell = impl.early(soft_maximum(low, alpha), rng.exponential(0.1))
        cut, keep = impl.cut(ell, alpha), np.zeros(len(theta), bool)
        for x, above in zip(groups, high, strict=True):
            keep[x] = not impl.test(theta, x, above) <= cut
        p = weights(theta, alpha)
        if not (theta[keep] > -np.inf).any():
            yield 1.0
        else:
            yield max(p[~keep].sum(), np.abs(weights(theta[keep], alpha) - p[keep]).max())


def above(size, alpha):
    return (1 - size ** (1 - alpha)) / (alpha - 1)


def equal_group(rng, alpha):
    """A group of equal scores that alone has weight among the maxima, and lower groups."""
    size = int(rng.integers(2, 7))
    low = 0.3 - edge(alpha) - rng.exponential(1.0, (4, size - 1))
    return np.append(np.full(size, 0.3), low), [np.arange(size)] + [
        size + (size - 1) * r + np.arange(size - 1) for r in range(4)
    ]


def one_each(rng, alpha):
    """Groups of which no second key has weight."""
    top = rng.normal(0, 0.5, 5)
    rest = top.min() - 2 * edge(alpha) - 2 - rng.exponential(1.0, (5, 3))
    return np.append(top, rest), [np.append(r, 5 + 3 * r + np.arange(3)) for r in range(5)]


@claim(
    "thm-group-screening",
    part="(c) how far below",
    result="T3.13",
    tol=1e-9,
    instances=240,
    real=dict(
        gap=lambda size, many, alpha: above(size, alpha),
        maxima=maxima,
        left=lambda p, top: p > 0,
    ),
    mutants={
        "logarithm for all": dict(gap=lambda g, many, al: math.log(g)),
        "number of groups": dict(gap=lambda g, many, al: above(many, al)),
        "one key fewer": dict(gap=lambda g, many, al: above(g - 1, al)),
        "the limit of large groups": dict(gap=lambda g, many, al: edge(al)),
        "means of groups": dict(maxima=lambda th, gr: np.array([th[x].mean() for x in gr])),
        "best group only": dict(left=lambda p, top: top == top.max()),
        "all groups": dict(left=lambda p, top: top > -np.inf),
    },
    covers=("eq-group-gap",),
)
def looseness(impl):
    """The row's soft maximum by halving, between that of the exact maxima and the stated bound; at
    the bound for a group of equal scores, at the maxima's for groups with one key each; and the
    groups left, against those with weight among the maxima by halving."""
    rng = np.random.default_rng(5)
    for i in range(240):
        alpha, kind = ORDERS[i % 4], i // 4 % 3
        if kind == 0:
            theta, groups = grouped(rng, int(rng.integers(4, 60)), 8)
        else:
            theta, groups = (equal_group, one_each)[kind - 1](rng, alpha)
        size = max(map(len, groups))
        top = impl.maxima(theta, groups)
        low, whole = soft_maximum(top, alpha), float(by_halving(theta, alpha))
        high = low + impl.gap(size, len(groups), alpha)
        exact = maxima(theta, groups)
        left = exact > soft_maximum(exact, alpha) - edge(alpha)
        wrong = float((left != impl.left(weights(exact, alpha), exact)).sum())
        bracket = max(0.0, low - whole, whole - high)
        yield wrong + (bracket, abs(whole - high), abs(whole - low))[kind]
