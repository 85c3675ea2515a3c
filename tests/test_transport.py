"""Exact, entropic and semi-relaxed transport against scipy, POT, closed forms and themselves."""

import ast
import inspect
import itertools
import warnings

import numpy as np
import ot
import pytest
import scipy.stats
import torch

import eotcourse.transport
from eotcourse.transport import (
    assignment,
    contraction_factor,
    gaussian_map,
    gaussian_w2,
    hilbert_distance,
    kantorovich,
    quantile_coupling,
    semi_relaxed,
    sinkhorn,
    sinkhorn_steps,
    wasserstein,
    wasserstein_1d,
)

pytestmark = pytest.mark.filterwarnings("error")

INF, NAN = float("inf"), float("nan")


def problem(seed, m=4, n=5, zeros=False):
    rng = np.random.default_rng(seed)
    mu, nu = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(n))
    if zeros:
        mu[1], nu[[0, 3]] = 0, 0
        mu, nu = mu / mu.sum(), nu / nu.sum()
    return rng.normal(size=(m, n)), mu, nu


def tensors(*arrays):
    return tuple(torch.as_tensor(a, dtype=torch.float64) for a in arrays)


def leaves(*arrays):
    return tuple(t.clone().requires_grad_() for t in tensors(*arrays))


def covariance(rng, d, rank=None):
    root = rng.normal(size=(d, rank or d))
    return root @ root.T


def test_scipy_is_imported_only_when_used():
    body = ast.parse(inspect.getsource(eotcourse.transport)).body
    names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in body if isinstance(node, ast.ImportFrom)}
    assert names == {"math", "numbers", "warnings", "typing", "numpy", "torch"}


# Exact transport ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 1), (1, 4)])
def test_assignment_is_the_best_injection(shape):
    C = np.random.default_rng(0).normal(size=shape)
    found = assignment(C)
    wide = C if shape[0] <= shape[1] else C.T
    rows = range(len(wide))
    best = min(
        wide[rows, list(cols)].sum()
        for cols in itertools.permutations(range(wide.shape[1]), len(wide))
    )
    assert found.cost == pytest.approx(best, abs=1e-14)
    assert C[found.rows, found.cols].sum() == pytest.approx(best, abs=1e-14)
    assert len(set(found.rows)) == len(set(found.cols)) == min(shape)


def test_assignment_goes_around_forbidden_pairs():
    assert assignment([[0, INF], [5, 7]]).cost == 7
    with pytest.raises(ValueError, match="no assignment avoids the forbidden"):
        assignment([[0, INF], [5, INF]])


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_kantorovich_agrees_with_pot_and_its_own_dual(seed, zeros):
    C, mu, nu = problem(seed, 5, 6, zeros)
    plan = kantorovich(C, mu, nu)
    assert plan.value == pytest.approx(ot.emd2(mu, nu, C), abs=1e-12)
    assert plan.value == pytest.approx((plan.P * C).sum(), abs=1e-14)
    np.testing.assert_allclose(plan.P.sum(1), mu, atol=1e-15)
    np.testing.assert_allclose(plan.P.sum(0), nu, atol=1e-15)
    assert (plan.P >= 0).all()
    assert (plan.P > 0).sum() <= (mu > 0).sum() + (nu > 0).sum() - 1
    slack = C - plan.f[:, None] - plan.g
    assert slack.min() >= -1e-13
    assert np.abs(slack[plan.P > 0]).max() <= 1e-13
    assert plan.g @ nu == pytest.approx(0, abs=1e-13)
    assert plan.f @ mu == pytest.approx(plan.value, abs=1e-13)


def test_kantorovich_on_the_worked_example_of_a_line():
    x = np.array([0.0, 1.0, 3.0])
    mu, nu = np.array([0.5, 0.2, 0.3]), np.array([0.1, 0.6, 0.3])
    plan = kantorovich(np.abs(x[:, None] - x), mu, nu)
    assert plan.value == pytest.approx(0.4, abs=1e-15)
    assert plan.f @ mu + plan.g @ nu == pytest.approx(0.4, abs=1e-14)


def test_kantorovich_of_uniform_masses_is_an_assignment():
    C = np.random.default_rng(1).normal(size=(6, 6))
    plan = kantorovich(C)
    assert plan.value * 6 == pytest.approx(assignment(C).cost, abs=1e-13)
    np.testing.assert_allclose(plan.P * 6, np.round(plan.P * 6), atol=1e-13)


@pytest.mark.parametrize(
    ("unit", "offset", "mass"),
    [(1e-10, 0, 1), (1e10, 0, 1), (1, 1e12, 1), (1, 0, 1e-9), (1, 0, 1e9), (1e-9, 1e-3, 1e-6)],
)
def test_kantorovich_does_not_depend_on_units(unit, offset, mass):
    C, mu, nu = problem(3, 6, 7)
    want = kantorovich(C, mu, nu)
    found = kantorovich(C * unit + offset, mu * mass, nu * mass)
    np.testing.assert_allclose(found.P, want.P * mass, rtol=1e-7, atol=1e-15 * mass)


def test_kantorovich_stops_at_a_vertex_when_every_plan_is_optimal():
    plan = kantorovich(np.ones((5, 7)))
    assert (plan.P > 0).sum() <= 11
    assert plan.value == pytest.approx(1)


def test_kantorovich_goes_around_forbidden_edges():
    C, mu, nu = problem(4, 4, 4, zeros=True)
    # The last row may go to the last column only and the empty row nowhere.
    C[3, :3], C[1], C[:, 0] = INF, INF, INF
    mu, nu = np.array([0.5, 0, 0.2, 0.3]), np.array([0, 0.4, 0.2, 0.4])
    plan = kantorovich(C, mu, nu)
    assert (plan.P[np.isinf(C)] == 0).all()
    assert plan.P[3, 3] == pytest.approx(0.3)
    assert plan.value == pytest.approx(ot.emd2(mu, nu, np.where(np.isinf(C), 1e3, C)), abs=1e-9)
    assert (plan.f[:, None] + plan.g <= C + 1e-13).all()
    assert np.isfinite(plan.f).all() and np.isfinite(plan.g).all()


@pytest.mark.parametrize(
    "C", [[[INF, INF], [INF, INF]], [[0, INF], [0, INF]], [[0, 0], [INF, INF]]]
)
def test_kantorovich_says_when_no_plan_exists(C):
    with pytest.raises(ValueError, match="no plan with these masses avoids the forbidden"):
        kantorovich(C)


def test_kantorovich_with_a_single_bin():
    plan = kantorovich([[3.0], [5.0]], [0.25, 0.75], [1.0])
    assert plan.P.tolist() == [[0.25], [0.75]]
    assert plan.value == 4.5


@pytest.mark.parametrize("seed", range(5))
def test_quantile_coupling_is_optimal_for_convex_costs(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=7), rng.normal(size=5)
    mu, nu = rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(5))
    mu[2], nu[0] = 0, 0
    mu, nu = mu / mu.sum(), nu / nu.sum()
    P = quantile_coupling(x, y, mu, nu)
    np.testing.assert_allclose(P.sum(1), mu, atol=1e-15)
    np.testing.assert_allclose(P.sum(0), nu, atol=1e-15)
    assert (P >= 0).all() and (P > 0).sum() <= 11
    for h in (np.abs, np.square, np.exp, np.cosh):
        C = h(x[:, None] - y)
        assert (P * C).sum() == pytest.approx(kantorovich(C, mu, nu).value, abs=1e-12)
    i, j = np.nonzero(P > 1e-12)
    assert ((x[i][:, None] - x[i]) * (y[j][:, None] - y[j]) >= 0).all()


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_wasserstein_on_the_line(seed, p):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=8), rng.normal(size=6)
    mu, nu = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(6))
    found = wasserstein_1d(x, y, mu, nu, p)
    assert found**p == pytest.approx(ot.emd2_1d(x, y, mu, nu, "minkowski", p=p), abs=1e-12)
    assert found == pytest.approx(wasserstein(x[:, None], y[:, None], mu, nu, p), abs=1e-12)
    if p == 1:
        assert found == pytest.approx(scipy.stats.wasserstein_distance(x, y, mu, nu), abs=1e-13)


def test_wasserstein_on_the_line_of_many_points():
    x = np.random.default_rng(0).normal(size=100_000)
    assert wasserstein_1d(x, x[::-1] + 0.5, p=2) == pytest.approx(0.5, abs=1e-9)


def test_wasserstein_in_the_plane():
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=(3, 6, 2))
    assert wasserstein(x, x[::-1]) == 0
    assert wasserstein(x, x + [3, 4]) == pytest.approx(5, abs=1e-12)
    assert wasserstein(x, y) == pytest.approx(wasserstein(y, x), abs=1e-12)
    assert wasserstein(x, z) <= wasserstein(x, y) + wasserstein(y, z)
    squared = ot.emd2([], [], ot.dist(x, y))
    assert wasserstein(x, y) == pytest.approx(squared**0.5, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_gaussian_map_and_distance(seed):
    rng = np.random.default_rng(seed)
    A, B = covariance(rng, 3), covariance(rng, 3, rank=3 if seed % 2 else 2)
    T = gaussian_map(A, B)
    np.testing.assert_array_equal(T, T.T)
    assert np.linalg.eigvalsh(T).min() >= -1e-10
    np.testing.assert_allclose(T @ A @ T, B, atol=1e-9)
    # The distance is what the map costs: E |X - TX|^2.
    mean = rng.normal(size=3)
    squared = mean @ mean + np.trace(A + B - 2 * T @ A)
    assert gaussian_w2(mean, A, np.zeros(3), B) ** 2 == pytest.approx(squared, abs=1e-8)
    reference = ot.gaussian.bures_wasserstein_distance(np.zeros(3), np.zeros(3), A, A + B)
    assert gaussian_w2(np.zeros(3), A, np.zeros(3), A + B) == pytest.approx(reference, abs=1e-7)


def test_gaussian_distance_does_not_cancel():
    A = covariance(np.random.default_rng(0), 4)
    zero = np.zeros(4)
    assert gaussian_w2(zero, A, zero, A) <= 1e-14 * np.trace(A)
    assert gaussian_w2(zero, A, zero, A * (1 + 1e-9) ** 2) == pytest.approx(
        1e-9 * np.trace(A) ** 0.5, rel=1e-5
    )
    singular = np.diag([1.0, 0, 0, 4])
    assert gaussian_w2(zero, singular, zero, np.zeros((4, 4))) == pytest.approx(5**0.5)


def test_gaussian_samples_approach_the_gaussian_distance():
    A, B = np.array([[2.0, 0.6], [0.6, 1]]), np.array([[1.0, -0.3], [-0.3, 3]])
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([0, 0], A, 300)
    # Pushed through the map, the sample is matched to itself: the identity is optimal.
    y = x @ gaussian_map(A, B)
    C = ((x[:, None] - y) ** 2).sum(-1)
    np.testing.assert_array_equal(assignment(C).cols, np.arange(300))
    squared = gaussian_w2([0, 0], A, [0, 0], B) ** 2
    assert assignment(C).cost / 300 == pytest.approx(squared, rel=0.1)


EYE = [[1.0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: assignment([[0, NAN]]), r"C\[0, 1\] = nan"),
        (lambda: assignment([[0, -INF]]), r"C\[0, 1\] = -inf"),
        (lambda: assignment([1.0, 2]), r"C has shape \(2,\); expected \(m, n\)"),
        (lambda: kantorovich([[0, NAN]]), r"C\[0, 1\] = nan: a cost must be a number"),
        (lambda: kantorovich(EYE, [1, 0], [1.5, -0.5]), r"nu\[1\] = -0.5: .* negative"),
        (lambda: kantorovich(EYE, [NAN, 1], [1, 0]), r"mu\[0\] = nan: a mass must be finite"),
        (lambda: kantorovich(EYE, [1, 1]), "mu sums to 2, nu sums to 1"),
        (lambda: kantorovich(EYE, [0.5, 0.5], [0.5, 0.499]), "mu sums to 1, nu sums to 0.999"),
        (lambda: kantorovich(EYE, [0, 0], [0, 0]), "the sum of mu = 0"),
        (lambda: kantorovich(EYE, [1]), r"mu has shape \(1,\); expected 2"),
        (lambda: kantorovich(EYE, EYE), r"mu has shape \(2, 2\)"),
        (lambda: quantile_coupling([0, INF], [0, 1]), r"x\[1\] = inf"),
        (lambda: quantile_coupling([], [0, 1]), r"x has shape \(0,\)"),
        (lambda: wasserstein_1d([0], [1], [1], [2]), "mu sums to 1, nu sums to 2"),
        (lambda: wasserstein_1d([0], [1], p=0.5), "p = 0.5"),
        (lambda: wasserstein([[0]], [[1]], p=NAN), "p = nan"),
        (lambda: wasserstein([0, 1], [[1]]), r"x has shape \(2,\)"),
        (lambda: wasserstein([[0, 1]], [[1]]), "x has dimension 2 and y has dimension 1"),
        (lambda: gaussian_map([[1, 0.5], [0, 1]], EYE), r"A is not symmetric: A\[0, 1\] = 0.5"),
        (lambda: gaussian_map(EYE, [[1, 2], [2, 1]]), "B is not positive semidefinite.* -1"),
        (lambda: gaussian_map([[1, 0], [0, 0]], EYE), "A is not positive definite"),
        (lambda: gaussian_map(EYE, [[1.0]]), "different dimensions: 2 and 1"),
        (lambda: gaussian_map([1.0], EYE), r"A has shape \(1,\)"),
        (lambda: gaussian_w2([0, 0], EYE, [0], EYE), "mean_b has 1 entries"),
        (lambda: gaussian_w2([0, 0], EYE, [0, 0], [[1, 0], [0, NAN]]), r"B\[1, 1\] = nan"),
        (lambda: hilbert_distance([1, 0], [1, 1]), r"u\[1\] = 0"),
        (lambda: contraction_factor(EYE, 0), "eps = 0"),
    ],
)
def test_exact_solvers_refuse_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_exact_solvers_name_what_is_no_number():
    for call, message in (
        (lambda: contraction_factor(EYE, None), "eps = None: expected a number"),
        (lambda: contraction_factor(EYE, "1"), "eps = '1': expected a number"),
        (lambda: wasserstein_1d([0], [1], p=None), "p = None: expected a number"),
        (lambda: wasserstein([[0]], [[1]], p="2"), "p = '2': expected a number"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert contraction_factor(EYE, torch.tensor(0.5)) == contraction_factor(EYE, 0.5)


# Sinkhorn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_sinkhorn_agrees_with_pot(seed, eps):
    C, mu, nu = problem(seed)
    plan = sinkhorn(*tensors(C, mu, nu), eps, tol=1e-13)
    want = ot.sinkhorn(mu, nu, C, eps, method="sinkhorn_log", stopThr=1e-13, numItermax=3000)
    np.testing.assert_allclose(plan.P, want, atol=1e-11)
    np.testing.assert_allclose(plan.P.sum(1), mu, atol=1e-12)
    np.testing.assert_allclose(plan.P.sum(0), nu, atol=1e-12)
    P, f, g = plan.P.numpy(), plan.f.numpy(), plan.g.numpy()
    np.testing.assert_allclose(P, np.exp((f[:, None] + g - C) / eps), rtol=1e-12)
    assert plan.cost.item() == pytest.approx((P * C).sum(), abs=1e-13)
    value = (P * C).sum() + eps * (P * np.log(P)).sum()
    assert plan.value.item() == pytest.approx(value, abs=1e-11)
    assert g @ nu == pytest.approx(0, abs=1e-12)
    assert f @ mu == pytest.approx(plan.value.item(), abs=1e-11)


def test_sinkhorn_of_two_points_in_closed_form():
    # Two rows, two columns, one free entry t: t (t + c) / ((a - t)(b - t)) is the odds ratio.
    C, mu, nu, eps = [[0.0, 1.0], [2.0, 0.5]], [0.3, 0.7], [0.6, 0.4], 0.5
    P = sinkhorn(*tensors(C, mu, nu), eps, tol=1e-14).P
    odds = np.exp(-(C[0][0] + C[1][1] - C[0][1] - C[1][0]) / eps)
    roots = np.roots([1 - odds, 1 - 0.3 - 0.6 + odds * 0.9, -odds * 0.3 * 0.6])
    t = roots[(roots > 0) & (roots < 0.3)]
    np.testing.assert_allclose(P[0, 0], t[0], atol=1e-13)


def test_a_batch_is_its_problems():
    rng = np.random.default_rng(0)
    C = torch.from_numpy(rng.normal(size=(2, 3, 4, 5)))
    mu = torch.from_numpy(rng.dirichlet(np.ones(4), size=(3,)))
    nu = torch.from_numpy(rng.dirichlet(np.ones(5), size=(2, 1)))
    eps = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    for solve in (sinkhorn, semi_relaxed):
        whole = solve(C, mu, nu, eps, tol=1e-13)
        assert whole.P.shape == (2, 3, 4, 5) and whole.value.shape == (2, 3)
        for i, j in itertools.product(range(2), range(3)):
            one = solve(C[i, j], mu[j], nu[i, 0], eps[j], tol=1e-13)
            for name in ("P", "f", "g", "value", "cost"):
                torch.testing.assert_close(
                    getattr(whole, name)[i, j], getattr(one, name), rtol=0, atol=1e-11
                )


def test_an_empty_batch_is_empty():
    plan = sinkhorn(torch.zeros(0, 2, 3))
    assert plan.P.shape == (0, 2, 3) and plan.value.shape == (0,) and plan.error == 0


@pytest.mark.parametrize("solve", [sinkhorn, semi_relaxed])
def test_a_bin_without_mass_is_a_bin_removed(solve):
    C, mu, nu = problem(0, zeros=True)
    rows, cols = np.flatnonzero(mu), np.flatnonzero(nu)
    leaf, mass_r, mass_c = leaves(C, mu, nu)
    eps = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    whole = solve(leaf, mass_r, mass_c, eps, tol=1e-14)
    small, small_r, small_c = leaves(C[np.ix_(rows, cols)], mu[rows], nu[cols])
    small_eps = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    less = solve(small, small_r, small_c, small_eps, tol=1e-14)
    torch.testing.assert_close(whole.P[rows][:, cols], less.P, rtol=0, atol=1e-13)
    torch.testing.assert_close(whole.f[rows], less.f, rtol=0, atol=1e-13)
    torch.testing.assert_close(whole.g[cols], less.g, rtol=0, atol=1e-13)
    torch.testing.assert_close(whole.value, less.value, rtol=0, atol=1e-13)
    assert whole.P.sum() == whole.P[rows][:, cols].sum()
    assert whole.f[1] == -INF and (whole.g[[0, 3]] == -INF).all()

    def scalar(plan, f, g):
        return plan.P.square().sum() + plan.value + plan.cost + f.square().sum() + g.cos().sum()

    got = torch.autograd.grad(
        scalar(whole, whole.f[rows], whole.g[cols]), (leaf, mass_r, mass_c, eps)
    )
    want = torch.autograd.grad(
        scalar(less, less.f, less.g), (small, small_r, small_c, small_eps)
    )
    torch.testing.assert_close(got[0][rows][:, cols], want[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(got[1][rows], want[1], rtol=0, atol=1e-11)
    torch.testing.assert_close(got[2][cols], want[2], rtol=0, atol=1e-11)
    torch.testing.assert_close(got[3], want[3], rtol=0, atol=1e-11)
    assert (got[0][1] == 0).all() and (got[0][:, [0, 3]] == 0).all()
    assert got[1][1] == 0 and (got[2][[0, 3]] == 0).all()


def test_a_forbidden_edge_carries_nothing():
    C, mu, nu = problem(1)
    C[0, 0] = C[2, 3] = INF
    leaf, mass_r, mass_c = leaves(C, mu, nu)
    eps = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    plan = sinkhorn(leaf, mass_r, mass_c, eps, tol=1e-14)
    far = sinkhorn(*tensors(np.where(np.isinf(C), 400.0, C), mu, nu), 0.5, tol=1e-14)
    assert plan.P[0, 0] == plan.P[2, 3] == 0
    torch.testing.assert_close(plan.P, far.P, rtol=0, atol=1e-12)
    torch.testing.assert_close(plan.value, far.value, rtol=0, atol=1e-12)
    (plan.value + plan.cost + plan.f.sum()).backward()
    for grad in (leaf.grad, mass_r.grad, mass_c.grad, eps.grad):
        assert grad.isfinite().all()
    assert leaf.grad[0, 0] == leaf.grad[2, 3] == 0


def everything(plan):
    return plan.P, plan.f, plan.g, plan.value, plan.cost


def inputs(seed, m=3, n=4):
    """Free parameters: costs, logits of both measures, and a positive eps."""
    rng = np.random.default_rng(seed)
    return leaves(rng.normal(size=(m, n)), rng.normal(size=m), rng.normal(size=n), 0.6)


def test_sinkhorn_gradients_by_finite_differences():
    def solve(C, a, b, eps):
        return everything(sinkhorn(C, a.softmax(-1), b.softmax(-1), eps, tol=1e-14))

    assert torch.autograd.gradcheck(solve, inputs(0))
    assert torch.autograd.gradgradcheck(solve, inputs(0))
    C, a, b, eps = inputs(1)
    batch = [torch.stack([x, 0.5 * x]).detach().requires_grad_() for x in (C, a, b, eps)]
    assert torch.autograd.gradcheck(solve, batch)


def test_sinkhorn_gradients_are_those_of_the_unrolled_iteration():
    C, a, b, eps = inputs(2)
    mu, nu = a.softmax(-1), b.softmax(-1)
    g = torch.zeros(4, dtype=torch.float64)
    for _ in range(300):
        f = eps * (mu.log() - torch.logsumexp((g - C) / eps, -1))
        g = eps * (nu.log() - torch.logsumexp((f[:, None] - C) / eps, 0))
    unrolled = torch.exp((f[:, None] + g - C) / eps)
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4)))
    want = torch.autograd.grad((weight * unrolled).sum(), (C, a, b, eps), retain_graph=True)
    plan = sinkhorn(C, mu, nu, eps, tol=1e-14)
    got = torch.autograd.grad((weight * plan.P).sum(), (C, a, b, eps))
    for x, y in zip(got, want):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


def test_the_gradient_of_the_value_is_the_plan():
    C, mu, nu = leaves(*problem(5))
    # Even where the iteration was stopped early: the envelope theorem needs no linear system.
    with pytest.warns(RuntimeWarning):
        plan = sinkhorn(C, mu, nu, 0.05, max_iter=3)
    for plan in (plan, sinkhorn(C, mu, nu, 0.05)):
        dC, dmu, dnu = torch.autograd.grad(plan.value, (C, mu, nu))
        assert torch.equal(dC, plan.P)
        assert (dmu - plan.f).std() < 1e-14 and (dnu - plan.g).std() < 1e-14


def test_the_gradient_of_the_value_when_the_mass_grows():
    C, mu, nu = tensors(*problem(6))
    mass = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: sinkhorn(C, t * mu, t * nu, 0.5).value, mass)


def test_sinkhorn_composes_with_torch_func():
    C, mu, nu = tensors(*problem(7))
    jacobian = torch.func.jacrev(lambda c: sinkhorn(c, mu, nu, 0.5, tol=1e-13).P)(C)
    step = 1e-6 * torch.eye(20, dtype=torch.float64)[7].reshape(4, 5)
    ahead, behind = (sinkhorn(C + s, mu, nu, 0.5, tol=1e-13).P for s in (step, -step))
    torch.testing.assert_close(
        jacobian.reshape(4, 5, 20)[..., 7], (ahead - behind) / 2e-6, rtol=0, atol=1e-7
    )


def test_sinkhorn_says_when_it_has_not_converged():
    C, mu, nu = tensors(*problem(8))
    done = sinkhorn(C, mu, nu, 0.1)
    assert done.error <= 1e-9 and done.iterations > 1
    assert (done.P.sum(1) - mu).abs().sum() == pytest.approx(done.error, abs=1e-14)
    with pytest.warns(RuntimeWarning, match="sinkhorn has not converged") as caught:
        early = sinkhorn(C, mu, nu, 0.1, max_iter=done.iterations - 1)
    message = str(caught[0].message)
    assert f"marginal error {early.error:.3g} > tol 1e-09" in message
    assert f"after {early.iterations} iterations at eps = 0.1" in message
    assert early.error > 1e-9 and early.iterations == done.iterations - 1
    assert (early.P.sum(1) - mu).abs().sum() == pytest.approx(early.error, rel=1e-4)
    assert caught[0].filename == __file__


def test_one_slow_problem_keeps_its_batch_going():
    C, mu, nu = tensors(*problem(8))
    slow = sinkhorn(C, mu, nu, 0.1)
    both = sinkhorn(torch.stack([0 * C, C]), mu, nu, 0.1)
    assert both.iterations == slow.iterations > sinkhorn(0 * C, mu, nu, 0.1).iterations


@pytest.mark.parametrize("eps", [0.1, 0.01])
@pytest.mark.parametrize("solve", [sinkhorn, lambda C, **more: semi_relaxed(C, lam=1.0, **more)])
def test_rounding_is_no_excuse_for_a_plan_far_off(solve, eps):
    # Exponents of size 1e5 to 1e6 in float32: their rounding alone would allow any error.
    points = 100 * torch.rand(2, 20, 2, generator=torch.Generator().manual_seed(0))
    C = ((points[0][:, None] - points[1]) ** 2).sum(-1)
    with pytest.warns(RuntimeWarning, match="not converged: marginal error"):
        plan = solve(C, eps=eps, max_iter=50)
    assert plan.error > 1e-4


def test_sinkhorn_of_a_pattern_without_a_full_plan_warns():
    # Two rows share their only allowed column, which cannot take the mass of both.
    C = torch.tensor([[0, INF, INF], [0, INF, INF], [0, 0, 0]], dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="not converged"):
        plan = sinkhorn(C, max_iter=50)
    assert plan.error > 0.1 and not plan.P.isnan().any()


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-12])
def test_a_tiny_eps_neither_overflows_nor_lies(eps):
    C, mu, nu = leaves(*problem(9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        plan = sinkhorn(C, mu, nu, eps, max_iter=300)
    violation = (plan.P.sum(1) - mu).abs().sum() + (plan.P.sum(0) - nu).abs().sum()
    rounding = 1e-15 * 10 / eps
    assert violation.item() == pytest.approx(plan.error, abs=rounding + 1e-12)
    grads = torch.autograd.grad(plan.value + plan.P.square().sum(), (C, mu, nu))
    for x in (*everything(plan), *grads):
        assert x.isfinite().all()


def test_small_eps_finds_the_optimal_plan():
    C, mu, nu = problem(0)
    plan = sinkhorn(*tensors(C, mu, nu), 1e-3)
    assert plan.error <= 1e-9
    np.testing.assert_allclose(plan.P, kantorovich(C, mu, nu).P, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_entropic_limits(seed):
    C, mu, nu = problem(seed, 5, 5)
    exact = kantorovich(C, mu, nu).value
    entropy = min(scipy.stats.entropy(mu), scipy.stats.entropy(nu))
    for eps in (0.3, 1.0):
        excess = sinkhorn(*tensors(C, mu, nu), eps).cost.item() - exact
        assert 0 < excess <= eps * entropy
    hot = sinkhorn(*tensors(C, mu, nu), 1e6)
    np.testing.assert_allclose(hot.P, np.outer(mu, nu), atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 6e-3)]
)
@pytest.mark.parametrize("solve", [sinkhorn, semi_relaxed])
def test_narrow_dtypes(solve, dtype, atol):
    C, mu, nu = (t.to(dtype) for t in tensors(*problem(2)))
    C.requires_grad_()
    plan = solve(C, mu, nu, 0.5)
    assert {x.dtype for x in everything(plan)} == {dtype}
    mu, nu = mu.double(), nu.double()
    want = solve(C.detach().double(), mu, nu * (mu.sum() / nu.sum()), 0.5)
    torch.testing.assert_close(plan.P.double(), want.P, rtol=0, atol=atol)
    plan.value.backward()
    assert C.grad.dtype == dtype and C.grad.isfinite().all()


def test_what_sinkhorn_takes_as_input():
    C, mu, nu = problem(3)
    want = sinkhorn(*tensors(C, mu, nu)).P
    for plan in (
        sinkhorn(C, mu, nu),
        sinkhorn(C.tolist(), mu.tolist(), nu.tolist()),
        sinkhorn(torch.from_numpy(C), mu.tolist(), nu),
        sinkhorn(C, mu, nu * (1 + 3e-8)),
    ):
        torch.testing.assert_close(plan.P, want, rtol=0, atol=1e-14)
    turned = sinkhorn(C[::-1], mu[::-1], nu)
    torch.testing.assert_close(turned.P.flip(0), want, rtol=0, atol=1e-14)
    assert sinkhorn(torch.from_numpy(C).float(), mu.tolist()).P.dtype == torch.float32
    uniform = sinkhorn(C)
    torch.testing.assert_close(uniform.P, sinkhorn(C, [0.25] * 4, [0.2] * 5).P, rtol=0, atol=0)
    integers = sinkhorn(torch.from_numpy(C), [1, 1, 2, 1], [1, 1, 1, 1, 1])
    assert integers.P.sum().item() == pytest.approx(5, abs=1e-9)


def dyadic(shape=(4, 5)):
    """Costs that stay exact when 2^30 is added."""
    steps = np.random.default_rng(4).integers(-64, 65, size=shape)
    return torch.from_numpy(steps / 64), *tensors(*problem(4)[1:])


SHIFTS = {
    "constant": lambda C: torch.full_like(C, 2.0**30),
    "rows": lambda C: torch.tensor([[2.0**30], [-(2.0**29)], [0], [2.0**20]]).to(C).expand_as(C),
    "columns": lambda C: torch.tensor([2.0**30, 0, -(2.0**29), 3, 2.0**20]).to(C).expand_as(C),
}


# A column whose mass is free may avoid its costs.
@pytest.mark.parametrize(
    ("shift", "lam", "reference"),
    [
        *itertools.product(SHIFTS, [INF], [None, "counting", "product"]),
        *itertools.product(["constant", "rows"], [0.0, 0.7], ["counting", "product"]),
    ],
)
def test_what_every_plan_pays_costs_no_digits(shift, lam, reference):
    def solve(C):
        if reference is None:
            return sinkhorn(C, mu, nu, 0.1, tol=1e-12)
        return semi_relaxed(C, mu, nu, 0.1, lam, reference=reference, tol=1e-12)

    C, mu, nu = dyadic()
    moved = SHIFTS[shift](C)
    (here, there) = (x.clone().requires_grad_() for x in (C, C + moved))
    mu.requires_grad_(), nu.requires_grad_()
    plan, far = solve(here), solve(there)
    assert abs(plan.iterations - far.iterations) <= (60 if shift == "columns" else 0)
    torch.testing.assert_close(far.P, plan.P, rtol=0, atol=1e-12)
    for name in ("value", "cost"):
        gain = getattr(far, name) - getattr(plan, name)
        torch.testing.assert_close(gain, (plan.P * moved).sum(), rtol=1e-12, atol=1e-6)
    torch.testing.assert_close(
        far.f[:, None] + far.g, plan.f[:, None] + plan.g + moved, rtol=1e-15, atol=1e-6
    )
    if lam == INF:
        assert abs(nu @ far.g - nu @ plan.g) < 1e-6
    weight = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
    for scalar in (lambda p: p.value, lambda p: p.cost, lambda p: (p.P * weight).sum()):
        got, want = (torch.autograd.grad(scalar(p), x, retain_graph=True)[0]
                     for p, x in ((far, there), (plan, here)))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11)
    dmu, dnu = (torch.autograd.grad(p.value, (mu, nu), retain_graph=True) for p in (far, plan))
    both = dmu[0][:, None] + dmu[1] - dnu[0][:, None] - dnu[1]
    torch.testing.assert_close(both, moved, rtol=1e-12, atol=1e-6)


def test_a_bin_without_mass_does_not_set_what_the_others_pay():
    C, mu, nu = tensors(*problem(0, zeros=True))
    plan = sinkhorn(C, mu, nu, 0.3)
    C[1], C[:, 0], C[2, 4] = -(2.0**40), -(2.0**40), INF
    blocked = sinkhorn(C, mu, nu, 0.3)
    C[1], C[:, 0] = INF, 0.0
    torch.testing.assert_close(blocked.P, sinkhorn(C, mu, nu, 0.3).P, rtol=0, atol=0)
    assert blocked.P[2, 4] == 0 < plan.P[2, 4]


def test_half_steps_far_from_zero():
    C, mu, nu = dyadic()
    near, far = sinkhorn_steps(C, mu, nu, 0.1), sinkhorn_steps(C + 2.0**30, mu, nu, 0.1)
    for (f, g, dual), (f_far, g_far, dual_far) in itertools.islice(zip(near, far), 9):
        torch.testing.assert_close(g_far, g, rtol=0, atol=1e-12)
        torch.testing.assert_close(f_far - 2.0**30, f, rtol=0, atol=1e-6)
        assert abs(dual_far - 2.0**30 - dual) < 1e-6


@pytest.mark.parametrize("solve", [sinkhorn, semi_relaxed])
@pytest.mark.parametrize("eps", [1e-14, 1e-18, 1e-150, 1e-300])
def test_an_eps_next_to_nothing(solve, eps):
    """The limit, a warning with the error of the plan returned, or a refusal: nothing else."""
    C, mu, nu = tensors(*problem(9))
    for scale in (1.0, 10.0, 1e9):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*not converged: marginal error", RuntimeWarning)
            try:
                plan = solve(scale * C, mu, nu, eps, max_iter=100)
            except ValueError as error:
                assert f"eps = {eps:g}: too small for these costs" in str(error)
                continue
        assert all(x.isfinite().all() for x in everything(plan))
        violation = (plan.P.sum(1) - mu).abs().sum().item()
        assert violation == pytest.approx(plan.error, rel=0.05) and violation > 1e-3
    matched = torch.tensor([[0, 1.0], [1, 0]], dtype=torch.float64) + 3
    plan = solve(matched, eps=eps)
    torch.testing.assert_close(plan.P, torch.eye(2, dtype=torch.float64) / 2, rtol=0, atol=0)
    assert plan.value.item() == pytest.approx(3, rel=1e-13)


def test_an_eps_that_leaves_no_digit_is_refused():
    C, mu, nu = tensors(*problem(9))
    for solve, eps in ((semi_relaxed, 1e-18), (semi_relaxed, 1e-300), (sinkhorn, 1e-308)):
        with pytest.raises(ValueError, match=f"eps = {eps:g}: too small for these costs"):
            solve(10 * C, mu, nu, eps, max_iter=100)


def test_a_soft_prohibition_is_none_of_eps_business():
    # Costs of 1e9 at eps = 0.1 in float32: those edges carry nothing, the others have digits.
    C, mu, nu = (t.float() for t in tensors(*problem(1)))
    for index in ((0, 0), (slice(None), 3)):
        hard, soft = C.clone(), C.clone()
        hard[index], soft[index] = INF, 1e9
        if index == (0, 0):
            want, plan = sinkhorn(hard, mu, nu, 0.1), sinkhorn(soft, mu, nu, 0.1)
        else:
            want, plan = semi_relaxed(hard, mu, nu, 0.1), semi_relaxed(soft, mu, nu, 0.1)
        torch.testing.assert_close(plan.P, want.P, rtol=0, atol=1e-4)


def test_integer_masses_are_masses_everywhere():
    C = np.random.default_rng(0).normal(size=(2, 3))
    counts = [1, 2], [0, 1, 2]
    exact, want = kantorovich(C, *counts), sinkhorn(C, [1.0, 2.0], [0.0, 1.0, 2.0])
    for kind in (list, np.array, torch.tensor, lambda x: np.array(x, dtype=np.uint8)):
        mu, nu = map(kind, counts)
        np.testing.assert_array_equal(kantorovich(C, mu, nu).P, exact.P)
        for solve in (sinkhorn, lambda *x: semi_relaxed(*x, lam=INF)):
            torch.testing.assert_close(solve(C, mu, nu).P, want.P, rtol=0, atol=0)
        next(sinkhorn_steps(C, mu, nu))
        assert sinkhorn(torch.from_numpy(C).half(), mu, nu).P.dtype == torch.float16


@pytest.mark.parametrize("which", range(4))
def test_vmap_is_refused_by_name(which):
    arguments = [*tensors(*problem(7)), torch.tensor(0.5, dtype=torch.float64)]
    arguments[which] = torch.stack([arguments[which]] * 2)
    dims = tuple(0 if i == which else None for i in range(4))
    for solve in (sinkhorn, semi_relaxed, sinkhorn_steps):
        with pytest.raises(RuntimeError, match="torch.vmap.*leading dimensions"):
            torch.vmap(lambda *x: solve(*x)[0], in_dims=dims)(*arguments)
    assert sinkhorn(*arguments).P.shape == (2, 4, 5)


T2 = torch.tensor(EYE)


@pytest.mark.parametrize("solve", [sinkhorn, sinkhorn_steps, semi_relaxed])
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((T2.long(),), TypeError, "C has dtype torch.int64"),
        ((T2.bool(),), TypeError, "C has dtype torch.bool"),
        ((T2, torch.tensor([1j, 1])), TypeError, "mu has dtype torch.complex64"),
        ((torch.tensor([1.0, 2]),), ValueError, r"C has shape \(2,\)"),
        ((torch.zeros(3, 0),), ValueError, r"C has shape \(3, 0\)"),
        ((torch.tensor([[0, NAN], [0, 0]]),), ValueError, r"C\[0, 1\] = nan"),
        ((torch.tensor([EYE, [[0, 1], [-INF, 0]]]),), ValueError, r"C\[1, 1, 0\] = -inf"),
        ((T2, [0.5, 0.5], [1.5, -0.5]), ValueError, r"nu\[1\] = -0.5: .* negative"),
        ((T2, [INF, 0.5]), ValueError, r"mu\[0\] = inf"),
        ((T2, [0.5, 0.25]), ValueError, "mu sums to 0.75, nu sums to 1"),
        ((T2, [[0.5, 0.5], [0.5, 0.25]]), ValueError, "mu sums to 0.75, nu sums to 1"),
        ((T2, [0.0, 0.0], [0.0, 0.0]), ValueError, "the sum of mu = 0"),
        ((T2, [1.0]), ValueError, r"mu has shape \(1,\); expected 2 masses"),
        ((T2, None, None, None), TypeError, "eps = None: expected a number"),
        ((T2, None, None, "0.1"), TypeError, "eps = '0.1': expected a number"),
        ((T2, None, None, 0.0), ValueError, "eps = 0: eps must be positive"),
        ((T2, None, None, -1.0), ValueError, "eps = -1"),
        ((T2, None, None, NAN), ValueError, "eps = nan"),
        ((T2, None, None, torch.tensor([1.0, 0.0])), ValueError, r"eps\[1\] = 0"),
        ((torch.tensor([[0, 0], [INF, INF]]),), ValueError, r"mu\[1\] = 0.5: every edge"),
        ((torch.tensor([[0, INF], [1, 1]]), [1.0, 0], [0, 1.0]), ValueError, r"mu\[0\] = 1: every"),
    ],
)
def test_entropic_solvers_refuse_by_name(solve, arguments, kind, message):
    with pytest.raises(kind, match=message):
        solve(*arguments)


def test_entropic_solvers_refuse_by_name_more():
    stuck = torch.tensor([[0, INF], [0, INF]])
    with pytest.raises(ValueError, match=r"nu\[1\] = 0.5: every edge"):
        sinkhorn(stuck)
    with pytest.raises(ValueError, match=r"nu\[1\] = 0.5: every edge"):
        semi_relaxed(stuck, lam=INF)
    with pytest.raises(ValueError, match="max_iter = 0"):
        sinkhorn(T2, max_iter=0)
    for lam in (-1.0, NAN):
        with pytest.raises(ValueError, match=f"lam = {lam:g}"):
            semi_relaxed(T2, lam=lam)
    for lam in (None, "1"):
        with pytest.raises(TypeError, match=f"lam = {lam!r}: expected a number"):
            semi_relaxed(T2, lam=lam)
    with pytest.raises(ValueError, match=r"lam has shape \(2,\); expected one number"):
        semi_relaxed(T2, lam=torch.ones(2))
    with pytest.raises(TypeError, match="tol = None: expected a number"):
        sinkhorn(T2, tol=None)
    for count in (None, 1.5, INF, "9"):
        with pytest.raises(TypeError, match=f"max_iter = {count!r}: expected a whole number"):
            sinkhorn(T2, max_iter=count)
    with pytest.raises(ValueError, match="reference = 'uniform'"):
        semi_relaxed(T2, reference="uniform")


@pytest.mark.parametrize("mass", [1.0, 3.0])
def test_half_steps_climb_the_dual(mass):
    C, mu, nu = tensors(*problem(10))
    mu, nu, eps = mass * mu, mass * nu, 0.2
    steps = sinkhorn_steps(C, mu, nu, eps)
    f, g, dual = next(steps)
    assert (g == 0).all()
    first = torch.exp((f[:, None] + g - C) / eps)
    torch.testing.assert_close(first, mu[:, None] * torch.softmax(-C / eps, -1))
    duals = [dual]
    for half in range(1, 400):
        f, g, dual = next(steps)
        P = torch.exp((f[:, None] + g - C) / eps)
        exact = (P.sum(0) - nu) if half % 2 else (P.sum(1) - mu)
        assert exact.abs().max() < 1e-13
        value = f @ mu + g @ nu - eps * P.sum() + eps * mass
        torch.testing.assert_close(dual, value, rtol=0, atol=1e-13)
        duals.append(dual)
    duals = torch.stack(duals)
    assert duals[4] > duals[0] + 1e-4
    assert (duals.diff() >= -1e-14 * mass).all()
    plan = sinkhorn(C, mu, nu, eps, tol=1e-13)
    torch.testing.assert_close(duals[-1], plan.value, rtol=0, atol=1e-11)


def test_half_steps_with_empty_bins_and_batches():
    C, mu, nu = tensors(*problem(0, zeros=True))
    steps = sinkhorn_steps(torch.stack([C, 2 * C]), mu, nu, 0.5)
    for _ in range(200):
        f, g, dual = next(steps)
    plan = sinkhorn(torch.stack([C, 2 * C]), mu, nu, 0.5)
    assert (f[:, 1] == -INF).all() and (g[:, [0, 3]] == -INF).all()
    torch.testing.assert_close(dual, plan.value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_iteration_contracts_by_the_square(seed):
    C, mu, nu = tensors(*problem(seed))
    eps = 1.0
    limit = sinkhorn(C, mu, nu, eps, tol=1e-14).g
    square = contraction_factor(C, eps) ** 2
    gaps = [
        hilbert_distance((g / eps).exp(), (limit / eps).exp())
        for _, g, _ in itertools.islice(sinkhorn_steps(C, mu, nu, eps), 1, 12, 2)
    ]
    assert gaps[0] > 1e-3
    for before, after in itertools.pairwise(gaps):
        assert after <= square * before + 1e-12


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (1, 5), (3, 3)])
def test_contraction_factor_by_brute_force(shape):
    C = np.random.default_rng(0).normal(size=shape)
    m, n = range(shape[0]), range(shape[1])
    theta = max(
        C[j, k] + C[i, o] - C[i, k] - C[j, o]
        for i, j, k, o in itertools.product(m, m, n, n)
    )  # fmt: skip
    assert contraction_factor(C, 0.7) == pytest.approx(np.tanh(theta / 0.7 / 4), abs=1e-15)
    assert contraction_factor([[0, INF], [1, 2]], 1.0) == 1


def test_hilbert_distance_is_projective():
    u, v = np.random.default_rng(0).uniform(1, 2, size=(2, 3, 6))
    found = hilbert_distance(u, v)
    want = np.log((u / v).max(-1)) - np.log((u / v).min(-1))
    np.testing.assert_allclose(found, want, atol=1e-15)
    np.testing.assert_allclose(hilbert_distance(5 * u, v), found, atol=1e-14)
    np.testing.assert_allclose(hilbert_distance(v, u), found, atol=1e-15)
    assert hilbert_distance(u[0], 3 * u[0]) <= 1e-15


# Semi-relaxed ------------------------------------------------------------------------------------

REFERENCES = {"counting": "entropy", "product": "kl"}


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("lam", [1e-3, 0.5, 20.0])
def test_semi_relaxed_agrees_with_pot(lam, reference):
    C, mu, nu = problem(11)
    eps = 0.4
    plan = semi_relaxed(*tensors(C, mu, nu), eps, lam, reference=reference, tol=1e-13)
    with warnings.catch_warnings():
        # POT says that it sets the reference of "entropy" itself.
        warnings.simplefilter("ignore", UserWarning)
        want = ot.unbalanced.sinkhorn_unbalanced(
            mu, nu, C, eps, (INF, lam), reg_type=REFERENCES[reference],
            numItermax=20_000, stopThr=1e-15,
        )  # fmt: skip
    np.testing.assert_allclose(plan.P, want, atol=1e-11)
    P, f, g = plan.P.numpy(), plan.f.numpy(), plan.g.numpy()
    np.testing.assert_allclose(P, np.exp((f[:, None] + g - C) / eps), rtol=1e-12)
    tilt = eps * np.log(nu) if reference == "product" else 0
    np.testing.assert_allclose(g, -lam * np.log(P.sum(0) / nu) + tilt, atol=1e-9)


def objective(P, C, mu, nu, eps, lam, reference):
    base = np.outer(mu, nu) if reference == "product" else 1
    col = P.sum(0)
    return (P * C).sum() + eps * (P * np.log(P / base)).sum() + lam * (col * np.log(col / nu)).sum()


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("lam", [0.0, 0.7, INF])
def test_the_semi_relaxed_value_is_a_minimum(lam, reference):
    C, mu, nu = problem(12)
    eps, weight = 0.4, 0.0 if lam == INF else lam
    plan = semi_relaxed(*tensors(C, mu, nu), eps, lam, reference=reference, tol=1e-13)
    P = plan.P.numpy()
    np.testing.assert_allclose(P.sum(1), mu, atol=1e-12)
    best = objective(P, C, mu, nu, eps, weight, reference)
    assert plan.value.item() == pytest.approx(best, abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(50):
        move = rng.normal(size=P.shape)
        move -= move.mean(1, keepdims=True)
        if lam == INF:
            move -= move.mean(0)
        other = P + 0.01 * P.min() * move
        assert objective(other, C, mu, nu, eps, weight, reference) > best


def test_semi_relaxed_limits():
    C, mu, nu = tensors(*problem(13))
    eps = 0.5
    row = mu[:, None] * torch.softmax(-C / eps, -1)
    free = semi_relaxed(C, mu, nu, eps, 0.0)
    torch.testing.assert_close(free.P, row, rtol=0, atol=1e-15)
    assert (free.g == 0).all() and free.iterations == 1
    tilted = semi_relaxed(C, mu, nu, eps, 0.0, reference="product")
    prior = mu[:, None] * torch.softmax(-C / eps + nu.log(), -1)
    torch.testing.assert_close(tilted.P, prior, rtol=0, atol=1e-15)
    balanced = sinkhorn(C, mu, nu, eps, tol=1e-13)
    for reference in REFERENCES:
        full = semi_relaxed(C, mu, nu, eps, INF, reference=reference, tol=1e-13)
        torch.testing.assert_close(full.P, balanced.P, rtol=0, atol=1e-12)
        near = semi_relaxed(C, mu, nu, eps, 1e6, reference=reference, tol=1e-13)
        for name in ("P", "f", "g"):
            torch.testing.assert_close(getattr(near, name), getattr(full, name), rtol=0, atol=1e-5)


def test_semi_relaxed_ignores_nu_only_where_it_says_so():
    C, mu, _ = tensors(*problem(13))
    holes = torch.tensor([0, 0.5, 0, 0.25, 0.25], dtype=torch.float64)
    row = mu[:, None] * torch.softmax(-C, -1)
    torch.testing.assert_close(semi_relaxed(C, mu, holes, 1.0, 0.0).P, row, rtol=0, atol=1e-15)
    only = torch.where(holes > 0, INF, C)
    assert semi_relaxed(only, mu, holes, 1.0, 0.0).P.sum(1).allclose(mu)
    with pytest.raises(ValueError, match=r"mu\[0\] = .*: every edge"):
        semi_relaxed(only, mu, holes, 1.0, 1e-9)
    for kept in (
        semi_relaxed(C, mu, holes, 1.0, 0.0, reference="product"),
        semi_relaxed(C, mu, holes, 1.0, 1e-9),
    ):
        assert (kept.P[:, [0, 2]] == 0).all() and kept.value.isfinite()


def test_a_column_nobody_may_reach_stays_empty():
    C = torch.tensor([[0, 1, INF], [1, 0, INF]], dtype=torch.float64)
    plan = semi_relaxed(C, lam=1.0)
    assert (plan.P[:, 2] == 0).all()
    torch.testing.assert_close(plan.P[:, :2].sum(1), torch.full((2,), 0.5, dtype=torch.float64))
    assert plan.value.isfinite()


@pytest.mark.parametrize("reference", REFERENCES)
def test_semi_relaxed_gradients_by_finite_differences(reference):
    def solve(C, a, b, eps, lam):
        mu, nu = a.softmax(-1), b.softmax(-1)
        return everything(semi_relaxed(C, mu, nu, eps, lam, reference=reference, tol=1e-14))

    (lam,) = leaves(0.8)
    assert torch.autograd.gradcheck(solve, (*inputs(3), lam))
    for fixed in (0.0, INF):
        assert torch.autograd.gradcheck(lambda *x: solve(*x, fixed), inputs(4))


def test_the_first_order_term_at_lam_zero():
    C, mu, nu = tensors(*problem(14))
    eps = 0.5
    start = semi_relaxed(C, mu, nu, eps, 0.0).P
    h = (nu / start.sum(0)).log() / eps
    mean = (start * h).sum(1, keepdim=True) / mu[:, None]
    slope = torch.autograd.functional.jacobian(
        lambda lam: semi_relaxed(C, mu, nu, eps, lam).P, torch.zeros((), dtype=torch.float64)
    )
    torch.testing.assert_close(slope, start * (h - mean), rtol=0, atol=1e-13)


def test_semi_relaxed_warns_under_its_own_name():
    C, mu, nu = tensors(*problem(15))
    with pytest.warns(RuntimeWarning, match="semi_relaxed has not converged") as caught:
        semi_relaxed(C, mu, nu, 0.05, 10.0, max_iter=2)
    assert caught[0].filename == __file__
