"""Claims of the page "Priors: what is assumed before the scores"."""

import numpy as np
import torch
from claims import claim
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from eotcourse import ALiBi, Causal, LogPrior, Shannon, Tsallis, attention

f64 = torch.float64


def tensor(x):
    return torch.as_tensor(np.asarray(x), dtype=f64)


def with_prior(s, log_pi, tau):
    """Weights and value of Shannon with a prior."""
    shannon = Shannon(LogPrior(tensor(log_pi)))
    return shannon(tensor(s), tau).numpy(), float(shannon.conjugate(tensor(s), tau))


def softmax_numpy(x):
    return np.exp(x - logsumexp(x))


@claim(
    "thm-prior-is-kl",
    part="Shannon",
    result="T3.11",
    tol=1e-11,
    instances=300,
    real=dict(solve=with_prior),
    mutants={
        "prior without its logarithm": dict(
            solve=lambda s, b, tau: with_prior(s, np.where(np.isinf(b), b, np.exp(b)), tau)
        ),
        "prior divided by the temperature": dict(
            solve=lambda s, b, tau: with_prior(s, b / tau, tau)
        ),
        "prior normalised first": dict(
            solve=lambda s, b, tau: with_prior(s, b - logsumexp(b), tau)
        ),
        "prior inverted": dict(
            solve=lambda s, b, tau: with_prior(s, np.where(np.isinf(b), b, -b), tau)
        ),
        "excluded key only discouraged": dict(
            solve=lambda s, b, tau: with_prior(s, np.maximum(b, -20), tau)
        ),
        "value without tau": dict(
            solve=lambda s, b, tau: (with_prior(s, b, tau)[0], with_prior(s, b, tau)[1] / tau)
        ),
    },
)
def kl(impl):
    """The shortfall of random p, computed from numpy's KL(p||pi) and the claimed value, equals
    tau KL(p || claimed weights); one key may be excluded; the prior's mass is not one."""
    rng = np.random.default_rng(0)
    for i in range(300):
        n, tau = int(rng.integers(2, 7)), float(np.exp(rng.uniform(-0.7, 0.7)))
        s, pi, p = rng.normal(0, 2, n), 5 * rng.gamma(2.0, size=n) + 0.1, rng.dirichlet(np.ones(n))
        if i % 2:
            pi[0], s[0] = 0, s[0] + 20
            p[0] = 0
            p /= p.sum()
        with np.errstate(divide="ignore"):
            weights, value = impl.solve(s, np.log(pi), tau)
        on = p > 0
        reached = s @ p - tau * (p[on] * np.log(p[on] / pi[on])).sum()
        gap = tau * (p[on] * np.log(p[on] / weights[on])).sum()
        yield max(abs(value - reached - gap), weights[pi == 0].sum())


def member(alpha, log_pi, s, tau):
    """Weights and value of the Tsallis regulariser with a prior."""
    R = Tsallis(alpha, LogPrior(tensor(log_pi)))
    return R(tensor(s), tau).numpy(), float(R.conjugate(tensor(s), tau))


def best_by_slsqp(f, n):
    """The maximiser of a concave function on the simplex, by a general-purpose solver."""
    found = minimize(
        lambda p: -f(p), np.full(n, 1 / n), method="SLSQP", bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    return found.x, -found.fun


@claim(
    "thm-prior-is-kl",
    part="any regulariser",
    result="T3.11",
    tol=1e-5,
    instances=60,
    real=dict(solve=member),
    mutants={
        "prior in raw units": dict(solve=lambda a, b, s, tau: member(a, b / tau, s, tau)),
        "prior multiplied onto the weights": dict(
            solve=lambda a, b, s, tau: (
                (w := member(a, 0 * b, s, tau)[0] * np.exp(b)) / w.sum(),
                member(a, b, s, tau)[1],
            )
        ),
        "prior ignored": dict(solve=lambda a, b, s, tau: member(a, 0 * b, s, tau)),
        "sparsemax whatever alpha": dict(solve=lambda a, b, s, tau: member(2.0, b, s, tau)),
        "value of the unshifted scores": dict(
            solve=lambda a, b, s, tau: (
                member(a, b, s, tau)[0], member(a, 0 * b, s, tau)[1]
            )
        ),
    },
)
def any_member(impl):
    """Weights and value against SLSQP on the objective written out in numpy, alpha 1.3 to 2.5."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        n, alpha, tau = 4, rng.choice([1.3, 1.5, 2.0, 2.5]), rng.uniform(0.6, 2)
        s, b = rng.normal(0, 1, n), rng.normal(0, 0.6, n)

        def objective(p):
            entropy = (np.maximum(p, 0) ** alpha).sum() - 1
            return s @ p - tau * (entropy / (alpha * (alpha - 1)) - p @ b)

        p, value = best_by_slsqp(objective, n)
        weights, claimed = impl.solve(alpha, b, s, tau)
        # The value is flat at the maximum: it tells much smaller errors than the weights do.
        yield max(abs(claimed - value) * 100, abs(objective(weights) - value) * 100,
                  np.abs(weights - p).max() / 100)


@claim(
    "thm-prior-is-kl",
    part="horizon",
    result="T3.11",
    tol=0.0,
    instances=400,
    real=dict(
        weights=lambda a, b, s, tau: member(a, b, s, tau)[0],
        margin=lambda a, tau: 1 / (a - 1),
    ),
    mutants={
        "margin in raw units": dict(margin=lambda a, tau: tau / (a - 1)),
        "margin upside down": dict(margin=lambda a, tau: a - 1),
        "margin of sparsemax": dict(margin=lambda a, tau: 1.0),
        "softmax has a horizon": dict(
            weights=lambda a, b, s, tau: with_prior(s, b, tau)[0]
        ),
        "prior divided by the temperature": dict(
            weights=lambda a, b, s, tau: member(a, b / tau, s, tau)[0]
        ),
    },
)
def horizon(impl):
    """Keys behind the margin have weight exactly zero in random rows; with two keys, one a little
    within the margin has weight. Counts of violations."""
    rng = np.random.default_rng(2)
    for i in range(400):
        alpha, tau = rng.uniform(1.2, 3), rng.uniform(0.5, 2)
        margin = impl.margin(alpha, tau)
        if i % 2:
            n = int(rng.integers(3, 9))
            s, b = rng.normal(0, 1, n), rng.normal(0, 2, n)
            p = impl.weights(alpha, b, s, tau)
            lead = (s / tau + b).max() - (s / tau + b)
            yield float((p[lead >= margin + 1e-9] > 0).sum())
        else:
            s = rng.normal(0, 1, 2)
            behind = np.array([0.0, (s[0] - s[1]) / tau - margin * 0.9])
            beyond = np.array([0.0, (s[0] - s[1]) / tau - margin * 1.001])
            inside = impl.weights(alpha, behind, s, tau)[1] > 0
            outside = impl.weights(alpha, beyond, s, tau)[1] > 0
            yield float(not inside) + float(outside)


def lag_law(m, n, i, causal):
    """Weights of query i on n keys at equal scores, under ALiBi with slope m."""
    prior = ALiBi(torch.tensor([m], dtype=f64))
    prior = prior + Causal() if causal else prior
    return Shannon(prior)(torch.zeros(n, n, dtype=f64))[i].numpy()


def entropy(p):
    return -(p[p > 0] * np.log(p[p > 0])).sum()


LAW_MUTANTS = {
    "slope doubled": dict(law=lambda m, n, i, causal: lag_law(2 * m, n, i, causal)),
    "slope with the wrong sign": dict(law=lambda m, n, i, causal: lag_law(-m, n, i, causal)),
    "the row of another query": dict(law=lambda m, n, i, causal: lag_law(m, n, i - 1, causal)),
    "a window": dict(law=lambda m, n, i, causal: lag_law(0.0, n, i, causal)),
    "quadratic penalty": dict(
        law=lambda m, n, i, causal: (p := np.where(
            lag_law(m, n, i, causal) > 0, np.exp(-m * (np.arange(n) - i) ** 2.0), 0)) / p.sum()
    ),
}


@claim(
    "thm-prior-is-kl",
    part="entropy of the lag",
    result="T3.11",
    tol=1e-12,
    instances=300,
    real=dict(law=lag_law),
    mutants=LAW_MUTANTS,
    covers=("eq-priors-lag",),
)
def lag_identity(impl):
    """Both sides of the identity for ALiBi's law, one-sided and two-sided, and random laws of any
    mean, with entropies and KL in numpy; then random laws of the same mean don't have more."""
    rng = np.random.default_rng(3)
    for k in range(300):
        m, n, causal = rng.uniform(0.05, 1.2), int(rng.integers(4, 12)), bool(k % 2)
        i = int(rng.integers(2, n))
        r = impl.law(m, n, i, causal)
        lag = np.abs(np.arange(n) - i).astype(float)
        D = np.arange(n) <= i if causal else np.full(n, True)
        q = np.where(D, rng.gamma(0.7, size=n) + 1e-9, 0)
        q /= q.sum()
        divergence = (q[D] * np.log(q[D] / r[D])).sum()
        identity = entropy(r) - entropy(q) - divergence - m * (r @ lag - q @ lag)
        # A mean-matched competitor: r moved along a direction that keeps mass and mean.
        base = np.stack([D.astype(float), lag * D])
        step = np.where(D, rng.normal(size=n), 0)
        step -= base.T @ np.linalg.lstsq(base.T, step, rcond=None)[0]
        down = step < -1e-12
        size = rng.uniform(0, 1) * (r[down] / -step[down]).min() if down.any() else 0.0
        rival = np.maximum(r + size * step, 0)
        yield max(abs(identity), entropy(rival) - entropy(r))


@claim(
    "thm-prior-is-kl",
    part="largest entropy",
    result="T3.11",
    tol=1e-5,
    instances=30,
    real=dict(law=lag_law),
    mutants={k: v for k, v in LAW_MUTANTS.items() if k not in ("a window", "slope doubled")},
)
def largest(impl):
    """SLSQP maximises the entropy under a bound on the mean lag and nothing else; the law it finds
    is ALiBi's, with the slope for that mean."""
    rng = np.random.default_rng(4)
    for k in range(30):
        m, n, causal = rng.uniform(0.2, 0.9), 6, bool(k % 2)
        i = n - 1 if causal else 2
        lag = np.abs(np.arange(n) - i).astype(float)
        target = impl.law(m, n, i, causal)
        bound = target @ lag
        found = minimize(
            lambda p: (p * np.log(np.maximum(p, 1e-300))).sum(), np.full(n, 1 / n),
            jac=lambda p: np.log(np.maximum(p, 1e-300)) + 1, method="SLSQP",
            bounds=[(1e-9, 1)] * n, options={"ftol": 1e-15, "maxiter": 300},
            constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1},
                         {"type": "ineq", "fun": lambda p: bound - p @ lag}],
        )
        yield np.abs(found.x - target).max() / 10


@claim(
    "thm-prior-is-kl",
    part="mean lag",
    result="T3.11",
    tol=1e-10,
    instances=25,
    real=dict(mean=lambda m: 1 / np.expm1(m)),
    mutants={
        "the continuous law": dict(mean=lambda m: 1 / m),
        "lags from one": dict(mean=lambda m: 1 / np.expm1(m) + 1),
        "sign in the exponent": dict(mean=lambda m: -1 / np.expm1(-m)),
        "both sides": dict(mean=lambda m: 2 * np.exp(m) / (np.exp(2 * m) - 1)),
    },
)
def mean_lag(impl):
    """The mean lag of a causal row so long that the rest of the law is below rounding."""
    for m in np.geomspace(0.05, 2, 25):
        n = int(45 / m)
        rows = torch.zeros(1, n, dtype=f64)
        bias = ALiBi(torch.tensor([m], dtype=f64)).bias(torch.tensor([n - 1]), torch.arange(n))
        p = attention(rows[:, :1], rows[0, :, None], torch.eye(n, dtype=f64), bias[0])[0].numpy()
        yield abs(p @ np.arange(n)[::-1] - impl.mean(m)) / (1 + impl.mean(m))


def attend(q, k, bias, tau):
    """Weights of attention with a bias, as numpy."""
    eye = torch.eye(len(k), dtype=f64)
    return attention(tensor(q), tensor(k), eye, tensor(bias), scale=1 / tau).numpy()


def fair(k, w, tau):
    return np.log(w) - (k**2).sum(-1) / (2 * tau)


def mixture(rng):
    n, d = (int(x) for x in rng.integers(2, 6, 2))
    return rng.normal(0, 1.2, (n, d)), rng.dirichlet(np.ones(n)), float(rng.uniform(0.4, 2)), d


def densities(q, k, tau):
    """Density of every query under every component, by scipy."""
    d = k.shape[1]
    return np.stack([multivariate_normal(c, tau * np.eye(d)).pdf(q) for c in k], -1).reshape(
        len(q), len(k)
    )


@claim(
    "thm-bayes",
    part="posterior",
    result="T3.15",
    tol=1e-12,
    instances=100,
    real=dict(attend=attend, bias=fair),
    mutants={
        "keys' norm forgotten": dict(bias=lambda k, w, tau: np.log(w)),
        "norm without the half": dict(bias=lambda k, w, tau: np.log(w) - (k**2).sum(-1) / tau),
        "bias in raw units": dict(bias=lambda k, w, tau: tau * fair(k, w, tau)),
        "long keys rewarded": dict(bias=lambda k, w, tau: np.log(w) + (k**2).sum(-1) / (2 * tau)),
        "prior forgotten": dict(bias=lambda k, w, tau: fair(k, np.ones(len(k)), tau)),
        "variance is the temperature squared": dict(
            attend=lambda q, k, b, tau: attend(q, k, b, tau**2)
        ),
        "normalised over the queries": dict(
            attend=lambda q, k, b, tau: (
                a := np.exp(q @ k.T / tau + b)) / a.sum(0, keepdims=True)
        ),
    },
    covers=("eq-priors-bayes",),
)
def posterior(impl):
    """Weights of attention against Bayes' rule with scipy's normal densities, 20 queries each."""
    rng = np.random.default_rng(5)
    for _ in range(100):
        k, w, tau, d = mixture(rng)
        q = rng.normal(0, 1.5, (20, d))
        joint = w * densities(q, k, tau)
        yield np.abs(
            impl.attend(q, k, impl.bias(k, w, tau), tau) - joint / joint.sum(-1, keepdims=True)
        ).max()


@claim(
    "thm-bayes",
    part="plain dot product",
    result="T3.15",
    tol=1e-12,
    instances=120,
    real=dict(
        attend=attend,
        implied=lambda k, tau: softmax_numpy((k**2).sum(-1) / (2 * tau)),
    ),
    mutants={
        "uniform prior": dict(implied=lambda k, tau: np.full(len(k), 1 / len(k))),
        "short keys favoured": dict(
            implied=lambda k, tau: softmax_numpy(-(k**2).sum(-1) / 2 / tau)
        ),
        "norm, not its square": dict(
            implied=lambda k, tau: softmax_numpy(np.sqrt((k**2).sum(-1)) / (2 * tau))
        ),
        "temperature missing": dict(implied=lambda k, tau: softmax_numpy((k**2).sum(-1) / 2)),
        "scores are distances": dict(
            attend=lambda q, k, b, tau: attend(q, k, b - (k**2).sum(-1) / (2 * tau), tau)
        ),
    },
)
def plain(impl):
    """Without bias the weights are the posterior under the implied prior, by scipy's densities. In
    every second instance keys have equal norms, and the posterior is the one of uniform weights."""
    rng = np.random.default_rng(6)
    for i in range(120):
        k, _, tau, d = mixture(rng)
        q = rng.normal(0, 1.5, (20, d))
        if i % 2:
            k /= np.linalg.norm(k, axis=-1, keepdims=True)
        w = np.full(len(k), 1 / len(k)) if i % 2 else impl.implied(k, tau)
        joint = w * densities(q, k, tau)
        weights = impl.attend(q, k, 0 * w, tau)
        yield np.abs(weights - joint / joint.sum(-1, keepdims=True)).max()


@claim(
    "thm-bayes",
    part="denoising",
    result="T3.15",
    tol=1e-7,
    instances=60,
    real=dict(denoise=lambda q, slope, tau: q + tau * slope, bias=fair),
    mutants={
        "uphill and downhill": dict(denoise=lambda q, slope, tau: q - tau * slope),
        "step without the variance": dict(denoise=lambda q, slope, tau: q + slope),
        "step with the deviation": dict(denoise=lambda q, slope, tau: q + tau**0.5 * slope),
        "keys' norm forgotten": dict(bias=lambda k, w, tau: np.log(w)),
    },
)
def tweedie(impl):
    """Output of attention with values equal to keys, against central differences of the logarithm
    of the mixture's density from scipy."""
    rng, h = np.random.default_rng(7), 1e-5
    for _ in range(60):
        k, w, tau, d = mixture(rng)
        q = rng.normal(0, 1.2, d)
        around = np.concatenate([q + h * np.eye(d), q - h * np.eye(d)])
        log_f = np.log(densities(around, k, tau) @ w)
        slope = (log_f[:d] - log_f[d:]) / (2 * h)
        out = attend(q[None], k, impl.bias(k, w, tau), tau)[0] @ k
        yield np.abs(out - impl.denoise(q, slope, tau)).max()


def members(rng, k):
    """A member of the family, with a prior in every second draw."""
    prior = LogPrior(tensor(rng.normal(0, 1, len(k)))) if rng.random() < 0.5 else None
    alpha = rng.choice([1.0, 1.5, 2.0, 3.0])
    return Shannon(prior) if alpha == 1 else Tsallis(float(alpha), prior)


def update(R, q, k, tau):
    return R(q @ k.T, tau) @ k


def energy(R, q, k, tau):
    return q.square().sum(-1) / 2 - R.conjugate(q @ k.T, tau)


HOPFIELD_MUTANTS = {
    "another temperature in the update": dict(
        update=lambda R, q, k, tau: update(R, q, k, 3 * tau)
    ),
    "energy with the value added": dict(
        energy=lambda R, q, k, tau: q.square().sum(-1) - energy(R, q, k, tau)
    ),
    "energy without the half": dict(
        energy=lambda R, q, k, tau: energy(R, q, k, tau) + q.square().sum(-1) / 2
    ),
    "value in scaled units": dict(
        energy=lambda R, q, k, tau: q.square().sum(-1) / 2 - R.conjugate(q @ k.T, tau) / tau
    ),
    "values are not the keys": dict(
        update=lambda R, q, k, tau: R(q @ k.T, tau) @ k.roll(1, 0)
    ),
}


@claim(
    "thm-hopfield",
    part="descent",
    result="T3.15",
    tol=1e-10,
    instances=200,
    real=dict(update=update, energy=energy, promise=lambda eta: eta * (1 - eta / 2)),
    mutants={
        **HOPFIELD_MUTANTS,
        "promise without the quadratic term": dict(promise=lambda eta: eta),
        "promise of twice the gain": dict(promise=lambda eta: eta * (2 - eta)),
    },
    covers=("eq-priors-descent",),
)
def descent(impl):
    """The energy falls by at least the promise, for members with and without prior and 30 queries
    each; in every fourth instance there is one key, and it falls by exactly that."""
    rng = np.random.default_rng(8)
    for i in range(200):
        n, d = 1 if i % 4 == 0 else int(rng.integers(2, 8)), int(rng.integers(2, 5))
        k, q = tensor(rng.normal(size=(n, d))), tensor(rng.normal(0, 1.5, (30, d)))
        tau, eta, R = rng.uniform(0.1, 1), rng.uniform(0, 2), members(rng, k)
        step = impl.update(R, q, k, tau) - q
        fall = impl.energy(R, q, k, tau) - impl.energy(R, q + eta * step, k, tau)
        short = impl.promise(eta) * step.square().sum(-1) - fall
        yield float(short.abs().max() if n == 1 else short.max().clamp(min=0))


@claim(
    "thm-hopfield",
    part="gradient",
    result="T3.15",
    tol=1e-6,
    instances=100,
    real=dict(update=update, energy=energy),
    mutants=HOPFIELD_MUTANTS,
)
def gradient(impl):
    """q - T(q) against central differences of the energy, alpha up to 2, away from kinks."""
    rng, h = np.random.default_rng(9), 1e-6
    for _ in range(100):
        n, d = int(rng.integers(2, 8)), int(rng.integers(2, 5))
        k, q = tensor(rng.normal(size=(n, d))), tensor(rng.normal(0, 1.0, (d,)))
        tau, R = rng.uniform(0.3, 1), members(rng, k)
        steps = h * torch.eye(d, dtype=f64)
        slope = (impl.energy(R, q + steps, k, tau) - impl.energy(R, q - steps, k, tau)) / (2 * h)
        yield float((slope - (q - impl.update(R, q[None], k, tau)[0])).abs().max())


@claim(
    "thm-hopfield",
    part="energy of a mixture",
    result="T3.15",
    tol=1e-10,
    instances=60,
    real=dict(energy=energy, bias=fair),
    mutants={
        "keys' norm forgotten": dict(bias=lambda k, w, tau: np.log(w)),
        "energy in scaled units": dict(
            energy=lambda R, q, k, tau: energy(R, q, k, tau) / tau
        ),
        "query's norm forgotten": dict(
            energy=lambda R, q, k, tau: -R.conjugate(q @ k.T, tau)
        ),
    },
)
def mixture_energy(impl):
    """E + tau log f is the same for all of 20 queries, f the mixture's density from scipy."""
    rng = np.random.default_rng(10)
    for _ in range(60):
        k, w, tau, d = mixture(rng)
        q = rng.normal(0, 1.2, (20, d))
        R = Shannon(LogPrior(tensor(impl.bias(k, w, tau))))
        e = impl.energy(R, tensor(q), tensor(k), tau).numpy()
        yield np.ptp(e + tau * np.log(densities(q, k, tau) @ w))
