"""Claims of the page "One number per row"."""

import math

import numpy as np
import torch
from claims import claim
from torch.nn.functional import scaled_dot_product_attention

from eotcourse import Shannon, Tsallis, attention, softmax

ORDERS = (1.0, 1.25, 1.5, 2.0, 2.5)


def member(alpha):
    return Shannon() if alpha == 1 else Tsallis(alpha)


def normal(rng, *shape):
    return torch.as_tensor(rng.normal(size=shape))


def temperature(rng):
    return float(rng.choice([0.6, 1.0, 2.3]))


def log_order(x, alpha):
    return np.log(x) if alpha == 1 else (x ** (alpha - 1) - 1) / (alpha - 1)


def exp_order(x, alpha):
    if alpha == 1:
        return np.exp(x)
    return np.maximum(1 + (alpha - 1) * x, 0) ** (1 / (alpha - 1))


def by_halving(theta, alpha):
    """The soft maxima of rows of scaled scores, by cutting a bracket in two a hundred times."""
    low, high = theta.max(-1) - 1.0, theta.max(-1) + np.log(theta.shape[-1]) + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        heavy = exp_order(theta - middle[..., None], alpha).sum(-1) > 1
        low, high = np.where(heavy, middle, low), np.where(heavy, high, middle)
    return (low + high) / 2


def by_package(s, bias, tau, alpha):
    return member(alpha).threshold(s + tau * bias, tau)


def tile_by_package(s, bias, zeta, tau, alpha):
    return member(alpha).weights_at(s + tau * bias, zeta, tau)


@claim(
    "thm-one-number",
    part="(a) the rest is a function of one entry",
    tol=1e-9,
    instances=200,
    real=dict(threshold=by_package, weights=tile_by_package, unit=tile_by_package),
    mutants={
        "the largest score for the soft maximum": dict(
            threshold=lambda s, b, tau, al: (s / tau + b).amax(-1)
        ),
        "the textbook threshold": dict(
            threshold=lambda s, b, tau, al: (al - 1) * by_package(s, b, tau, al) - 1
        ),
        "temperature missing": dict(threshold=lambda s, b, tau, al: by_package(s, b, 1.0, al)),
        "bias divided too": dict(threshold=lambda s, b, tau, al: by_package(s, b / tau, tau, al)),
        "every member a softmax": dict(
            weights=lambda s, b, z, tau, al: tile_by_package(s, b, z, tau, 1.0)
        ),
        "a tile sums to one": dict(
            weights=lambda s, b, z, tau, al: tile_by_package(
                s, b, by_package(s, b, tau, al), tau, al
            )
        ),
        "soft maxima of other rows": dict(
            weights=lambda s, b, z, tau, al: tile_by_package(s, b, z.flip(0), tau, al)
        ),
    },
    covers=("eq-one-number",),
)
def pointwise(impl):
    """A tile is recomputed from the soft maxima of its rows, in which a quarter of the keys is
    forbidden; with it the rows are certified optimal by the conditions of Kuhn and Tucker: they sum to one, score minus log_alpha of the weight is the same for all keys with weight, and
    at least the score minus log_alpha(0) for those without."""
    rng = np.random.default_rng(0)
    for i in range(200):
        alpha, tau, n = ORDERS[i % 5], temperature(rng), int(rng.integers(5, 12))
        s, bias = 2 * normal(rng, 4, n), normal(rng, 4, n)
        bias[:, 1:][torch.as_tensor(rng.random((4, n - 1)) < 0.25)] = -torch.inf
        zeta = impl.threshold(s, bias, tau, alpha)
        start = int(rng.integers(0, n - 3))
        columns = slice(start, start + 3)
        tile = impl.weights(s[:, columns], bias[:, columns], zeta, tau, alpha).numpy()
        theta = (s / tau + bias).numpy()
        z = zeta.numpy()[:, None]
        whole = np.where(np.isinf(theta), 0.0, exp_order(theta - z, alpha))
        whole[:, columns] = tile
        edge = -np.inf if alpha == 1 else -1 / (alpha - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            price = theta - log_order(whole, alpha)
            idle = theta - z - edge
        gap = np.abs(np.where(whole > 0, price - z, 0.0)).max()
        idle = np.where((whole == 0) & np.isfinite(theta), idle, -1.0).max()
        yield max(np.abs(whole.sum(-1) - 1).max(), gap, max(idle, 0.0))


def most(n, alpha):
    return math.log(n) if alpha == 1 else (1 - n ** (1 - alpha)) / (alpha - 1)


@claim(
    "thm-one-number",
    part="(a) how far it lies above the largest score",
    tol=1e-10,
    instances=200,
    real=dict(most=most, least=lambda n, alpha: 0.0),
    mutants={
        "softmax's for all": dict(most=lambda n, al: math.log(n)),
        "sign of the exponent": dict(most=lambda n, al: most(n, 2 - al) if al != 1 else most(n, 1)),
        "limit of many keys": dict(most=lambda n, al: 1 / (al - 1) if al > 1 else most(n, 1)),
        "one key fewer": dict(most=lambda n, al: most(n - 1, al)),
        "never below the level of two": dict(least=lambda n, al: most(2, al)),
    },
)
def bracket(impl):
    """The soft maximum by halving, above the largest score: between the bounds for random rows,
    at the upper one for equal scores, at the lower one for one key with the others far below."""
    rng = np.random.default_rng(1)
    for i in range(200):
        alpha, n = ORDERS[i % 5], int(rng.integers(2, 40))
        kind = i // 5 % 3
        theta = (rng.normal(0, 2, n), np.full(n, 0.7), np.where(np.arange(n) == 1, 3.0, -60.0))[kind]
        above = float(by_halving(theta, alpha) - theta.max())
        low, high = impl.least(n, alpha), impl.most(n, alpha)
        yield (
            max(0.0, low - above - 1e-12, above - high - 1e-12),
            abs(above - high),
            abs(above - low),
        )[kind]


def gradients(q, k, v, g, zeta, delta, tau, alpha):
    rule = member(alpha)
    p = rule.weights_at(q @ k.T, zeta, tau)
    ds = rule.response(p) * (g @ v.T - delta[:, None]) / tau
    return ds @ k, ds.T @ q, p.T @ g


def delta_of(p, v, g, alpha):
    u = member(alpha).response(p)
    return (g * (u @ v)).sum(-1) / u.sum(-1)


def output(q, k, v, tau, alpha):
    theta = (q @ k.T / tau).numpy()
    return torch.as_tensor(exp_order(theta - by_halving(theta, alpha)[:, None], alpha)) @ v


@claim(
    "thm-one-number",
    part="(b) tiles of the backward pass",
    tol=1e-6,
    instances=100,
    real=dict(gradients=gradients, delta=delta_of),
    mutants={
        "the output for every member": dict(
            delta=lambda p, v, g, al: (g * (p @ v)).sum(-1)
        ),
        "plain mean of the values": dict(delta=lambda p, v, g, al: g @ v.mean(0)),
        "sums not divided": dict(
            delta=lambda p, v, g, al: (g * (member(al).response(p) @ v)).sum(-1)
        ),
        "delta added": dict(
            gradients=lambda q, k, v, g, z, d, tau, al: gradients(q, k, v, g, z, -d, tau, al)
        ),
        "temperature missing": dict(
            gradients=lambda q, k, v, g, z, d, tau, al: tuple(
                x * f for x, f in zip(gradients(q, k, v, g, z, d, tau, al), (tau, tau, 1))
            )
        ),
        "keys and queries exchanged": dict(
            gradients=lambda q, k, v, g, z, d, tau, al: (
                lambda dq, dk, dv: (dk, dq, dv)
            )(*gradients(q, k, v, g, z, d, tau, al))
        ),
        "the response for the values": dict(
            gradients=lambda q, k, v, g, z, d, tau, al: (
                *gradients(q, k, v, g, z, d, tau, al)[:2],
                member(al).response(member(al).weights_at(q @ k.T, z, tau)).T @ g,
            )
        ),
    },
)
def backward_tiles(impl):
    """Sums over tiles of two queries and two keys against central differences of
    <g, output> along random directions in query, keys and values, the output from halving.  As
    many queries as keys, so that transposed mistakes have fitting shapes."""
    rng, h, done = np.random.default_rng(2), 1e-6, 0
    while done < 100:
        alpha, tau, n = ORDERS[done % 5], temperature(rng), int(rng.choice([2, 4, 6]))
        q, k, v, g = (normal(rng, n, 3) for _ in range(4))
        zeta = torch.as_tensor(by_halving((q @ k.T / tau).numpy(), alpha))
        room = (alpha - 1) * (q @ k.T / tau - zeta[:, None]) + 1
        if alpha >= 2 and float(room.abs().min()) < 1e-2:
            continue
        done += 1
        delta = impl.delta(member(alpha).weights_at(q @ k.T, zeta, tau), v, g, alpha)
        sums = [torch.zeros_like(x) for x in (q, k, v)]
        for i in range(0, n, 2):
            for j in range(0, n, 2):
                a, b = slice(i, i + 2), slice(j, j + 2)
                parts = impl.gradients(q[a], k[b], v[b], g[a], zeta[a], delta[a], tau, alpha)
                for total, at, part in zip(sums, (a, b, b), parts, strict=True):
                    total[at] += part
        worst = 0.0
        for which, grad in enumerate(sums):
            x = [q, k, v]
            d = normal(rng, n, 3)
            up, down = list(x), list(x)
            up[which], down[which] = x[which] + h * d, x[which] - h * d
            slope = ((output(*up, tau, alpha) - output(*down, tau, alpha)) * g).sum() / (2 * h)
            worst = max(worst, abs(float(slope - (grad * d).sum())) / (1 + abs(float(slope))))
        yield worst


def with_position(q, k, m, centre, tau):
    j = torch.arange(len(k), dtype=q.dtype)
    return (
        torch.cat([q, torch.full_like(q[:, :1], tau)], -1),
        torch.cat([k, m * (j - centre)[:, None]], -1),
    )


def causal(q, k, v, tau, alpha, later=False):
    out, aux = attention(
        q, k, v, scale=1 / tau, is_causal=not later, regularizer=member(alpha), return_aux=True
    )
    return out, aux.threshold


@claim(
    "prop-alibi-dimension",
    part="(a) one more coordinate",
    tol=1e-9,
    instances=100,
    real=dict(
        extend=with_position, attend=causal, shift=lambda i, m, centre: m * (i - centre)
    ),
    mutants={
        "temperature missing": dict(
            extend=lambda q, k, m, c, tau: with_position(q, k, m, c, 1.0)
        ),
        "sign flipped": dict(extend=lambda q, k, m, c, tau: with_position(q, k, -m, c, tau)),
        "keys all at one place": dict(
            extend=lambda q, k, m, c, tau: with_position(q, k, 0.0, c, tau)
        ),
        "later keys too": dict(
            attend=lambda q, k, v, tau, al: causal(q, k, v, tau, al, later=True)
        ),
        "shift forgotten": dict(shift=lambda i, m, c: 0.0 * i),
        "shift from the first key": dict(shift=lambda i, m, c: m * i),
    },
)
def position_dimension(impl):
    """Causal attention with one more coordinate against torch's SDPA with the penalties -m (i - j)
    as a mask, for softmax, and against halving with them for the others; and the soft maxima."""
    rng = np.random.default_rng(3)
    for t in range(100):
        alpha, tau, n = ORDERS[t % 5], temperature(rng), int(rng.integers(3, 12))
        q, k, v = (normal(rng, n, 3) for _ in range(3))
        m, centre = float(rng.uniform(0.1, 1)), float(rng.integers(-5, n))
        i = torch.arange(n, dtype=q.dtype)
        bias = torch.where(i[None] > i[:, None], -torch.inf, m * (i[None] - i[:, None]))
        theta = (q @ k.T / tau + bias).numpy()
        zeta = torch.as_tensor(by_halving(theta, alpha))
        if alpha == 1:
            out = scaled_dot_product_attention(q[None], k[None], v[None], bias, scale=1 / tau)[0]
        else:
            out = torch.as_tensor(exp_order(theta - zeta.numpy()[:, None], alpha)) @ v
        mine, threshold = impl.attend(*impl.extend(q, k, m, centre, tau), v, tau, alpha)
        yield max(
            float((mine - out).abs().max()),
            float((threshold - zeta - impl.shift(i, m, centre)).abs().max()),
        )


def rounding(theta, p, eps):
    size = eps * theta.abs()
    x = size + p @ size
    return float(2 * (p * size * torch.where(x > 0, torch.expm1(x) / x, 1.0)).sum())


@claim(
    "prop-alibi-dimension",
    part="(b) what rounding costs",
    tol=1e-9,
    instances=200,
    real=dict(bound=rounding),
    mutants={
        "half": dict(bound=lambda th, p, eps: rounding(th, p, eps) / 2),
        "first order only": dict(bound=lambda th, p, eps: float(2 * eps * (p * th.abs()).sum())),
        "signed scores": dict(bound=lambda th, p, eps: float(2 * eps * (p @ th).abs())),
        "distance to the mean": dict(
            bound=lambda th, p, eps: rounding(th - p @ th, p, eps)
        ),
        "unit squared": dict(bound=lambda th, p, eps: rounding(th, p, eps**2)),
    },
    covers=("eq-alibi-rounding",),
)
def rounded_scores(impl):
    """Softmax in float64 of scores moved by at most eps times their size, at random or all the
    way, or only where the weight is small: the sum of the changes, over the bound."""
    rng = np.random.default_rng(4)
    for t in range(200):
        n, eps = int(rng.integers(2, 8)), float(10 ** rng.uniform(-4, -0.7))
        theta = 3 * normal(rng, n) + float(rng.choice([0.0, 5.0, -5.0]))
        sign = torch.as_tensor(rng.choice([-1.0, 1.0], n) if t % 4 else rng.uniform(-1, 1, n))
        if t % 4 == 3:
            theta = torch.tensor([0.0, -float(rng.uniform(3, 10))], dtype=torch.float64)
            sign = torch.tensor([1.0, 1.0], dtype=torch.float64)
        p, moved = softmax(theta), softmax(theta + eps * sign * theta.abs())
        bound = impl.bound(theta, p, eps)
        yield max(0.0, float((moved - p).abs().sum()) / max(bound, 1e-300) - 1)
