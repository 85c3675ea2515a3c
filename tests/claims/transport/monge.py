"""Claims of the page transport/monge."""

from fractions import Fraction
from itertools import permutations, product

import numpy as np
from scipy.optimize import LinearConstraint, milp

from claims import claim
from eotcourse.transport import assignment, kantorovich


def _push(t, mu, n):
    return np.bincount(t, weights=mu, minlength=n)


def _missed(mu, nu, push):
    """Mass in the wrong place after the best of all row maps, by listing them."""
    maps = product(range(len(nu)), repeat=len(mu))
    return min(np.abs(push(np.array(t), mu, len(nu)) - nu).sum() / 2 for t in maps)


def _missed_by_branch_and_bound(mu, nu):
    """The same minimum as a mixed-integer program: a 0/1 matrix A and the surplus of each hole."""
    m, n = len(mu), len(nu)
    cost = np.r_[np.zeros(m * n), np.ones(n)]
    one_hole_each = np.hstack([np.kron(np.eye(m), np.ones(n)), np.zeros((m, n))])
    surplus = np.hstack([np.kron(mu, np.eye(n)), -np.eye(n)])
    solved = milp(
        cost,
        integrality=np.r_[np.ones(m * n), np.zeros(n)],
        bounds=(0, np.r_[np.ones(m * n), np.full(n, np.inf)]),
        constraints=[LinearConstraint(one_hole_each, 1, 1), LinearConstraint(surplus, -np.inf, nu)],
    )
    return solved.fun


def _groups_exist(mu, nu):
    """Whether the heaps can be sorted into groups of the given masses, in exact arithmetic."""
    if not mu:
        return not any(nu)
    return any(
        _groups_exist(mu[1:], nu[:j] + [nu[j] - mu[0]] + nu[j + 1:])
        for j in range(len(nu))
        if nu[j] >= mu[0]
    )


def _masses(rng, size, total):
    """Positive integers that add up to total."""
    cuts = rng.choice(np.arange(1, total), size - 1, replace=False)
    return np.diff(np.r_[0, np.sort(cuts), total])


@claim(
    "prop-monge-infeasible",
    part="groups",
    result="T1.1",
    tol=1e-9,
    instances=160,
    real=dict(push=_push),
    mutants={
        "masses read instead of sent": dict(
            push=lambda t, mu, n: np.resize(np.asarray(mu)[t % len(mu)], n)),
        "heaps counted, not weighed": dict(
            push=lambda t, mu, n: np.bincount(t, minlength=n) / len(t)),
        "a heap may be split evenly": dict(
            push=lambda t, mu, n: (_push(t, mu, n) + _push((t + 1) % n, mu, n)) / 2),
    },
)
def groups(impl):
    """A map exists exactly when groups do: all maps listed, against a search in exact
    fractions (with its two consequences, m >= n and max mu <= max nu) and a mixed-integer program
    for the mass missed."""
    rng = np.random.default_rng(0)
    for _ in range(80):
        m, n = rng.integers(1, 6), rng.integers(1, 4)
        a, b = _masses(rng, m, 12), _masses(rng, n, 12)
        mu, nu = a / 12, b / 12
        missed = _missed(mu, nu, impl.push)
        exact = _groups_exist([Fraction(int(x), 12) for x in a], [Fraction(int(x), 12) for x in b])
        forced = not exact or (m >= n and a.max() <= b.max())
        yield float((missed < 1e-12) != exact or not forced)
        yield abs(missed - _missed_by_branch_and_bound(mu, nu))


@claim(
    "prop-monge-infeasible",
    part="examples",
    result="T1.1",
    tol=1e-12,
    instances=3,
    real=dict(push=_push, kantorovich=kantorovich, power=2),
    mutants={
        "the atom cut into two grains": dict(
            push=lambda t, mu, n: np.bincount(np.r_[t, (t + 1) % n], np.r_[mu, mu] / 2, n)),
        "signed difference instead of its square": dict(power=1),
        "the plan forgets the column masses": dict(
            kantorovich=lambda C, mu, nu: kantorovich(C, mu, [0.0, 1.0])),
    },
)
def examples(impl):
    """One heap to two holes misses 1/2 and halves to thirds miss 1/6, by listing all maps; the
    plan that splits the heap costs 1 for the squared distance, computed by hand from its two
    halves."""
    yield abs(_missed([1.0], np.array([0.5, 0.5]), impl.push) - 1 / 2)
    yield abs(_missed([0.5, 0.5], np.array([1 / 3, 2 / 3]), impl.push) - 1 / 6)
    C = (np.array([[0.0]]) - np.array([[-1.0, 1.0]])) ** impl.power
    plan = impl.kantorovich(C, [1.0], [0.5, 0.5])
    yield abs(plan.value - 1) + np.abs(plan.P - 0.5).max()


@claim(
    "prop-monge-infeasible",
    part="permutations",
    result="T1.1",
    tol=1e-12,
    instances=30,
    real=dict(assignment=assignment),
    mutants={
        "largest instead of smallest sum": dict(
            assignment=lambda C: assignment(-C)._replace(cost=-assignment(-C).cost)),
        "each row takes its cheapest column": dict(
            assignment=lambda C: assignment(C)._replace(cost=C.min(1).sum())),
        "rows served greedily in order": dict(assignment=lambda C: _greedy(C)),
    },
)
def equal_masses(impl):
    """With equal masses the maps that reach the target are the n! permutations, and the best
    of them, found by listing all n^n row maps, costs what the assignment problem says, divided by
    n."""
    rng = np.random.default_rng(1)
    for k in range(30):
        n = 2 + k % 4
        C = rng.normal(size=(n, n))
        uniform = np.full(n, 1 / n)
        reach = [
            t for t in product(range(n), repeat=n)
            if abs(_push(t, uniform, n) - uniform).max() < 1e-12
        ]
        best = min(uniform @ C[range(n), t] for t in reach)
        strangers = set(reach) ^ set(permutations(range(n)))
        yield len(strangers) + abs(best - impl.assignment(C).cost / n)


def _greedy(C):
    free, total = list(range(len(C))), 0.0
    for row in C:
        j = min(free, key=row.__getitem__)
        free.remove(j)
        total += row[j]
    return assignment(C)._replace(cost=total)
