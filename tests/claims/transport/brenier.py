"""Claims of the page transport/brenier."""

import numpy as np
import ot
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from claims import claim
from eotcourse.transport import gaussian_map, gaussian_w2, quantile_coupling, wasserstein_1d

CONVEX = (
    np.square,
    np.abs,
    lambda r: np.abs(r) ** 1.5,
    np.exp,
    lambda r: np.maximum(r, -2 * r),
)
STRICTLY_CONVEX = (np.square, lambda r: np.abs(r) ** 1.5, np.exp, lambda r: r**4 - r)


def _lines(seed, count):
    """Points in random order with masses, a quarter with an empty place on each side; the first
    problems are square, for mutants."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        m, n = (5, 5) if k < 5 else rng.integers(1, 9, size=2)
        x, y = rng.normal(size=m), rng.normal(size=n)
        mu, nu = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n))
        if k % 4 == 3 and min(m, n) > 1:
            mu[1] = nu[1] = 0
        yield x, y, mu / mu.sum(), nu / nu.sum()


def _linear_program(C, mu, nu):
    m, n = C.shape
    A = np.vstack([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])
    return linprog(C.ravel(), A_eq=A, b_eq=np.r_[mu, nu], method="highs-ipm").fun


def _quantile(t, x, mu):
    order = np.argsort(x)
    return x[order][np.searchsorted(np.cumsum(mu[order]), t).clip(max=len(x) - 1)]


IN_ORDER_MUTANTS = {
    "from the right": dict(plan=lambda x, y, mu, nu: quantile_coupling(x, -y, mu, nu)),
    "masses forgotten": dict(plan=lambda x, y, mu, nu: quantile_coupling(x, y)),
    "not sorted": dict(
        plan=lambda x, y, mu, nu: quantile_coupling(np.arange(len(x)), np.arange(len(y)), mu, nu)),
    "spread over everything": dict(plan=lambda x, y, mu, nu: np.outer(mu, nu)),
}


@claim(
    "thm-monotone",
    part="optimal",
    result="T1.3",
    tol=1e-9,
    instances=60,
    real=dict(plan=quantile_coupling, difference=np.subtract),
    mutants={
        **IN_ORDER_MUTANTS,
        "concave cost": dict(difference=lambda x, y: -np.subtract(x, y) ** 2),
        "cost of the sum": dict(difference=np.add),
    },
)
def optimal(impl):
    """The plan in order has the right masses and costs, for five convex h, what scipy's linear
    program and POT's network simplex find, and what the integral over the quantiles gives."""
    for k, (x, y, mu, nu) in enumerate(_lines(0, 60)):
        h = CONVEX[k % 5]
        C = h(impl.difference(x[:, None], y))
        P = impl.plan(x, y, mu, nu)
        cost = np.vdot(C, P)
        jumps = np.unique(np.r_[0, np.cumsum(mu[np.argsort(x)]), np.cumsum(nu[np.argsort(y)])])
        level = (jumps[1:] + jumps[:-1]) / 2
        steps = h(impl.difference(_quantile(level, x, mu), _quantile(level, y, nu)))
        yield max(
            np.abs(P.sum(1) - mu).max(), np.abs(P.sum(0) - nu).max(), -P.min(),
            abs(cost - _linear_program(C, mu, nu)),
            abs(cost - ot.emd2(mu, nu, C)),
            abs(cost - steps @ np.diff(jumps)),
        )


@claim(
    "thm-monotone",
    part="distance",
    result="T1.3",
    tol=1e-10,
    instances=60,
    real=dict(wasserstein_1d=wasserstein_1d),
    mutants={
        "root forgotten": dict(
            wasserstein_1d=lambda x, y, mu, nu, p: wasserstein_1d(x, y, mu, nu, p) ** p),
        "always order one": dict(
            wasserstein_1d=lambda x, y, mu, nu, p: wasserstein_1d(x, y, mu, nu, 1)),
        "masses forgotten": dict(
            wasserstein_1d=lambda x, y, mu, nu, p: wasserstein_1d(x, y, p=p)),
        "distribution functions instead of quantiles": dict(
            wasserstein_1d=lambda x, y, mu, nu, p: _between_functions(x, y, mu, nu, p)),
    },
)
def distance(impl):
    """W_p for p = 1, 1.5, 2, 3 against POT's one-dimensional solver; for the uniform densities
    on two intervals, cut into many places, the closed integral of the quantile functions."""
    for k, (x, y, mu, nu) in enumerate(_lines(1, 60)):
        p = (1, 1.5, 2, 3)[k % 4]
        pot = ot.emd2_1d(x, y, mu, nu, metric="minkowski", p=p)
        ours = impl.wasserstein_1d(x, y, mu, nu, p) ** p
        if k:
            yield abs(ours - pot)
            continue
        # Both staircases have the same levels, so the integral over them is exact.
        n, (left, width) = 50, (0.3, 2.0)
        middle = (np.arange(n) + 0.5) / n
        exact, _ = quad(lambda t: abs(left + (width - 1) * t), 0, 1)
        same = np.full(n, 1 / n)
        cells = impl.wasserstein_1d(middle, left + width * middle, same, same, 1)
        yield max(abs(ours - pot), abs(cells - exact))


def _between_functions(x, y, mu, nu, p):
    z = np.sort(np.r_[x, y])
    F, G = ((w[:, None] * (v[:, None] <= z)).sum(0) for v, w in ((x, mu), (y, nu)))
    return (np.abs(F - G)[:-1] ** p @ np.diff(z)) ** (1 / p)


@claim(
    "thm-monotone",
    part="gap",
    result="T1.3",
    tol=1e-12,
    instances=200,
    real=dict(
        least=np.minimum.outer,
        saving=lambda C: C[:-1, 1:] + C[1:, :-1] - C[:-1, :-1] - C[1:, 1:],
    ),
    mutants={
        "product instead of minimum": dict(least=np.multiply.outer),
        "maximum instead of minimum": dict(least=np.maximum.outer),
        "sign of the saving": dict(
            saving=lambda C: C[:-1, :-1] + C[1:, 1:] - C[:-1, 1:] - C[1:, :-1]),
        "one corner forgotten": dict(
            saving=lambda C: C[:-1, 1:] + C[1:, :-1] - C[:-1, :-1]),
    },
    covers=("eq-monotone-gap",),
)
def gap(impl):
    """What a random plan costs more than the plan in order is the sum of savings times missing
    mass, for random costs; the plans are random matrices, and their sums are the masses."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        m, n = rng.integers(2, 8, size=2)
        Q = rng.dirichlet(np.ones(m * n)).reshape(m, n)
        C, mu, nu = rng.normal(size=(m, n)), Q.sum(1), Q.sum(0)
        P = quantile_coupling(np.arange(m), np.arange(n), mu, nu)
        missing = impl.least(np.cumsum(mu), np.cumsum(nu)) - Q.cumsum(0).cumsum(1)
        yield abs(np.vdot(C, Q - P) - np.vdot(impl.saving(C), missing[:-1, :-1]))


@claim(
    "thm-monotone",
    part="unique",
    result="T1.3",
    tol=1e-12,
    instances=60,
    real=dict(plan=quantile_coupling, difference=np.subtract),
    mutants={
        **IN_ORDER_MUTANTS,
        "strictly concave cost": dict(difference=lambda x, y: np.abs(np.subtract(x, y)) ** 0.25),
    },
)
def unique(impl):
    """For strictly convex h POT's network simplex returns the plan in order itself; its corner
    sums are the minima of the two distribution functions."""
    for k, (x, y, mu, nu) in enumerate(_lines(3, 60)):
        C = STRICTLY_CONVEX[k % 4](impl.difference(x[:, None], y))
        P = impl.plan(x, y, mu, nu)
        i, j = np.argsort(x), np.argsort(y)
        corner = P[np.ix_(i, j)].cumsum(0).cumsum(1)
        least = np.minimum.outer(np.cumsum(mu[i]), np.cumsum(nu[j]))
        yield max(np.abs(P - ot.emd(mu, nu, C)).max(), np.abs(corner - least).max())


def _covariances(seed, count):
    """Random covariances; every third B is singular, exactly so because a row of it is zero."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        d = 1 + k % 4
        L, M = rng.normal(size=(2, d, d))
        if k % 3 == 2 and d > 1:
            M[0] = 0
        yield L @ L.T + 0.1 * np.eye(d), M @ M.T, rng.normal(size=(2, d)), rng


def _root(A):
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.sqrt(values.clip(0))) @ vectors.T


def _cholesky(A, B):
    return np.linalg.cholesky(B + 1e-13 * np.eye(len(B))) @ np.linalg.inv(np.linalg.cholesky(A))


MAP_MUTANTS = {
    "Cholesky": dict(gaussian_map=_cholesky),
    "from B to A": dict(gaussian_map=lambda A, B: gaussian_map(B + 1e-9 * np.eye(len(B)), A)),
    "roots as if the matrices commuted": dict(
        gaussian_map=lambda A, B: _root(B) @ np.linalg.inv(_root(A))),
    "root forgotten": dict(
        gaussian_map=lambda A, B: np.linalg.inv(_root(A)) @ (_root(A) @ B @ _root(A))
        @ np.linalg.inv(_root(A))),
    "sign": dict(gaussian_map=lambda A, B: -gaussian_map(A, B)),
}


@claim(
    "thm-gaussian-map",
    part="matrix",
    result="T1.4",
    tol=1e-9,
    instances=60,
    real=dict(gaussian_map=gaussian_map),
    mutants=MAP_MUTANTS,
)
def matrix(impl):
    """T A T = B, symmetric, no negative eigenvalue, the rank of B; for regular B also the formula
    with scipy's matrix root, and POT's map between Gaussians."""
    for A, B, (a, b), _ in _covariances(4, 60):
        T = impl.gaussian_map(A, B)
        residual = max(np.abs(T @ A @ T - B).max(), np.abs(T - T.T).max())
        residual = max(residual, -np.linalg.eigvalsh((T + T.T) / 2).min())
        rank = np.linalg.matrix_rank(T, tol=1e-6) - np.linalg.matrix_rank(B, tol=1e-6)
        residual = max(residual, abs(rank))
        if np.linalg.eigvalsh(B)[0] > 1e-3:
            root = sqrtm(A)
            inverse = np.linalg.inv(root)
            residual = max(residual, np.abs(T - inverse @ sqrtm(root @ B @ root) @ inverse).max())
            pot, _ = ot.gaussian.bures_wasserstein_mapping(a, b, A, B)
            residual = max(residual, np.abs(T - pot).max())
        yield residual


@claim(
    "thm-gaussian-map",
    part="distance",
    result="T1.4",
    tol=1e-8,
    instances=60,
    real=dict(gaussian_w2=gaussian_w2),
    mutants={
        "square": dict(gaussian_w2=lambda a, A, b, B: gaussian_w2(a, A, b, B) ** 2),
        "means forgotten": dict(gaussian_w2=lambda a, A, b, B: gaussian_w2(a, A, a, B)),
        "difference of the roots": dict(
            gaussian_w2=lambda a, A, b, B: np.hypot(
                np.linalg.norm(a - b), np.linalg.norm(_root(A) - _root(B)))),
        "independent": dict(
            gaussian_w2=lambda a, A, b, B: np.sqrt((a - b) @ (a - b) + np.trace(A + B))),
        "standard deviations on the diagonal only": dict(
            gaussian_w2=lambda a, A, b, B: np.hypot(
                np.linalg.norm(a - b), np.linalg.norm(np.diag(A) ** 0.5 - np.diag(B) ** 0.5))),
    },
)
def gaussian_distance(impl):
    """W_2 against POT's Bures-Wasserstein distance and against the nuclear norm of
    A^(1/2) B^(1/2), which is the largest trace of a cross-covariance; in dimension one, against
    means and standard deviations."""
    for A, B, (a, b), _ in _covariances(5, 60):
        ours = impl.gaussian_w2(a, A, b, B)
        nuclear = np.linalg.norm(_root(A) @ _root(B), "nuc")
        square = (a - b) @ (a - b) + np.trace(A + B) - 2 * nuclear
        residual = abs(ours**2 - square)
        if np.linalg.eigvalsh(B)[0] > 1e-3:
            residual = max(residual, abs(ours - ot.gaussian.bures_wasserstein_distance(a, b, A, B)))
        if len(A) == 1:
            by_hand = np.hypot(a[0] - b[0], A[0, 0] ** 0.5 - B[0, 0] ** 0.5)
            residual = max(residual, abs(ours - by_hand))
        yield residual


@claim(
    "thm-gaussian-map",
    part="gap",
    result="T1.4",
    tol=1e-8,
    instances=60,
    real=dict(gaussian_map=gaussian_map, gaussian_w2=gaussian_w2),
    mutants={
        "Cholesky": MAP_MUTANTS["Cholesky"],
        "from B to A": MAP_MUTANTS["from B to A"],
        "sign": MAP_MUTANTS["sign"],
        "distance not squared": dict(
            gaussian_w2=lambda a, A, b, B: gaussian_w2(a, A, b, B) ** 0.5),
        "means forgotten": dict(gaussian_w2=lambda a, A, b, B: gaussian_w2(a, A, a, B)),
    },
    covers=("eq-gaussian-gap",),
)
def gaussian_gap(impl):
    """For a random joint distribution, given by points and weights, the mean of |X-Y|^2 exceeds
    W^2 by the mean of <R, T^+ R>, computed point by point, which is not negative."""
    for A, B, (a, b), rng in _covariances(6, 60):
        d = len(A)
        # Points with the exact covariances A, B and a random cross-covariance.
        whole = rng.normal(size=(6 * d, 2 * d))
        whole -= whole.mean(0)
        basis = np.linalg.qr(whole)[0] * np.sqrt(6 * d)
        mixed = (basis[:, :d] + rng.uniform() * basis[:, d:] @ rng.normal(size=(d, d)))
        mixed = np.linalg.qr(mixed)[0] * np.sqrt(6 * d)
        X, Y = a + basis[:, :d] @ _root(A), b + mixed @ _root(B)
        T = impl.gaussian_map(A, B)
        R = Y - b - (X - a) @ T.T
        extra = np.einsum("ki,ij,kj->k", R, np.linalg.pinv(T, rcond=1e-7), R)
        mean_square = ((X - Y) ** 2).sum(1).mean()
        gap = mean_square - impl.gaussian_w2(a, A, b, B) ** 2
        yield max(abs(gap - extra.mean()), -extra.min())


@claim(
    "thm-gaussian-map",
    part="no swap",
    result="T1.4",
    tol=1e-9,
    instances=40,
    real=dict(gaussian_map=gaussian_map),
    mutants={k: MAP_MUTANTS[k] for k in ("Cholesky", "roots as if the matrices commuted", "sign")},
)
def no_swap(impl):
    """Twenty random points and their images: scipy's best assignment is no cheaper than the
    map, although the points are no Gaussian sample."""
    for A, B, _, rng in _covariances(7, 40):
        x = rng.uniform(-1, 1, size=(20, len(A)))
        C = cdist(x, x @ impl.gaussian_map(A, B).T, "sqeuclidean")
        yield np.trace(C) - C[linear_sum_assignment(C)].sum()
