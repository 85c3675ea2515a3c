"""Claims of the page "Distances made of transport, and what they are not"."""

import math

import numpy as np
import torch
from claims import claim
from scipy.spatial.distance import cdist

from eotcourse.transport import kantorovich, sinkhorn, wasserstein


def unrooted(x, y, a, b, p):
    return wasserstein(x, y, a, b, p) ** p


def from_cost(cost):
    """W_p with another ground cost put in the place of distance^p."""
    return lambda x, y, a, b, p: kantorovich(cost(x, y) ** p, a, b).value ** (1 / p)


def triple(rng):
    sizes = rng.integers(1, 6, 3)
    points = [rng.normal(size=(n, 2)) for n in sizes]
    return points, [rng.dirichlet(np.ones(n)) for n in sizes]


@claim(
    "thm-wasserstein-metric",
    part="triangle inequality",
    result="T1.6",
    tol=1e-9,
    instances=120,
    real=dict(distance=wasserstein),
    mutants={
        "root forgotten": dict(distance=unrooted),
        "ground cost squared twice": dict(distance=from_cost(lambda x, y: cdist(x, y) ** 2)),
        "order below one": dict(
            distance=lambda x, y, a, b, p: from_cost(cdist)(x, y, a, b, 0.5)
        ),
    },
)
def triangle(impl):
    """How much a detour over a third random measure saves, for orders 1, 2 and 3, line included."""
    rng = np.random.default_rng(0)
    for k in range(120):
        (x, y, z), (a, b, c) = triple(rng)
        if k % 3 == 0:
            x, y, z = x * [1, 0], y * [1, 0], z * [1, 0]
        p = 1 + k % 3
        detour = impl.distance(x, y, a, b, p) + impl.distance(y, z, b, c, p)
        yield max(0.0, impl.distance(x, z, a, c, p) - detour)


@claim(
    "thm-wasserstein-metric",
    part="symmetry, zero and scale",
    result="T1.6",
    tol=1e-6,
    instances=60,
    real=dict(distance=wasserstein),
    mutants={
        "weights of the target ignored": dict(
            distance=lambda x, y, a, b, p: wasserstein(x, y, a, np.full(len(b), 1 / len(b)), p)
        ),
        "root forgotten": dict(distance=unrooted),
        "entropic plan instead of the optimal one": dict(
            distance=lambda x, y, a, b, p: float(
                sinkhorn(torch.as_tensor(cdist(x, y) ** p), a, b, 1.0, tol=1e-6).cost
            )
            ** (1 / p)
        ),
    },
)
def symmetry(impl):
    """d(mu, nu) = d(nu, mu), d = 0 for a relabelled copy, d doubles when all points double."""
    rng = np.random.default_rng(1)
    for k in range(60):
        (x, y, _), (a, b, _) = triple(rng)
        p, order = 1 + k % 2, rng.permutation(len(x))
        d = impl.distance(x, y, a, b, p)
        yield max(
            abs(d - impl.distance(y, x, b, a, p)),
            impl.distance(x, x[order], a, a[order], p),
            abs(impl.distance(2 * x, 2 * y, a, b, p) - 2 * d),
        )


def means_only(x, y, a, b, p):
    return float(np.linalg.norm(a @ x - b @ y))


@claim(
    "thm-wasserstein-metric",
    part="zero for equal measures only",
    result="T1.6",
    tol=1e-9,
    instances=60,
    real=dict(distance=wasserstein),
    mutants={
        "distance of the means": dict(distance=means_only),
        "target taken for the source": dict(
            distance=lambda x, y, a, b, p: wasserstein(x, x, a, a, p)
        ),
        "root forgotten": dict(distance=unrooted),
        "weights forgotten": dict(distance=lambda x, y, a, b, p: wasserstein(x, y, p=p)),
    },
)
def separates(impl):
    """On common points, d^p is at least total variation times the p-th power of the least
    distance between two points, for measures that differ only in their weights; and d is POT's value."""
    import ot

    rng = np.random.default_rng(2)
    for k in range(60):
        n, p = int(rng.integers(2, 6)), 1 + k % 3
        x, (a, b) = rng.normal(size=(n, 2)), rng.dirichlet(np.ones(n), 2)
        if k % 2:  # equal means, so that only the shape differs
            x = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
            t = rng.uniform(0.05, 0.3)
            a, b = np.array([t, 1 - 2 * t, t]), np.array([0.4, 0.2, 0.4])
        C = cdist(x, x)
        least = C[C > 0].min() ** p * np.abs(a - b).sum() / 2
        d = impl.distance(x, x, a, b, p)
        yield max(0.0, least - d**p, abs(d - ot.emd2(a, b, C**p) ** (1 / p)))


@claim(
    "thm-wasserstein-metric",
    part="the square and the entropic cost are no metrics",
    result="T1.6",
    tol=1e-9,
    instances=8,
    real=dict(distance=wasserstein, solve=sinkhorn),
    mutants={
        "distance taken for its square": dict(distance=lambda *args: wasserstein(*args) ** 0.5),
        "eps inverted": dict(solve=lambda C, eps: sinkhorn(C, eps=1 / eps)),
        "cost of the kernel before scaling": dict(solve=lambda C, eps: sinkhorn(C, eps=2 * eps)),
    },
)
def neighbours(impl):
    """W_2^2 of point masses at 0, 1, 2 exceeds the detour by 2; the self-cost is a logistic."""
    place = {t: np.array([[float(t)]]) for t in (0, 1, 2)}

    def square(i, j):
        return impl.distance(place[i], place[j], [1.0], [1.0], 2) ** 2

    yield abs(square(0, 2) - square(0, 1) - square(1, 2) - 2)
    C = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    for eps in (0.1, 0.25, 0.5, 0.7, 1.5, 3.0, 10.0):
        yield abs(float(impl.solve(C, eps=eps).cost) - 1 / (1 + math.exp(1 / eps)))
