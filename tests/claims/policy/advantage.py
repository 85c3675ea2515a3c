"""Claims of the page "The gradient is an advantage"."""

import numpy as np
import torch
from claims import claim

from eotcourse import LogPrior, Shannon, Tsallis, entmax, policy
from eotcourse.simplex import response

ORDERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def member(alpha, prior=None):
    prior = None if prior is None else LogPrior(prior)
    return Shannon(prior) if alpha == 1 else Tsallis(alpha, prior)


def cases(seed, count, orders=ORDERS):
    """A member (every third with a prior), scores with no key near the edge, and a temperature."""
    rng, found = np.random.default_rng(seed), 0
    while found < count:
        alpha, tau = orders[found % len(orders)], float(rng.choice([0.6, 1.0, 2.3]))
        n = int(rng.integers(2, 8))
        s = torch.as_tensor(rng.normal(0, 1.5, n))
        pi = torch.as_tensor(rng.normal(0, 0.7, n)) if found % 3 == 2 else None
        rule = member(alpha, pi)
        scaled = s / tau + (0 if pi is None else pi)
        margin = (alpha - 1) * (scaled - rule.threshold(s, tau)) + 1
        if alpha >= 2 and margin.abs().min() < 1e-2:
            continue
        found += 1
        yield rng, rule, alpha, s, tau


def some_loss(rng, n):
    """A smooth loss of the weights that is neither linear nor quadratic."""
    v, w = torch.as_tensor(rng.normal(size=(n, 3))), torch.as_tensor(rng.normal(size=3))
    return lambda p: torch.sin(p @ v).sum() + torch.exp((p @ v) @ w / 3)


def slopes(f, x, h=1e-6):
    """Central differences of f in each entry of x, stacked in front.

    The backward pass of the package is the formula in question, so it would be no witness.
    """
    steps = h * torch.eye(len(x), dtype=x.dtype)
    return torch.stack([(f(x + d) - f(x - d)) / (2 * h) for d in steps])


def gradients(loss, p):
    p = p.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(p), p)
    return g


def plain(a, p, tau, alpha):
    """What each mutant changes: weights in front and weights of the mean."""
    return policy.score_gradient(a, p, tau, member(alpha))


def formed(a, p, tau, outer, inner, sign=-1.0):
    return sign * outer * (a - (inner * a).sum() / inner.sum()) / tau


@claim(
    "thm-advantage",
    part="(a) the gradient of every member",
    result="T4.1",
    tol=2e-7,
    instances=210,
    real=dict(gradient=plain, scaled=lambda a, p, alpha: plain(a, p, 1.0, alpha)),
    mutants={
        "plus, as in the source": dict(gradient=lambda a, p, tau, al: -plain(a, p, tau, al)),
        "temperature missing": dict(gradient=lambda a, p, tau, al: plain(a, p, 1.0, al)),
        "temperature in scaled scores too": dict(
            scaled=lambda a, p, al: plain(a, p, 2.0, al)
        ),
        "p-weighted baseline": dict(
            gradient=lambda a, p, tau, al: formed(a, p, tau, response(p, al), p)
        ),
        "softmax for all": dict(gradient=lambda a, p, tau, al: plain(a, p, tau, 1.0)),
        "no baseline": dict(gradient=lambda a, p, tau, al: -response(p, al) * a / tau),
        "response of the power alpha": dict(
            gradient=lambda a, p, tau, al: formed(a, p, tau, p**al, p**al)
        ),
    },
    covers=("eq-advantage",),
)
def gradient(impl):
    """Central differences of a nonlinear loss through the map itself, in raw and in scaled scores,
    against the formula with utilities from the loss at the weights; orders 1 to 3, a third of them
    with a prior.  No Jacobian and no backward pass of the package is used."""
    for rng, rule, alpha, s, tau in cases(0, 210):
        loss = some_loss(rng, len(s))
        p = rule(s, tau)
        slope = slopes(lambda x, f=loss, m=rule, t=tau: f(m(x, t)), s)
        a = -gradients(loss, p)
        yield max(
            float((impl.gradient(a, p, tau, alpha) - slope).abs().max()),
            float((impl.scaled(a, p, alpha) - tau * slope).abs().max()),
        ) / (1 + float(slope.abs().max()))


@claim(
    "thm-advantage",
    part="(a) at the edge of the support, below order 2",
    result="T4.1",
    tol=5e-5,
    instances=60,
    real=dict(gradient=plain, order=lambda al: al),
    mutants={
        "order 2 is no exception": dict(order=lambda al: 2.0),
        "plus, as in the source": dict(gradient=lambda a, p, tau, al: -plain(a, p, tau, al)),
        "the key at the edge answers": dict(
            gradient=lambda a, p, tau, al: plain(a, p.clamp_min(1e-3), tau, al)
        ),
    },
)
def edge(impl):
    """One key exactly at the edge (its score set from the threshold of the others): slopes of a
    loss from the left and from the right, by one-sided differences, against the formula."""
    rng = np.random.default_rng(1)
    for i in range(60):
        alpha, tau = impl.order((1.25, 1.4, 1.5)[i % 3]), float(rng.choice([0.6, 2.3]))
        others = torch.as_tensor(rng.normal(0, 0.3 * tau, int(rng.integers(1, 4))))
        last = tau * (Tsallis(alpha).threshold(others, tau) - 1 / (alpha - 1))
        s = torch.cat([others, last[None]])
        loss = some_loss(rng, len(s))
        p = torch.cat([entmax(others, alpha, tau), s.new_zeros(1)])
        expected = impl.gradient(-gradients(loss, p), p, tau, alpha)
        worst = 0.0
        for j in range(len(s)):
            for h in (1e-6, -1e-6):
                moved = s.clone()
                moved[j] += h
                slope = (loss(entmax(moved, alpha, tau)) - loss(p)) / h
                worst = max(worst, abs(float(slope - expected[j])))
        yield worst


@claim(
    "thm-advantage",
    part="(b) the baseline is forced",
    result="T4.1",
    tol=1e-12,
    instances=140,
    real=dict(baseline=lambda a, p, alpha: policy.baseline(a, p, member(alpha))),
    mutants={
        "p-weighted baseline": dict(baseline=lambda a, p, al: policy.baseline(a, p)),
        "plain mean over the support": dict(
            baseline=lambda a, p, al: policy.baseline(a, p, Tsallis(2.0))
        ),
        "mean over all keys": dict(baseline=lambda a, p, al: a.mean()),
        "median": dict(baseline=lambda a, p, al: a.median()),
    },
)
def forced(impl):
    """Sum of -u (a - b) / tau over the row for the package's baseline, which must be 0, and for
    b + 1, which must be the sum of the responses over tau; u from numpy."""
    for rng, rule, alpha, s, tau in cases(2, 140):
        p = rule(s, tau)
        a = torch.as_tensor(rng.normal(1, 2, len(s)))
        on = p.numpy() > 0
        u = np.where(on, np.where(on, p.numpy(), 1.0) ** (2 - alpha), 0.0)
        b = float(impl.baseline(a, p, alpha))
        total = [(-u * (a.numpy() - x) / tau).sum() for x in (b, b + 1)]
        yield max(abs(total[0]), abs(total[1] - u.sum() / tau)) / (1 + u.sum() / tau)


@claim(
    "thm-advantage",
    part="(c) utilities up to a constant",
    result="E28",
    tol=1e-10,
    instances=140,
    real=dict(
        advantage=lambda a, p, alpha: policy.advantage(a, p, member(alpha)),
        extra=lambda p: p.sum() - 1,
    ),
    mutants={
        "utilities themselves": dict(advantage=lambda a, p, al: a),
        "baseline without normalisation": dict(
            advantage=lambda a, p, al: a - 0.9 * policy.baseline(a, p, member(al))[..., None]
        ),
        "losses that differ on the simplex": dict(extra=lambda p: (p**2).sum() - 1),
        "weights counted twice": dict(
            advantage=lambda a, p, al: a - (p * p * a).sum() / p.sum()
        ),
    },
)
def constant(impl):
    """A loss, and the same plus sin of (sum p - 1) times a function of p, which agree on the
    simplex: their utilities from autograd differ by one constant, their advantages not at all."""
    for rng, rule, alpha, s, tau in cases(3, 140):
        p, one = rule(s, tau), some_loss(rng, len(s))
        weight = torch.as_tensor(rng.normal(size=len(s)))

        def other(p, one=one, weight=weight):
            return one(p) + torch.sin(impl.extra(p)) * (3 + p @ weight)

        a, b = -gradients(one, p), -gradients(other, p)
        gap = impl.advantage(a, p, alpha) - impl.advantage(b, p, alpha)
        yield max(float((a - b).max() - (a - b).min()), float(gap.abs().max()))


@claim(
    "prop-policy-gradient",
    part="(a) a bandit with frozen rewards",
    result="T4.4",
    tol=2e-7,
    instances=140,
    real=dict(
        gradient=lambda r, p, tau, alpha: policy.bandit_gradient(r, p, tau, member(alpha)),
        sign=-1.0,
    ),
    mutants={
        "ascent for descent": dict(sign=1.0),
        "temperature missing": dict(
            gradient=lambda r, p, tau, al: policy.bandit_gradient(r, p, 1.0, member(al))
        ),
        "softmax for all": dict(
            gradient=lambda r, p, tau, al: policy.bandit_gradient(r, p, tau)
        ),
        "rewards without their mean only": dict(
            gradient=lambda r, p, tau, al: (r - (p * r).sum()) / tau
        ),
    },
)
def bandit(impl):
    """Central differences of a nonlinear loss through the map, and of <p(s), r> with r fixed,
    against each other and against the closed form of the package."""
    for rng, rule, alpha, s, tau in cases(4, 140):
        loss, p = some_loss(rng, len(s)), rule(s, tau)
        r = -gradients(loss, p)
        slope = slopes(lambda x, f=loss, m=rule, t=tau: f(m(x, t)), s)
        reward = slopes(lambda x, m=rule, t=tau, r=r: m(x, t) @ r, s)
        closed = impl.gradient(r, p, tau, alpha)
        yield max(
            float((slope - impl.sign * reward).abs().max()), float((closed - reward).abs().max())
        ) / (1 + float(slope.abs().max()))


def arms(r, b, p, tau):
    """The sum over the arms of softmax, arm by arm."""
    e = torch.eye(len(p), dtype=p.dtype)
    return sum(p[j] * (r[j] - b) * (e[j] - p) for j in range(len(p))) / tau


@claim(
    "prop-policy-gradient",
    part="(b) for every number subtracted",
    result="T4.4",
    tol=2e-7,
    instances=210,
    real=dict(arms=arms, log_slope=lambda row, p: row / p),
    mutants={
        "temperature missing": dict(arms=lambda r, b, p, tau: arms(r, b, p, 1.0)),
        "arms not weighted": dict(
            arms=lambda r, b, p, tau: ((r - b) - p * (r - b).sum()) / tau
        ),
        "the same place in the other formula": dict(
            arms=lambda r, b, p, tau: p * (r - b) / tau
        ),
        "gradient of the weight, not of its logarithm": dict(log_slope=lambda row, p: row),
        "sign of the score": dict(arms=lambda r, b, p, tau: -arms(r, b, p, tau)),
    },
    covers=("eq-policy-gradient",),
)
def every_baseline(impl):
    """Slopes of the expected reward against the sum over arms with b = 0, 1, -3 and a random one;
    the logarithmic derivatives of each arm from differences of the map, for every member, and the
    closed form (e_j - p)/tau for softmax."""
    for i, (rng, rule, alpha, s, tau) in enumerate(cases(5, 210)):
        b = (0.0, 1.0, -3.0, float(rng.normal(0, 5)))[i % 4]
        r = torch.as_tensor(rng.normal(1, 2, len(s)))
        rows = slopes(lambda x, f=rule, t=tau: f(x, t), s).T
        p = rule(s, tau)
        exact = slopes(lambda x, f=rule, t=tau, r=r: f(x, t) @ r, s)
        total = sum(
            p[j] * (r[j] - b) * impl.log_slope(rows[j], p[j]) for j in range(len(s)) if p[j] > 0
        )
        off = (total - exact).abs().max()
        if alpha == 1:
            off = torch.maximum(off, (impl.arms(r, b, p, tau) - exact).abs().max())
        yield float(off) / (1 + float(exact.abs().max()))


@claim(
    "prop-policy-gradient",
    part="(c) the rewards must be held fixed",
    result="T4.4",
    tol=1e-11,
    instances=105,
    real=dict(moving=lambda p, c, v, y: -(p * (v @ (c - y))).sum(), extra=lambda c: (c @ c) / 2),
    mutants={
        "utilities detached": dict(
            moving=lambda p, c, v, y: -(p * (v @ (c - y)).detach()).sum()
        ),
        "nothing is added": dict(extra=lambda c: 0 * c.sum()),
        "twice as much is added": dict(extra=lambda c: c @ c),
        "utility with the other sign": dict(moving=lambda p, c, v, y: (p * (v @ (c - y))).sum()),
    },
)
def unfrozen(impl):
    """Autograd of sum p_j(s) a_j(s), with both factors moving, against minus the gradient of the
    squared loss minus that of half the squared output."""
    for rng, rule, _, s, tau in cases(6, 105):
        x = s.clone().requires_grad_()
        v, y = torch.as_tensor(rng.normal(size=(len(s), 3))), torch.as_tensor(rng.normal(size=3))
        p = rule(x, tau)
        c = p @ v
        (slope,) = torch.autograd.grad(
            impl.moving(p, c, v, y) + ((c - y) ** 2).sum() / 2 + impl.extra(c), x
        )
        yield float(slope.abs().max())
