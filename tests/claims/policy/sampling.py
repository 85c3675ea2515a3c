"""Claims of the page "Drawing one key"."""

import itertools

import numpy as np
import torch
from claims import claim
from scipy.integrate import quad
from scipy.stats import gumbel_r, kstwobign

from eotcourse import Shannon, policy, softmax


def rows(seed, count, low=2, high=7):
    """Random scores, a temperature, softmax weights and utilities with a mean away from 0."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, tau = int(rng.integers(low, high)), float(rng.choice([0.6, 1.0, 2.3]))
        s = torch.as_tensor(rng.normal(0, 1.2 * tau, n))
        yield rng, s, tau, softmax(s, tau), torch.as_tensor(rng.normal(1.5, 2, n))


def slope(objective, s):
    x = s.clone().requires_grad_()
    (grad,) = torch.autograd.grad(objective(x), x)
    return grad


def largest(x):
    return float(torch.as_tensor(x).abs().max())


def one_of_each(a, p, tau, b, estimate):
    """The estimate for every key that can be drawn, shape (n, n)."""
    return estimate(a, p, torch.arange(len(p)), tau, b)


def score_of_the_draw(a, p, draws, tau, b):
    """A likely slip: the gradient of p_J in place of that of its logarithm."""
    return policy.reinforce(a, p, draws, tau, b) * p[draws][:, None]


def without_the_mean(a, p, draws, tau, b):
    """A likely slip: e_J in place of e_J - p."""
    shift = policy.reinforce(a, p, draws, tau, b)
    lost = p * (a[draws] - (0.0 if b == "none" else a @ p))[:, None] / tau
    return shift + lost


@claim(
    "thm-score-function",
    part="(a) unbiased, summed over the draws",
    result="T4.5",
    tol=1e-12,
    instances=160,
    real=dict(estimate=policy.reinforce),
    mutants={
        "temperature missing": dict(
            estimate=lambda a, p, j, tau, b: policy.reinforce(a, p, j, 1.0, b)
        ),
        "sign of a loss": dict(estimate=lambda *x: -policy.reinforce(*x)),
        "weight for its logarithm": dict(estimate=score_of_the_draw),
        "one-hot without the mean": dict(estimate=without_the_mean),
        "baseline from the draw": dict(
            estimate=lambda a, p, j, tau, b: policy.reinforce(a, p, j, tau, "none")
            - a[j][:, None] * 0.5 * policy.reinforce(torch.ones_like(a), p, j, tau)
        ),
    },
)
def unbiased(impl):
    """The estimates of all keys, weighted with their probabilities, against autograd of the
    expected utility; baselines none, mean, optimal, and random numbers."""
    for i, (rng, s, tau, p, a) in enumerate(rows(0, 160)):
        b = ("none", "mean", "optimal", float(rng.normal(0, 5)))[i % 4]
        exact = slope(lambda x: softmax(x, tau) @ a, s)
        yield largest(p @ one_of_each(a, p, tau, b, impl.estimate) - exact)


@claim(
    "thm-score-function",
    part="(a) unbiased, with 40000 draws: |z| below 5",
    result="T4.5",
    tol=5.0,
    instances=24,
    real=dict(draw=policy.gumbel_max, estimate=policy.reinforce),
    mutants={
        "drawn without temperature": dict(
            draw=lambda s, tau, m, generator: policy.gumbel_max(s, 1.0, m, generator=generator)
        ),
        "drawn uniformly": dict(
            draw=lambda s, tau, m, generator: policy.gumbel_max(
                0 * s, tau, m, generator=generator
            )
        ),
        "the best key every time": dict(
            draw=lambda s, tau, m, generator: s.argmax().expand(m)
        ),
        "sign of a loss": dict(estimate=lambda *x: -policy.reinforce(*x)),
    },
)
def sampled(impl):
    """Mean of 40000 estimates minus the exact gradient, in standard errors that are enumerated;
    the largest coordinate of each row."""
    generator, count = torch.Generator().manual_seed(0), 40_000
    for _, s, tau, p, a in rows(1, 24):
        exact = slope(lambda x, t=tau, r=a: softmax(x, t) @ r, s)
        each = policy.reinforce(a, p, torch.arange(len(p)), tau, "mean")
        error = ((p @ (each - exact) ** 2) / count).sqrt()
        draws = impl.draw(s, tau, count, generator=generator)
        mean = impl.estimate(a, p, draws, tau, "mean").mean(0)
        yield float(((mean - exact) / error.clamp_min(1e-9)).abs().max())


@claim(
    "thm-score-function",
    part="(b) total variance",
    result="T4.5",
    tol=1e-11,
    instances=160,
    real=dict(variance=policy.estimator_variance),
    mutants={
        "temperature once": dict(
            variance=lambda a, p, b, tau: tau * policy.estimator_variance(a, p, b, tau)
        ),
        "second moment for variance": dict(
            variance=lambda a, p, b, tau: policy.estimator_variance(a, p, b, tau)
            + (policy.bandit_gradient(a, p, tau) ** 2).sum()
        ),
        "one coordinate of the step": dict(
            variance=lambda a, p, b, tau: (p * (1 - p) ** 2 * (a - offset(a, p, b)) ** 2).sum()
            / tau**2 - (policy.bandit_gradient(a, p, tau) ** 2).sum()
        ),
        "baseline ignored": dict(
            variance=lambda a, p, b, tau: policy.estimator_variance(a, p, "none", tau)
        ),
    },
    covers=("eq-score-variance",),
)
def variance(impl):
    """The closed form against the mean squared distance of the estimates of all keys from the
    exact gradient."""
    for i, (rng, s, tau, p, a) in enumerate(rows(2, 160)):
        b = ("none", "mean", "optimal", float(rng.normal(0, 5)))[i % 4]
        each = one_of_each(a, p, tau, b, policy.reinforce)
        exact = slope(lambda x: softmax(x, tau) @ a, s)
        spread = p @ ((each - exact) ** 2).sum(-1)
        yield largest(impl.variance(a, p, b, tau) - spread) / (1 + float(spread))


def offset(a, p, b):
    return {"none": 0.0, "mean": p @ a, "optimal": policy.optimal_baseline(a, p)}.get(b, b)


@claim(
    "thm-score-function",
    part="(c) the best number, what another costs, and what the mean costs",
    result="T4.5",
    tol=1e-9,
    instances=160,
    real=dict(
        best=policy.optimal_baseline,
        curve=lambda p, tau: (1 - p @ p) / tau**2,
        gap=lambda a, p: -2 * (p @ (a * p) - (p @ a) * (p @ p)) / (1 - p @ p),
    ),
    mutants={
        "the mean": dict(best=lambda a, p: p @ a),
        "weighted with the squared step only": dict(
            best=lambda a, p: ((1 - 2 * p + p @ p) * a).sum() / (1 - 2 * p + p @ p).sum()
        ),
        "weights squared": dict(best=lambda a, p: (p**2 @ a) / (p @ p)),
        "curvature without temperature": dict(curve=lambda p, tau: 1 - p @ p),
        "mean too small for likely good keys": dict(
            gap=lambda a, p: 2 * (p @ (a * p) - (p @ a) * (p @ p)) / (1 - p @ p)
        ),
    },
)
def best(impl):
    """The enumerated variance at three baselines is a parabola: its vertex and curvature against
    the formulas, and the distance of the vertex from the mean."""
    for _, s, tau, p, a in rows(3, 160):
        exact = slope(lambda x, t=tau, r=a: softmax(x, t) @ r, s)

        def spread(b, a=a, p=p, tau=tau, exact=exact):
            each = one_of_each(a, p, tau, b, policy.reinforce)
            return float(p @ ((each - exact) ** 2).sum(-1))

        curve, slant, _ = np.polyfit([-2.0, 1.0, 4.0], [spread(b) for b in (-2.0, 1.0, 4.0)], 2)
        vertex = -slant / (2 * curve)
        yield max(
            abs(float(impl.best(a, p)) - vertex),
            abs(float(impl.curve(p, tau)) / curve - 1),
            abs(float(impl.gap(a, p)) - (vertex - float(p @ a))),
        ) * min(1.0, curve)


@claim(
    "thm-score-function",
    part="(d) two keys",
    result="E31",
    tol=1e-12,
    instances=100,
    real=dict(
        swapped=lambda a, p: p[1] * a[0] + p[0] * a[1],
        variance=policy.estimator_variance,
        with_mean=lambda a, p: 2 * p[0] * p[1] * (p[0] - p[1]) ** 2 * (a[0] - a[1]) ** 2,
        with_none=lambda a, p: 2 * p[0] * p[1] * (p[1] * a[0] + p[0] * a[1]) ** 2,
    ),
    mutants={
        "no square on the difference of the weights": dict(
            with_mean=lambda a, p: 2 * p[0] * p[1] * (p[0] - p[1]).abs() * (a[0] - a[1]) ** 2
        ),
        "none: the mean utility squared": dict(with_none=lambda a, p: 2 * p.prod() * (p @ a) ** 2),
        "weights not swapped": dict(swapped=lambda a, p: p @ a),
        "plain mean": dict(swapped=lambda a, p: a.mean()),
        "variance of the mean baseline": dict(
            variance=lambda a, p, b, tau: policy.estimator_variance(a, p, "mean", tau)
        ),
        "temperature missing": dict(
            variance=lambda a, p, b, tau: policy.estimator_variance(a, p, b, 1.0)
        ),
    },
)
def two_keys(impl):
    """With the swapped mean both draws give the exact gradient; the mean squared distance of the
    two estimates from it, with mean and with none, against the formulas; the variance at other
    numbers is 2 p_1 p_2 (b - b*)^2 / tau^2; the case 0.0018, 0.1152, 0 to the last digit; and a
    utility for which the mean is infinitely worse than none."""
    for _, s, tau, p, a in rows(4, 98, 2, 3):
        b = float(impl.swapped(a, p))
        exact = slope(lambda x, t=tau, r=a: softmax(x, t) @ r, s)
        off = largest(policy.reinforce(a, p, torch.arange(2), tau, b) - exact)
        other = b + 1.7
        cost = 2 * p.prod() * 1.7**2 / tau**2
        for name, formula in (("mean", impl.with_mean), ("none", impl.with_none)):
            each = policy.reinforce(a, p, torch.arange(2), tau, name)
            spread = p @ ((each - exact) ** 2).sum(-1)
            off = max(off, largest(formula(a, p) / tau**2 - spread) / (1 + float(spread)))
        yield max(off, largest(impl.variance(a, p, other, tau) - cost) / (1 + float(cost)))
    p, a = torch.tensor([0.9, 0.1], dtype=s.dtype), torch.tensor([1.0, 0.0], dtype=s.dtype)
    numbers = ("none", "mean", float(impl.swapped(a, p)))
    three = [float(impl.variance(a, p, b, 1.0)) for b in numbers]
    yield max(abs(x - y) for x, y in zip(three, (0.0018, 0.1152, 0.0)))
    a = torch.tensor([0.9, -0.1], dtype=s.dtype)
    none, mean = (float(impl.variance(a, p, b, 1.0)) for b in ("none", "mean"))
    yield max(abs(none), abs(mean - 2 * 0.09 * 0.64), abs(float(impl.swapped(a, p))))


def over_all_batches(a, p, tau, M, baseline, estimate):
    """Expectation of the average of M estimates, over all n^M batches; and the batches' own."""
    batches = torch.tensor(list(itertools.product(range(len(p)), repeat=M)))
    chance = p[batches].prod(1)
    each = torch.stack([estimate(a, p, batch, tau, baseline).mean(0) for batch in batches])
    return batches, chance, each


def batches(seed, count):
    for i, (_, s, tau, p, a) in enumerate(rows(seed, count, 2, 4)):
        yield s, tau, p, a, 2 + i % 3


@claim(
    "prop-batch-baselines",
    part="(a) the mean of the others",
    result="T4.5",
    tol=1e-12,
    instances=24,
    real=dict(estimate=policy.reinforce, baseline="leave_one_out"),
    mutants={
        "own draw included": dict(baseline="batch_mean"),
        "temperature missing": dict(
            estimate=lambda a, p, j, tau, b: policy.reinforce(a, p, j, 1.0, b)
        ),
        "best of the others": dict(
            estimate=lambda a, p, j, tau, b: policy.reinforce(a, p, j, tau)
            - a[j].max() * policy.reinforce(torch.ones_like(a), p, j, tau)
        ),
    },
)
def leave_one_out(impl):
    """The average of M = 2, 3, 4 estimates over all batches of draws, weighted with their
    probabilities, against autograd of the expected utility."""
    for s, tau, p, a, M in batches(5, 24):
        _, chance, each = over_all_batches(a, p, tau, M, impl.baseline, impl.estimate)
        yield largest(chance @ each - slope(lambda x: softmax(x, tau) @ a, s))


@claim(
    "prop-batch-baselines",
    part="(b) the mean with one's own draw",
    result="T4.5",
    tol=1e-12,
    instances=24,
    real=dict(shrink=lambda M: (M - 1) / M, groups=policy.group_advantages),
    mutants={
        "unbiased": dict(shrink=lambda M: 1.0),
        "M / (M + 1)": dict(shrink=lambda M: M / (M + 1)),
        "the square": dict(shrink=lambda M: ((M - 1) / M) ** 2),
        "group not centred": dict(groups=lambda r, leave_one_out=False: r),
    },
)
def own_mean(impl):
    """Over all batches the expectation is (M - 1)/M of the gradient by autograd, batch by batch the
    estimate is that part of the leave-one-out estimate, and a group's advantages are the rewards
    minus means from numpy."""
    for s, tau, p, a, M in batches(6, 24):
        _, chance, own = over_all_batches(a, p, tau, M, "batch_mean", policy.reinforce)
        _, _, others = over_all_batches(a, p, tau, M, "leave_one_out", policy.reinforce)
        exact = slope(lambda x: softmax(x, tau) @ a, s)
        r = np.resize(a.numpy(), M)
        from_others = [r[i] - np.delete(r, i).mean() for i in range(M)]
        yield max(
            largest(chance @ own - impl.shrink(M) * exact),
            largest(own - impl.shrink(M) * others),
            largest(impl.groups(torch.as_tensor(r)).numpy() - (r - r.mean())),
            largest(impl.groups(torch.as_tensor(r), leave_one_out=True).numpy() - from_others),
        )


@claim(
    "prop-batch-baselines",
    part="(c) a sample covariance",
    result="T4.5",
    tol=1e-12,
    instances=24,
    real=dict(divisor=lambda M: M - 1, baseline="leave_one_out"),
    mutants={
        "divided by M": dict(divisor=lambda M: M),
        "divided by M - 3/2": dict(divisor=lambda M: M - 1.5),
        "own draw included": dict(baseline="batch_mean"),
        "no baseline": dict(baseline="none"),
    },
)
def sample_covariance(impl):
    """Batch by batch: the average leave-one-out estimate against numpy's sums of products of
    deviations of utilities and one-hot vectors."""
    for _, tau, p, a, M in batches(7, 24):
        drawn, _, each = over_all_batches(a, p, tau, M, impl.baseline, policy.reinforce)
        worst = 0.0
        for batch, estimate in zip(drawn.numpy(), each.numpy()):
            x, e = a.numpy()[batch], np.eye(len(p))[batch]
            cov = (x - x.mean()) @ (e - e.mean(0)) / impl.divisor(M)
            worst = max(worst, np.abs(estimate - cov / tau).max())
        yield worst


def joint(s, tau, x):
    """P(argmax = j, max <= x) for scores s, by quadrature of densities."""
    out = []
    for j in range(len(s)):
        rest = np.delete(s, j)

        def density(y, j=j, rest=rest):
            own = (y - s[j]) / tau
            return np.exp(-own - np.exp(-own) - np.exp(-(y - rest) / tau).sum()) / tau

        out.append(quad(density, s.min() - 5 * tau, x, epsabs=1e-9)[0])
    return np.array(out)


@claim(
    "thm-gumbel",
    part="(a, b) the joint law by quadrature",
    result="T4.6",
    tol=1e-7,
    instances=24,
    real=dict(weights=softmax, value=lambda s, tau: Shannon().conjugate(s, tau), scale=lambda t: t),
    mutants={
        "temperature missing": dict(weights=lambda s, tau: softmax(s)),
        "value in scaled scores": dict(value=lambda s, tau: Shannon().conjugate(s, tau) / tau),
        "largest score for the value": dict(value=lambda s, tau: s.max()),
        "maximum of unit scale": dict(scale=lambda t: 1.0),
    },
)
def joint_law(impl):
    """P(argmax = j, max <= x) from densities of the perturbed scores, by quadrature, against
    p_j exp(-exp(-(x - V)/tau)); x a quantile of the maximum, or far beyond."""
    for i, (_, s, tau, _, _) in enumerate(rows(8, 24, 2, 5)):
        value = float(impl.value(s, tau))
        x = float(Shannon().conjugate(s, tau)) + tau * (-0.5, 0.4, 1.5, 25.0)[i % 4]
        law = impl.weights(s, tau) * np.exp(-np.exp(-(x - value) / impl.scale(tau)))
        yield largest(law.numpy() - joint(s.numpy(), tau, x))


@claim(
    "thm-gumbel",
    part="(a) frequencies of 100000 draws: |z| below 5",
    result="T4.6",
    tol=5.0,
    instances=24,
    real=dict(draw=policy.gumbel_max, weights=softmax),
    mutants={
        "drawn without temperature": dict(
            draw=lambda s, tau, m, generator: policy.gumbel_max(s, 1.0, m, generator=generator)
        ),
        "noise of half the scale": dict(
            draw=lambda s, tau, m, generator: policy.gumbel_max(
                s, tau / 2, m, generator=generator
            )
        ),
        "smallest in place of largest": dict(
            draw=lambda s, tau, m, generator: policy.gumbel_max(-s, tau, m, generator=generator)
        ),
        "keys shifted by one": dict(
            draw=lambda s, tau, m, generator: (
                policy.gumbel_max(s, tau, m, generator=generator) + 1
            ) % len(s)
        ),
    },
)
def frequencies(impl):
    """Frequencies of the keys drawn by the package against the weights, in standard errors; the
    largest over the keys."""
    generator, count = torch.Generator().manual_seed(1), 100_000
    for _, s, tau, _, _ in rows(9, 24, 3, 7):
        p = impl.weights(s, tau)
        drawn = impl.draw(s, tau, count, generator=generator).bincount(minlength=len(s)) / count
        yield float(((drawn - p) / (p * (1 - p) / count).sqrt()).abs().max())


@claim(
    "thm-gumbel",
    part="(b) mean and law of the maximum, 100000 draws",
    result="T4.6",
    tol=5.0,
    instances=24,
    real=dict(value=lambda s, tau: Shannon().conjugate(s, tau), gamma=np.euler_gamma),
    mutants={
        "Euler's constant forgotten": dict(gamma=0.0),
        "largest score for the value": dict(value=lambda s, tau: s.max()),
        "value in scaled scores": dict(value=lambda s, tau: Shannon().conjugate(s, tau) / tau),
    },
)
def maximum(impl):
    """Mean of the maximum in standard errors, and its distance from the Gumbel law with location V
    and scale tau in Kolmogorov's statistic, whose chance to exceed 5 is 4e-22."""
    assert kstwobign.sf(5.0) < 1e-20
    rng, count = np.random.default_rng(10), 100_000
    for _, s, tau, _, _ in rows(10, 24, 2, 7):
        top = np.sort((s.numpy() + tau * rng.gumbel(size=(count, len(s)))).max(1))
        value = float(impl.value(s, tau))
        z = (top.mean() - value - tau * impl.gamma) / (tau * np.pi / 6**0.5 / count**0.5)
        below = gumbel_r.cdf((top - value) / tau)
        ks = count**0.5 * np.abs(below - (np.arange(count) + 0.5) / count).max()
        yield max(abs(z), ks)


def squared(c, y):
    return ((c - y) ** 2).sum(-1) / 2


@claim(
    "prop-hard-soft",
    part="(a) two objectives, two gradients",
    result="E29",
    tol=1e-11,
    instances=101,
    real=dict(
        hard=lambda p, v, loss, tau: -policy.bandit_gradient(-loss(v), p, tau),
        soft=lambda p, v, g, tau: policy.score_gradient(-v @ g, p, tau),
    ),
    mutants={
        "hard is soft": dict(
            hard=lambda p, v, loss, tau: policy.score_gradient(
                -v @ torch.func.grad(loss)(p @ v), p, tau
            )
        ),
        "ascent": dict(hard=lambda p, v, loss, tau: policy.bandit_gradient(-loss(v), p, tau)),
        "temperature missing": dict(
            soft=lambda p, v, g, tau: policy.score_gradient(-v @ g, p, 1.0)
        ),
        "reward at the output": dict(
            hard=lambda p, v, loss, tau: -policy.bandit_gradient(
                -loss(p @ v).expand(len(p)), p, tau
            )
        ),
    },
)
def two_objectives(impl):
    """Autograd of the expected loss of a drawn value and of the loss of the mean value, for a loss
    that is neither linear nor quadratic, against the package with the rewards -L(v_j) and with
    the utilities; last the example (0.192, -0.192) against (0, 0)."""
    for rng, s, tau, p, _ in rows(11, 100):
        v, w = torch.as_tensor(rng.normal(size=(len(s), 3))), torch.as_tensor(rng.normal(size=3))

        def loss(c, w=w):
            return torch.sin(c @ w) + torch.exp(c.sum(-1) / 4)

        hard = slope(lambda x: softmax(x, tau) @ loss(v), s)
        soft = slope(lambda x: loss(softmax(x, tau) @ v), s)
        g = torch.func.grad(loss)(p @ v)
        yield max(
            largest(impl.hard(p, v, loss, tau) - hard), largest(impl.soft(p, v, g, tau) - soft)
        )
    p, v = torch.tensor([0.8, 0.2], dtype=s.dtype), torch.tensor([[-1.0], [1.0]], dtype=s.dtype)
    known = torch.tensor([0.192, -0.192], dtype=s.dtype)
    yield max(
        largest(impl.hard(p, v, lambda c: squared(c, 0.0), 1.0)),
        largest(impl.soft(p, v, p @ v, 1.0) - known),
    )


@claim(
    "prop-hard-soft",
    part="(b) the squared loss",
    result="E29",
    tol=1e-11,
    instances=100,
    real=dict(half=0.5, centre=lambda p, v: p @ v, gap=lambda x, p, tau: p * (x - p @ x) / tau),
    mutants={
        "half forgotten": dict(half=1.0),
        "spread around the origin": dict(centre=lambda p, v: 0 * (p @ v)),
        "spread around the plain mean": dict(centre=lambda p, v: v.mean(0)),
        "temperature missing": dict(gap=lambda x, p, tau: p * (x - p @ x)),
        "other sign": dict(gap=lambda x, p, tau: -p * (x - p @ x) / tau),
    },
    covers=("eq-hard-soft",),
)
def spread_of_values(impl):
    """Autograd of both squared losses: their difference is the gradient of half the spread; the two
    values differ by half the spread.  Every fourth instance has all values at one distance from
    the output, where the gradients agree."""
    for i, (rng, s, tau, p, _) in enumerate(rows(12, 100)):
        y, v = torch.as_tensor(rng.normal(size=2)), torch.as_tensor(rng.normal(size=(len(s), 2)))
        equal = i % 4 == 3
        if equal:
            s, p = 0 * s, torch.full_like(p, 1 / len(p))
            turn = 2 * np.pi * torch.arange(len(p), dtype=p.dtype) / len(p)
            v = torch.stack([turn.cos(), turn.sin()], -1) + y
        hard = slope(lambda x: softmax(x, tau) @ squared(v, y), s)
        soft = slope(lambda x: squared(softmax(x, tau) @ v, y), s)
        far = impl.half * ((v - impl.centre(p, v)) ** 2).sum(-1)
        value = p @ squared(v, y) - squared(p @ v, y) - p @ far
        yield max(
            largest(hard - soft - impl.gap(far, p, tau)),
            largest(value),
            largest(hard - soft) if equal else 0.0,
        )


@claim(
    "prop-hard-soft",
    part="(c) convex losses",
    result="E29",
    tol=1e-12,
    instances=100,
    real=dict(convex=lambda x: torch.logsumexp(x, -1), affine=lambda x, w: x @ w + 1, side=1.0),
    mutants={
        "concave": dict(convex=lambda x: -torch.logsumexp(x, -1)),
        "neither": dict(convex=lambda x: torch.sin(2 * x).sum(-1)),
        "not affine": dict(affine=lambda x, w: (x @ w) ** 2),
        "soft is dearer": dict(side=-1.0),
    },
)
def jensen(impl):
    """By how much the loss of the mean value exceeds the mean loss, which must be nothing, for a
    convex loss; the gap and both gradients for an affine one."""
    for rng, s, tau, p, _ in rows(13, 100):
        v, w = torch.as_tensor(rng.normal(size=(len(s), 3))), torch.as_tensor(rng.normal(size=3))
        excess = float(impl.convex(p @ v) - p @ impl.convex(v)) * impl.side
        hard = slope(lambda x: softmax(x, tau) @ impl.affine(v, w), s)
        soft = slope(lambda x: impl.affine(softmax(x, tau) @ v, w), s)
        yield max(0.0, excess, largest(hard - soft))
