"""Claims of the page "How far apart are two rows"."""

import math

import mpmath
import numpy as np
import torch
from claims import claim
from scipy.integrate import quad
from scipy.special import log_softmax, logsumexp, rel_entr, softmax
from torch.autograd.functional import jacobian

from eotcourse import LogPrior, Shannon, Tsallis, geometry


def member(alpha, bias=None):
    prior = None if bias is None else LogPrior(torch.as_tensor(bias))
    return Shannon(prior) if alpha == 1 else Tsallis(alpha, prior)


def scores(seed, count, spread=1.5):
    """Two rows of raw scores, a temperature, and a prior for every third case."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n, tau = int(rng.integers(2, 8)), float(rng.choice([0.6, 1.0, 2.3]))
        bias = rng.normal(0, 0.7, n) if i % 3 == 2 else None
        yield rng, rng.normal(0, spread, n), rng.normal(0, spread, n), tau, bias


def package(t, s, tau, alpha, bias):
    t, s = torch.as_tensor(t), torch.as_tensor(s)
    return float(geometry.bregman(t, s, tau, member(alpha, bias)))


@claim(
    "thm-bregman",
    part="(a) arguments exchanged",
    result="T5.5",
    tol=1e-12,
    instances=150,
    real=dict(divergence=package, price=lambda old, new, tau: tau * rel_entr(old, new).sum()),
    mutants={
        "arguments in their places": dict(
            price=lambda old, new, tau: tau * rel_entr(new, old).sum()
        ),
        "temperature missing": dict(price=lambda old, new, tau: rel_entr(old, new).sum()),
        "tangent at the other end": dict(
            divergence=lambda t, s, tau, al, b: package(s, t, tau, al, b)
        ),
        "prior forgotten": dict(divergence=lambda t, s, tau, al, b: package(t, s, tau, al, None)),
        "symmetrised": dict(
            price=lambda old, new, tau: tau * (rel_entr(old, new) + rel_entr(new, old)).sum() / 2
        ),
    },
    covers=("eq-sphere-swap",),
)
def swap(impl):
    """The divergence of the value against scipy's relative entropy of scipy's softmax, and against
    log-sum-exp inserted in the definition; a third of the rows with a prior."""
    for _, s, t, tau, bias in scores(0, 150):
        b = 0 if bias is None else bias
        old, new = softmax(s / tau + b), softmax(t / tau + b)
        value = tau * (logsumexp(t / tau + b) - logsumexp(s / tau + b)) - old @ (t - s)
        got = impl.divergence(t, s, tau, 1.0, bias)
        yield max(abs(got - impl.price(old, new, tau)), abs(got - value))


@claim(
    "thm-bregman",
    part="(b) one quadratic form for both orders",
    result="T5.5",
    tol=1e-9,
    instances=160,
    real=dict(
        form=lambda d, p: float(d @ (geometry.Fisher(p) @ d)) / 2,
        bound=lambda width: width**3 / 12,
    ),
    mutants={
        "no half": dict(form=lambda d, p: float(d @ (geometry.Fisher(p) @ d))),
        "second moment, mean not subtracted": dict(form=lambda d, p: float((p * d * d).sum()) / 2),
        "inverse metric": dict(form=lambda d, p: float(d @ (geometry.Fisher(p, "mean") @ d)) / 2),
        "uniform weights": dict(
            form=lambda d, p: float(((d - d.mean()) ** 2).mean()) / 2
        ),
        "error of fourth order": dict(bound=lambda width: width**4 / 12),
    },
)
def quadratic(impl):
    """Relative entropies in both orders with 40 digits, at widths from 1e-3 to 3; how far the error
    of the quadratic form exceeds its bound, as a share of the bound."""
    rng = np.random.default_rng(1)
    for i in range(160):
        n, width = int(rng.integers(2, 7)), (1e-3, 1e-2, 0.3, 3.0)[i % 4]
        logits, d = rng.normal(0, 1.5, n), rng.normal(size=n)
        d *= width / (d.max() - d.min())
        with mpmath.workdps(40):
            p = [mpmath.exp(mpmath.mpf(x)) for x in logits]
            q = [a * mpmath.exp(mpmath.mpf(x)) for a, x in zip(p, d, strict=True)]
            p, q = ([a / mpmath.fsum(x) for a in x] for x in (p, q))
            orders = [
                float(mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(x, y, strict=True)))
                for x, y in ((p, q), (q, p))
            ]
        form = impl.form(torch.as_tensor(d), torch.as_tensor(np.array(p, dtype=float)))
        yield max(0.0, max(abs(x - form) for x in orders) / impl.bound(width) - 1)


def entmax(theta, alpha):
    """Weights and soft maximum, by bisection in numpy."""
    low, high = theta.max() - 1, theta.max() + 1 / (alpha - 1)
    for _ in range(200):
        zeta = (low + high) / 2
        p = np.maximum(1 + (alpha - 1) * (theta - zeta), 0) ** (1 / (alpha - 1))
        low, high = (zeta, high) if p.sum() > 1 else (low, zeta)
    return p, zeta


def omega_divergence(p, q, alpha):
    omega = [(x**alpha).sum() / (alpha * (alpha - 1)) for x in (p, q)]
    return omega[0] - omega[1] - (q ** (alpha - 1) / (alpha - 1)) @ (p - q)


def slack(p, q, theta, zeta, alpha, tau):
    return tau * (p * (zeta - theta - 1 / (alpha - 1)))[q == 0].sum()


@claim(
    "thm-bregman",
    part="(c) other members",
    result="T5.5",
    tol=1e-10,
    instances=120,
    real=dict(
        dual=package,
        primal=lambda p, q, alpha: float(
            geometry.omega_bregman(torch.as_tensor(p), torch.as_tensor(q), member(alpha))
        ),
        slack=slack,
    ),
    mutants={
        "always equal": dict(slack=lambda p, q, th, z, al, tau: 0.0),
        "arguments in their places": dict(
            primal=lambda p, q, al: float(
                geometry.omega_bregman(torch.as_tensor(q), torch.as_tensor(p), member(al))
            )
        ),
        "KL for all": dict(
            primal=lambda p, q, al: float(geometry.kl(torch.as_tensor(p), torch.as_tensor(q)))
        ),
        "temperature missing in the slack": dict(
            slack=lambda p, q, th, z, al, tau: slack(p, q, th, z, al, 1.0)
        ),
        "keys lost on the other side": dict(
            slack=lambda p, q, th, z, al, tau: slack(q, p, th, z, al, tau)
        ),
        "edge at the soft maximum": dict(
            slack=lambda p, q, th, z, al, tau: tau * (p * (z - th))[q == 0].sum()
        ),
    },
    covers=("eq-sphere-slack",),
)
def members(impl):
    """Orders 1.25 to 3 with weights and soft maximum by bisection: the difference of the two
    divergences of the package, and of the formulas written in numpy, against the slack, which must
    be positive where a key is lost beyond the edge and 0 where none is lost or one is exactly at
    the edge (every fifth case)."""
    for i, (rng, s, t, tau, bias) in enumerate(scores(2, 120)):
        alpha = (1.25, 1.5, 2.0, 3.0)[i % 4]
        if i % 5 == 4:
            # Above order 2 the weight that rounding leaves at an edge is a root of 1e-16.
            alpha, bias = min(alpha, 2.0), None
            kept = t[:-1] / tau if len(t) > 2 else t[:1] / tau
            t = tau * np.append(kept, entmax(kept, alpha)[1] - 1 / (alpha - 1))
            s = rng.normal(0, 0.2 * tau, len(t))
        b = 0 if bias is None else bias
        (p, _), (q, zeta) = entmax(s / tau + b, alpha), entmax(t / tau + b, alpha)
        if i % 5 == 4:
            q[-1] = 0.0
        theta = t / tau + b
        gap = impl.slack(p, q, theta, zeta, alpha, tau)
        lost = (p > 0) & (q == 0) & (zeta - theta - 1 / (alpha - 1) > 1e-9)
        wrong_sign = float(lost.any() != (gap > 1e-12 * tau))
        got = impl.dual(t, s, tau, alpha, bias)
        yield max(
            abs(got - tau * impl.primal(p, q, alpha) - gap),
            abs(got - tau * omega_divergence(p, q, alpha) - gap),
            wrong_sign,
        )


def rows(seed, count, zeros=True):
    """Two rows; every fourth pair with zeros."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = int(rng.integers(2, 8))
        p, q = softmax(rng.normal(0, 1.5, (2, n)), axis=-1)
        if zeros and i % 4 == 3 and n > 2:
            p[0] = q[1] = 0.0
            p, q = p / p.sum(), q / q.sum()
        yield rng, torch.as_tensor(p), torch.as_tensor(q)


def speed(path, t, h=1e-5):
    """Fisher-Rao speed by central differences in the weights; keys off the path don't count."""
    p = path(t)
    v = (path(t + h) - path(t - h)) / (2 * h)
    return math.sqrt(float((v * v / torch.where(p == 0, 1.0, p)).sum()))


@claim(
    "thm-sphere",
    part="(a) distance and shortest path",
    result="T5.6",
    tol=2e-7,
    instances=80,
    real=dict(
        distance=lambda p, q: float(geometry.fisher_rao_distance(p, q)),
        path=geometry.fisher_rao_geodesic,
        embed=lambda p: 2 * p.sqrt(),
        largest=math.pi,
    ),
    mutants={
        "angle, radius missing": dict(
            distance=lambda p, q: float(geometry.fisher_rao_distance(p, q)) / 2
        ),
        "chord": dict(distance=lambda p, q: float(2 * (p.sqrt() - q.sqrt()).norm())),
        "roots forgotten": dict(
            distance=lambda p, q: 2 * math.acos(float((p * q).sum() / (p.norm() * q.norm())))
        ),
        "straight path": dict(path=geometry.m_geodesic),
        "unit sphere": dict(embed=lambda p: p.sqrt()),
        "corners a right angle apart": dict(largest=math.pi / 2),
    },
    covers=("eq-sphere-distance",),
)
def arc(impl):
    """The path runs from end to end, its speed sqrt(sum v^2/p) by finite differences in the weights
    is everywhere the distance, the embedding has this speed too and norm 2, randomly bent paths
    with the same ends are longer, and rows without a common key have the largest distance."""
    for rng, p, q in rows(3, 80):
        d = impl.distance(p, q)
        path = lambda t, p=p, q=q: impl.path(p, q, t)  # noqa: E731
        ends = max(float((path(0.0) - p).abs().max()), float((path(1.0) - q).abs().max()))
        worst = [ends, abs(float(path(0.3).sum()) - 1)]
        for t in (0.15, 0.5, 0.8):
            worst.append(abs(speed(path, t) - d))
            y = (impl.embed(path(t + 1e-5)) - impl.embed(path(t - 1e-5))) / 2e-5
            worst += [abs(float(y.norm()) - d), abs(float(impl.embed(path(t)).norm()) - 2)]
        times = torch.linspace(0, 1, 400, dtype=p.dtype)[:, None]
        w = torch.as_tensor(rng.normal(0, 0.5, len(p)))
        bent = path(times[:, 0]) * (torch.sin(torch.pi * times) * w).exp()
        bent = bent / bent.sum(-1, keepdim=True)
        middle, step = (bent[1:] + bent[:-1]) / 2, bent[1:] - bent[:-1]
        long = (step**2 / torch.where(middle == 0, 1.0, middle)).sum(-1).sqrt().sum()
        worst.append(max(0.0, d - float(long) - 1e-3 * d))
        k = len(p) // 2
        if p[:k].sum() > 0:
            one = torch.cat([p[:k] / p[:k].sum(), 0 * q[k:]])
            two = torch.cat([0 * p[:k], q[k:] / q[k:].sum()])
            worst.append(abs(impl.distance(one, two) - impl.largest))
        yield max(worst)


def christoffel(metric, q):
    d = jacobian(metric, q, create_graph=True)
    low = (d.permute(0, 2, 1) + d - d.permute(2, 0, 1)) / 2
    k = len(q)
    return torch.linalg.solve(metric(q), low.reshape(k, -1)).reshape(k, k, k)


def riemann(metric, q, x, y):
    """Sectional curvature from Christoffel symbols and their derivatives, in any coordinates."""
    d = jacobian(lambda q: christoffel(metric, q), q)
    C = christoffel(metric, q).detach()
    R = torch.einsum("ljki->lkij", d) - torch.einsum("likj->lkij", d)
    R = R + torch.einsum("lim,mjk->lkij", C, C) - torch.einsum("ljm,mik->lkij", C, C)
    G = metric(q)
    bend = torch.einsum("al,lkij,a,k,i,j->", G, R, x, y, x, y)
    return float(bend / ((x @ G @ x) * (y @ G @ y) - (x @ G @ y) ** 2))


def minimal(q):
    """Fisher-Rao in the first n - 1 weights."""
    return torch.diag(1 / q) + 1 / (1 - q.sum())


@claim(
    "thm-sphere",
    part="(b) curvature",
    result="T5.6",
    tol=1e-9,
    instances=12,
    real=dict(metric=minimal, curvature=geometry.sectional_curvature, length=math.pi),
    mutants={
        "unit sphere": dict(metric=lambda q: minimal(q) / 4),
        "Euclidean metric": dict(metric=lambda q: torch.eye(len(q), dtype=q.dtype) + 1),
        "key n forgotten": dict(metric=lambda q: torch.diag(1 / q)),
        "one over the radius": dict(curvature=lambda p, x, y: torch.tensor(0.5)),
        "interval of the unit circle": dict(length=math.pi / 2),
    },
)
def curvature(impl):
    """Christoffel symbols of the metric in minimal coordinates, by automatic differentiation, for
    random rows and planes of three to five keys, against 1/4 and the package; for two keys the
    length of the whole simplex by quadrature."""
    rng = np.random.default_rng(4)
    length = quad(lambda x: 1 / math.sqrt(x * (1 - x)), 0, 1)[0]
    for i in range(12):
        n = 3 + i % 3
        p = torch.as_tensor(softmax(rng.normal(size=n)))
        x, y = torch.as_tensor(rng.normal(size=(2, n)))
        x, y = x - x.mean(), y - y.mean()
        K = riemann(impl.metric, p[:-1], x[:-1], y[:-1])
        yield max(
            abs(K - 0.25), abs(float(impl.curvature(p, x, y)) - 0.25), abs(impl.length - length)
        )


def lengths(p, q):
    """Lengths of the m-geodesic, and where all weights are positive of the e-geodesic, by
    quadrature of their speeds in numpy; at the time sin^2 x no speed of the first is infinite."""

    def m(x):
        c, s = math.cos(x), math.sin(x)
        return 2 * c * s * math.sqrt(((q - p) ** 2 / (c * c * p + s * s * q)).sum())

    def e(t):
        w = np.exp(log_softmax(np.log(p) + t * ratio))
        return math.sqrt(w @ (ratio - w @ ratio) ** 2)

    found = [quad(m, 0, math.pi / 2, epsabs=1e-11, epsrel=1e-11)[0]]
    if (p > 0).all() and (q > 0).all():
        ratio = np.log(q) - np.log(p)
        found.append(quad(e, 0, 1, epsabs=1e-11, epsrel=1e-11)[0])
    return found


@claim(
    "thm-sphere",
    part="(c) longer, except with two ratios",
    result="T5.6",
    tol=1e-8,
    instances=120,
    real=dict(distance=lambda p, q: float(geometry.fisher_rao_distance(p, q)), ratios=2),
    mutants={
        "three ratios are enough": dict(ratios=3),
        "angle, radius missing": dict(
            distance=lambda p, q: float(geometry.fisher_rao_distance(p, q)) / 2
        ),
        "chord": dict(distance=lambda p, q: float(2 * (p.sqrt() - q.sqrt()).norm())),
        "divergence": dict(distance=lambda p, q: math.sqrt(2 * float(geometry.kl(p, q)))),
    },
)
def straight(impl):
    """Lengths of the straight paths by quadrature: equal to the distance where q/p takes the stated
    number of values, among them 0 and infinity, above it by at least a ten-thousandth where it
    takes more."""
    rng = np.random.default_rng(5)
    for i in range(120):
        n = int(rng.integers(3, 7))
        p = softmax(rng.normal(0, 0.7, n))
        sign = 1
        if i % 4 == 0:
            factor = rng.permutation(np.resize([0.3, 1.0, 2.5][: impl.ratios], n))
        elif i % 4 == 1:
            sign, factor = -1, rng.permutation(np.resize([0.3, 1.0, 3.5], n))
        elif i % 4 == 2:  # one key or several disappear, the others keep their proportions
            factor = rng.permutation(np.resize([0.0, 1.0], n))
        else:  # one disappears and one is new: 0 and infinity, and every other time 1
            sign, factor = (1, -1)[i // 4 % 2], np.append(0.0, np.ones(n - 1))
        q = p * factor
        if i % 4 == 3:
            p[1] = 0.0
            if sign == 1:
                p[2:] = q[2:] = 0.0
        p, q = p / p.sum(), q / q.sum()
        on = p + q > 0
        p, q = p[on], q[on]
        d = impl.distance(torch.as_tensor(p), torch.as_tensor(q))
        if sign == 1:
            yield max(abs(x - d) for x in lengths(p, q))
        else:
            yield max(0.0, *(d * (1 + 1e-4) - x for x in lengths(p, q)))
