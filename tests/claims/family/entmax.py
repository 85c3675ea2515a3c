"""Claims of the page "A family with one knob: alpha-entmax"."""

import entmax as library
import mpmath
import numpy as np
import torch
from claims import claim
from scipy.optimize import minimize

from eotcourse import Regularizer, Shannon, Tsallis, entmax, softmax, sparsemax
from eotcourse.simplex import response

ORDERS = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def weights(s, alpha, tau):
    return entmax(torch.as_tensor(s), alpha, tau).numpy()


def value(s, alpha, tau):
    return float(Tsallis(alpha).conjugate(torch.as_tensor(s), tau))


def omega(p, alpha):
    """The regulariser in numpy, from its definition."""
    if alpha == 1:
        return float((p[p > 0] * np.log(p[p > 0])).sum())
    return ((p**alpha).sum() - 1) / (alpha * (alpha - 1))


def kappa_of(z, power):
    """The threshold by bisection: no derivative, no sorting, nothing of the package."""
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        full = (np.maximum(z - middle, 0) ** power).sum() >= 1
        low, high = (middle, high) if full else (low, middle)
    return low


def bisected(s, alpha, tau):
    z = (alpha - 1) * s / tau
    return np.maximum(z - kappa_of(z, 1 / (alpha - 1)), 0) ** (1 / (alpha - 1))


def lost_factor(s, alpha, tau):
    """The closed form as the source has it."""
    z = s / tau
    return np.maximum(z - kappa_of(z, 1 / (alpha - 1)), 0) ** (1 / (alpha - 1))


def cases(seed, count, orders=ORDERS, low=2, spread=1.5):
    rng = np.random.default_rng(seed)
    for i in range(count):
        s = rng.normal(0, spread, int(rng.integers(low, 8)))
        yield rng, s, orders[i % len(orders)], float(rng.choice([0.7, 1.0, 2.5]))


def far_from_edge(s, alpha, tau, room=0.02):
    """Whether every key is at least `room` from entering or leaving the support."""
    if alpha == 1:
        return True
    z = (alpha - 1) * s / tau
    return np.abs(z - kappa_of(z, 1 / (alpha - 1))).min() > room


def inside(seed, count, orders, **kind):
    """As `cases`, but only scores with no key near the edge."""
    found = 0
    for rng, s, alpha, tau in cases(seed, 20 * count, orders, **kind):
        if far_from_edge(s, alpha, tau):
            yield rng, s, alpha, tau
            found += 1
            if found == count:
                return


def excess(smaller, larger):
    """By how much an inequality fails, allowing for rounding of quantities of order one."""
    return max(0.0, float(smaller - larger) - 1e-12)


def tied(rng, k, n, delta):
    """Scores with k winners, a runner-up at distance delta, and the others below it."""
    below = delta + rng.uniform(0, 2, n - k)
    below[:1] = delta
    return rng.permutation(np.concatenate([np.zeros(k), -below]))


RIVALS = {
    "factor alpha - 1 lost": dict(weights=lost_factor),
    "exponent not inverted": dict(
        weights=lambda s, a, tau: weights(s, 1 + 1 / (a - 1), tau * (1 / (a - 1)) / (a - 1))
    ),
    "temperature missing": dict(weights=lambda s, a, tau: weights(s, a, 1.0)),
    "temperature squared": dict(weights=lambda s, a, tau: weights(s, a, tau**2)),
    "always softmax": dict(weights=lambda s, a, tau: weights(s, 1.0, tau)),
}


@claim(
    "thm-entmax-form",
    part="(a) closed form",
    result="T3.4",
    tol=2e-7,
    instances=210,
    real=dict(weights=weights),
    mutants=RIVALS,
    covers=("eq-entmax-form",),
)
def closed_form(impl):
    """The weights against [(alpha-1) s/tau - kappa]_+ to the power 1/(alpha-1), kappa by bisection
    in numpy, and against the entmax library (exact at 1.5 and 2, bisection elsewhere)."""
    exact = {1.5: library.entmax15, 2.0: library.sparsemax}
    for _, s, alpha, tau in cases(0, 210):
        p, theta = impl.weights(s, alpha, tau), torch.as_tensor(s / tau)
        peer = exact.get(alpha, lambda x, alpha=alpha: library.entmax_bisect(x, alpha, n_iter=80))
        yield max(np.abs(p - bisected(s, alpha, tau)).max(), np.abs(p - peer(theta).numpy()).max())


@claim(
    "thm-entmax-form",
    part="(a) it is the maximiser",
    result="T3.4",
    tol=1e-4,
    instances=42,
    real=dict(weights=weights),
    mutants=RIVALS,
)
def maximiser(impl):
    """SLSQP gets the objective and the simplex only; its weights must agree, and no random point
    of the simplex may have a larger objective than ours."""
    for rng, s, alpha, tau in cases(1, 42):
        n = len(s)

        def cost(p, s=s, alpha=alpha, tau=tau):
            return tau * omega(np.maximum(p, 0), alpha) - s @ p

        def slope(p, s=s, alpha=alpha, tau=tau):
            return tau * np.maximum(p, 0) ** (alpha - 1) / (alpha - 1) - s

        found = minimize(
            cost,
            np.full(n, 1 / n),
            jac=slope,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 800},
        )
        p = impl.weights(s, alpha, tau)
        rivals = min(cost(q) for q in rng.dirichlet(np.ones(n), 20))
        yield max(np.abs(found.x - p).max(), cost(p) - rivals)


def soft_maximum(s, alpha, tau):
    return float(Tsallis(alpha).threshold(torch.as_tensor(s), tau))


@claim(
    "thm-entmax-form",
    part="(a, b) threshold, soft maximum and value",
    result="T3.4",
    tol=1e-9,
    instances=140,
    real=dict(
        zeta=soft_maximum,
        value=value,
        kappa=lambda zeta, a: (a - 1) * zeta - 1,
        gain=lambda p, a: ((p**a).sum() - 1) / a,
        room=lambda n, a: (1 - n ** (1 - a)) / (a - 1),
    ),
    mutants={
        "log-sum-exp for the soft maximum": dict(
            zeta=lambda s, a, tau: float(np.log(np.exp(s / tau).sum()))
        ),
        "kappa without its shift": dict(kappa=lambda zeta, a: (a - 1) * zeta),
        "value is the soft maximum": dict(gain=lambda p, a: 0.0),
        "value with alpha - 1 below": dict(gain=lambda p, a: ((p**a).sum() - 1) / (a - 1)),
        "value without the factor tau": dict(value=lambda s, a, tau: value(s, a, tau) / tau),
        "half the room": dict(room=lambda n, a: (1 - n ** (1 - a)) / (a - 1) / 2),
    },
)
def threshold(impl):
    """kappa from zeta against bisection, its two bounds, V against the objective at the maximiser
    and the formula with zeta; every fifth row has equal scores and meets the upper bound."""
    for i, (_, s, alpha, tau) in enumerate(cases(2, 140)):
        s = np.full_like(s, s[0]) if i % 5 == 0 else s
        z, p = (alpha - 1) * s / tau, bisected(s, alpha, tau)
        zeta, n = impl.zeta(s, alpha, tau), len(s)
        lead, v = zeta - s.max() / tau, impl.value(s, alpha, tau)
        room = impl.room(n, alpha)
        yield max(
            abs(impl.kappa(zeta, alpha) - kappa_of(z, 1 / (alpha - 1))),
            excess(0, lead),
            abs(lead - room) if i % 5 == 0 else excess(lead, room),
            abs(v - (s @ p - tau * omega(p, alpha))),
            abs(v - tau * (zeta + impl.gain(p, alpha))),
        )


@claim(
    "thm-entmax-form",
    part="(c) who gets exactly zero",
    result="T3.4",
    tol=0.5,
    instances=420,
    real=dict(weights=weights, margin=lambda k, a, tau: tau / ((a - 1) * k ** (a - 1))),
    mutants={
        "factor alpha - 1 lost": dict(weights=lost_factor),
        "ties ignored": dict(margin=lambda k, a, tau: tau / (a - 1)),
        "margin multiplied": dict(margin=lambda k, a, tau: tau * (a - 1) / k ** (a - 1)),
        "margin in scaled scores": dict(margin=lambda k, a, tau: 1 / ((a - 1) * k ** (a - 1))),
        "power of the ties inverted": dict(
            margin=lambda k, a, tau: tau * k ** (a - 1) / (a - 1)
        ),
        "softmax": dict(weights=lambda s, a, tau: weights(s, 1.0, tau)),
    },
)
def margin(impl):
    """k tied winners whose lead is the margin plus or minus one part in a thousand: with more the
    others have exactly 0 and the winners 1/k, with less somebody else has a positive weight; and a
    key that trails by tau/(alpha-1) has 0.  The residual counts false statements."""
    rng = np.random.default_rng(3)
    for i in range(420):
        alpha, tau = ORDERS[i % 7], float(rng.choice([0.7, 1.0, 2.5]))
        k, n, more = int(rng.integers(1, 4)), int(rng.integers(4, 8)), i % 2 == 0
        lead = impl.margin(k, alpha, tau) * (1.001 if more else 0.999)
        s = tied(rng, k, n, lead)
        p = impl.weights(s, alpha, tau)
        uniform = np.where(s == 0, 1 / k, 0.0)
        hard = bool((p[s < 0] == 0).all()) and np.abs(p - uniform).max() < 1e-12
        s = rng.normal(0, 2 * tau / (alpha - 1), n)
        gone = impl.weights(s, alpha, tau)[s.max() - s >= tau / (alpha - 1)]
        yield float(hard != more) + float((gone != 0).any()) * 10 + 10 * float(hard and not more)


@claim(
    "prop-entmax-factor",
    part="(a) another temperature",
    result="E18",
    tol=1e-7,
    instances=120,
    real=dict(
        lost=lost_factor,
        temperature=lambda a, tau: (a - 1) * tau,
        penalty=lambda p, a: (p**a).sum() / a,
    ),
    mutants={
        "temperature divided": dict(temperature=lambda a, tau: tau / (a - 1)),
        "temperature unchanged": dict(temperature=lambda a, tau: tau),
        "Tsallis penalty": dict(penalty=lambda p, a: omega(p, a)),
        "the right closed form": dict(lost=bisected),
        "power of the norm only": dict(penalty=lambda p, a: (p**a).sum()),
    },
)
def another_temperature(impl):
    """The form without its factor, by bisection, against the package at the temperature
    (alpha-1) tau; and it must satisfy the optimality condition of its own penalty, whose derivative
    is taken by central differences."""
    for _, s, alpha, tau in cases(4, 120, (1.25, 1.5, 1.75, 2.5, 3.0)):
        w = impl.lost(s, alpha, tau)
        at = weights(s, alpha, impl.temperature(alpha, tau))
        h = 1e-6
        slope = np.empty(len(s))
        for j, step in enumerate(h * np.eye(len(s))):
            rise = impl.penalty(w + step, alpha) - impl.penalty(abs(w - step), alpha)
            slope[j] = rise / (2 * h)
        on = w > 1e-3
        reward = (s - tau * slope)[on]
        yield max(np.abs(w - at).max(), np.ptp(reward) * 1e-2)


@claim(
    "prop-entmax-factor",
    part="(b) its limit is a hard argmax",
    result="E18",
    tol=1e-9,
    instances=120,
    real=dict(
        lost=lost_factor,
        bound=lambda n, a, delta, tau: tau / (a * delta) * (1 - n ** (1 - a)),
    ),
    mutants={
        "the right closed form": dict(lost=bisected),
        "bound with the square": dict(
            bound=lambda n, a, delta, tau: tau / (a * delta) * (1 - n ** (1 - a)) ** 2
        ),
        "temperature below": dict(
            bound=lambda n, a, delta, tau: (1 - n ** (1 - a)) / (a * delta * tau)
        ),
        "softmax": dict(lost=lambda s, a, tau: np.exp(s / tau) / np.exp(s / tau).sum()),
    },
)
def hard_limit(impl):
    """Weight outside the k winners against the bound, for alpha from 1.5 down to 1.001; equal
    weights on the winners; and the two forms agree at alpha = 2."""
    rng = np.random.default_rng(5)
    for i in range(120):
        alpha, tau = (1.5, 1.1, 1.01, 1.001)[i % 4], float(rng.choice([1.0, 4.0]))
        k, n, delta = int(rng.integers(1, 4)), int(rng.integers(4, 8)), rng.uniform(0.05, 0.4)
        s = tied(rng, k, n, delta)
        w = impl.lost(s, alpha, tau)
        w = w / w.sum()
        same = np.abs(impl.lost(s, 2.0, tau) - weights(s, 2.0, tau)).max()
        yield max(
            excess(w[s < 0].sum(), impl.bound(n, alpha, delta, tau)),
            np.ptp(w[s == 0]),
            same if alpha == 1.5 else 0.0,
        )


@claim(
    "thm-alpha-limits",
    part="(a) bounds on the value",
    result="T3.5",
    tol=1e-9,
    instances=240,
    real=dict(
        value=value,
        low=lambda k, a, tau: tau * (1 - k ** (1 - a)) / (a * (a - 1)),
        high=lambda n, a, tau: tau * (1 - n ** (1 - a)) / (a * (a - 1)),
    ),
    mutants={
        "value without the factor tau": dict(value=lambda s, a, tau: value(s, a, tau) / tau),
        "ties counted once too often": dict(
            low=lambda k, a, tau: tau * (1 - (k + 1) ** (1 - a)) / (a * (a - 1))
        ),
        "alpha missing below": dict(low=lambda k, a, tau: tau * (1 - k ** (1 - a)) / (a - 1)),
        "bound of Shannon": dict(high=lambda n, a, tau: tau * np.log(n)),
        "regulariser with the wrong sign": dict(
            value=lambda s, a, tau: 2 * s.max() - value(s, a, tau)
        ),
    },
)
def bounds(impl):
    """V between its bounds for random scores with k ties; equality on the left when the lead is
    above the margin, on the right for equal scores; V falls as alpha grows."""
    rng = np.random.default_rng(6)
    for i in range(240):
        alpha, tau = ORDERS[i % 7], float(rng.choice([0.7, 2.5]))
        k, n = int(rng.integers(1, 4)), int(rng.integers(4, 8))
        margin = tau / (alpha - 1)
        kind = i % 3
        s = tied(rng, k, n, margin * (1.1 if kind == 1 else rng.uniform(0.01, 0.5)))
        s = np.zeros(n) if kind == 2 else s
        v = impl.value(s, alpha, tau) - s.max()
        low, high = impl.low(n if kind == 2 else k, alpha, tau), impl.high(n, alpha, tau)
        yield max(
            abs(v - low) if kind else excess(low, v),
            abs(v - high) if kind == 2 else excess(v, high),
            excess(impl.value(s, alpha + 0.05, tau), impl.value(s, alpha, tau)),
        )


def spread_of(q):
    """b of the theorem: entropy plus half the second moment of the surprise."""
    return -(q * np.log(q)).sum() + (q * np.log(q) ** 2).sum() / 2


def usual(s, alpha, tau):
    x = torch.as_tensor(s / tau)
    return library.entmax_bisect(x, alpha).numpy()


@claim(
    "thm-alpha-limits",
    part="(b) to softmax",
    result="T3.5",
    tol=1e-9,
    instances=150,
    real=dict(
        weights=weights,
        value=value,
        rate=lambda a: (a - 1) / a,
        spread=spread_of,
    ),
    mutants={
        "factor alpha - 1 lost": dict(
            weights=lambda s, a, tau: weights(s, a, (a - 1) * tau) if a > 1 else weights(s, a, tau)
        ),
        "the usual package at 1": dict(weights=usual),
        "entropy alone": dict(spread=lambda q: -(q * np.log(q)).sum()),
        "quadratic rate": dict(rate=lambda a: (a - 1) ** 2 / a),
        "rate with the square below": dict(rate=lambda a: (a - 1) / a**2),
        "value with the wrong sign": dict(value=lambda s, a, tau: -value(s, a, tau)),
    },
)
def to_softmax(impl):
    """V_1 - V_alpha and KL(p_alpha | softmax) against their bounds, at alpha from 1 (where both are
    0) over 1 + 1e-7 to 2; the difference of the values must be within (alpha-1)^2 of the bound."""
    for _, s, alpha, tau in cases(7, 150, (1.0, 1 + 1e-7, 1.0001, 1.01, 2.0), spread=1.0):
        q = np.exp(s / tau) / np.exp(s / tau).sum()
        p = impl.weights(s, alpha, tau)
        on = p > 0
        kl = (p[on] * np.log(p[on] / q[on])).sum()
        bound = impl.rate(alpha) * impl.spread(q)
        lost = (impl.value(s, 1.0, tau) - impl.value(s, alpha, tau)) / tau
        far = abs(lost - bound) - 10 * (alpha - 1) ** 2
        yield max(
            excess(0, lost), excess(lost, bound), excess(kl, bound), far if alpha < 1.1 else 0.0
        )


@claim(
    "thm-alpha-limits",
    part="(c, d) through sparsemax to argmax",
    result="T3.5",
    tol=1e-9,
    instances=150,
    real=dict(
        weights=weights,
        two=lambda s, tau: sparsemax(torch.as_tensor(s), tau).numpy(),
        start=lambda delta, tau: 1 + tau / delta,
    ),
    mutants={
        "softmax at 2": dict(two=lambda s, tau: softmax(torch.as_tensor(s), tau).numpy()),
        "temperature missing at 2": dict(two=lambda s, tau: sparsemax(torch.as_tensor(s)).numpy()),
        "too early": dict(start=lambda delta, tau: 1 + 0.5 * tau / delta),
        "lead not inverted": dict(start=lambda delta, tau: 1 + tau * delta),
        "factor alpha - 1 lost": dict(weights=lambda s, a, tau: weights(s, a, (a - 1) * tau)),
    },
)
def to_argmax(impl):
    """At alpha = 2 the projection of s/tau by sorting in numpy; from alpha = 1 + tau/lead on,
    uniform weights on the winners, exactly, by counting them."""
    rng = np.random.default_rng(8)
    for i in range(150):
        k, n, tau = 1 + i % 3, int(rng.integers(4, 8)), float(rng.choice([0.5, 2.0]))
        delta = rng.uniform(0.2, 3)
        s = tied(rng, k, n, delta)
        order = impl.start(delta, tau) * (1 + 1e-9)
        p = impl.weights(s, order, tau)
        x = rng.normal(0, 1, n)
        z = np.sort(x / tau)[::-1]
        size = np.nonzero(1 + np.arange(1, n + 1) * z > z.cumsum())[0].max() + 1
        projected = np.maximum(x / tau - (z[:size].sum() - 1) / size, 0)
        yield max(
            np.abs(p - np.where(s == 0, 1 / k, 0)).max(), np.abs(impl.two(x, tau) - projected).max()
        )


def jacobian(s, alpha, tau):
    s = torch.as_tensor(s)
    return Tsallis(alpha).jacobian(entmax(s, alpha, tau), tau).dense().numpy()


def built(power=None, center=None, divide=True):
    """The theorem's matrix with another response, another mean, or without its temperature."""

    def mutant(s, alpha, tau):
        p = weights(s, alpha, tau)
        on = p > 0
        u = np.zeros_like(p)
        u[on] = p[on] ** (2 - alpha if power is None else power(alpha))
        c = u if center is None else center(p)
        J = np.diag(u) - np.outer(u, c) / c.sum()
        return J / tau if divide else J

    return mutant


@claim(
    "thm-family-jacobian",
    part="(a) finite differences",
    result="T3.6",
    tol=2e-6,
    instances=120,
    real=dict(jacobian=jacobian),
    mutants={
        "p-weighted mean": dict(jacobian=built(center=lambda p: p)),
        "exponent alpha - 2": dict(jacobian=built(power=lambda a: a - 2)),
        "response p": dict(jacobian=built(power=lambda a: 1.0)),
        "no temperature": dict(jacobian=built(divide=False)),
        "plain mean over all keys": dict(jacobian=built(center=np.ones_like)),
        "sign": dict(jacobian=lambda s, a, tau: -jacobian(s, a, tau)),
    },
    covers=("eq-entmax-jacobian",),
)
def by_differences(impl):
    """Central differences of the weights found by bisection in numpy (softmax at alpha = 1),
    against J; scores where a key is near the edge are left out."""

    def reference(s, alpha, tau):
        e = np.exp(s / tau)
        return e / e.sum() if alpha == 1 else bisected(s, alpha, tau)

    orders = (1.0, 1.25, 1.5, 1.75, 2.0, 3.0)
    for _, s, alpha, tau in inside(9, 120, orders, spread=0.8):
        h = 1e-5
        fd = [
            (reference(s + step, alpha, tau) - reference(s - step, alpha, tau)) / (2 * h)
            for step in h * np.eye(len(s))
        ]
        J = impl.jacobian(s, alpha, tau)
        yield np.abs(np.array(fd).T - J).max() / (1 + np.abs(J).max())


@claim(
    "thm-family-jacobian",
    part="(a) symmetric, positive, its kernel, the backward pass",
    result="T3.6",
    tol=1e-11,
    instances=120,
    real=dict(
        jacobian=jacobian,
        rank=lambda p: int((p > 0).sum()) - 1,
        backward=lambda u, g, tau: u * (g - (u @ g) / u.sum()) / tau,
    ),
    mutants={
        "not centred": dict(jacobian=lambda s, a, tau: np.diag(response(
            torch.as_tensor(weights(s, a, tau)), a).numpy()) / tau),
        "p-weighted mean": dict(jacobian=built(center=lambda p: p)),
        "rank of the support": dict(rank=lambda p: int((p > 0).sum())),
        "full rank": dict(rank=lambda p: len(p) - 1),
        "plain mean in the backward pass": dict(
            backward=lambda u, g, tau: u * (g - g[u > 0].mean()) / tau
        ),
        "no temperature in the backward pass": dict(
            backward=lambda u, g, tau: u * (g - (u @ g) / u.sum())
        ),
    },
)
def structure(impl):
    """J - J^T, J 1, J e_j off the support, the smallest eigenvalue and the rank by numpy; the
    backward formula against autograd through the package."""
    for rng, s, alpha, tau in inside(10, 120, (1.0, 1.25, 1.5, 2.0, 2.5), low=3, spread=1.5):
        J, p = impl.jacobian(s, alpha, tau), weights(s, alpha, tau)
        size = np.abs(J).max() or 1.0
        eigenvalues = np.linalg.eigvalsh((J + J.T) / 2) / size
        rank = int((eigenvalues > 1e-9).sum())
        g, x = rng.normal(size=len(s)), torch.as_tensor(s).requires_grad_()
        (auto,) = torch.autograd.grad(entmax(x, alpha, tau) @ torch.as_tensor(g), x)
        u = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)
        yield max(
            np.abs(J - J.T).max() / size,
            np.abs(J.sum(1)).max() / size,
            np.abs(J[:, p == 0]).max(initial=0) / size,
            -eigenvalues[0],
            abs(rank - impl.rank(p)),
            np.abs(impl.backward(u, g, tau) - auto.numpy()).max() / size,
        )


class Quartic(Regularizer):
    """phi(x) = x^2/2 + x^4/4, a member of no named family."""

    def penalty(self, p):
        return (p**2 / 2 + p**4 / 4).sum(-1)


@claim(
    "thm-family-jacobian",
    part="(b) every separable regulariser",
    result="T3.6",
    tol=1e-7,
    instances=30,
    real=dict(response=lambda p: 1 / (1 + 3 * p**2)),
    mutants={
        "second derivative not inverted": dict(response=lambda p: 1 + 3 * p**2),
        "first derivative": dict(response=lambda p: 1 / (p + p**3)),
        "response p": dict(response=lambda p: p),
        "sparsemax": dict(response=lambda p: 1.0 + 0 * p),
    },
)
def separable(impl):
    """A regulariser of ours, sum p^2/2 + p^4/4: central differences of its weights, found by two
    nested bisections in numpy, against J with u = 1/phi''."""

    def inverse(y):
        low, high = np.zeros_like(y), np.ones_like(y)
        for _ in range(50):
            middle = (low + high) / 2
            below = middle + middle**3 < y
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(y > 0, low, 0.0)

    def reference(s, tau):
        low, high = s.max() / tau - 2, s.max() / tau
        for _ in range(50):
            middle = (low + high) / 2
            full = inverse(s / tau - middle).sum() >= 1
            low, high = (middle, high) if full else (low, middle)
        return inverse(s / tau - low), low

    rng, found = np.random.default_rng(11), 0
    while found < 30:
        s, tau, h = rng.normal(0, 0.8, int(rng.integers(2, 5))), float(rng.choice([0.7, 2.0])), 1e-4
        p, zeta = reference(s, tau)
        if np.abs(s / tau - zeta).min() < 0.02:
            continue
        found += 1
        fd = [
            (reference(s + step, tau)[0] - reference(s - step, tau)[0]) / (2 * h)
            for step in h * np.eye(len(s))
        ]
        u = np.where(p > 0, impl.response(np.where(p > 0, p, 0.5)), 0.0)
        J = (np.diag(u) - np.outer(u, u) / u.sum()) / tau
        ours = Quartic()(torch.as_tensor(s), tau).numpy()
        yield max(np.abs(np.array(fd).T - J).max(), np.abs(ours - p).max())


def slope_in_alpha(s, alpha, tau, dtype=torch.float64):
    """d p / d alpha by the package, one row of the Jacobian at a time."""
    order = torch.tensor([alpha], dtype=dtype, requires_grad=True)
    p = entmax(torch.as_tensor(s, dtype=dtype), order, tau)
    return np.array([float(torch.autograd.grad(x, order, retain_graph=True)[0]) for x in p])


def peer_slope(s, alpha, tau, dtype=torch.float64):
    """The same by the entmax library."""
    order = torch.tensor([alpha], dtype=dtype, requires_grad=True)
    p = library.entmax_bisect(torch.as_tensor(s / tau, dtype=dtype), order)
    return np.array([float(torch.autograd.grad(x, order, retain_graph=True)[0]) for x in p])


def phi(t):
    return 0.5 + t / 3 if abs(t) < 1e-5 else (t * np.exp(t) - np.expm1(t)) / t**2


def by_phi(s, alpha, tau, center=None, moment=2, phi=phi):
    p = weights(s, alpha, tau)
    on = p > 0
    log, u = np.log(p[on]), p[on] ** (2 - alpha)
    g = log**moment * np.array([phi(t) for t in (alpha - 1) * log])
    c = u if center is None else center(p[on])
    out = np.zeros_like(p)
    out[on] = u * ((c * g).sum() / c.sum() - g)
    return out


def by_quotient(s, alpha, tau, power=2, sign=1):
    p, a = weights(s, alpha, tau), alpha - 1
    on = p > 0
    u = np.where(on, np.where(on, p, 1) ** (2 - alpha), 0)
    h, share = -p * np.log(np.where(on, p, 1)), u / u.sum()
    return (p - share) / a**power + sign * (h - share * h.sum()) / a


def precise_row(s, alpha, tau):
    """The weights with 30 digits: bisection for zeta in mpmath, no formula of the package."""
    a = mpmath.mpf(alpha) - 1
    theta = [mpmath.mpf(float(x)) / mpmath.mpf(tau) for x in s]

    def row(zeta):
        if a == 0:
            return [mpmath.exp(x - zeta) for x in theta]
        bases = [1 + a * (x - zeta) for x in theta]
        return [b ** (1 / a) if b > 0 else mpmath.mpf(0) for b in bases]

    low, high = max(theta), max(theta) + mpmath.log(len(theta))
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if mpmath.fsum(row(middle)) >= 1 else (low, middle)
    return row(low)


@claim(
    "thm-alpha-derivative",
    part="(a) weights and soft maximum",
    result="T3.9",
    tol=1e-6,
    instances=60,
    real=dict(
        slope=slope_in_alpha, formula=by_phi, zeta=lambda u, g: -(u * g).sum() / u.sum()
    ),
    mutants={
        "p-weighted mean": dict(formula=lambda s, a, tau: by_phi(s, a, tau, center=lambda p: p)),
        "one logarithm": dict(formula=lambda s, a, tau: by_phi(s, a, tau, moment=1)),
        "phi constant": dict(formula=lambda s, a, tau: by_phi(s, a, tau, phi=lambda t: 0.5)),
        "sign": dict(formula=lambda s, a, tau: -by_phi(s, a, tau)),
        "package with the wrong sign": dict(slope=lambda s, a, tau: -slope_in_alpha(s, a, tau)),
        "sign of the soft maximum": dict(zeta=lambda u, g: (u * g).sum() / u.sum()),
    },
    covers=("eq-entmax-slope",),
)
def in_alpha(impl):
    """Central differences in alpha of weights and zeta found by bisection in numpy, step 1e-5,
    against the formula with phi and against the package's automatic derivative."""
    for _, s, alpha, tau in inside(12, 60, (1.1, 1.25, 1.5, 1.75, 2.0, 2.5), spread=0.8):
        h = 1e-5

        def zeta(order, s=s, tau=tau):
            z = (order - 1) * s / tau
            return (1 + kappa_of(z, 1 / (order - 1))) / (order - 1)

        fd = (bisected(s, alpha + h, tau) - bisected(s, alpha - h, tau)) / (2 * h)
        p = weights(s, alpha, tau)
        p = p[p > 0]
        g = np.log(p) ** 2 * np.array([phi(t) for t in (alpha - 1) * np.log(p)])
        dz = (zeta(alpha + h) - zeta(alpha - h)) / (2 * h)
        size = 1 + np.abs(fd).max()
        yield max(
            np.abs(fd - impl.formula(s, alpha, tau)).max() / size,
            np.abs(fd - impl.slope(s, alpha, tau)).max() / size,
            abs(dz - impl.zeta(p ** (2 - alpha), g)) / (1 + abs(dz)),
        )


@claim(
    "thm-alpha-derivative",
    part="(b) the divided form",
    result="T3.9",
    tol=1e-9,
    instances=60,
    real=dict(formula=by_quotient),
    mutants={
        "one power of alpha - 1": dict(formula=lambda s, a, tau: by_quotient(s, a, tau, power=1)),
        "sign of the entropy term": dict(formula=lambda s, a, tau: by_quotient(s, a, tau, sign=-1)),
        "entropy term missing": dict(formula=lambda s, a, tau: by_quotient(s, a, tau, sign=0)),
        "sign": dict(formula=lambda s, a, tau: -by_quotient(s, a, tau)),
    },
)
def divided(impl):
    """The divided form against the entmax library's gradient in alpha, in float64 away from 1."""
    for _, s, alpha, tau in inside(13, 60, (1.1, 1.25, 1.5, 1.75, 2.0), spread=0.8):
        truth = peer_slope(s, alpha, tau)
        yield np.abs(truth - impl.formula(s, alpha, tau)).max() / (1 + np.abs(truth).max())


def at_one(s, tau):
    p = weights(s, 1.0, tau)
    square = np.log(p) ** 2
    return p * ((p * square).sum() - square) / 2


@claim(
    "thm-alpha-derivative",
    part="(a) at and near alpha = 1",
    result="T3.9",
    tol=1e-4,
    instances=16,
    real=dict(slope=lambda s, a, tau: slope_in_alpha(s, a, tau, torch.float32), limit=at_one),
    mutants={
        "the usual package": dict(slope=lambda s, a, tau: peer_slope(s, a, tau, torch.float32)),
        "half missing": dict(limit=lambda s, tau: 2 * at_one(s, tau)),
        "sign": dict(limit=lambda s, tau: -at_one(s, tau)),
        "no square": dict(
            limit=lambda s, tau: -by_phi(s, 1.0, tau, moment=1, phi=lambda t: 0.5)
        ),
    },
)
def near_one(impl):
    """The package's derivative in float32 at alpha in {1, 1+1e-7, 1.001, 1.01}, against differences
    of 30-digit weights in mpmath at the alpha that float32 holds; at 1 also the limit formula."""
    with mpmath.workdps(30):
        for _, s, alpha, tau in cases(14, 16, (1.0, 1 + 1e-7, 1.001, 1.01), low=3, spread=0.8):
            s, tau, h = np.float32(s).astype(float), float(np.float32(tau)), mpmath.mpf(10) ** -9
            order = mpmath.mpf(float(np.float32(alpha)))
            up, here = precise_row(s, order + h, tau), precise_row(s, order, tau)
            truth = np.array([float((x - y) / h) for x, y in zip(up, here, strict=True)])
            size = np.abs(truth).max()
            error = np.abs(impl.slope(s, alpha, tau) - truth).max() / size
            limit = np.abs(impl.limit(s, tau) - truth).max() / size if alpha == 1 else 0.0
            yield max(error, limit)


def value_slope(p, alpha, tau):
    on = p > 0
    log = np.log(p[on])
    if alpha == 1:
        return -tau * (-(p[on] * log).sum() + (p[on] * log**2).sum() / 2)
    inner = (p[on] ** alpha * log).sum() - (2 * alpha - 1) * omega(p, alpha)
    return -tau * inner / (alpha * (alpha - 1))


@claim(
    "thm-alpha-derivative",
    part="(c) value",
    result="T3.9",
    tol=1e-6,
    instances=84,
    real=dict(value=value, slope=value_slope),
    mutants={
        "sign": dict(slope=lambda p, a, tau: -value_slope(p, a, tau)),
        "no temperature": dict(slope=lambda p, a, tau: value_slope(p, a, tau) / tau),
        "only the power moves": dict(
            slope=lambda p, a, tau: -tau
            * (p[p > 0] ** a * np.log(p[p > 0])).sum()
            / (a * max(a - 1, 1e-3))
        ),
        "alpha missing below": dict(slope=lambda p, a, tau: a * value_slope(p, a, tau)),
    },
)
def value_in_alpha(impl):
    """Differences of V in alpha (central; at alpha = 1 one-sided of second order) against the
    formula at the maximiser, keys at the edge included."""
    orders = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
    for i, (_, s, alpha, tau) in enumerate(cases(15, 84, orders, spread=1.0)):
        if i % 7 == 0 and alpha > 1:
            s = np.array([0.0, -tau / (alpha - 1), -1.0])
        h = 1e-5
        if alpha == 1:
            v = [impl.value(s, 1 + k * h, tau) for k in range(3)]
            fd = (-3 * v[0] + 4 * v[1] - v[2]) / (2 * h)
        else:
            fd = (impl.value(s, alpha + h, tau) - impl.value(s, alpha - h, tau)) / (2 * h)
        yield abs(fd - impl.slope(weights(s, alpha, tau), alpha, tau)) / (1 + abs(fd))


def along(s, alpha, tau):
    """dp/dtau by the theorem: minus J s over tau."""
    return -jacobian(s, alpha, tau) @ s / tau


@claim(
    "thm-family-temperature",
    part="(a, b) first derivatives",
    result="T2.9",
    tol=1e-6,
    instances=90,
    real=dict(value=value, along=along, omega=omega),
    mutants={
        "entropy of Shannon": dict(omega=lambda p, a: omega(p, 1)),
        "sign of the regulariser": dict(omega=lambda p, a: -omega(p, a)),
        "J without its 1/tau": dict(along=lambda s, a, tau: tau * along(s, a, tau)),
        "J of softmax": dict(along=lambda s, a, tau: along(s, 1.0, tau)),
        "value of scaled scores": dict(value=lambda s, a, tau: value(s / tau, a, 1.0)),
    },
)
def in_tau(impl):
    """Central differences in tau of V and of weights found by bisection in numpy, against minus
    Omega and -Js/tau."""
    h = 1e-5
    for _, s, alpha, tau in inside(16, 90, (1.1, 1.25, 1.5, 2.0, 2.5), spread=0.8):
        dv = (impl.value(s, alpha, tau + h) - impl.value(s, alpha, tau - h)) / (2 * h)
        dp = (bisected(s, alpha, tau + h) - bisected(s, alpha, tau - h)) / (2 * h)
        p = bisected(s, alpha, tau)
        error = np.abs(dp - impl.along(s, alpha, tau)).max() / (1 + np.abs(dp).max())
        yield max(abs(dv + impl.omega(p, alpha)), error)


def form(s, alpha, tau, x, t):
    """Second derivative of V at (s, tau) along (x, t) by the theorem."""
    y = x - (t / tau) * s
    return float(y @ jacobian(s, alpha, tau) @ y)


@claim(
    "thm-family-temperature",
    part="(a, b, c) second derivative, convex, homogeneous, kernel",
    result="T2.9",
    tol=1e-9,
    instances=75,
    real=dict(value=value, form=form, kernel=lambda s, tau: np.append(s, tau)),
    mutants={
        "temperature not part of the direction": dict(
            form=lambda s, a, tau, x, t: form(s, a, tau, x, 0.0)
        ),
        "sign of the mixed term": dict(form=lambda s, a, tau, x, t: form(s, a, tau, x, -t)),
        "J of softmax": dict(form=lambda s, a, tau, x, t: form(s, 1.0, tau, x, t)),
        "scores alone in the kernel": dict(kernel=lambda s, tau: np.append(s, 0.0)),
        "value without the factor tau": dict(value=lambda s, a, tau: value(s, a, tau) / tau),
    },
)
def joint(impl):
    """Autograd's Hessian of V in (s, tau): equal to the theorem's form along random directions and
    along tau alone, no negative eigenvalue, rank |S| - 1, the stated kernel; V(cs, c tau) = c V."""
    for rng, s, alpha, tau in inside(17, 75, (1.0, 1.25, 1.5, 2.0, 2.5), low=3, spread=1.0):
        member = Shannon() if alpha == 1 else Tsallis(alpha)

        def f(z, member=member):
            return member.conjugate(z[:-1], z[-1])

        z = np.append(s, tau)
        H = torch.autograd.functional.hessian(f, torch.as_tensor(z)).numpy()
        size, p, c = 1 + np.abs(H).max(), weights(s, alpha, tau), rng.uniform(0.3, 3)
        d, last = rng.normal(size=len(z)), np.eye(len(z))[-1]
        eigenvalues = np.linalg.eigvalsh(H) / size
        scaled = impl.value(c * s, alpha, c * tau) - c * impl.value(s, alpha, tau)
        yield max(
            abs(d @ H @ d - impl.form(s, alpha, tau, d[:-1], d[-1])) / size,
            abs(last @ H @ last - impl.form(s, alpha, tau, 0 * s, 1.0)) / size,
            np.abs(H @ impl.kernel(s, tau)).max() / size,
            np.abs(H @ np.append(np.ones(len(s)), 0)).max() / size,
            np.abs(H[:-1][p == 0]).max(initial=0),
            -eigenvalues[0],
            abs(int((eigenvalues > 1e-10).sum()) - ((p > 0).sum() - 1)),
            abs(scaled),
        )
