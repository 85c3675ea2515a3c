"""Claims of the page "Merging blocks"."""

import math

import numpy as np
import torch
from claims import claim
from torch.nn.functional import scaled_dot_product_attention

from eotcourse import Shannon, Tsallis, softmax

ORDERS = (1.0, 1.25, 1.5, 2.0, 2.5)


def member(alpha):
    return Shannon() if alpha == 1 else Tsallis(alpha)


def temperature(rng):
    return float(rng.choice([0.6, 1.0, 2.3]))


def exp_order(x, alpha):
    if alpha == 1:
        return np.exp(x)
    return np.maximum(1 + (alpha - 1) * x, 0) ** (1 / (alpha - 1))


def by_halving(theta, alpha):
    """The soft maximum of scaled scores, by cutting a bracket in two a hundred times."""
    theta = np.asarray(theta, dtype=float)
    low, high = theta.max() - 1.0, theta.max() + math.log(len(theta)) + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if exp_order(theta - middle, alpha).sum() > 1:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def soft_maximum(theta, alpha):
    return float(member(alpha).threshold(torch.as_tensor(theta, dtype=torch.float64)))


def merge(one, two):
    (z1, c1), (z2, c2) = one, two
    z = np.logaddexp(z1, z2)
    if z == -np.inf:
        return z, 0 * c1
    return z, math.exp(z1 - z) * c1 + math.exp(z2 - z) * c2


def halves(one, two):
    return np.logaddexp(one[0], two[0]), (one[1] + two[1]) / 2


def to_the_larger(one, two):
    return max(one[0], two[0]), merge(one, two)[1]


def distance(one, two):
    same = one[0] == two[0]
    # Python's max would pass over a NaN.
    return np.max([0.0 if same else abs(one[0] - two[0]), np.abs(one[1] - two[1]).max()])


def unguarded(one, two):
    (z1, c1), (z2, c2) = one, two
    with np.errstate(invalid="ignore"):
        z = np.logaddexp(z1, z2)
        return z, np.exp(z1 - z) * c1 + np.exp(z2 - z) * c2


@claim(
    "thm-lse-monoid",
    part="(a) a commutative monoid",
    result="T2.10",
    tol=1e-12,
    instances=200,
    real=dict(merge=merge, empty=lambda d: (-np.inf, np.zeros(d))),
    mutants={
        "outputs averaged": dict(merge=halves),
        "the larger soft maximum": dict(merge=to_the_larger),
        "the later one wins": dict(merge=lambda one, two: (merge(one, two)[0], two[1])),
        "weights exchanged": dict(
            merge=lambda one, two: merge((one[0], two[1]), (two[0], one[1]))
        ),
        "nothing minus nothing": dict(merge=unguarded),
        "empty at zero": dict(empty=lambda d: (0.0, np.zeros(d))),
    },
    covers=("eq-lse-merge",),
)
def laws(impl):
    """Commutativity, associativity and identity for random states, a fifth of them empty; and the
    merge against addition of (e^zeta, e^zeta c)."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        x, y, z = (
            impl.empty(3) if rng.random() < 0.2 else (rng.normal(0, 3), rng.normal(size=3))
            for _ in range(3)
        )
        xy = impl.merge(x, y)
        mass = np.exp(x[0]) + np.exp(y[0])
        total = np.exp(x[0]) * x[1] + np.exp(y[0]) * y[1]
        with np.errstate(divide="ignore"):
            added = np.log(mass), total / (mass if mass > 0 else 1.0)
        nothing = impl.empty(3)
        yield np.max([
            distance(xy, impl.merge(y, x)),
            distance(impl.merge(xy, z), impl.merge(x, impl.merge(y, z))),
            distance(impl.merge(x, nothing), x),
            distance(impl.merge(nothing, nothing), (-np.inf, np.zeros(3))),
            distance(xy, added),
        ])


def leaf(s, v, tau):
    return s / tau, v


@claim(
    "thm-lse-monoid",
    part="(b) any order gives attention",
    result="T2.10",
    tol=1e-12,
    instances=100,
    real=dict(leaf=leaf, merge=merge),
    mutants={
        "temperature missing": dict(leaf=lambda s, v, tau: (s, v)),
        "temperature twice": dict(leaf=lambda s, v, tau: (s / tau**2, v)),
        "outputs averaged": dict(merge=halves),
        "the larger soft maximum": dict(merge=to_the_larger),
        "values weighted already": dict(leaf=lambda s, v, tau: (s / tau, math.exp(s / tau) * v)),
    },
)
def fold(impl):
    """States of single keys, of which some are forbidden, merged two at a time in random order,
    against torch's SDPA and logsumexp."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        n, tau = int(rng.integers(2, 10)), temperature(rng)
        q, k, v = rng.normal(size=(1, 3)), rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
        keep = np.arange(n) == 0
        keep |= rng.random(n) < 0.8
        s = np.where(keep, (q @ k.T)[0], -np.inf)
        states = [impl.leaf(a, b if on else 0 * b, tau) for a, b, on in zip(s, v, keep)]
        while len(states) > 1:
            a, b = (states.pop(int(rng.integers(len(states)))) for _ in range(2))
            states.append(impl.merge(a, b))
        out = scaled_dot_product_attention(
            *(torch.as_tensor(x)[None] for x in (q, k, v)),
            torch.as_tensor(keep)[None],
            scale=1 / tau,
        )[0, 0].numpy()
        zeta = float(torch.as_tensor(s / tau).logsumexp(-1))
        yield distance(states[0], (zeta, out))


@claim(
    "thm-lse-monoid",
    part="(c) attention over blocks",
    result="T2.10",
    tol=1e-12,
    instances=100,
    real=dict(over=lambda zetas, tops, sizes: softmax(zetas)),
    mutants={
        "all blocks equal": dict(over=lambda z, t, m: torch.ones_like(z) / len(z)),
        "by number of keys": dict(over=lambda z, t, m: m / m.sum()),
        "by the best key": dict(over=lambda z, t, m: softmax(t)),
        "proportional to the soft maximum": dict(over=lambda z, t, m: z / z.sum()),
        "sparsemax over blocks": dict(over=lambda z, t, m: Tsallis(2.0)(z)),
    },
)
def blocks(impl):
    """Softmax over the blocks' soft maxima, times the weights inside the blocks, against torch's
    softmax of the whole row."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        parts = [torch.as_tensor(rng.normal(0, 2, int(rng.integers(1, 6)))) for _ in range(3)]
        zetas = torch.stack([x.logsumexp(-1) for x in parts])
        tops = torch.stack([x.max() for x in parts])
        sizes = torch.tensor([float(len(x)) for x in parts], dtype=torch.float64)
        over = impl.over(zetas, tops, sizes)
        mine = torch.cat([w * torch.softmax(x, -1) for w, x in zip(over, parts, strict=True)])
        yield float((mine - torch.softmax(torch.cat(parts), -1)).abs().max())


def weak(alpha):
    return (2 ** (1 - alpha) - 1) / (alpha - 1)


@claim(
    "prop-no-merge",
    tol=1e-9,
    instances=40,
    real=dict(soft_maximum=soft_maximum, weak=weak, order=lambda a: a, level=lambda a: -weak(a)),
    mutants={
        "softmax can merge": dict(order=lambda a: 1.0, weak=lambda a: math.log(0.5)),
        "half the score": dict(weak=lambda a: -0.5),
        "logarithm for every order": dict(weak=lambda a: math.log(0.5)),
        "the largest score": dict(soft_maximum=lambda x, a: max(x)),
        "sign of the level": dict(level=weak),
        "log-sum-exp": dict(soft_maximum=lambda x, a: float(np.logaddexp.reduce(x))),
    },
)
def two_pasts(impl):
    """One key and two weaker ones with the soft maximum 0 each; with one more key the first has
    the stated level, found by halving too, and the second lies below by a hundredth at least."""
    for i in range(40):
        alpha = 1.1 + 0.05 * i
        a, w = impl.order(alpha), impl.weak(alpha)
        one, two = [0.0], [w, w]
        first, second = (impl.soft_maximum(x + [0.0], a) for x in (one, two))
        yield max(
            abs(impl.soft_maximum(one, a)),
            abs(impl.soft_maximum(two, a)),
            abs(first - impl.level(alpha)),
            abs(first - by_halving(one + [0.0], alpha)),
            abs(second - by_halving(two + [0.0], a)),
            max(0.0, second - first + 0.01),
        )


def edge(alpha):
    return 1 / (alpha - 1)


def some(rng, n):
    on = rng.random(n) < 0.5
    on[int(rng.integers(n))] = True
    return on


@claim(
    "lem-subset-threshold",
    part="(a) a lower bound",
    result="T3.13",
    tol=1e-10,
    instances=300,
    real=dict(
        bound=lambda theta, on, alpha: soft_maximum(theta[on], alpha),
        idle=lambda p, on: bool((p[~on] == 0).all()),
    ),
    mutants={
        "softmax's for all": dict(bound=lambda th, on, al: soft_maximum(th[on], 1.0)),
        "an upper bound of the scores": dict(
            bound=lambda th, on, al: soft_maximum(th[on] + 0.1, al)
        ),
        "spread over all keys": dict(
            bound=lambda th, on, al: soft_maximum(np.where(on, th, th[on].mean()), al)
        ),
        "equal whenever the best is in": dict(idle=lambda p, on: bool(on[p.argmax()])),
        "equal whatever the others": dict(idle=lambda p, on: True),
    },
)
def subset(impl):
    """The soft maximum over random keys against that over all, by halving: not above, equal where
    the others have no weight, and lower where one of them has more than 1e-4."""
    rng = np.random.default_rng(3)
    for i in range(300):
        alpha, n = ORDERS[i % 5], int(rng.integers(2, 10))
        theta = rng.normal(0, 1.5, n)
        on = some(rng, n)
        if i // 5 % 2 and alpha > 1:
            on = theta > np.sort(theta)[0]
        whole = by_halving(theta, alpha)
        p = exp_order(theta - whole, alpha)
        gap = whole - impl.bound(theta, on, alpha)
        if impl.idle(p, on):
            yield abs(gap)
        elif p[~on].max(initial=0) > 1e-4:
            yield max(0.0, 1e-7 - gap)
        else:
            yield max(0.0, -gap)


@claim(
    "lem-subset-threshold",
    part="(b) screened keys have no weight, and the rest decide",
    result="T3.13",
    tol=1e-10,
    instances=200,
    real=dict(
        keep=lambda theta, on, alpha: theta > soft_maximum(theta[on], alpha) - edge(alpha)
    ),
    mutants={
        "edge of order 2 for all": dict(
            keep=lambda th, on, al: th > soft_maximum(th[on], al) - min(edge(al), 1.0)
        ),
        "edge multiplied": dict(
            keep=lambda th, on, al: th > soft_maximum(th[on], al) - min(al - 1, edge(al))
        ),
        "the soft maximum of all as softmax has it": dict(
            keep=lambda th, on, al: th > np.logaddexp.reduce(th) - edge(al)
        ),
        "the subset only": dict(keep=lambda th, on, al: on),
        "an upper bound of the scores": dict(
            keep=lambda th, on, al: th > soft_maximum(th[on] + 0.5, al) - edge(al)
        ),
    },
)
def screen(impl):
    """The keys that a random subset does not exclude: the excluded have no weight by halving over
    all keys, and the soft maximum of the others, by halving, is that of all."""
    rng = np.random.default_rng(4)
    for i in range(200):
        alpha, n = (1.25, 1.5, 2.0, 2.5)[i % 4], int(rng.integers(3, 30))
        theta = rng.normal(0, rng.choice([0.3, 1.0, 3.0]), n)
        keep = impl.keep(theta, some(rng, n), alpha)
        whole = by_halving(theta, alpha)
        p = exp_order(theta - whole, alpha)
        rest = by_halving(theta[keep], alpha) if keep.any() else np.inf
        yield max(float(p[~keep].sum()), abs(rest - whole))


def above(shards, alpha):
    return math.log(shards) if alpha == 1 else (1 - shards ** (1 - alpha)) / (alpha - 1)


@claim(
    "thm-sharded-threshold",
    part="(a) the largest of the shards, and how far above it",
    result="T3.13",
    tol=1e-10,
    instances=250,
    real=dict(low=max, above=above),
    mutants={
        "sum of the shards": dict(low=sum),
        "as softmax merges": dict(low=lambda z: float(np.logaddexp.reduce(z))),
        "logarithm for all": dict(above=lambda r, al: math.log(r)),
        "one shard fewer": dict(above=lambda r, al: above(r - 1, al)),
        "smallest of the shards": dict(low=min),
        "limit of many shards": dict(above=lambda r, al: 1 / (al - 1) if al > 1 else above(r, 1)),
    },
    covers=("eq-shard-bounds",),
)
def shard_bounds(impl):
    """The soft maximum of all keys by halving, between the bounds from the shards'; at the upper
    one for shards with one key each and equal scores; at the lower one where the other shards lie
    far below the best."""
    rng = np.random.default_rng(5)
    for i in range(250):
        alpha, r, kind = ORDERS[i % 5], int(rng.integers(2, 7)), i // 5 % 3
        shards = [rng.normal(0, 1.5, int(rng.integers(1, 6))) for _ in range(r)]
        if kind == 1:
            shards = [np.full(1, 0.3)] * r
        if kind == 2:
            shards = [x - 60 * j for j, x in enumerate(shards)]
        zetas = [soft_maximum(x, alpha) for x in shards]
        whole = by_halving(np.concatenate(shards), alpha)
        low = impl.low(zetas)
        high = low + impl.above(r, alpha)
        yield (
            max(0.0, low - whole - 1e-12, whole - high - 1e-12),
            abs(whole - high),
            abs(whole - low),
        )[kind]


@claim(
    "thm-sharded-threshold",
    part="(b) survivors",
    result="T3.13",
    tol=1e-10,
    instances=200,
    real=dict(
        cut=lambda zetas, alpha: max(zetas) - edge(alpha),
        inside=lambda p: p > 0,
    ),
    mutants={
        "without the edge": dict(cut=lambda z, al: max(z)),
        "as softmax merges": dict(cut=lambda z, al: float(np.logaddexp.reduce(z)) - edge(al)),
        "smallest of the shards": dict(cut=lambda z, al: min(z) - edge(al)),
        "edge multiplied": dict(cut=lambda z, al: max(z) - min(al - 1, edge(al))),
        "half of a shard's support": dict(inside=lambda p: p >= np.median(p[p > 0])),
    },
)
def survivors(impl):
    """Keys above the cut: each has weight in its own shard; those with weight among all keys, by
    halving, are among them; and they give the soft maximum of all."""
    rng = np.random.default_rng(6)
    for i in range(200):
        alpha, r = (1.25, 1.5, 2.0, 2.5)[i % 4], int(rng.integers(2, 6))
        shards = [rng.normal(0, 1.5, int(rng.integers(1, 12))) for _ in range(r)]
        zetas = [by_halving(x, alpha) for x in shards]
        cut, theta = impl.cut(zetas, alpha), np.concatenate(shards)
        own = np.concatenate(
            [impl.inside(exp_order(x - z, alpha)) for x, z in zip(shards, zetas, strict=True)]
        )
        whole, keep = by_halving(theta, alpha), theta > cut
        p = exp_order(theta - whole, alpha)
        rest = by_halving(theta[keep], alpha) if keep.any() else np.inf
        yield max(
            float((keep & ~own).sum()),
            float(((p > 1e-9) & ~keep).sum()),
            abs(rest - whole),
        )
