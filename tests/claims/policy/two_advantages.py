"""Claims of the page "Two advantages, two rewards"."""

import numpy as np
import torch
from claims import claim
from scipy.special import entr, logsumexp, rel_entr

from eotcourse import LogPrior, Shannon, Tsallis, policy, softmax

ORDERS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def draw(rng, low=2, high=8, spread=2.0):
    n = int(rng.integers(low, high))
    return torch.as_tensor(rng.normal(0, spread, n)), float(rng.choice([0.6, 1.0, 2.3]))


def excess(smaller, larger):
    """By how much an inequality fails, allowing for rounding of quantities of order one."""
    return max(0.0, float(smaller - larger) - 1e-12)


def soft_value(s, tau):
    return float(Shannon().conjugate(s, tau))


def from_advantage(advantage, tau):
    return np.exp(advantage / tau)


@claim(
    "thm-forward-advantage",
    part="(a) score minus soft value is tau log p",
    result="T4.8",
    tol=1e-12,
    instances=200,
    real=dict(value=soft_value, weights=from_advantage, mean=lambda p, tau: -tau * entr(p).sum()),
    mutants={
        "hard maximum": dict(value=lambda s, tau: float(s.max())),
        "value of scaled scores": dict(value=lambda s, tau: soft_value(s, tau) / tau),
        "mean score": dict(value=lambda s, tau: float(softmax(s, tau) @ s)),
        "temperature missing": dict(weights=lambda a, tau: np.exp(a)),
        "mean with the sign of a bonus": dict(mean=lambda p, tau: tau * entr(p).sum()),
        "mean zero, as backward": dict(mean=lambda p, tau: 0.0),
    },
    covers=("eq-forward-advantage",),
)
def forward(impl):
    """exp((s - V)/tau) against numpy's normalised exponentials, the mean of s - V against scipy's
    entropy; and from random weights p and a random V the scores V + tau log p give back both."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        s, tau = draw(rng)
        e = np.exp((s.numpy() - s.numpy().max()) / tau)
        p, ahead = e / e.sum(), s.numpy() - impl.value(s, tau)
        off = np.abs(impl.weights(ahead, tau) - p).max()
        mean = abs(p @ ahead - impl.mean(p, tau))
        q, level = rng.dirichlet(np.ones(len(p))) + 1e-9, rng.normal()
        q = q / q.sum()
        back = torch.as_tensor(level + tau * np.log(q))
        again = np.abs(softmax(back, tau).numpy() - q).max()
        yield max(off, mean, again, abs(impl.value(back, tau) - level))


@claim(
    "thm-forward-advantage",
    part="(b) no policy earns more",
    result="T4.8",
    tol=1e-11,
    instances=200,
    real=dict(
        value=soft_value,
        entropy=lambda q: entr(q).sum(),
        kl=lambda q, p: rel_entr(q, p).sum(),
    ),
    mutants={
        "entropy sign flipped": dict(entropy=lambda q: -entr(q).sum()),
        "KL arguments swapped": dict(kl=lambda q, p: rel_entr(p, q + 1e-9).sum()),
        "value without the factor tau": dict(value=lambda s, tau: soft_value(s, tau) / tau),
        "entropy in bits": dict(entropy=lambda q: entr(q).sum() / np.log(2)),
        "hard maximum": dict(value=lambda s, tau: float(s.max())),
    },
)
def optimal(impl):
    """What a random policy, some with exact zeros, earns in advantages and entropy against
    -tau KL by scipy; for softmax itself it is 0."""
    rng = np.random.default_rng(1)
    for i in range(200):
        s, tau = draw(rng)
        p = softmax(s, tau).numpy()
        q = p if i % 5 == 4 else rng.dirichlet(np.full(len(p), 0.5))
        if i % 5 == 3:
            q[0], q[1] = 0.0, q[0] + q[1]
        earned = q @ (s.numpy() - impl.value(s, tau)) + tau * impl.entropy(q)
        yield max(abs(earned + tau * impl.kl(q, p)), excess(earned, 0.0)) / (1 + abs(earned))


def prior_value(s, tau, log_prior):
    return float(Shannon(LogPrior(log_prior)).conjugate(s, tau))


@claim(
    "thm-forward-advantage",
    part="(c) with a prior",
    result="T4.8",
    tol=1e-11,
    instances=150,
    real=dict(
        value=prior_value,
        ahead=lambda p, pi, tau: tau * np.log(p / pi),
        mean=lambda p, pi, tau: tau * rel_entr(p, pi).sum(),
    ),
    mutants={
        "prior left out of the value": dict(value=lambda s, tau, b: soft_value(s, tau)),
        "prior divided by the temperature": dict(
            value=lambda s, tau, b: prior_value(s, tau, b / tau)
        ),
        "prior as a bonus on the weights": dict(ahead=lambda p, pi, tau: tau * np.log(p * pi)),
        "without the prior": dict(ahead=lambda p, pi, tau: tau * np.log(p)),
        "KL arguments swapped": dict(mean=lambda p, pi, tau: tau * rel_entr(pi, p).sum()),
        "mean of entropy": dict(mean=lambda p, pi, tau: -tau * entr(p).sum()),
    },
)
def with_prior(impl):
    """V against scipy's weighted log-sum-exp, s - V against tau log(p/pi) and its mean against
    scipy's divergence, with p from numpy; priors are normalised."""
    rng = np.random.default_rng(2)
    for _ in range(150):
        s, tau = draw(rng)
        pi = rng.dirichlet(np.ones(len(s))) + 1e-6
        pi = pi / pi.sum()
        value = impl.value(s, tau, torch.as_tensor(np.log(pi)))
        exact = tau * logsumexp(s.numpy() / tau, b=pi)
        p = pi * np.exp((s.numpy() - exact) / tau)
        ahead = s.numpy() - value
        yield max(
            abs(value - exact),
            np.abs(ahead - impl.ahead(p, pi, tau)).max(),
            abs(p @ ahead - impl.mean(p, pi, tau)),
        ) / (1 + np.abs(ahead).max())


def omega(p, alpha):
    return ((p**alpha).sum() - 1) / (alpha * (alpha - 1))


def log_alpha(x, alpha):
    return (x ** (alpha - 1) - 1) / (alpha - 1)


@claim(
    "thm-forward-advantage",
    part="(d) order above 1",
    result="T4.8",
    tol=1e-8,
    instances=240,
    real=dict(
        level=lambda s, tau, alpha: tau * float(Tsallis(alpha).threshold(s, tau)),
        log=log_alpha,
        step=lambda p, alpha, tau: tau * (alpha - 1) * omega(p, alpha),
        mean=lambda p, alpha, tau: tau * omega(p, alpha),
    ),
    mutants={
        "value for the soft maximum": dict(
            level=lambda s, tau, al: float(Tsallis(al).conjugate(s, tau))
        ),
        "temperature missing": dict(level=lambda s, tau, al: float(Tsallis(al).threshold(s, tau))),
        "ordinary logarithm": dict(log=lambda x, al: np.log(np.maximum(x, 1e-300))),
        "factor alpha - 1 lost in the logarithm": dict(log=lambda x, al: x ** (al - 1) - 1),
        "value above the soft maximum": dict(
            step=lambda p, al, tau: -tau * (al - 1) * omega(p, al)
        ),
        "factor alpha - 1 lost in the value": dict(step=lambda p, al, tau: tau * omega(p, al)),
        "mean against the soft maximum": dict(mean=lambda p, al, tau: tau * al * omega(p, al)),
    },
)
def members(impl):
    """With p and V from the problem itself (p maximises, V is its objective in numpy): s - tau zeta
    against tau log_alpha p on the support and below its value at 0 elsewhere, V against tau zeta
    plus the step, max s <= V <= tau zeta, and the mean of s - V."""
    rng = np.random.default_rng(3)
    for i in range(240):
        alpha = ORDERS[i % 6]
        s, tau = draw(rng)
        p, x = Tsallis(alpha)(s, tau).numpy(), s.numpy()
        level, value = impl.level(s, tau, alpha), x @ p - tau * omega(p, alpha)
        off, on = p == 0, p > 0
        yield max(
            np.abs(x - level - tau * impl.log(p, alpha))[on].max(),
            max((excess(gap, -tau / (alpha - 1)) for gap in (x - level)[off]), default=0.0),
            abs(value - level - impl.step(p, alpha, tau)),
            excess(x.max(), value),
            excess(value, level),
            abs(p @ (x - value) - impl.mean(p, alpha, tau)),
        ) / (1 + np.abs(x).max())


def centred(d, p):
    return d - p @ d


def gradient_of_return(r, s, tau):
    """Autograd of minus the return of softmax for the rewards r, the entropy written out."""
    x = s.clone().requires_grad_()
    p = softmax(x, tau)
    (g,) = torch.autograd.grad(-(r @ p) + tau * (p * p.log()).sum(), x)
    return g


@claim(
    "prop-soft-bandit",
    part="(a) the centred difference of two rewards",
    result="T4.8",
    tol=1e-11,
    instances=150,
    real=dict(
        difference=lambda r, s: r - s,
        gradient=lambda d, p, tau: -p * centred(d, p) / tau,
        average=centred,
    ),
    mutants={
        "the new rewards alone": dict(difference=lambda r, s: r),
        "difference turned around": dict(difference=lambda r, s: s - r),
        "temperature missing": dict(gradient=lambda d, p, tau: -p * centred(d, p)),
        "plus": dict(gradient=lambda d, p, tau: p * centred(d, p) / tau),
        "plain mean": dict(average=lambda d, p: d - d.mean()),
    },
)
def soft_bandit(impl):
    """Utilities by autograd of the return in the weights, their advantages by the package, and
    autograd's gradient in the scores, against the centred difference."""
    rng = np.random.default_rng(4)
    for _ in range(150):
        s, tau = draw(rng)
        r = torch.as_tensor(rng.normal(0, 2, len(s)))
        p = softmax(s, tau).requires_grad_()
        (g,) = torch.autograd.grad(-(r @ p) + tau * (p * p.log()).sum(), p)
        p, d = p.detach(), impl.difference(r, s)
        ahead = policy.advantage(-g, p) - impl.average(d, p)
        slope = gradient_of_return(r, s, tau) - impl.gradient(d, p, tau)
        yield float(torch.cat([ahead, slope]).abs().max())


@claim(
    "prop-soft-bandit",
    part="(b) where it vanishes",
    result="T4.8",
    tol=1e-10,
    instances=150,
    real=dict(rest=lambda r, shift: r + shift, best=softmax),
    mutants={
        "scores twice the rewards": dict(rest=lambda r, shift: 2 * r + shift),
        "scores opposite": dict(rest=lambda r, shift: shift - r),
        "scaled scores": dict(best=lambda r, tau: softmax(r)),
        "hard choice": dict(best=lambda r, tau: (r == r.max()).to(r.dtype)),
    },
)
def meeting(impl):
    """The gradient at scores r plus a constant is 0, at random other scores it is not; and the
    return of a random softmax falls short of the largest one, by scipy's log-sum-exp, by tau KL."""
    rng = np.random.default_rng(5)
    for _ in range(150):
        r, tau = draw(rng)
        at_rest = gradient_of_return(r, impl.rest(r, float(rng.normal())), tau)
        s = torch.as_tensor(rng.normal(0, 2, len(r)))
        p = softmax(s, tau).numpy()
        short = tau * logsumexp(r.numpy() / tau) - (r.numpy() @ p + tau * entr(p).sum())
        kl = tau * rel_entr(p, impl.best(r, tau).numpy()).sum()
        moves = float(gradient_of_return(r, s, tau).abs().max()) > 1e-9
        gap = abs(short - kl) / (1 + short) if np.isfinite(kl) else 1.0
        yield max(float(at_rest.abs().max()), gap, float(not moves))


@claim(
    "prop-stationary",
    part="(a) equal utilities on the support",
    result="E32",
    tol=1e-8,
    instances=140,
    real=dict(on=lambda p: p > 0),
    mutants={
        "on half of the support": dict(on=lambda p: p >= p.median()),
        "on the best key": dict(on=lambda p: p == p.max()),
        "on the keys without weight": dict(on=lambda p: p == 0),
    },
)
def at_rest(impl):
    """Random utilities, made equal on the support: the slopes of a loss with these utilities, by
    central differences of the map, are 0; with one utility on the support changed they are not.
    Orders 1 to 3."""
    rng = np.random.default_rng(6)
    for i in range(140):
        alpha = (1.0, *ORDERS)[i % 7]
        s, tau = draw(rng, 3, 8, 1.0)
        rule = Shannon() if alpha == 1 else Tsallis(alpha)
        p, steps = rule(s, tau), 1e-6 * torch.eye(len(s), dtype=s.dtype)
        J = (rule(s + steps, tau) - rule(s - steps, tau)) / 2e-6
        a = torch.as_tensor(rng.normal(0, 2, len(s)))
        still = J @ torch.where(impl.on(p), 0.7, a)
        other = torch.where(p > 0, 0.7, a)
        other[p.argmax()] += 1
        moved = J @ other
        alone = int((p > 0).sum()) == 1
        yield max(float(still.abs().max()), float((moved.abs().max() > 1e-6) == alone))


@claim(
    "prop-stationary",
    part="(b) a frozen bandit never rests",
    result="E32",
    tol=1e-9,
    instances=120,
    real=dict(weights=softmax, toward=lambda r, size: size * r),
    mutants={
        "sparsemax": dict(weights=lambda s, tau: Tsallis(2.0)(s, tau)),
        "away from the best": dict(toward=lambda r, size: -size * r),
        "hard choice": dict(weights=lambda s, tau: (s == s.max()).to(s.dtype)),
        "bounded scores": dict(toward=lambda r, size: r),
    },
)
def frozen(impl):
    """At random scores the gradient of the expected reward is not 0 and the reward stays below the
    largest; at scores that are large multiples of the rewards it comes within 1e-9 of it."""
    rng = np.random.default_rng(7)
    for _ in range(120):
        s, tau = draw(rng, 2, 8, 4.0)
        r = torch.as_tensor(rng.permutation(len(s)) + rng.uniform(0, 0.5, len(s)))
        p = impl.weights(s, tau)
        slope = policy.bandit_gradient(r, p, tau).abs().max()
        below = float(p @ r) < float(r.max()) and float(slope) > 0
        near = impl.weights(impl.toward(r, 200 * tau), tau)
        yield max(float(not below), float(r.max() - near @ r))
