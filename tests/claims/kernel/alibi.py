"""Claims of the page "ALiBi without a bias"."""

import numpy as np
from claims import claim

from claims.kernel.one_number import by_halving, exp_order

ORDERS = (1.25, 1.5, 2.0, 2.5)


def window(A, B, m, alpha):
    return (A - B + 1 / (alpha - 1)) / m


def largest(q, k, bias, tau):
    """The bound A of all scores before the penalty of distance."""
    return np.linalg.norm(q) * np.linalg.norm(k, axis=1).max() / tau + bias.max()


def row(rng):
    """A query, keys, biases, distances on both sides, slope and temperature of a random row."""
    n, m, tau = int(rng.integers(10, 40)), float(rng.uniform(0.2, 1.5)), float(rng.choice([0.7, 2]))
    q, k, bias = rng.normal(size=3), rng.normal(size=(n, 3)), rng.normal(size=n)
    return q, k, bias, np.abs(np.arange(n) - int(rng.integers(0, n))), m, tau


def aligned(rng, alpha):
    """A row as random as that, but for a key along the query, so far away that it just has
    weight; the own key has the score B, and the others much less."""
    n, m, tau = 30, float(rng.uniform(0.2, 0.6)), float(rng.choice([0.7, 2]))
    B = float(rng.uniform(1, 3))
    A = B + float(rng.uniform(0, 2))
    end = window(A, B, m, alpha)
    at = int(np.ceil(end)) - 1
    n = max(n, at + 1)
    k = np.zeros((n, 2))
    k[:, 1], k[0], k[at] = -0.01, (B * tau, 0.0), (A * tau, 0.0)
    return np.array([1.0, 0.0]), k, np.where(np.isin(np.arange(n), (0, at)), 0.0, -30.0), \
        np.arange(n), m, tau, at  # fmt: skip


def solved(q, k, bias, distance, m, tau, alpha):
    theta = k @ q / tau + bias - m * distance
    zeta = by_halving(theta, alpha)
    return theta, zeta, exp_order(theta - zeta, alpha)


@claim(
    "thm-alibi-window",
    part="(a) no weight",
    tol=1e-11,
    instances=200,
    real=dict(window=window, largest=largest, own=lambda theta, zeta, i: theta[i]),
    mutants={
        "slope doubled": dict(window=lambda A, B, m, al: window(A, B, 2 * m, al)),
        "a key too short": dict(window=lambda A, B, m, al: window(A, B, m, al) - 1),
        "edge dropped": dict(window=lambda A, B, m, al: (A - B) / m),
        "edge of sparsemax": dict(window=lambda A, B, m, al: (A - B + 1) / m),
        "temperature missing": dict(largest=lambda q, k, b, tau: largest(q, k, b, 2.0)),
        "mean length of the keys": dict(
            largest=lambda q, k, b, tau: np.linalg.norm(q) * np.linalg.norm(k, axis=1).mean() / tau
            + b.max()
        ),
        "biases forgotten": dict(largest=lambda q, k, b, tau: largest(q, k, 0 * b, tau)),
        "bound above zeta": dict(own=lambda theta, zeta, i: zeta + 1),
    },
    covers=("eq-alibi-window",),
)
def outside(impl):
    """The row solved by halving, with all keys and with those inside the window only: weights
    outside, and the change of weights and of zeta.  The bound B is the own score, the row's
    soft maximum, or that of some keys; in half of the rows a key is as far as it can be."""
    rng = np.random.default_rng(0)
    for t in range(200):
        alpha = ORDERS[t % 4]
        q, k, bias, distance, m, tau = aligned(rng, alpha)[:6] if t % 2 else row(rng)
        theta, zeta, p = solved(q, k, bias, distance, m, tau, alpha)
        own = int(distance.argmin())
        some = by_halving(theta[distance <= 3], alpha)
        B = (impl.own(theta, zeta, own), zeta, some)[0 if t % 2 else t // 2 % 3]
        far = distance >= impl.window(impl.largest(q, k, bias, tau), B, m, alpha)
        if far.all():
            yield 1.0
            continue
        inside = by_halving(theta[~far], alpha)
        change = exp_order(theta[~far] - inside, alpha) - p[~far]
        lost = p[far].max() if far.any() else 0.0
        yield max(float(lost), float(np.abs(change).max()), abs(float(inside - zeta)))


def differences(q, k, bias, distance, m, tau, alpha, far):
    """Central differences of the row's weights, along the keys outside and the slope there."""
    h, slopes = 1e-4, np.full(len(k), m)
    worst = 0.0
    for j in np.flatnonzero(far)[:3]:
        for step in (h, -h):
            moved, steeper = k.copy(), slopes.copy()
            moved[j] += step
            steeper[j] += step
            for keys, m_here in ((moved, slopes), (k, steeper)):
                p = solved(q, keys, bias, distance, m_here, tau, alpha)[2]
                base = solved(q, k, bias, distance, m, tau, alpha)[2]
                worst = max(worst, float(np.abs(p - base).max()) / h)
    return worst


@claim(
    "thm-alibi-window",
    part="(b) no gradient",
    tol=1e-7,
    instances=60,
    real=dict(window=window),
    mutants={
        "slope doubled": dict(window=lambda A, B, m, al: window(A, B, 2 * m, al)),
        "edge dropped": dict(window=lambda A, B, m, al: (A - B) / m),
        "a key too short": dict(window=lambda A, B, m, al: window(A, B, m, al) - 1),
    },
)
def no_gradient(impl):
    """Quotients of differences of all weights, by halving, when a key outside the window moves
    or its own slope does."""
    rng = np.random.default_rng(1)
    for t in range(60):
        alpha = ORDERS[t % 4]
        q, k, bias, distance, m, tau = aligned(rng, alpha)[:6] if t % 2 else row(rng)
        theta, zeta, _ = solved(q, k, bias, distance, m, tau, alpha)
        A = largest(q, k, bias, tau)
        B = theta[int(distance.argmin())]
        # A little farther: the step of the differences lengthens keys.
        far = distance > impl.window(A, B, m, alpha) + 0.01
        yield differences(q, k, bias, distance, m, tau, alpha, far)


def sharp(A, B, m, alpha, t):
    """The row of two keys of the proof: scores before the penalty, and distances."""
    return np.array([B, A]), np.array([0.0, t])


@claim(
    "thm-alibi-window",
    part="(c) sharp",
    tol=0.5,
    instances=200,
    real=dict(window=window, two=sharp),
    mutants={
        "a window as long again": dict(window=lambda A, B, m, al: 2 * window(A, B, m, al)),
        "a key too long": dict(window=lambda A, B, m, al: window(A, B, m, al) + 1),
        "edge of sparsemax": dict(window=lambda A, B, m, al: (A - B + 1) / m),
        "keys exchanged": dict(two=lambda A, B, m, al, t: sharp(B, A, m, al, t)),
    },
)
def sharpness(impl):
    """Two keys, the second at a random or nearly the largest distance below T: 0 if halving gives
    it weight and the row has the bounds A and B, and else 10."""
    rng = np.random.default_rng(2)
    for i in range(200):
        alpha, m = ORDERS[i % 4], float(rng.uniform(0.2, 1.5))
        A = float(rng.uniform(0.5, 4))
        B = float(rng.uniform(-0.9, 1)) * A
        t = impl.window(A, B, m, alpha) * float(rng.uniform(0, 1) if i % 2 else 0.98)
        s, distance = impl.two(A, B, m, alpha, t)
        theta = s - m * distance
        p = exp_order(theta - by_halving(theta, alpha), alpha)
        fits = abs(np.abs(s).max() - A) < 1e-12 and abs(theta[0] - B) < 1e-12
        yield 0.0 if p[1] > 0 and fits else 10.0


def tail(A, B, m, eps, sides):
    return (A - B - np.log(eps) + np.log(sides / -np.expm1(-m))) / m


def crowd(rng, sides, m, eps, full):
    """Bounds and scores before the penalty, the cut at a whole distance; in a full row all keys
    from a little before are as large as they can be, and nearer there is only the own one."""
    A = float(rng.uniform(0, 3))
    B = A - float(rng.uniform(0, 4))
    end = tail(A, B, m, eps, sides)
    B -= m * (np.ceil(end) - end) - 1e-9
    n = int(np.ceil(end) + 40 / m)
    lag = np.arange(-n if sides == 2 else 0, n + 1)
    distance = np.abs(lag)
    begin = np.ceil(end) - 1 - int(3 / m)
    s = np.where(distance >= begin, A, -np.inf) if full else rng.uniform(-3, A, len(lag))
    return A, B, np.where(lag == 0, B, s), distance


@claim(
    "prop-alibi-tail",
    part="what is lost",
    tol=1e-6,
    instances=100,
    real=dict(tail=tail),
    mutants={
        "slope doubled": dict(tail=lambda A, B, m, e, c: tail(A, B, 2 * m, e, c)),
        "one key": dict(tail=lambda A, B, m, e, c: (A - B - np.log(e)) / m),
        "one side": dict(tail=lambda A, B, m, e, c: tail(A, B, m, e, 1)),
        "a distance too short": dict(tail=lambda A, B, m, e, c: tail(A, B, m, e, c) - 1),
        "loss forgotten": dict(tail=lambda A, B, m, e, c: tail(A, B, m, 1.0, c)),
    },
    covers=("eq-alibi-tail",),
)
def lost(impl):
    """The weight outside, by sums of exponentials, over epsilon, less 1; three of four rows are
    such that the tail is as heavy as it can be."""
    rng = np.random.default_rng(3)
    for t in range(100):
        m, sides = float(rng.uniform(0.1, 0.8)), 1 + t % 2
        eps = float(10 ** rng.uniform(-6, -4))
        A, B, s, distance = crowd(rng, sides, m, eps, full=t % 4 < 3)
        weight = np.exp(s - m * distance - B)
        outside = distance >= impl.tail(A, B, m, eps, sides)
        yield max(0.0, float(weight[outside].sum() / weight.sum()) / eps - 1)


@claim(
    "prop-alibi-tail",
    part="what it changes",
    tol=1e-12,
    instances=100,
    real=dict(change=lambda w: 2 * w, output=lambda w, v: 2 * w * v),
    mutants={
        "once": dict(change=lambda w: w),
        "not at all": dict(change=lambda w: 0 * w),
        "half of the output": dict(output=lambda w, v: w * v / 2),
        "kept mass": dict(change=lambda w: 2 * (1 - w)),
    },
)
def changed(impl):
    """Weights and outputs of random rows with and without some keys; values point away from one
    another in half of the rows."""
    rng = np.random.default_rng(4)
    for t in range(100):
        n = int(rng.integers(4, 20))
        p = rng.dirichlet(np.ones(n))
        out = np.arange(n) < int(rng.integers(1, n - 1))
        w = p[out].sum()
        kept = np.where(out, 0, p / (1 - w))
        v = np.where(out, 1.0, -1.0)[:, None] if t % 2 else rng.normal(size=(n, 2))
        bound = impl.output(w, np.linalg.norm(v, axis=1).max())
        moved = np.linalg.norm((kept - p) @ v)
        yield max(abs(np.abs(kept - p).sum() - impl.change(w)), moved - bound)
