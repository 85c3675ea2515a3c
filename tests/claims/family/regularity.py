"""Claims of the page "Smooth, broken, and steep: what alpha does to the slopes"."""

import math

import numpy as np
import torch
from claims import claim

from eotcourse import Tsallis, entmax


def weights(s, alpha, tau):
    return entmax(torch.as_tensor(s), alpha, tau).numpy()


def jacobian(p, alpha, tau):
    return Tsallis(alpha).jacobian(torch.as_tensor(p), tau).dense().numpy()


def log_alpha(x, alpha):
    """Scaled scores, up to a shift, that have the weights x."""
    return (x ** (alpha - 1) - 1) / (alpha - 1) if alpha > 1 else np.log(x)


def at_edge(rng, alpha, tau, inside, newcomers=1):
    """Scores, and their weights: `inside` keys in the support, `newcomers` exactly at the edge."""
    p = np.append(rng.dirichlet(np.full(inside, 4.0)), np.zeros(newcomers))
    return tau * log_alpha(p, alpha), p


def excess(smaller, larger):
    """By how much an inequality fails, allowing for rounding of quantities of order one."""
    return max(0.0, float(smaller - larger) - 1e-12)


def built(exponent, divide=True, off=0.0):
    """The theorem's matrix with another response."""

    def mutant(p, alpha, tau):
        u = np.where(p > 0, np.where(p > 0, p, 1) ** exponent(alpha), off)
        J = np.diag(u) - np.outer(u, u) / u.sum()
        return J / tau if divide else J

    return mutant


@claim(
    "thm-regularity",
    part="(a) smooth below 2",
    result="T3.7",
    tol=1e-4,
    instances=60,
    real=dict(weights=weights, jacobian=jacobian),
    mutants={
        "sparsemax instead": dict(weights=lambda s, a, tau: weights(s, 2.0, tau)),
        "edge keys respond": dict(jacobian=built(lambda a: 2 - a, off=1.0)),
        "response p": dict(jacobian=built(lambda a: 1.0)),
        "no temperature": dict(jacobian=built(lambda a: 2 - a, divide=False)),
        "exponent alpha - 2": dict(jacobian=built(lambda a: a - 2)),
    },
)
def smooth(impl):
    """At scores with one or two keys exactly at the edge: one-sided difference quotients with step
    1e-6, along random directions, forward and backward, against J with response 0 at the edge."""
    rng = np.random.default_rng(0)
    for i in range(60):
        alpha, tau = (1.1, 1.25, 1.5)[i % 3], float(rng.choice([0.7, 2.0]))
        s, p = at_edge(rng, alpha, tau, int(rng.integers(1, 5)), 1 + i % 2)
        v = rng.normal(size=len(s))
        expected = impl.jacobian(p, alpha, tau) @ v
        error = 0.0
        for h in (1e-6, -1e-6):
            quotient = (impl.weights(s + h * v, alpha, tau) - impl.weights(s, alpha, tau)) / h
            error = max(error, np.abs(quotient - expected).max())
        yield error


@claim(
    "thm-regularity",
    part="(b) affine pieces at 2",
    result="T3.7",
    tol=1e-12,
    instances=200,
    real=dict(
        weights=lambda s, tau: weights(s, 2.0, tau),
        kappa=lambda scaled: (scaled.sum() - 1) / len(scaled),
    ),
    mutants={
        "order 1.9": dict(weights=lambda s, tau: weights(s, 1.9, tau)),
        "order 2.1": dict(weights=lambda s, tau: weights(s, 2.1, tau)),
        "sum without its one": dict(kappa=lambda scaled: scaled.mean()),
        "one for every key": dict(kappa=lambda scaled: scaled.mean() - 1),
        "temperature squared": dict(weights=lambda s, tau: weights(s, 2.0, tau**2)),
    },
)
def affine(impl):
    """kappa of every subset tried by brute force: exactly one of the 2^n - 1 affine candidates must
    satisfy the inequalities (scores in general position), and it must be the map's value."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        n, tau = int(rng.integers(2, 6)), float(rng.choice([0.7, 2.0]))
        s = rng.normal(0, 1.5 * tau, n)
        found = []
        for code in range(1, 2**n):
            S = np.array([code >> j & 1 for j in range(n)], dtype=bool)
            kappa = impl.kappa(s[S] / tau)
            if (s[S] / tau >= kappa).all() and (s[~S] / tau <= kappa).all():
                found.append(np.where(S, s / tau - kappa, 0))
        error = np.abs(found[0] - impl.weights(s, tau)).max() if found else 1.0
        yield max(error, abs(len(found) - 1))


@claim(
    "thm-regularity",
    part="(c) not Lipschitz above 2",
    result="T3.7",
    tol=1e-4,
    instances=90,
    real=dict(
        weights=weights,
        slope=lambda delta, a, tau: delta ** (2 - a) / tau,
    ),
    mutants={
        "sparsemax instead": dict(weights=lambda s, a, tau: weights(s, 2.0, tau)),
        "exponent alpha - 2": dict(slope=lambda delta, a, tau: delta ** (a - 2) / tau),
        "exponent for alpha = 3": dict(slope=lambda delta, a, tau: 1 / (delta * tau)),
        "no temperature": dict(slope=lambda delta, a, tau: delta ** (2 - a)),
        "Hoelder exponent": dict(slope=lambda delta, a, tau: delta ** (1 / (a - 1) - 1) / tau),
    },
)
def steep(impl):
    """|dp|/|ds| of the map by central differences at weights (1 - 2 delta) p0 + delta (e_i + e_j),
    along e_i - e_j, both keys at the edge for p0, delta down to 1e-3; the slope's relative error."""
    rng = np.random.default_rng(2)
    for i in range(90):
        alpha, tau = (2.25, 2.5, 3.0)[i % 3], float(rng.choice([0.7, 2.0]))
        delta, inside = (1e-1, 1e-2, 1e-3)[i // 3 % 3], int(rng.integers(1, 4))
        p = (1 - 2 * delta) * rng.dirichlet(np.full(inside, 4.0))
        p = np.append(p, [delta, delta])
        s, v = tau * log_alpha(p, alpha), np.zeros(inside + 2)
        v[-2:] = 1, -1
        h = 1e-3 * tau * delta ** (alpha - 1)
        up, down = impl.weights(s + h * v, alpha, tau), impl.weights(s - h * v, alpha, tau)
        slope = np.linalg.norm(up - down) / (2 * h * np.linalg.norm(v))
        yield abs(slope / impl.slope(delta, alpha, tau) - 1)


@claim(
    "thm-regularity",
    part="(c) Hoelder above 2",
    result="T3.7",
    tol=1e-5,
    instances=160,
    real=dict(
        weights=weights,
        bound=lambda w, a, tau: ((a - 1) * w / tau) ** (1 / (a - 1)),
    ),
    mutants={
        "factor alpha - 1 missing": dict(bound=lambda w, a, tau: (w / tau) ** (1 / (a - 1))),
        "root of order alpha": dict(bound=lambda w, a, tau: ((a - 1) * w / tau) ** (1 / a)),
        "Lipschitz": dict(bound=lambda w, a, tau: (a - 1) * w / tau),
        "no temperature": dict(bound=lambda w, a, tau: ((a - 1) * w) ** (1 / (a - 1))),
        "temperature missing in the map": dict(weights=lambda s, a, tau: weights(s, a, 1.0)),
    },
    covers=("eq-regularity-hoelder",),
)
def hoelder(impl):
    """Random pairs at distances from 1e-6 to 1 must obey the bound; the pairs of the proof, weights
    (1 - 2 delta, 2 delta, 0) and (1 - 2 delta, 0, 2 delta), must reach 2^(-1/(alpha-1)) of it."""
    rng = np.random.default_rng(3)
    for i in range(160):
        alpha, tau = (2.25, 2.5, 3.0, 3.5)[i // 2 % 4], float(rng.choice([0.7, 2.0]))
        if i % 2:
            s, _ = at_edge(rng, alpha, tau, int(rng.integers(1, 4)), int(rng.integers(1, 3)))
            other = s + 10 ** rng.uniform(-6, 0) * rng.normal(size=len(s))
            moved = np.abs(impl.weights(s, alpha, tau) - impl.weights(other, alpha, tau)).max()
            yield excess(moved, impl.bound(np.ptp(s - other), alpha, tau))
        else:
            delta = rng.uniform(0.02, 0.2)
            p = np.array([1 - 2 * delta, 2 * delta, 0.0])
            s = tau * log_alpha(p, alpha)
            s[2] -= 1e-9 * tau
            other = s[[0, 2, 1]]
            moved = np.abs(impl.weights(s, alpha, tau) - impl.weights(other, alpha, tau)).max()
            reached = moved / impl.bound(np.ptp(s - other), alpha, tau)
            yield abs(reached - 2 ** (-1 / (alpha - 1)))


@claim(
    "thm-regularity",
    part="(c) two keys",
    result="T3.7",
    tol=1e-3,
    instances=20,
    real=dict(weights=weights, constant=lambda a, tau: max(2, 2 ** (a - 2)) / tau),
    mutants={
        "constant of the middle": dict(constant=lambda a, tau: 2 ** (a - 2) / tau),
        "constant of the corner": dict(constant=lambda a, tau: 2 / tau),
        "no temperature": dict(constant=lambda a, tau: max(2, 2 ** (a - 2))),
        "sparsemax instead": dict(weights=lambda s, a, tau: weights(s, 2.0, tau)),
    },
)
def two_keys(impl):
    """The largest |dp|/|ds| over 400 neighbouring pairs of two scores, from the middle towards the
    corner, against the constant, to one part in a thousand."""
    for i in range(20):
        alpha, tau = (2.5, 3.0, 3.5, 4.0, 5.0)[i % 5], (0.7, 1.0, 2.0, 4.0)[i // 5]
        # Closer to the corner the map itself magnifies the rounding of the scores.
        near = {2.5: 3e-7, 3.0: 1e-4}.get(alpha, 1e-2)
        first = np.append(np.linspace(0.5, 0.9, 200), 1 - np.geomspace(0.1, near, 200))
        s = tau * (log_alpha(first, alpha) - log_alpha(1 - first, alpha))
        pairs = np.stack([s, -s], -1) / 2
        p = impl.weights(pairs, alpha, tau)
        moved, step = (np.linalg.norm(np.diff(x, axis=0), axis=1) for x in (p, pairs))
        ratio = (moved[step > 0] / step[step > 0]).max() / impl.constant(alpha, tau)
        yield abs(ratio - 1)


def enter(inside, alpha, tau):
    """Slope of a key that enters beside keys with the weights `inside`."""
    if alpha < 2:
        return 0.0
    if alpha == 2:
        return len(inside) / (len(inside) + 1) / tau
    return (inside ** (2 - alpha)).sum() / tau


@claim(
    "thm-regularity",
    part="(d) one key enters",
    result="T3.7",
    tol=2e-3,
    instances=100,
    real=dict(weights=weights, enter=enter),
    mutants={
        "kink of sparsemax for all": dict(enter=lambda p, a, tau: enter(p, 2.0, tau)),
        "smooth for all": dict(enter=lambda p, a, tau: 0.0),
        "no temperature": dict(enter=lambda p, a, tau: tau * enter(p, a, tau)),
        "exponent flipped": dict(
            enter=lambda p, a, tau: (p ** (a - 2)).sum() / tau if a > 2 else enter(p, a, tau)
        ),
        "newcomer counted": dict(
            enter=lambda p, a, tau: 1 / tau if a == 2 else enter(p, a, tau)
        ),
        "sparsemax instead": dict(weights=lambda s, a, tau: weights(s, 2.0, tau)),
    },
)
def entering(impl):
    """The difference quotient of the entering key's own weight, to the right and to the left of its
    edge, with steps so small that its slope has settled."""
    rng = np.random.default_rng(4)
    for i in range(100):
        alpha, tau = (1.25, 1.5, 2.0, 2.75, 3.0)[i % 5], float(rng.choice([0.7, 2.0]))
        s, p = at_edge(rng, alpha, tau, int(rng.integers(1, 5)))
        h = 1e-6
        e = h * np.eye(len(s))[-1]
        right = impl.weights(s + e, alpha, tau)[-1] / h
        left = impl.weights(s - e, alpha, tau)[-1] / h
        expected = impl.enter(p[:-1], alpha, tau)
        yield max(abs(right - expected) / (1 + expected), abs(left))


def omega(p, alpha):
    """The regulariser in numpy, from its definition."""
    if alpha == 1:
        return float((p[p > 0] * np.log(p[p > 0])).sum())
    return float((p**alpha).sum() - 1) / (alpha * (alpha - 1))


def norm(x, r):
    """The l_r norm along the last axis."""
    size = np.abs(x)
    return size.max(-1) if r == math.inf else (size**r).sum(-1) ** (1 / r)


def exponents(alpha):
    return 2 / (3 - alpha), 2 / (alpha - 1) if alpha > 1 else math.inf


SCALES = {
    "Euclidean for all": dict(r=lambda a: (2.0, 2.0)),
    "total variation for all": dict(r=lambda a: (1.0, math.inf)),
    "linear in the inverse": dict(r=lambda a: (2 / a, 2 / (2 - a) if a < 2 else math.inf)),
    "swapped": dict(r=lambda a: exponents(a)[::-1]),
}


@claim(
    "thm-strong-convexity",
    part="(a, c) strongly convex",
    result="T3.8",
    tol=1e-6,
    instances=400,
    real=dict(omega=omega, r=exponents, half=0.5),
    mutants={
        **SCALES,
        "constant one": dict(half=1.0),
        "constant a quarter": dict(half=0.25),
        "alpha missing below": dict(omega=lambda p, a: a * omega(p, a)),
        "wrong sign": dict(omega=lambda p, a: -omega(p, a)),
    },
)
def convex(impl):
    """The chord inequality for random pairs, sparse ones included; near (1/2, 1/2), with steps of
    1e-3 along (1, -1), the defect must equal the bound to second order."""
    rng = np.random.default_rng(5)
    for i in range(400):
        alpha = (1.0, 1.25, 1.5, 1.75, 2.0)[i % 5]
        if i % 2:
            n, t = int(rng.integers(2, 7)), rng.uniform(0.05, 0.95)
            p, q = rng.dirichlet(np.full(n, 0.4)), rng.dirichlet(np.full(n, 0.4))
        else:
            t, h = rng.uniform(0.2, 0.8), 1e-3
            p, q = np.array([0.5 + h, 0.5 - h, 0.0]), np.array([0.5 - h, 0.5 + h, 0.0])
        mean = impl.omega(t * p + (1 - t) * q, alpha)
        defect = t * impl.omega(p, alpha) + (1 - t) * impl.omega(q, alpha) - mean
        bound = impl.half * t * (1 - t) * norm(p - q, impl.r(alpha)[0]) ** 2
        yield excess(bound, defect) if i % 2 else abs(defect / bound - 1) / 10


@claim(
    "thm-strong-convexity",
    part="(b, c) Lipschitz in the fitting norms",
    result="T3.8",
    tol=1e-5,
    instances=200,
    real=dict(weights=weights, r=exponents, constant=lambda tau: 1 / tau),
    mutants={
        **SCALES,
        "no temperature": dict(constant=lambda tau: 1.0),
        "half the constant": dict(constant=lambda tau: 0.5 / tau),
        "order 2.5 instead": dict(weights=lambda s, a, tau: weights(s, a + 0.5, tau)),
        "temperature squared": dict(weights=lambda s, a, tau: weights(s, a, tau**2)),
    },
)
def lipschitz(impl):
    """Random pairs against the bound, the constant c being the best of 400 tried; two equal scores
    moved apart by 1e-3, with a far third key, must reach it."""
    rng = np.random.default_rng(6)
    for i in range(200):
        alpha, tau = (1.0, 1.25, 1.5, 1.75, 2.0)[i % 5], float(rng.choice([0.7, 2.0]))
        r, dual = impl.r(alpha)
        if i % 2:
            s = rng.normal(0, tau, int(rng.integers(2, 6)))
            d = 10 ** rng.uniform(-2, 0.3) * rng.normal(size=len(s))
            best = norm(d - np.linspace(d.min(), d.max(), 400)[:, None], dual).min()
        else:
            s, d = np.array([0.0, 0.0, -60.0 * tau]), 1e-3 * tau * np.array([1.0, -1.0, 0.0])
            best = norm(d, dual)
        moved = norm(impl.weights(s + d, alpha, tau) - impl.weights(s, alpha, tau), r)
        ratio = moved / (impl.constant(tau) * best)
        yield max(0.0, ratio - 1) if i % 2 else abs(ratio - 1)


def long_row(alpha, k):
    """Weights proportional to |v|^r for v = (1, -1/k, ..., -1/k), and v."""
    v = np.append(1.0, np.full(k, -1 / k))
    p = np.abs(v) ** (2 / (3 - alpha))
    return p / p.sum(), v


@claim(
    "thm-strong-convexity",
    part="(d) Euclidean constants",
    result="T3.8",
    tol=1e-3,
    instances=120,
    real=dict(
        weights=weights,
        constant=lambda a: 0.5 if a == 1 else 1.0,
        gap=lambda a, k: (1 + k ** (1 - 2 / (3 - a))) ** (2 - a)
        * (1 + k ** (-(a - 1) / (3 - a))),
    ),
    mutants={
        "one half for all": dict(constant=lambda a: 0.5),
        "softmax like the others": dict(constant=lambda a: 1.0),
        "constant of two keys": dict(constant=lambda a: 2.0 ** (a - 2)),
        "order 3 instead": dict(weights=lambda s, a, tau: weights(s, 3.0, tau)),
        "long rows reach one at once": dict(gap=lambda a, k: 1.0),
    },
)
def euclidean(impl):
    """Random pairs against the Euclidean constant; the pairs of the proof, by differences of the
    map: two equal keys reach 1/(2 tau) at alpha = 1, rows of 1001 keys reach |v|/|y| above 1."""
    rng = np.random.default_rng(7)
    for i in range(120):
        alpha, tau = (1.0, 1.25, 1.5, 2.0)[i % 4], float(rng.choice([0.7, 2.0]))
        if i % 3 == 0:
            s = rng.normal(0, tau, int(rng.integers(2, 6)))
            d = 10 ** rng.uniform(-2, 0.3) * rng.normal(size=len(s))
        elif alpha == 1:
            s, d = np.zeros(2), np.array([1e-3, -1e-3])
        else:
            p, v = long_row(alpha, 1000)
            s, d = tau * log_alpha(p, alpha), 1e-6 * tau * np.eye(1001)[0]
        moved = impl.weights(s + d, alpha, tau) - impl.weights(s - d, alpha, tau)
        ratio = tau * np.linalg.norm(moved) / (2 * np.linalg.norm(d))
        over = excess(ratio, impl.constant(alpha))
        if i % 3 == 0:
            yield over
        else:
            reached = 0.5 if alpha == 1 else np.linalg.norm(v) / impl.gap(alpha, 1000)
            tight = abs(impl.constant(alpha) - 0.5) if alpha == 1 else 0.0
            yield max(over, abs(ratio - reached), tight)
