"""Claims of the page "Softmax is an optimum"."""

import mpmath
import numpy as np
import torch
from claims import claim
from scipy.optimize import minimize
from scipy.special import entr, rel_entr

from eotcourse import Shannon, softmax


def value(s, tau):
    return Shannon().conjugate(s, tau)


def negative_entropy(p):
    return Shannon().omega(p)


def divergence(p, q):
    return rel_entr(p, q).sum()


def draw(rng, blocked=0):
    """Scores, some of them -inf, a temperature, and weights that respect the -inf."""
    n = int(rng.integers(1 + blocked, 9))
    s = rng.normal(0, 4, n)
    open_ = np.arange(n) < n - blocked
    s[~open_] = -np.inf
    p = np.zeros(n)
    p[open_] = rng.dirichlet(np.full(open_.sum(), 0.5))
    p[rng.integers(n)] = 0
    p = p / p.sum() if p.sum() > 0 else np.where(open_, 1 / open_.sum(), 0)
    return torch.as_tensor(s), float(np.exp(rng.uniform(-2, 2))), torch.as_tensor(p)


def dot(s, p):
    return float(sum(x * w for x, w in zip(s.tolist(), p.tolist()) if w > 0))


@claim(
    "thm-gibbs",
    part="the shortfall is tau KL",
    result="T2.1",
    tol=1e-12,
    instances=300,
    real=dict(softmax=softmax, value=value, omega=negative_entropy, kl=divergence),
    mutants={
        "entropy sign flipped": dict(omega=lambda p: -negative_entropy(p)),
        "temperature missing": dict(softmax=lambda s, tau: softmax(s)),
        "temperature squared": dict(softmax=lambda s, tau: softmax(s, tau**2)),
        "value without the factor tau": dict(value=lambda s, tau: value(s, tau) / tau),
        "KL arguments swapped": dict(kl=lambda p, q: rel_entr(q, p).sum()),
        "entropy in bits": dict(omega=lambda p: negative_entropy(p) / np.log(2)),
    },
    covers=("eq-gibbs-gap",),
)
def shortfall(impl):
    """V - (<s,p> + tau H(p)) against tau KL(p || softmax) by scipy's rel_entr, at random weights
    with exact zeros and with up to two scores of -inf; relative to the size of the scores."""
    rng = np.random.default_rng(0)
    for i in range(300):
        s, tau, p = draw(rng, blocked=i % 3)
        reached = dot(s, p) - tau * float(impl.omega(p))
        gap = float(impl.value(s, tau)) - reached
        kl = impl.kl(p.numpy(), impl.softmax(s, tau).numpy())
        yield abs(gap - tau * kl) / (1 + abs(gap))


@claim(
    "thm-gibbs",
    part="forbidden keys get nothing",
    result="T2.1",
    tol=0.0,
    instances=50,
    real=dict(softmax=softmax, value=value),
    mutants={
        "forbidden means a score of -30": dict(
            softmax=lambda s, tau: softmax(s.clamp(min=-30), tau)
        ),
        "forbidden key counts in the value": dict(
            value=lambda s, tau: value(s.nan_to_num(neginf=0.0), tau)
        ),
        "row with a forbidden key is NaN": dict(softmax=lambda s, tau: softmax(s - s, tau)),
    },
)
def forbidden(impl):
    """A score of -inf gets the weight 0 exactly, and V is that of the other keys alone."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        s, tau, _ = draw(rng, blocked=2)
        weights = impl.softmax(s, tau)
        others = impl.value(s, tau) - value(s[:-2], tau)
        yield max(float(weights[-2:].max()), abs(float(others)))


@claim(
    "thm-gibbs",
    part="no other weights do better",
    result="T2.1",
    tol=2e-5,
    instances=40,
    real=dict(softmax=softmax, value=value),
    mutants={
        "temperature inverted": dict(softmax=lambda s, tau: softmax(s, 1 / tau)),
        "argmin instead of argmax": dict(softmax=lambda s, tau: softmax(-s, tau)),
        "hard maximum": dict(value=lambda s, tau: s.max()),
        "softmax along the wrong axis": dict(
            softmax=lambda s, tau: softmax(s[None, :], tau, dim=0)[0]
        ),
    },
)
def optimum(impl):
    """Maximiser and value against scipy's SLSQP on score plus tau times entropy (scipy's entr),
    started from random weights; the problem is solved without any formula of the theorem."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        n = int(rng.integers(2, 6))
        s, tau = rng.normal(0, 2, n), float(rng.uniform(0.7, 2))
        found = minimize(
            lambda p: -(s @ p) - tau * entr(p).sum(),
            rng.dirichlet(np.ones(n)),
            jac=lambda p: -s + tau * (np.log(np.maximum(p, 1e-300)) + 1),
            bounds=[(1e-12, 1)] * n,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        p, v = impl.softmax(torch.as_tensor(s), tau), impl.value(torch.as_tensor(s), tau)
        yield max(np.abs(found.x - p.numpy()).max(), abs(-found.fun - float(v)))


@claim(
    "thm-gibbs",
    part="value and shift",
    result="T2.1",
    tol=1e-13,
    instances=200,
    real=dict(value=value),
    mutants={
        "value without the factor tau": dict(value=lambda s, tau: value(s, tau) / tau),
        "temperature missing": dict(value=lambda s, tau: value(s, 1.0)),
        "mean instead of sum of exponentials": dict(
            value=lambda s, tau: value(s, tau) - tau * np.log(len(s))
        ),
        "shift divided by the temperature": dict(
            value=lambda s, tau: value(s - s.max(), tau) + s.max() / tau
        ),
    },
)
def potential(impl):
    """V of scores shifted by up to 1e4 against tau log sum exp at 50 digits in mpmath, plus the
    shift; relative to the size of the result."""
    rng = np.random.default_rng(3)
    with mpmath.workdps(50):
        for i in range(200):
            s, tau, _ = draw(rng, blocked=i % 2)
            shift = float(rng.integers(-(10**4), 10**4)) * (i % 4 > 1)
            finite = [mpmath.mpf(x) for x in s.tolist() if x > -np.inf]
            exact = tau * mpmath.log(mpmath.fsum(mpmath.exp(x / tau) for x in finite)) + shift
            # The shifted score is rounded once, which a relative residual has to allow for.
            got = mpmath.mpf(float(impl.value(s + shift, tau)))
            yield abs(got - exact) / (1 + abs(shift) + abs(exact))


@claim(
    "thm-gibbs",
    part="the gradient is the maximiser",
    result="T2.1",
    tol=1e-8,
    instances=100,
    real=dict(softmax=softmax, value=value),
    mutants={
        "softmax divided by the temperature": dict(softmax=lambda s, tau: softmax(s, tau) / tau),
        "temperature squared": dict(softmax=lambda s, tau: softmax(s, tau**2)),
        "value with the wrong sign": dict(value=lambda s, tau: -value(s, tau)),
        "value of scaled scores": dict(value=lambda s, tau: value(s / tau, 1.0)),
    },
)
def gradient(impl):
    """Central differences of V in each score, with step 1e-4 tau, against softmax."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        n, tau = int(rng.integers(1, 7)), float(np.exp(rng.uniform(-1, 1)))
        s, h = torch.as_tensor(rng.normal(0, 2, n)), 1e-4 * tau
        step = h * torch.eye(n, dtype=torch.float64)
        up = torch.stack([impl.value(s + e, tau) for e in step])
        down = torch.stack([impl.value(s - e, tau) for e in step])
        yield float(((up - down) / (2 * h) - impl.softmax(s, tau)).abs().max())
