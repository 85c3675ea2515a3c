"""Claims of the page "Choose by assumption"."""

import math

import numpy as np
import torch
from claims import claim
from scipy.integrate import quad
from scipy.special import rel_entr

from eotcourse import ALiBi, Shannon, entmax, softmax


def one_hot_law(n, tau, alpha, slope):
    return max(0.0, 1 - tau / (slope * (alpha - 1))) ** n


@claim(
    "prop-choose-gap",
    part="(a) a gap that stays",
    tol=1e-12,
    instances=200,
    real=dict(entmax=entmax),
    mutants={
        "softmax": dict(entmax=lambda s, alpha, tau: softmax(s, tau)),
        "temperature missing": dict(entmax=lambda s, alpha, tau: entmax(s, alpha)),
        "always sparsemax": dict(entmax=lambda s, alpha, tau: entmax(s, 2.0, tau)),
        "least score wins": dict(entmax=lambda s, alpha, tau: entmax(-s, alpha, tau)),
    },
)
def gap_stays(impl):
    """Up to 5000 keys at and below a common level, one key above it by the bound times 1.001: its
    weight must be 1; times 0.999 with a second key at that level: it must be below 1."""
    rng = np.random.default_rng(0)
    for i in range(200):
        n, alpha = int(rng.integers(2, 5000)), float(rng.uniform(1.2, 3.0))
        tau = float(np.exp(rng.uniform(-1, 2)))
        s = -np.abs(rng.normal(0, 1, n)) * (i % 3)
        s[1] = 0.0
        bound = tau / (alpha - 1)
        s[0] = bound * (1.001 if i % 2 else 0.999)
        held = float(impl.entmax(torch.as_tensor(s), alpha, tau)[0])
        yield abs(held - 1) if i % 2 else float(held >= 1)


@claim(
    "prop-choose-gap",
    part="(b) the law of the gap",
    tol=1e-10,
    instances=60,
    real=dict(law=one_hot_law),
    mutants={
        "one priority fewer": dict(law=lambda n, *rest: one_hot_law(n - 1, *rest)),
        "temperature missing": dict(law=lambda n, tau, *rest: one_hot_law(n, 1.0, *rest)),
        "slope on the wrong side": dict(law=lambda n, t, a, L: one_hot_law(n, t, a, 1 / L)),
        "alpha for alpha - 1": dict(law=lambda n, t, a, L: one_hot_law(n, t, a + 1, L)),
    },
)
def gap_law(impl):
    """The probability against numerical integration over the largest of n priorities, and the mean
    gap 1/(n+1) by integrating that probability over the gap."""
    rng = np.random.default_rng(1)
    for i in range(60):
        n, tau = int(rng.integers(2, 30)), float(rng.uniform(0.3, 2))
        alpha = float(rng.uniform(1.2, 3))
        if i % 2:
            slope = float(rng.uniform(1, 8)) * tau / (alpha - 1)
            gap = tau / (slope * (alpha - 1))
            exact, _ = quad(lambda top: n * (top - gap) ** (n - 1), gap, 1, epsabs=1e-13)
            yield abs(impl.law(n, tau, alpha, slope) - exact)
        else:
            # The gap is at least g exactly where the scores of slope tau / (g (alpha - 1)) win.
            mean, _ = quad(
                lambda g: impl.law(n, tau, alpha, tau / (g * (alpha - 1))), 0, 1, epsabs=1e-13
            )
            yield abs(mean - 1 / (n + 1))


@claim(
    "prop-choose-gap",
    part="(b) entmax on random priorities",
    tol=0.03,
    instances=8,
    real=dict(entmax=entmax, score=lambda x: x, law=one_hot_law),
    mutants={
        "softmax": dict(entmax=lambda s, alpha, tau: softmax(s, tau)),
        "temperature missing": dict(entmax=lambda s, alpha, tau: entmax(s, alpha)),
        "law of a gap that stays": dict(law=lambda n, *rest: one_hot_law(1, *rest)),
        "scores steeper than the law": dict(score=lambda x: 8 * x),
    },
)
def gap_drawn(impl):
    """How often entmax of 4000 rows of random priorities with a linear score is one-hot, against
    the probability; a slower score of the same largest slope must not be one-hot more often."""
    rng = np.random.default_rng(2)
    for i, n in enumerate((2, 3, 5, 8, 13, 21, 34, 55)):
        alpha, tau = (1.5, 2.0)[i % 2], 0.25
        slope = n * tau / (alpha - 1)
        x = torch.as_tensor(rng.random((4000, n)))
        s = slope * impl.score(x)
        often = (impl.entmax(s, alpha, tau).amax(-1) == 1).double().mean()
        law = impl.law(n, tau, alpha, slope)
        bent = (entmax(slope * x**2 / 2, alpha, tau).amax(-1) == 1).double().mean()
        yield max(abs(float(often) - law), float(bent) - law)


def alibi(marks, slope):
    """Weights of a query at the last position that scores marks 0 and everything else -inf."""
    n = len(marks)
    prior = ALiBi(torch.tensor([slope], dtype=torch.float64))
    bias = prior.bias(torch.tensor([n - 1]), torch.arange(n))[0, 0]
    return Shannon()(torch.where(marks, 0.0, -math.inf) + bias)


def recent_bound(m):
    return 1 - math.exp(-m)


def first_bound(m, k):
    return math.expm1(m) / math.expm1(m * k)


@claim(
    "prop-choose-lag",
    part="(a, b) bounds for every pattern of marks",
    tol=1e-12,
    instances=300,
    real=dict(alibi=alibi, recent=recent_bound, first=first_bound),
    mutants={
        "bonus for distance": dict(alibi=lambda marks, m: alibi(marks, -m)),
        "no bias": dict(alibi=lambda marks, m: alibi(marks, 0.0)),
        "slope halved": dict(alibi=lambda marks, m: alibi(marks, m / 2)),
        "one mark fewer": dict(first=lambda m, k: first_bound(m, k - 1) if k > 2 else 0.0),
        "bound without exponential": dict(recent=lambda m: m),
    },
)
def lag_bounds(impl):
    """Weights of the last and the first mark in random patterns, against the two bounds."""
    rng = np.random.default_rng(3)
    for i in range(300):
        n, m = int(rng.integers(2, 60)), float(rng.uniform(0.1, 1.5))
        marks = torch.as_tensor(rng.random(n) < (0.2, 0.5, 1.0)[i % 3])
        marks[rng.permutation(n)[:2]] = True
        p = impl.alibi(marks, m)
        at = marks.nonzero()[:, 0]
        low = impl.recent(m) - float(p[at[-1]])
        yield max(0.0, low, float(p[at[0]]) - impl.first(m, len(at)))


@claim(
    "prop-choose-lag",
    part="(a, b, c) the bounds are reached, and swap",
    tol=1e-9,
    instances=60,
    real=dict(alibi=alibi, recent=recent_bound, first=first_bound),
    mutants={
        "slope halved": dict(alibi=lambda marks, m: alibi(marks, m / 2)),
        "slope in raw units of temperature 8": dict(alibi=lambda marks, m: alibi(marks, 8 * m)),
        "one mark fewer": dict(first=lambda m, k: first_bound(m, k - 1)),
        "rate of a continuous lag": dict(recent=lambda m: m / (1 + m)),
    },
)
def lag_sharp(impl):
    """400 marks in a row reach the first bound; k marks in a row the second; with the other sign of
    the slope the last mark and the first change places; half the weight needs slope log 2."""
    rng = np.random.default_rng(4)
    for i in range(60):
        m, k = float(rng.uniform(0.1, 1.5)), int(rng.integers(3, 12))
        if i % 3 == 0:
            row = torch.ones(400, dtype=torch.bool)
            yield abs(float(impl.alibi(row, m)[-1]) - impl.recent(m))
        elif i % 3 == 1:
            row = torch.ones(k, dtype=torch.bool)
            reached = float(impl.alibi(row, m)[0]), float(impl.alibi(row, -m)[-1])
            yield max(abs(x - impl.first(m, k)) for x in reached)
        else:
            row = torch.ones(400, dtype=torch.bool)
            yield abs(float(impl.alibi(row, math.log(2))[-1]) - 0.5) + abs(
                impl.recent(math.log(2)) - 0.5
            )


def posterior(likelihood, prior):
    """Bayes' rule: likelihood (queries, classes), prior (classes,)."""
    joint = likelihood * prior
    return joint / joint.sum(-1, keepdims=True)


def mixture(likelihood, prior):
    return likelihood @ prior


@claim(
    "prop-choose-prior",
    tol=1e-12,
    instances=200,
    real=dict(posterior=posterior, mixture=mixture, kl=rel_entr),
    mutants={
        "prior forgotten": dict(posterior=lambda f, prior: posterior(f, np.ones_like(prior))),
        "prior squared": dict(posterior=lambda f, prior: posterior(f, prior**2)),
        "divergence the other way": dict(kl=lambda p, q: rel_entr(q, p)),
        "mixture with equal weights": dict(mixture=lambda f, prior: f.mean(-1)),
    },
    covers=("eq-choose-prior",),
)
def prior_cost(impl):
    """Expected extra log loss in a finite model, summed over all pairs of query and class, against
    the difference of the two divergences; it may leave [0, KL] by rounding only."""
    rng = np.random.default_rng(5)
    for i in range(200):
        classes, queries = int(rng.integers(2, 8)), int(rng.integers(2, 12))
        f = rng.dirichlet(np.full(queries, (0.1, 1.0, 10.0)[i % 3]), classes).T + 1e-9
        f = f / f.sum(0)
        law, other = rng.dirichlet(np.ones(classes), 2) + 1e-6
        law, other = law / law.sum(), other / other.sum()
        joint = f * law
        extra = joint * np.log(impl.posterior(f, law) / impl.posterior(f, other))
        cost, bound = extra.sum(), impl.kl(law, other).sum()
        seen = impl.kl(impl.mixture(f, law), impl.mixture(f, other)).sum()
        yield max(abs(cost - (bound - seen)), -cost, cost - bound)
