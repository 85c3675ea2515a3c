"""Claims of the page transport/kantorovich."""

from itertools import combinations, permutations

import numpy as np
import ot
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import wasserstein_distance

from claims import claim
from eotcourse.transport import assignment, kantorovich, quantile_coupling


def _constraints(m, n):
    rows = np.kron(np.eye(m), np.ones(n))
    columns = np.kron(np.ones(m), np.eye(n))
    return np.vstack([rows, columns])


def _without_one(masses):
    """The second place emptied, if there is one: the theorems ask for no positive masses."""
    masses = np.where(np.arange(len(masses)) == 1, 0.0, masses)
    return masses / masses.sum()


def _problems(seed, count):
    """Random problems, the first ones square so that mutants that swap sides can run; a quarter
    has an empty row and an empty column."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        m, n = (4, 4) if k < 5 else rng.integers(1, 9, size=2)
        mu, nu = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n))
        if k % 4 == 3:
            mu, nu = _without_one(mu), _without_one(nu)
        yield rng.normal(size=(m, n)), mu, nu


def _product(C, mu, nu):
    P = np.outer(mu, nu)
    return kantorovich(C, mu, nu)._replace(P=P, value=(C * P).sum())


def _mixture(C, mu, nu):
    plan = kantorovich(C, mu, nu)
    return plan._replace(P=(plan.P + kantorovich(-C, mu, nu).P) / 2)


def _rows_only(C, mu, nu):
    P = np.zeros(C.shape)
    P[np.arange(len(C)), C.argmin(1)] = mu
    return kantorovich(C, mu, nu)._replace(P=P, value=(C * P).sum())


@claim(
    "thm-kantorovich-lp",
    part="attained",
    result="T1.1",
    tol=1e-9,
    instances=60,
    real=dict(kantorovich=kantorovich),
    mutants={
        "cost transposed": dict(kantorovich=lambda C, mu, nu: kantorovich(C.T, mu, nu)),
        "row and column masses swapped": dict(kantorovich=lambda C, mu, nu: kantorovich(C, nu, mu)),
        "the plan forgets the column masses": dict(kantorovich=_rows_only),
        "dearest instead of cheapest plan": dict(
            kantorovich=lambda C, mu, nu: (w := kantorovich(-C, mu, nu))._replace(value=-w.value)),
        "everything spread over everything": dict(kantorovich=_product),
    },
)
def attained(impl):
    """The plan has the right masses and costs the minimum: against scipy's linprog on the
    dense constraint matrix and POT's network simplex."""
    for C, mu, nu in _problems(0, 60):
        plan = impl.kantorovich(C, mu, nu)
        lp = linprog(C.ravel(), A_eq=_constraints(*C.shape), b_eq=np.r_[mu, nu], method="highs-ipm")
        masses = np.abs(_constraints(*C.shape) @ plan.P.ravel() - np.r_[mu, nu]).max()
        value = max(abs(plan.value - lp.fun), abs(plan.value - ot.emd2(mu, nu, C)))
        yield max(masses, value, abs(plan.value - (C * plan.P).sum()), -plan.P.min())


@claim(
    "thm-kantorovich-lp",
    part="vertex",
    result="T1.1",
    tol=0,
    instances=60,
    real=dict(kantorovich=kantorovich),
    mutants={
        "product plan": dict(kantorovich=_product),
        "average of two vertices": dict(kantorovich=_mixture),
    },
)
def vertex(impl):
    """The best plan's graph has no cycle (edges = nodes - components, by scipy's graph
    search), has at most m+n-1 edges, and the columns of its constraints are independent, as a
    vertex requires."""
    for C, mu, nu in _problems(1, 60):
        P = impl.kantorovich(C, mu, nu).P
        m, n = P.shape
        i, j = np.nonzero(P > 0)
        graph = csr_array((np.ones(len(i)), (i, m + j)), shape=(m + n, m + n))
        trees, _ = connected_components(graph, directed=False)
        rank = np.linalg.matrix_rank(_constraints(m, n)[:, P.ravel() > 0])
        yield max(len(i) - (m + n - 1), 0) + (len(i) - (m + n - trees)) + (len(i) - rank)


@claim(
    "thm-kantorovich-lp",
    part="cycles",
    result="T1.1",
    tol=0,
    instances=24,
    real=dict(rows=_constraints),
    mutants={
        "row masses forgotten": dict(rows=lambda m, n: _constraints(m, n)[m:]),
        "column masses forgotten": dict(rows=lambda m, n: _constraints(m, n)[:m]),
        "total mass only": dict(rows=lambda m, n: np.ones((1, m * n))),
    },
)
def cycles(impl):
    """A set of entries admits no direction of change exactly when its graph has no cycle: all
    64 sets of a 2x3 plan (in batches) and all 512 of a 3x3 plan, ranks against a search that peels
    off leaves."""
    for m, n, batches in ((2, 3, 8), (3, 3, 16)):
        sets = np.array(list(np.ndindex(*(2,) * (m * n))), dtype=bool)
        for batch in np.array_split(sets, batches):
            wrong = 0
            for used in batch:
                rank = np.linalg.matrix_rank(impl.rows(m, n)[:, used]) if used.any() else 0
                wrong += (rank == used.sum()) != _peels_off(used.reshape(m, n))
            yield wrong


def _peels_off(used):
    """Whether removing edges at nodes with a single edge, again and again, removes all edges."""
    used = used.copy()
    while True:
        leaf = used & ((used.sum(1, keepdims=True) == 1) | (used.sum(0, keepdims=True) == 1))
        if not leaf.any():
            return not used.any()
        used &= ~leaf


@claim(
    "thm-birkhoff",
    part="vertices",
    result="T1.2",
    tol=1e-9,
    instances=3,
    real=dict(mu=np.ones, nu=np.ones),
    mutants={
        "unequal rows": dict(mu=lambda n: np.r_[0.5, np.ones(n - 2), 1.5]),
        "unequal columns": dict(nu=lambda n: np.r_[1.4, np.ones(n - 2), 0.6]),
        "one row and one column doubled": dict(
            mu=lambda n: np.r_[2.0, np.ones(n - 1)], nu=lambda n: np.r_[np.ones(n - 1), 2.0]),
    },
)
def vertices(impl):
    """All basic solutions of the constraints for n = 2, 3, 4, by solving for every set of 2n-1
    entries (11440 sets for n = 4): the non-negative ones are the n! permutation matrices, and no
    others."""
    for n in (2, 3, 4):
        A, b = _constraints(n, n)[:-1], np.r_[impl.mu(n), impl.nu(n)][:-1]
        bases = np.array(list(combinations(range(n * n), 2 * n - 1)))
        square = A[:, bases].transpose(1, 0, 2)
        # The matrix is totally unimodular: a determinant is -1, 0 or 1.
        regular = np.abs(np.linalg.det(square)) > 0.5
        x = np.linalg.solve(square[regular], np.tile(b[:, None], (regular.sum(), 1, 1)))
        points = np.zeros((regular.sum(), n * n))
        np.put_along_axis(points, bases[regular], x[..., 0], 1)
        found = np.unique(np.round(points[points.min(1) > -1e-9], 9) + 0.0, axis=0)
        listed = np.unique([np.eye(n)[list(t)].ravel() for t in permutations(range(n))], axis=0)
        yield np.abs(found - listed).max() if found.shape == listed.shape else np.inf


def _triangular(n):
    weights = np.arange(1.0, n + 1)
    return weights / weights.sum(), np.full(n, 1 / n)


@claim(
    "thm-birkhoff",
    part="value",
    result="T1.2",
    tol=1e-12,
    instances=60,
    real=dict(kantorovich=kantorovich, assignment=assignment),
    mutants={
        "not divided by n": dict(
            kantorovich=lambda C: (w := kantorovich(C))._replace(value=w.value * len(C))),
        "everything spread over everything": dict(
            kantorovich=lambda C: _product(C, *np.full((2, len(C)), 1 / len(C)))),
        "masses not equal": dict(
            kantorovich=lambda C: kantorovich(C, *_triangular(len(C)))),
        "dearest assignment": dict(
            assignment=lambda C: assignment(-C)._replace(cost=-assignment(-C).cost)),
    },
)
def value(impl):
    """For equal masses n times the plan is 0/1 and its cost is 1/n of the best permutation's,
    found by listing all of them, by the assignment solver and by POT."""
    rng = np.random.default_rng(2)
    for k in range(60):
        n = 2 + k % 5
        C = rng.normal(size=(n, n))
        plan = impl.kantorovich(C)
        listed = min(C[range(n), t].sum() for t in permutations(range(n))) / n
        uniform = np.full(n, 1 / n)
        yield max(
            abs(plan.value - listed),
            abs(plan.value - impl.assignment(C).cost / n),
            abs(plan.value - ot.emd2(uniform, uniform, C)),
            np.abs(n * plan.P * (1 - n * plan.P)).max(),
        )


def _untight(C, mu, nu):
    plan = kantorovich(C, mu, nu)
    return plan._replace(f=C.min(1), g=(C - C.min(1, keepdims=True)).min(0))


PRICE_MUTANTS = {
    "sign of the delivery prices": dict(
        kantorovich=lambda C, mu, nu: (w := kantorovich(C, mu, nu))._replace(g=-w.g)),
    "pickup and delivery prices swapped": dict(
        kantorovich=lambda C, mu, nu: (w := kantorovich(C, mu, nu))._replace(f=w.g, g=w.f)),
    "feasible prices that are not the best": dict(kantorovich=_untight),
    "cost transposed": dict(kantorovich=lambda C, mu, nu: kantorovich(C.T, mu, nu)),
}


@claim(
    "thm-kantorovich-duality",
    part="no gap",
    result="T1.5",
    tol=1e-9,
    instances=60,
    real=dict(kantorovich=kantorovich),
    mutants=PRICE_MUTANTS,
)
def no_gap(impl):
    """The prices keep the promise and earn the cost of the plan; the maximum is computed
    independently by linprog on the dual, and POT's plan is tight for the same prices."""
    for C, mu, nu in _problems(3, 60):
        plan = impl.kantorovich(C, mu, nu)
        room = C - plan.f[:, None] - plan.g
        A = _constraints(*C.shape)
        dual = linprog(-np.r_[mu, nu], A_ub=A.T, b_ub=C.ravel(), bounds=(None, None))
        earned = plan.f @ mu + plan.g @ nu
        certificate = max((plan.P * room).max(), (ot.emd(mu, nu, C) * room).max())
        yield max(-room.min(), abs(earned + dual.fun), abs(earned - plan.value), certificate)


@claim(
    "thm-kantorovich-duality",
    part="certificate",
    result="T1.5",
    tol=1e-12,
    instances=200,
    real=dict(room=lambda C, f, g: C - f[:, None] - g, income=lambda f, g, mu, nu: f @ mu + g @ nu),
    mutants={
        "sign of the delivery prices": dict(room=lambda C, f, g: C - f[:, None] + g),
        "row prices on the columns": dict(room=lambda C, f, g: C - f - g[:, None]),
        "delivery not paid": dict(income=lambda f, g, mu, nu: f @ mu),
        "masses of the other side": dict(income=lambda f, g, mu, nu: f @ nu + g @ mu),
    },
    covers=("eq-duality-gap",),
)
def certificate(impl):
    """The gap between any plan and any prices, feasible or not, is the mass times the room
    left by the promise; the plans are random mixtures with known sums, not solutions."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        n = rng.integers(2, 8)
        P = rng.dirichlet(np.ones(n * n)).reshape(n, n)
        C, f, g = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=n)
        gap = np.vdot(C, P) - impl.income(f, g, P.sum(1), P.sum(0))
        yield abs(gap - np.vdot(P, impl.room(C, f, g)))


@claim(
    "thm-kantorovich-duality",
    part="price of a place",
    result="T1.5",
    tol=1e-9,
    instances=60,
    real=dict(kantorovich=kantorovich),
    mutants={
        "sign of the prices": dict(
            kantorovich=lambda C, mu, nu: (w := kantorovich(C, mu, nu))._replace(f=-w.f, g=-w.g)),
        "pickup and delivery prices swapped": PRICE_MUTANTS["pickup and delivery prices swapped"],
        "prices ten percent too high": dict(
            kantorovich=lambda C, mu, nu: (w := kantorovich(C, mu, nu))._replace(
                f=1.1 * w.f, g=1.1 * w.g)),
    },
)
def price_of_a_place(impl):
    """Prices bound the bill for all other masses from below and, where they are unique (the
    best plan uses m+n-1 routes), give its small changes exactly; the bills come from POT."""
    rng = np.random.default_rng(5)
    for C, mu, nu in _problems(6, 60):
        P, before, f, g = impl.kantorovich(C, mu, nu)
        mu2, nu2 = rng.dirichlet(np.ones(len(mu))), rng.dirichlet(np.ones(len(nu)))
        below = before + f @ (mu2 - mu) + g @ (nu2 - nu)
        far = max(0.0, below - ot.emd2(mu2, nu2, C))
        m, n = C.shape
        if (P > 0).sum() < m + n - 1:
            yield far
            continue
        # The basis stays feasible while no route in use loses all its mass.
        t = 0.5 * P[P > 0].min() / (np.abs(mu2 - mu).sum() + np.abs(nu2 - nu).sum() + 1e-9)
        t = min(t, 1.0)
        a, b = mu + t * (mu2 - mu), nu + t * (nu2 - nu)
        yield max(far, abs(ot.emd2(a, b, C) - before - f @ (a - mu) - g @ (b - nu)))


def _area(z, mu, nu):
    return np.abs(np.cumsum(mu - nu))[:-1] @ np.diff(z)


@claim(
    "thm-kantorovich-duality",
    part="on a line",
    result="T1.5",
    tol=1e-9,
    instances=60,
    real=dict(area=_area, cost=lambda z: np.abs(z[:, None] - z)),
    mutants={
        "squared distance": dict(cost=lambda z: (z[:, None] - z) ** 2),
        "differences may cancel": dict(area=lambda z, mu, nu: np.cumsum(mu - nu)[:-1] @ np.diff(z)),
        "gaps taken as equal": dict(area=lambda z, mu, nu: _area(np.arange(len(z)), mu, nu)),
        "densities instead of sums": dict(area=lambda z, mu, nu: np.abs(mu - nu)[:-1] @ np.diff(z)),
    },
)
def on_a_line(impl):
    """The area between the distribution functions is the cost of the linear program, of the
    plan in order, of scipy's wasserstein_distance and of the prices read off the sign of F-G;
    first the example with 0.4."""
    rng = np.random.default_rng(7)
    for k in range(60):
        n = rng.integers(2, 9)
        z, (mu, nu) = np.sort(rng.normal(size=n)), rng.dirichlet(np.ones(n), size=2)
        if k == 0:
            z, mu, nu = np.array([[0.0, 1.0, 3.0], [0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
        area, C = impl.area(z, mu, nu), impl.cost(z)
        slope = -np.sign(np.cumsum(mu - nu))[:-1]
        phi = np.r_[0.0, np.cumsum(slope * np.diff(z))]
        yield max(
            abs(area - kantorovich(C, mu, nu).value),
            abs(area - np.vdot(C, quantile_coupling(z, z, mu, nu))),
            abs(area - wasserstein_distance(z, z, mu, nu)),
            abs(area - phi @ (mu - nu)),
            abs(area - 0.4) if k == 0 else 0.0,
        )
