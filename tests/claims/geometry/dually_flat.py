"""Claims of the page "Straight lines, and the whole map"."""

import math

import numpy as np
import torch
from claims import claim
from scipy.optimize import brentq
from scipy.special import rel_entr, softmax

from eotcourse import LogPrior, Shannon, geometry


def tensor(x):
    return torch.as_tensor(np.asarray(x, dtype=float))


def rows(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng, int(rng.integers(2, 8))


@claim(
    "thm-dually-flat",
    part="(a) one straight line",
    result="T5.8",
    tol=1e-12,
    instances=70,
    real=dict(path=geometry.e_geodesic, line=lambda one, two, t: (1 - t) * one + t * two),
    mutants={
        "straight in the weights": dict(path=geometry.m_geodesic),
        "great circle": dict(path=geometry.fisher_rao_geodesic),
        "ends exchanged": dict(path=lambda p, q, t: geometry.e_geodesic(q, p, t)),
        "time squared": dict(line=lambda one, two, t: (1 - t * t) * one + t * t * two),
    },
)
def straight(impl):
    """The package's path through two softmax rows against scipy's softmax of the straight line of
    their scores, at times from -1 to 2; every pair's scores are shifted by constants."""
    for rng, n in rows(0, 70):
        one, two = rng.normal(0, 1.5, (2, n)) + rng.normal(0, 5, (2, 1))
        p, q = tensor(softmax(one)), tensor(softmax(two))
        times = (-1.0, 0.0, 0.3, 0.5, 1.0, 2.0)
        yield max(
            float((impl.path(p, q, t) - tensor(softmax(impl.line(one, two, t)))).abs().max())
            for t in times
        )


@claim(
    "thm-dually-flat",
    part="(b) one inner product for all points",
    result="T5.8",
    tol=1e-8,
    instances=100,
    real=dict(
        move=lambda p, d, h: tensor(softmax(np.log(p.numpy()) + h * d)),
        product=lambda p, v, w: float((v * w / p).sum()),
    ),
    mutants={
        "Euclidean product": dict(product=lambda p, v, w: float(v @ w)),
        "inverse metric": dict(product=lambda p, v, w: float((p * v * w).sum())),
        "straight in the weights both": dict(
            move=lambda p, d, h: p + h * tensor(d - d.mean())
        ),
        "raw scores at temperature 2": dict(
            move=lambda p, d, h: tensor(softmax(np.log(p.numpy()) + h * d / 2))
        ),
    },
    covers=("eq-dually-flat-dual",),
)
def dual(impl):
    """One direction of scores and one of weights at five rows each: velocities by central
    differences, their product sum v w/p, and the plain product of the two directions."""
    h = 1e-5
    for rng, n in rows(1, 100):
        d, v = rng.normal(size=(2, n))
        v -= v.mean()
        worst = 0.0
        for _ in range(5):
            p = tensor(softmax(rng.normal(size=n)))
            velocity = (impl.move(p, d, h) - impl.move(p, d, -h)) / (2 * h)
            worst = max(worst, abs(impl.product(p, velocity, tensor(v)) - d @ v))
        yield worst


def speed(path, at, h=1e-5):
    p, v = path(at), (path(at + h) - path(at - h)) / (2 * h)
    return math.sqrt(float((v * v / p).sum()))


@claim(
    "thm-dually-flat",
    part="(c) temperature",
    result="T5.8",
    tol=1e-7,
    instances=80,
    real=dict(
        path=geometry.e_geodesic,
        time=lambda tau: 1 / tau,
        spread=lambda p, s: math.sqrt(float(p @ s**2 - (p @ s) ** 2)),
        best=lambda s: (s == s.max()).double() / (s == s.max()).sum(),
    ),
    mutants={
        "run in the temperature": dict(time=lambda tau: tau),
        "straight in the weights": dict(path=geometry.m_geodesic),
        "variance for speed": dict(spread=lambda p, s: float(p @ s**2 - (p @ s) ** 2)),
        "spread under uniform weights": dict(spread=lambda p, s: float(s.std(correction=0))),
        "the first of several best keys": dict(
            best=lambda s: torch.eye(len(s), dtype=s.dtype)[s.argmax()]
        ),
    },
)
def temperature(impl):
    """The e-geodesic from uniform weights through softmax(s) against softmax at the temperature;
    its Fisher-Rao speed and the slope of the mean score by central differences against the spread
    of the scores; and its end, with ties."""
    for rng, n in rows(2, 80):
        s, tau = tensor(rng.integers(-2, 3, n) / 2.0), float(rng.choice([0.5, 0.8, 1.7]))
        if s.max() == s.min():
            s[0] += 0.5
        uniform, end = torch.full_like(s, 1 / n), tensor(softmax(s.numpy()))
        path = lambda t, u=uniform, e=end: impl.path(u, e, t)  # noqa: E731
        soft = lambda b, s=s: tensor(softmax(b * s.numpy()))  # noqa: E731
        at = impl.time(tau)
        slope = float((soft(at + 1e-5) - soft(at - 1e-5)) @ s) / 2e-5
        p = soft(at)
        exact = math.sqrt(float((p * (s - p @ s) ** 2).sum()))
        yield max(
            float((path(at) - soft(1 / tau)).abs().max()),
            abs(speed(soft, at) - impl.spread(p, s)),
            abs(slope - exact**2),
            float((soft(80.0) - impl.best(s)).abs().max()),
        )


@claim(
    "thm-dually-flat",
    part="(d) prior and its strength",
    result="T5.8",
    tol=1e-11,
    instances=80,
    real=dict(
        attend=lambda s, tau, bias: Shannon(LogPrior(bias))(s, tau),
        share=lambda pi, best: pi * best / (pi * best).sum(),
    ),
    mutants={
        "prior forgotten": dict(attend=lambda s, tau, bias: Shannon()(s, tau)),
        "prior heated too": dict(
            attend=lambda s, tau, bias: Shannon(LogPrior(bias / tau))(s, tau)
        ),
        "prior added to the raw scores": dict(attend=lambda s, tau, bias: Shannon()(s + bias, tau)),
        "best keys share equally": dict(share=lambda pi, best: best / best.sum()),
    },
)
def prior(impl):
    """The package's attention with a log-prior against the e-geodesic from the prior, against the
    e-geodesic in the strength, and at a very low temperature against the prior on the best keys,
    with ties."""
    for rng, n in rows(3, 80):
        s, pi = tensor(rng.integers(-2, 3, n) / 2.0), tensor(softmax(rng.normal(size=n)))
        tau, strength = float(rng.choice([0.5, 0.8, 1.7])), float(rng.uniform(0.2, 2))
        bias = pi.log()
        first = tensor(softmax(np.log(pi.numpy()) + s.numpy()))
        plain = tensor(softmax(s.numpy() / tau))
        full = tensor(softmax(s.numpy() / tau + np.log(pi.numpy())))
        cold = impl.attend(s, 0.01, bias)
        yield max(
            *(
                float((x - y).abs().max())
                for x, y in (
                    (geometry.e_geodesic(pi, first, 1 / tau), impl.attend(s, tau, bias)),
                    (
                        geometry.e_geodesic(plain, full, strength),
                        impl.attend(s, tau, strength * bias),
                    ),
                    (cold, impl.share(pi, (s == s.max()).double())),
                )
            )
        )


def triangles(seed, count):
    """A prior, scores, a level within reach and the multiplier that numpy finds for it."""
    for rng, n in rows(seed, count):
        pi, s = softmax(rng.normal(size=n)), rng.normal(size=n)
        level = s.min() + rng.uniform(0.05, 0.95) * (s.max() - s.min())
        mean = lambda b, pi=pi, s=s: softmax(np.log(pi) + b * s) @ s  # noqa: E731
        width = s.max() - s.min()
        beta = brentq(lambda b: mean(b) - level, -200 / width, 200 / width, xtol=1e-14, rtol=1e-14)
        yield rng, pi, s, level, beta


def package(pi, s, level):
    found = geometry.information_projection(tensor(pi), tensor(s), level)
    return found.weights.numpy(), 1 / float(found.tau)


def reverse(pi, s, level):
    """The projection with the arguments of KL exchanged: p = pi / (1 + m (s - level))."""
    gap = s - level
    low, high = -1 / gap.max() * (1 - 1e-12), -1 / gap.min() * (1 - 1e-12)
    m = brentq(lambda m: (pi * gap / (1 + m * gap)).sum(), low, high)
    return pi / (1 + m * gap), m


@claim(
    "thm-pythagoras",
    part="(a) one projection",
    result="T5.8",
    tol=1e-9,
    instances=80,
    real=dict(
        project=package,
        attend=lambda s, tau, pi: Shannon(LogPrior(tensor(pi).log()))(tensor(s), tau).numpy(),
    ),
    mutants={
        "arguments of KL exchanged": dict(project=reverse),
        "prior forgotten": dict(
            project=lambda pi, s, level: package(np.full_like(pi, 1 / len(pi)), s, level)
        ),
        "temperature for its inverse": dict(
            project=lambda pi, s, level: (package(pi, s, level)[0], 1 / package(pi, s, level)[1])
        ),
        "cost for score": dict(attend=lambda s, tau, pi: softmax(np.log(pi) - s / tau)),
        "temperature forgotten": dict(attend=lambda s, tau, pi: softmax(np.log(pi) + s)),
    },
)
def projection(impl):
    """Weights and multiplier against a root of the mean score in numpy; no random row of the same
    mean score is closer to the prior; the multiplier's sign; and attention with a prior is the
    projection at its own mean score, with its temperature."""
    for rng, pi, s, level, beta in triangles(4, 80):
        p, b = impl.project(pi, s, level)
        off = [abs(p - softmax(np.log(pi) + beta * s)).max(), abs(b - beta) / (1 + abs(beta))]
        off.append(float((b > 0) != (level > s @ pi)))
        for _ in range(8):
            step = rng.normal(size=len(s))
            basis = np.linalg.qr(np.stack([np.ones(len(s)), s], 1))[0]
            step -= basis @ (basis.T @ step)
            size = abs(step).max()
            if size < 1e-9:
                continue
            reach = (p / np.maximum(-step, 1e-300))[step < 0].min(initial=1.0)
            r = p + rng.uniform(0.1, 0.9) * reach * step
            off.append(max(0.0, rel_entr(p, pi).sum() - rel_entr(r, pi).sum()))
        tau = float(rng.uniform(0.4, 3))
        w = impl.attend(s, tau, pi)
        again, inverse = package(pi, s, w @ s)
        off += [abs(again - w).max(), abs(inverse * tau - 1)]
        yield max(off)


@claim(
    "thm-pythagoras",
    part="(b) the relation and its error",
    result="T5.8",
    tol=1e-10,
    instances=120,
    real=dict(
        divergence=lambda p, q: float(geometry.kl(tensor(p), tensor(q))),
        error=lambda beta, gap: beta * gap,
    ),
    mutants={
        "arguments exchanged": dict(
            divergence=lambda p, q: float(geometry.kl(tensor(q), tensor(p)))
        ),
        "half the squared distance": dict(divergence=lambda p, q: ((p - q) ** 2).sum() / 2),
        "no error off the level": dict(error=lambda beta, gap: 0.0),
        "temperature for its inverse": dict(error=lambda beta, gap: gap / beta),
        "other sign": dict(error=lambda beta, gap: -beta * gap),
        "squared distance on the sphere": dict(
            divergence=lambda p, q: float(
                geometry.fisher_rao_distance(tensor(p), tensor(q)) ** 2 / 2
            )
        ),
    },
    covers=("eq-dually-flat-pythagoras",),
)
def pythagoras(impl):
    """Three divergences of a random row, every third with zeros and every second moved onto the
    level set, the projection from a root in numpy: their defect is beta times the difference of the
    mean scores."""
    for i, (rng, pi, s, level, beta) in enumerate(triangles(5, 120)):
        p = softmax(np.log(pi) + beta * s)
        r = softmax(2 * rng.normal(size=len(s)))
        if i % 3 == 0 and len(s) > 2:
            r[0] = 0.0
            r /= r.sum()
        if i % 2:  # mix with the best or the worst key to reach the level
            mean = r @ s
            key = s.argmax() if mean < level else s.argmin()
            t = (level - mean) / (s[key] - mean)
            r = (1 - t) * r + t * np.eye(len(s))[key]
        sides = [impl.divergence(r, pi), impl.divergence(r, p), impl.divergence(p, pi)]
        defect = sides[0] - sides[1] - sides[2]
        yield abs(defect - impl.error(beta, r @ s - level)) / (1 + abs(beta))


@claim(
    "thm-pythagoras",
    part="(c) the right angle",
    result="T5.8",
    tol=1e-7,
    instances=100,
    real=dict(
        product=lambda p, v, w: float(geometry.Metric(tensor(p)).inner(tensor(v), tensor(w))),
        path=lambda pi, s, b: softmax(np.log(pi) + b * s),
    ),
    mutants={
        "Euclidean angle": dict(product=lambda p, v, w: v @ w),
        "path of the temperature": dict(path=lambda pi, s, b: softmax(np.log(pi) + s / b)),
        "angle of the scores": dict(product=lambda p, v, w: (p * v * w).sum()),
        "mixture towards the best key": dict(
            path=lambda pi, s, b: pi + b * (np.eye(len(s))[s.argmax()] - pi)
        ),
    },
)
def angle(impl):
    """Velocity of the path at the projection by central differences, and the straight step to a
    random row: their product in the metric is the difference of the mean scores."""
    h = 1e-5
    for rng, pi, s, level, beta in triangles(6, 100):
        p, r = softmax(np.log(pi) + beta * s), softmax(rng.normal(size=len(s)))
        v = (impl.path(pi, s, beta + h) - impl.path(pi, s, beta - h)) / (2 * h)
        v = v - v.mean()  # rounding of the difference
        yield abs(impl.product(p, v, r - p) - (s @ r - level))
