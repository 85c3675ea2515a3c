"""Claims of the page "Natural gradients, and what descent does"."""

import math

import numpy as np
import torch
from claims import claim
from scipy.integrate import solve_ivp
from torch.autograd.functional import jacobian

from eotcourse import LogPrior, Shannon, softmax
from eotcourse.geometry import (
    Fisher,
    mirror_step,
    natural_gradient,
    project,
    replicator,
    replicator_field,
)


def size(x):
    return float(torch.as_tensor(x).abs().max())


def losses(seed, count):
    """A nonlinear loss at a softmax row: weights, raw scores, temperature, its derivatives."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, tau = int(rng.integers(2, 7)), float(rng.choice([0.5, 1.6, 3.0]))
        theta = torch.as_tensor(rng.normal(0, 1.2, n))
        w = torch.as_tensor(rng.normal(size=(n, 3)))

        def loss(p, w=w):
            return torch.sin(p @ w).sum() + (p**3).sum()

        s = (tau * theta).requires_grad_()
        p = torch.softmax(s / tau, -1)
        p.retain_grad()
        loss(p).backward()
        yield rng, loss, p.detach(), s.detach(), tau, p.grad, s.grad


def covariance(p):
    return torch.diag(p) - torch.outer(p, p)


@claim(
    "thm-gradient-duality",
    part="(a) natural in the weights",
    result="T5.3",
    tol=1e-11,
    instances=100,
    real=dict(
        from_scores=lambda g_s, tau: tau * g_s,
        from_weights=lambda g_p, p: replicator_field(p, g_p),
    ),
    mutants={
        "temperature missing": dict(from_scores=lambda g_s, tau: g_s),
        "temperature on the wrong side": dict(from_scores=lambda g_s, tau: g_s / tau),
        "sign": dict(from_weights=lambda g_p, p: -replicator_field(p, g_p)),
        "plain gradient on the simplex": dict(from_weights=lambda g_p, p: project(g_p)),
        "plain mean": dict(from_weights=lambda g_p, p: p * project(g_p)),
        "multiplied twice": dict(
            from_weights=lambda g_p, p: replicator_field(p, replicator_field(p, g_p))
        ),
    },
    covers=("eq-fisher-rao-gradient",),
)
def in_weights(impl):
    """The Riemannian gradient in the free coordinates p_1 ... p_(n-1): autograd of the loss there
    and a linear solve with their Fisher matrix, against tau g_s of autograd and C_p g_p."""
    for _, loss, p, _, tau, g_p, g_s in losses(0, 100):
        eta = p[:-1].clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(torch.cat([eta, 1 - eta.sum()[None]])), eta)
        metric = torch.diag(1 / p[:-1]) + 1 / p[-1]
        v = torch.linalg.solve(metric, slope)
        v = torch.cat([v, -v.sum()[None]])
        off = size(impl.from_scores(g_s, tau) - v), size(impl.from_weights(g_p, p) - v)
        yield max(off) / (1 + size(g_p))


@claim(
    "thm-gradient-duality",
    part="(b) natural in the scores",
    result="T5.3",
    tol=1e-10,
    instances=100,
    real=dict(
        natural=lambda g_s, p, tau: natural_gradient(g_s, p, tau),
        raw=lambda g_s, p, tau: natural_gradient(g_s, p, tau, "score"),
        shift=lambda p: torch.ones_like(p),
    ),
    mutants={
        "mean under the weights": dict(
            natural=lambda g_s, p, tau: tau * g_s / p
        ),
        "temperature missing": dict(natural=lambda g_s, p, tau: natural_gradient(g_s, p)),
        "one temperature in raw scores": dict(
            raw=lambda g_s, p, tau: natural_gradient(g_s, p, tau)
        ),
        "sign, as in the source": dict(
            natural=lambda g_s, p, tau: -natural_gradient(g_s, p, tau)
        ),
        "multiplied instead of divided": dict(
            natural=lambda g_s, p, tau: replicator_field(p, tau * g_s)
        ),
        "the weights may be added": dict(shift=lambda p: p),
    },
)
def in_scores(impl):
    """A library's least squares of smallest norm with the Fisher matrix in each chart, and the
    centred partial derivatives in the weights of autograd; a shifted solution moves no weight."""
    for rng, _, p, _, tau, g_p, g_s in losses(1, 100):
        C = covariance(p).numpy()
        theta = np.linalg.lstsq(C, (tau * g_s).numpy(), rcond=1e-10)[0]
        raw = np.linalg.lstsq(C / tau**2, g_s.numpy(), rcond=1e-10)[0]
        x = impl.natural(g_s, p, tau)
        other = x + float(rng.normal()) * impl.shift(p)
        moved = torch.softmax(p.log() - other, -1) - torch.softmax(p.log() - x, -1)
        scale = 1 + size(g_p)
        yield max(
            size(x - torch.as_tensor(theta)) / scale,
            size(impl.raw(g_s, p, tau) - torch.as_tensor(raw)) / scale / tau,
            size(x - (g_p - g_p.mean())) / scale,
            size(moved),
        )


@claim(
    "thm-gradient-duality",
    part="(c) what the steps do",
    result="T5.3, E36",
    tol=1e-7,
    instances=100,
    real=dict(
        descent=lambda F, a, tau: F @ (F @ a) / tau**2,
        natural=lambda F, a, tau: F @ a,
    ),
    mutants={
        "descent is natural, as in the source": dict(descent=lambda F, a, tau: F @ a),
        "one temperature": dict(descent=lambda F, a, tau: F @ (F @ a) / tau),
        "no temperature": dict(descent=lambda F, a, tau: F @ (F @ a)),
        "sign": dict(descent=lambda F, a, tau: -(F @ (F @ a)) / tau**2),
        "temperature in the natural step": dict(natural=lambda F, a, tau: F @ a / tau),
        "the natural step multiplies twice": dict(natural=lambda F, a, tau: F @ (F @ a)),
    },
    covers=("eq-gradient-steps",),
)
def steps(impl):
    """Weights after a short step forward and a short step back along the gradient of autograd, and
    along the utilities, over the length: the displacement to first order.  The remainder of a
    longer single step is bounded by a constant times its square."""
    for _, _, p, s, tau, g_p, g_s in losses(2, 100):
        F, a, h = Fisher(p), -g_p, 1e-5
        plain = softmax(s - h * g_s, tau) - softmax(s + h * g_s, tau)
        flow = torch.softmax(s / tau + h * a, -1) - torch.softmax(s / tau - h * a, -1)
        one, two = impl.descent(F, a, tau), impl.natural(F, a, tau)
        far = 1e-3
        rest = (softmax(s - far * g_s, tau) - p - far * one) / far**2
        scale = 1 + size(g_p) ** 3 + size(g_s / tau) ** 3
        yield max(
            size(plain / (2 * h) - one) / scale,
            size(flow / (2 * h) - two) / scale,
            max(0.0, size(rest) / scale - 1) * 1e-6,
        )


def descent_time(x):
    return (1 / x - 1 / (1 - x)) / 2 + math.log((1 - x) / x)


@claim(
    "thm-gradient-duality",
    part="(d) the plateau",
    result="E36",
    tol=1e-6,
    instances=16,
    real=dict(descent=descent_time, natural=lambda x: math.log((1 - x) / x)),
    mutants={
        "the leading term only": dict(descent=lambda x: 1 / (2 * x)),
        "as fast as natural, as in the source": dict(descent=lambda x: math.log((1 - x) / x)),
        "factor two": dict(descent=lambda x: 2 * descent_time(x)),
        "without the logarithm": dict(descent=lambda x: (1 / x - 1 / (1 - x)) / 2),
        "natural with the same factor": dict(natural=lambda x: math.log((1 - x) / x) / 2),
        "natural to the logarithm of x only": dict(natural=lambda x: -math.log(x)),
    },
    covers=("eq-plateau",),
)
def plateau(impl):
    """An adaptive solver of the two flows of the scaled scores, gradients by the chain rule from
    the covariance matrix, stopped when the better key has half of the weight."""
    a = np.array([0.0, 1.0])

    def weights(theta):
        e = np.exp(theta - theta.max())
        return e / e.sum()

    def half(t, theta):
        return weights(theta)[1] - 0.5

    half.terminal = True

    def plain(t, theta):
        p = weights(theta)
        return (np.diag(p) - np.outer(p, p)) @ a

    for x in np.geomspace(2e-3, 0.4, 16):
        start = np.log([1 - x, x])
        off = 0.0
        for field, time in ((plain, impl.descent(x)), (lambda t, y: a - 0.5, impl.natural(x))):
            run = solve_ivp(
                field, (0, 1e4), start, events=half, method="DOP853", rtol=1e-10, atol=1e-12
            )
            off = max(off, abs(run.t_events[0][0] - time) / time)
        yield off


def cases(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(2, 7))
        p, a = rng.dirichlet(2 * np.ones(n)), rng.normal(0, 1.5, n)
        yield rng, torch.as_tensor(p), torch.as_tensor(a), float(rng.choice([0.3, 1.0, 2.5]))


def kl(p, q):
    return float(torch.special.xlogy(p, p / q).sum())


@claim(
    "thm-mirror-descent",
    part="(a) one step, three names",
    result="T5.4",
    tol=1e-12,
    instances=120,
    real=dict(
        step=mirror_step,
        objective=lambda q, p, a, eta: float(a @ q) - kl(q, p) / eta,
        prior=lambda pi, s, tau: Shannon(LogPrior(pi.log()))(s, tau),
    ),
    mutants={
        "step size inverted": dict(step=lambda p, a, eta: mirror_step(p, a, 1 / eta)),
        "descent": dict(step=lambda p, a, eta: mirror_step(p, -a, eta)),
        "the old weights forgotten": dict(step=lambda p, a, eta: softmax(eta * a)),
        "a step in the weights": dict(
            step=lambda p, a, eta: p + eta * replicator_field(p, a)
        ),
        "divergence reversed": dict(
            objective=lambda q, p, a, eta: float(a @ q) - kl(p, q) / eta
        ),
        "divergence times the step": dict(
            objective=lambda q, p, a, eta: float(a @ q) - kl(q, p) * eta
        ),
        "prior at the inverse temperature": dict(
            prior=lambda pi, s, tau: Shannon(LogPrior(pi.log()))(s, 1 / tau)
        ),
    },
    covers=("eq-mirror-step",),
)
def one_step(impl):
    """The package's step against moved scores with a random constant and against multiplication;
    at random weights the objective falls short of log Z / eta by KL(q || p') / eta exactly; the
    package's softmax with a prior is the step of size 1 / tau."""
    for rng, p, a, eta in cases(3, 120):
        new = impl.step(p, a, eta)
        scores = p.log() + float(rng.normal(0, 3))
        product = p * torch.exp(eta * a)
        q = torch.as_tensor(rng.dirichlet(np.ones(len(p))))
        gap = math.log(float(product.sum())) / eta - impl.objective(q, p, a, eta)
        exact = kl(q, product / product.sum()) / eta
        yield max(
            size(new - torch.softmax(scores + eta * a, -1)),
            size(new - product / product.sum()),
            abs(gap - exact) / (1 + exact),
            size(impl.prior(p, a, 1 / eta) - new),
        )


@claim(
    "thm-mirror-descent",
    part="(b) the replicator equation",
    result="T5.4",
    tol=1e-8,
    instances=40,
    real=dict(
        flow=replicator,
        rate=lambda p, a: float(p @ a**2 - (p @ a) ** 2),
        field=lambda p, a: p * (a - p @ a),
    ),
    mutants={
        "time reversed": dict(flow=lambda p, a, t: replicator(p, a, -t)),
        "started from the uniform weights": dict(
            flow=lambda p, a, t: replicator(torch.ones_like(p) / len(p), a, t)
        ),
        "plain descent": dict(
            field=lambda p, a: covariance(p) @ (covariance(p) @ a)
        ),
        "plain mean": dict(field=lambda p, a: p * (a - a.mean())),
        "variance of the utilities themselves": dict(rate=lambda p, a: float(a.var())),
        "standard deviation": dict(
            rate=lambda p, a: float(p @ a**2 - (p @ a) ** 2) ** 0.5
        ),
    },
    covers=("eq-replicator",),
)
def flow(impl):
    """An adaptive solver of the replicator equation, written out here, against the package's closed
    solution at five times; the slope of the mean utility by central differences."""
    times = torch.linspace(0.2, 2.0, 5, dtype=torch.float64)
    for _, p, a, _ in cases(4, 40):
        run = solve_ivp(
            lambda t, x, a=a: impl.field(torch.as_tensor(x), a).numpy(),
            (0, 2), p.numpy(), t_eval=times.numpy(), method="DOP853", rtol=1e-11, atol=1e-13,
        )
        path = impl.flow(p, a, times)
        h = 1e-4
        ahead, back = (impl.flow(p, a, times + x) @ a for x in (h, -h))
        slope = (ahead - back) / (2 * h)
        rates = torch.tensor([impl.rate(x, a) for x in path], dtype=p.dtype)
        yield max(
            size(path - torch.as_tensor(run.y.T)),
            size(slope - rates) / (1 + size(a) ** 3) / 10,
        )


def differences(x):
    return torch.softmax(torch.cat([x, x.new_zeros(1)]), -1)


# Weights as functions of n - 1 free coordinates, and the coordinates of given weights.
CHARTS = {
    "weights": (lambda x: torch.cat([x, 1 - x.sum()[None]]), lambda p: p[:-1]),
    "scores": (differences, lambda p: (p[:-1] / p[-1]).log()),
    "roots": (lambda x: torch.cat([x**2, 1 - (x**2).sum()[None]]), lambda p: p[:-1].sqrt()),
    "odds": (
        lambda x: torch.cat([x, x.new_ones(1)]) / (1 + x.sum()), lambda p: p[:-1] / p[-1]
    ),
}


@claim(
    "thm-mirror-descent",
    part="(c) the flow in any chart",
    result="T5.4",
    tol=1e-5,
    instances=12,
    real=dict(
        metric=lambda J, p: J.T @ torch.diag(1 / p) @ J,
        descend=-1.0,
    ),
    mutants={
        "plain gradient of the chart": dict(
            metric=lambda J, p: torch.eye(J.shape[1], dtype=p.dtype)
        ),
        "metric of the space around": dict(metric=lambda J, p: J.T @ J),
        "weights not inverted": dict(metric=lambda J, p: J.T @ torch.diag(p) @ J),
        "ascent of the loss": dict(descend=1.0),
    },
)
def any_chart(impl):
    """The natural flow followed by Runge and Kutta's method in each of four charts, with metric and
    gradient from autograd of the chart's map, against p exp(t a) normalised."""
    for i, (_, p, a, _) in enumerate(cases(5, 12)):
        weights, coordinates = list(CHARTS.values())[i % 4]

        def field(x, a=a, weights=weights):
            J, q = jacobian(weights, x), weights(x)
            v = torch.linalg.solve(impl.metric(J, q), impl.descend * (J.T @ -a))
            return v.clamp(-50, 50)  # keeps mutants finite

        p = p.sort()[0]
        x, h = coordinates(p), 0.25 / 10
        for _ in range(10):
            k1 = field(x)
            k2 = field(x + h / 2 * k1)
            k3 = field(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(x + h * k3))
        end = weights(x)
        exact = p * torch.exp(0.25 * a)
        yield size(end - exact / exact.sum())


@claim(
    "thm-mirror-descent",
    part="(c) affine charts",
    result="T5.4, E36",
    tol=1e-9,
    instances=80,
    real=dict(
        metric=lambda A, C: torch.linalg.inv(A).T @ C @ torch.linalg.inv(A),
        bend=lambda x: x,
        back=lambda x: x,
        slope=torch.ones_like,
    ),
    mutants={
        "plain descent": dict(
            metric=lambda A, C: torch.eye(len(A), dtype=C.dtype)
        ),
        "the metric not transformed": dict(metric=lambda A, C: C),
        "transformed the wrong way": dict(metric=lambda A, C: A.T @ C @ A),
        "a chart that is not affine": dict(
            bend=torch.sinh, back=torch.asinh, slope=torch.cosh
        ),
    },
)
def affine(impl):
    """Random affine charts x of the scaled scores: a least squares solution plus a random vector of
    the kernel, subtracted in x, mapped back, against multiplication of the weights."""
    for rng, p, a, eta in cases(6, 80):
        n = len(p)
        A = torch.as_tensor(rng.normal(size=(n, n))) + 3 * torch.eye(n)
        b, theta = torch.as_tensor(rng.normal(size=n)), p.log()
        I_x = impl.metric(A, covariance(p))
        g_x = torch.linalg.inv(A).T @ (-covariance(p) @ a)
        d = torch.as_tensor(np.linalg.lstsq(I_x.numpy(), g_x.numpy(), rcond=1e-10)[0])
        d = d + float(rng.normal()) * A @ torch.ones(n, dtype=p.dtype)
        at = A @ theta + b
        x = impl.bend(at) - eta * impl.slope(at) * d
        new = torch.softmax(torch.linalg.solve(A, impl.back(x) - b), -1)
        exact = p * torch.exp(eta * a)
        yield size(new - exact / exact.sum())


@claim(
    "thm-mirror-descent",
    part="(c) a step in the weights",
    result="T5.4",
    tol=1e-5,
    instances=120,
    real=dict(
        second=lambda p, a: p * ((a - p @ a) ** 2 - (p * (a - p @ a) ** 2).sum()) / 2,
        leaves=lambda p, a: 1 / (p @ a - a.min()),
    ),
    mutants={
        "no difference": dict(second=lambda p, a: 0 * p),
        "without the variance": dict(second=lambda p, a: p * (a - p @ a) ** 2 / 2),
        "factor two": dict(second=lambda p, a: p * ((a - p @ a) ** 2 - p @ (a - p @ a) ** 2)),
        "plain variance": dict(
            second=lambda p, a: p * ((a - p @ a) ** 2 - a.var(unbiased=False)) / 2
        ),
        "leaves on the other side": dict(leaves=lambda p, a: 1 / (a.max() - p @ a)),
    },
)
def crude(impl):
    """Half the sum of the differences after a short step forward and back over the square of its
    length, against the formula; just below and just above the limit of the step size the
    smallest entry is positive and negative."""
    for _, p, a, _ in cases(7, 120):
        h = 1e-3
        total = sum(
            mirror_step(p, a, x) - p - x * replicator_field(p, a) for x in (h, -h)
        )
        limit = float(impl.leaves(p, a))
        below, above = (p + x * limit * p * (a - p @ a) for x in (0.999, 1.001))
        right = float(below.min()) > 0 > float(above.min())
        scale = 1 + size(a) ** 4
        yield max(size(total / (2 * h**2) - impl.second(p, a)) / scale, 0.0 if right else 1.0)


def utilities(rng, p):
    """Utilities in [-1, 1] for a fifth of the rows each: noise, signs, one good key, and two that
    are chosen with knowledge of the weights, to punish them."""
    a = np.empty_like(p)
    a[0::5] = rng.uniform(-1, 1, a[0::5].shape)
    a[1::5] = rng.choice([-1.0, 1.0], a[1::5].shape)
    a[2::5] = np.where(np.arange(p.shape[1]) == 0, 1.0, -1.0)
    light = p[3::5]
    a[3::5] = np.where(light == light.min(-1, keepdims=True), 1.0, -1.0)
    rank = p[4::5].round(9).argsort(-1, kind="stable").argsort(-1)
    a[4::5] = np.where(rank >= p.shape[1] // 2, -1.0, 1.0)
    return a


@claim(
    "thm-mirror-descent",
    part="(d) regret",
    result="T5.4",
    tol=1e-9,
    instances=60,
    real=dict(
        step=mirror_step,
        bound=lambda n, eta, T: math.log(n) / eta + eta * T / 2,
        scale=1.0,
    ),
    mutants={
        "without the start": dict(bound=lambda n, eta, T: eta * T / 2),
        "half the price of the start": dict(
            bound=lambda n, eta, T: math.log(n) / eta / 2 + eta * T / 2
        ),
        "half the price of a round": dict(
            bound=lambda n, eta, T: math.log(n) / eta + eta * T / 4
        ),
        "descent": dict(step=lambda p, a, eta: mirror_step(p, -a, eta)),
        "step size halved": dict(step=lambda p, a, eta: mirror_step(p, a, eta / 2)),
        "no step at all": dict(step=lambda p, a, eta: p),
        "larger utilities": dict(scale=4.0),
    },
    covers=("eq-regret",),
)
def regret(impl):
    """Sixty games of 150 rounds with five kinds of utilities, most of them made to hurt, and five
    step sizes: the regret, summed here, may exceed the bound by nothing; the best step size gives
    the root."""
    rng, T = np.random.default_rng(8), 150
    for n, games in ((2, 25), (5, 25), (16, 10)):
        best = math.sqrt(2 * math.log(n) / T)
        eta = best * np.repeat([1.0, 0.4, 3.0, 0.7, 1.5], 5)[:games]
        p, won, total = np.full((games, n), 1 / n), np.zeros(games), np.zeros((games, n))
        for _ in range(T):
            a = impl.scale * utilities(rng, p)
            won, total = won + (p * a).sum(-1), total + a
            new = impl.step(torch.as_tensor(p), torch.as_tensor(a), torch.as_tensor(eta)[:, None])
            p = new.numpy()
        root = math.log(n) / best + best * T / 2 - math.sqrt(2 * T * math.log(n))
        for gain, most, step in zip(won, total.max(-1), eta, strict=True):
            yield max(0.0, most - gain - impl.bound(n, step, T), abs(root))
