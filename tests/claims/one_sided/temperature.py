"""Claims of the page "One division: temperature, and why the root of d"."""

import mpmath
import numpy as np
import torch
from claims import claim

from eotcourse import LogPrior, Shannon, softmax


def value(s, tau):
    return Shannon().conjugate(s, tau)


def weights(s, tau):
    return softmax(torch.as_tensor(s), tau).numpy()


def excess(smaller, larger):
    """By how much an inequality fails, allowing for rounding of quantities of order one."""
    return max(0.0, float(smaller - larger) - 1e-13)


def tied(rng, k, n, delta, spread):
    """Scores with k winners, a runner-up at distance delta, and the others below it."""
    below = delta + spread * rng.uniform(0, 1, n - k)
    below[0] = delta
    return rng.permutation(np.concatenate([np.zeros(k), -below]) + rng.normal())


@claim(
    "thm-temperature-limits",
    part="(a) cold",
    result="T2.8",
    tol=1e-13,
    instances=300,
    real=dict(
        weights=weights,
        bound=lambda n, k, delta, tau: 2 * (n - k) / k * np.exp(-delta / tau),
    ),
    mutants={
        "keys counted with the winners": dict(
            bound=lambda n, k, delta, tau: 2 * n / k * np.exp(-delta / tau)
        ),
        "ties ignored": dict(bound=lambda n, k, delta, tau: 2 * (n - 1) * np.exp(-delta / tau)),
        "one side of the difference only": dict(
            bound=lambda n, k, delta, tau: (n - k) / k * np.exp(-delta / tau)
        ),
        "temperature squared": dict(
            bound=lambda n, k, delta, tau: 2 * (n - k) / k * np.exp(-delta / tau**2)
        ),
        "weights at the wrong temperature": dict(weights=lambda s, tau: weights(s, 1 / tau)),
    },
)
def cold(impl):
    """The distance from uniform weights on the winners is below the bound B for random scores with
    ties; when all others are runners-up it equals 2r/(k+r) with r = kB/2, by counting."""
    rng = np.random.default_rng(0)
    for i in range(300):
        k, n = int(rng.integers(1, 4)), int(rng.integers(4, 9))
        delta, tau = rng.uniform(0.5, 3), rng.uniform(0.05, 0.9)
        equal = i % 2 == 0
        s = tied(rng, k, n, delta, 0.0 if equal else 2.0)
        uniform = (np.argsort(np.argsort(-s, kind="stable")) < k) / k
        distance = np.abs(impl.weights(s, tau) - uniform).sum()
        bound = impl.bound(n, k, delta, tau)
        if equal:
            yield abs(distance - bound / (1 + bound / 2)) / (1 + bound)
        else:
            yield excess(distance, bound)


@claim(
    "thm-temperature-limits",
    part="(b) hot",
    result="T2.8",
    tol=1e-13,
    instances=300,
    real=dict(weights=weights, bound=lambda n, w, tau: w / (2 * tau)),
    mutants={
        "half the bound": dict(bound=lambda n, w, tau: w / (4 * tau)),
        "twice the bound": dict(bound=lambda n, w, tau: w / tau),
        "bound of one weight": dict(bound=lambda n, w, tau: w / (2 * tau * n)),
        "temperature squared": dict(bound=lambda n, w, tau: w / (2 * tau**2)),
        "temperature ignored by the map": dict(weights=lambda s, tau: weights(s, 1.0)),
    },
)
def hot(impl):
    """The distance from uniform weights is below the bound B for random scores; with half of the
    scores at each end of the range it equals tanh B, since two groups of keys are two keys."""
    rng = np.random.default_rng(1)
    for i in range(300):
        n = 2 * int(rng.integers(1, 6))
        if i % 2:
            s, tau = rng.normal(0, 2, n), float(np.exp(rng.uniform(-2, 4)))
            w = np.ptp(s)
        else:
            w = rng.uniform(0.5, 3)
            s, tau = rng.permutation(np.repeat([0.0, w], n // 2)), w * rng.uniform(0.2, 20)
        distance = np.abs(impl.weights(s, tau) - 1 / n).sum()
        bound = impl.bound(n, w, tau)
        yield excess(distance, bound) if i % 2 else abs(distance - np.tanh(bound))


@claim(
    "thm-temperature-limits",
    part="(c) value",
    result="T2.8",
    tol=1e-12,
    instances=400,
    real=dict(value=value, ties=np.log, keys=np.log, spread=lambda w, tau: w**2 / (8 * tau)),
    mutants={
        "one key too few": dict(keys=lambda n: np.log(n - 1)),
        "value without the factor tau": dict(value=lambda s, tau: value(s, tau) / tau),
        "ties ignored": dict(ties=lambda k: np.log(k + 1.0)),
        "spread without the square": dict(spread=lambda w, tau: w / (8 * tau)),
        "spread with one sixteenth": dict(spread=lambda w, tau: w**2 / (16 * tau)),
        "entropy subtracted": dict(value=lambda s, tau: 2 * s.max() - value(s, tau)),
    },
)
def ends(impl):
    """The four bounds on V, for tied scores over four decades of the temperature; every fourth
    instance is symmetric and hot, where the upper bound w^2/(8 tau) is nearly reached, and every
    eighth has equal scores, where all of them are."""
    rng = np.random.default_rng(2)
    for i in range(400):
        k, n = int(rng.integers(1, 4)), int(rng.integers(4, 9))
        s = tied(rng, k, n, rng.uniform(0.1, 3), 3.0)
        tau = float(np.exp(rng.uniform(-4, 4)))
        if i % 4 == 0:
            k, n = 3, 6
            s, tau = np.repeat([0.0, rng.uniform(1, 3)], 3), rng.uniform(20, 40)
        if i % 8 == 1:
            k, s = n, np.full(n, rng.normal())
        v, centred = float(impl.value(torch.as_tensor(s), tau)), tau * np.log(n)
        yield max(
            excess(s.max() + tau * impl.ties(k), v),
            excess(v, s.max() + tau * impl.keys(n)),
            excess(s.mean(), v - centred),
            excess(v - centred, s.mean() + impl.spread(np.ptp(s), tau)),
        )


def entropy(p):
    return -Shannon().omega(p)


def along(s, tau):
    """dp/dtau by the theorem: minus J s over tau."""
    p = softmax(s, tau)
    return -(Shannon().jacobian(p, tau) @ s) / tau


def curvature(s, tau):
    """Var_p(s) / tau^3."""
    p = softmax(s, tau)
    return ((p * s**2).sum(-1) - (p * s).sum(-1) ** 2) / tau**3


def random_rows(rng, count, batch=20):
    for _ in range(count):
        n, tau = int(rng.integers(1, 8)), float(np.exp(rng.uniform(-0.5, 1)))
        yield torch.as_tensor(rng.normal(0, 2, (batch, n))), tau


@claim(
    "thm-temperature-derivatives",
    part="first derivatives",
    result="T2.9",
    tol=1e-6,
    instances=60,
    real=dict(value=value, entropy=entropy, softmax=softmax, along=along),
    mutants={
        "entropy sign flipped": dict(entropy=lambda p: -entropy(p)),
        "J without its 1/tau": dict(along=lambda s, tau: tau * along(s, tau)),
        "weights grow toward the best key": dict(along=lambda s, tau: -along(s, tau)),
        "J of the wrong temperature": dict(along=lambda s, tau: along(s, tau**2)),
        "value of scaled scores": dict(value=lambda s, tau: value(s / tau, 1.0)),
        "softmax along the wrong axis": dict(softmax=lambda s, tau: softmax(s, tau, dim=0)),
    },
)
def first(impl):
    """Central differences in tau of V and of the weights, against entropy and -Js/tau."""
    h = 1e-4
    for s, tau in random_rows(np.random.default_rng(3), 60):
        dv = (impl.value(s, tau + h) - impl.value(s, tau - h)) / (2 * h)
        dp = (impl.softmax(s, tau + h) - impl.softmax(s, tau - h)) / (2 * h)
        error = (dv - impl.entropy(impl.softmax(s, tau))).abs().max()
        yield max(error, (dp - impl.along(s, tau)).abs().max())


@claim(
    "thm-temperature-derivatives",
    part="second derivative",
    result="T2.9",
    tol=1e-12,
    instances=40,
    real=dict(curvature=curvature, along=along),
    mutants={
        "variance without the cube": dict(curvature=lambda s, tau: tau * curvature(s, tau)),
        "variance over tau to the fourth": dict(curvature=lambda s, tau: curvature(s, tau) / tau),
        "second moment for variance": dict(
            curvature=lambda s, tau: (softmax(s, tau) * s**2).sum(-1) / tau**3
        ),
        "variance under uniform weights": dict(
            curvature=lambda s, tau: s.var(-1, unbiased=False) / tau**3
        ),
        "quadratic form with the wrong sign": dict(along=lambda s, tau: -along(s, tau)),
    },
)
def second(impl):
    """Second derivative of V and derivative of H in tau by mpmath at 30 digits, against
    Var_p(s)/tau^3 and s^T J s / tau^2, for one row each; relative to their size."""
    rng = np.random.default_rng(4)

    def log_z(s, t):
        return mpmath.log(mpmath.fsum(mpmath.exp(x / t) for x in s))

    def shannon(s, t):
        logs = [x / t - log_z(s, t) for x in s]
        return -mpmath.fsum(mpmath.exp(x) * x for x in logs)

    with mpmath.workdps(30):
        for s, tau in random_rows(rng, 40, batch=1):
            row = s[0].tolist()
            dv = float(mpmath.diff(lambda t: t * log_z(row, t), tau, 2))
            dh = float(mpmath.diff(lambda t: shannon(row, t), tau))
            claimed = float(impl.curvature(s, tau)[0])
            form = -float((s * impl.along(s, tau)).sum()) / tau
            worst = max(abs(x - claimed) for x in (dv, dh, form))
            yield worst / (1 + abs(claimed))


def direction(s, tau, x, t):
    """Second derivative of V at (s, tau) along (x, t) by the theorem."""
    p, y = softmax(s, tau), x - (t / tau) * s
    return ((p * y**2).sum() - (p * y).sum() ** 2) / tau


@claim(
    "thm-temperature-derivatives",
    part="convex, homogeneous, kernel",
    result="T2.9",
    tol=1e-10,
    instances=60,
    real=dict(value=value, direction=direction, kernel=lambda s, tau: torch.cat([s, s.new([tau])])),
    mutants={
        "value without the factor tau": dict(value=lambda s, tau: value(s, tau) / tau),
        "temperature not part of the direction": dict(
            direction=lambda s, tau, x, t: direction(s, tau, x, 0 * t)
        ),
        "sign of the mixed term": dict(direction=lambda s, tau, x, t: direction(s, tau, x, -t)),
        "scores alone in the kernel": dict(kernel=lambda s, tau: torch.cat([s, s.new([0.0])])),
    },
)
def joint(impl):
    """Autograd's Hessian of V in (s, tau): equal to the theorem's form along random directions,
    no negative eigenvalue, rank n - 1, (s, tau) and (1, 0) in its kernel; V(cs, c tau) = c V."""
    rng = np.random.default_rng(5)

    def f(z):
        return impl.value(z[:-1], z[-1])

    for _ in range(60):
        n, tau, c = int(rng.integers(2, 6)), rng.uniform(0.7, 2), rng.uniform(0.3, 3)
        s = torch.as_tensor(rng.normal(0, 1, n))
        z = torch.cat([s, s.new([tau])])
        hessian = torch.autograd.functional.hessian(f, z)
        xt = torch.as_tensor(rng.normal(size=n + 1))
        x, t = xt[:-1], xt[-1]
        shift = torch.cat([torch.ones(n, dtype=s.dtype), s.new([0.0])])
        eigenvalues = torch.linalg.eigvalsh(hessian)
        yield max(
            abs(float(xt @ hessian @ xt) - float(impl.direction(s, tau, x, t))),
            float((hessian @ impl.kernel(s, tau)).abs().max()),
            float((hessian @ shift).abs().max()),
            float(-eigenvalues[0]),
            float(eigenvalues[2] < 1e-6),
            abs(float(f(c * z)) - c * float(f(z))),
        )


@claim(
    "thm-dispersion",
    part="(a) largest weight",
    result="T2.11",
    tol=1e-13,
    instances=300,
    real=dict(weights=weights, bound=lambda n, w, tau: 1 / (1 + (n - 1) * np.exp(-w / tau))),
    mutants={
        "bound with n instead of n-1": dict(
            bound=lambda n, w, tau: 1 / (1 + n * np.exp(-w / tau))
        ),
        "temperature missing": dict(bound=lambda n, w, tau: 1 / (1 + (n - 1) * np.exp(-w))),
        "bound never attained": dict(bound=lambda n, w, tau: min(1.0, np.exp(w / tau) / n)),
        "temperature squared in the map": dict(weights=lambda s, tau: weights(s, tau**2)),
    },
)
def dispersion(impl):
    """The largest weight against the bound: below it for random scores, equal to it when one key is
    at the top of the range and all others at the bottom."""
    rng = np.random.default_rng(6)
    for i in range(300):
        n, tau = int(rng.integers(1, 200)), float(np.exp(rng.uniform(-1, 1)))
        if i % 2:
            s = rng.normal(0, 2, n)
        else:
            s = np.zeros(n)
            s[rng.integers(n)] = rng.uniform(0, 10)
        largest, bound = impl.weights(s, tau).max(), impl.bound(n, np.ptp(s), tau)
        yield excess(largest, bound) if i % 2 else abs(largest - bound)


def tilted(s, tau, log_pi):
    return Shannon(LogPrior(torch.as_tensor(log_pi)))(torch.as_tensor(s), tau).numpy()


@claim(
    "thm-dispersion",
    part="(b) no further from the prior than the range",
    result="T2.11",
    tol=1e-12,
    instances=300,
    real=dict(weights=tilted, low=lambda w, tau: -w / tau, high=lambda w, tau: w / tau),
    mutants={
        "half the range": dict(high=lambda w, tau: w / (2 * tau)),
        "prior divided by the temperature": dict(
            weights=lambda s, tau, log_pi: tilted(s, tau, log_pi / tau)
        ),
        "prior ignored": dict(weights=lambda s, tau, log_pi: weights(s, tau)),
        "range in raw units": dict(low=lambda w, tau: -w, high=lambda w, tau: w),
    },
)
def near_prior(impl):
    """log p - log prior lies between -w/tau and w/tau for random scores, and reaches both ends
    when one key with almost none, or almost all, of the prior has the top score."""
    rng = np.random.default_rng(7)
    for i in range(300):
        n, tau = int(rng.integers(2, 9)), float(np.exp(rng.uniform(-1, 1)))
        s, log_pi = rng.normal(0, 1, n), rng.normal(0, 3, n)
        extreme = i % 3
        if extreme:
            s = np.zeros(n)
            s[0] = 1.0
            log_pi[0] = -40.0 if extreme == 1 else 40.0
        log_pi -= np.log(np.exp(log_pi).sum())
        ratio = np.log(impl.weights(s, tau, log_pi)) - log_pi
        w = np.ptp(s)
        low, high = impl.low(w, tau), impl.high(w, tau)
        reached = {0: 0.0, 1: abs(ratio.max() - high), 2: abs(ratio.min() - low)}[extreme]
        yield max(excess(ratio.max(), high), excess(low, ratio.min()), reached)


@claim(
    "thm-dispersion",
    part="(c) a prior's margin",
    result="T2.11",
    tol=1e-13,
    instances=300,
    real=dict(
        weights=tilted,
        bound=lambda n, m, w, tau: (n - 1) / (np.exp(m - w / tau) + n - 1),
    ),
    mutants={
        "bound with n instead of n-1": dict(
            bound=lambda n, m, w, tau: n / (np.exp(m - w / tau) + n)
        ),
        "range helps the favoured key": dict(
            bound=lambda n, m, w, tau: (n - 1) / (np.exp(m + w / tau) + n - 1)
        ),
        "margin divided by the temperature": dict(
            bound=lambda n, m, w, tau: (n - 1) / (np.exp((m - w) / tau) + n - 1)
        ),
        "sign of the prior": dict(weights=lambda s, tau, log_pi: tilted(s, tau, -log_pi)),
    },
)
def margin(impl):
    """Weight left to the other keys against the bound: below it for random scores and priors,
    equal to it for equal scores, and when the favoured key alone has the bottom score."""
    rng = np.random.default_rng(8)
    for i in range(300):
        n, tau, m = int(rng.integers(2, 30)), float(np.exp(rng.uniform(-1, 1))), rng.uniform(0, 6)
        log_pi = np.full(n, -m)
        s = np.full(n, rng.normal())
        if i % 3 == 1:
            s[0] -= rng.uniform(0, 2)
        if i % 3 == 2:
            s, log_pi = rng.normal(0, 1, n), log_pi - rng.uniform(0, 2, n)
        log_pi[0] = 0.0
        rest = 1 - impl.weights(s, tau, log_pi)[0]
        bound = impl.bound(n, m, np.ptp(s), tau)
        yield excess(rest, bound) if i % 3 == 2 else abs(rest - bound)
