"""Information geometry: every closed form against something that doesn't know it."""

import functools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import hessian, jacobian

from eotcourse import LogPrior, Regularizer, Shannon, Tsallis, geometry as geo, softmax

F64 = torch.float64
INF = math.inf
ALPHAS = (1.0, 1.3, 1.5, 2.0, 2.5, 3.0)
P, Q = (torch.tensor(x, dtype=F64) for x in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]))


class Mixed(Regularizer):
    """The third derivative changes sign, so that curvature can have either."""

    def penalty(self, p):
        return (torch.special.xlogy(p, p) + 2 * p**4).sum(-1)


class Power(Regularizer):
    """Tsallis with alpha = 1.5, known by its penalty only."""

    def penalty(self, p):
        return (p**1.5).sum(-1) / 0.75


class Inverse(Regularizer):
    """The same, known by its pointwise map only."""

    def pointwise(self, gap):
        return (1 + gap / 2).clamp(min=0) ** 2


def generator(seed):
    return torch.Generator().manual_seed(seed)


def rand(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=F64)


def weights(*shape, seed=0, spread=1.0):
    return softmax(spread * rand(*shape, seed=seed))


def tangents(*shape, seed=0):
    x = rand(*shape, seed=seed)
    return x - x.mean(-1, keepdim=True)


def exact(x):
    return [Fraction(v) for v in x.tolist()]


def close(x, y, tol=1e-12):
    torch.testing.assert_close(
        x, torch.as_tensor(y, dtype=x.dtype), atol=tol, rtol=tol, equal_nan=False
    )


def relative_error(x, y):
    return max(abs(float((Fraction(a) - b) / b)) for a, b in zip(x.tolist(), y, strict=True))


# --- the Fisher matrix ---------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_fisher_is_hessian_and_covariance(tau):
    s = rand(5)
    p = softmax(s, tau)
    second = hessian(lambda s: geo.potential(s, tau), s)
    close(geo.Fisher(p, "score", tau).dense(), second / tau)
    close(geo.Fisher(p, "natural", tau).dense(), second * tau)
    one_hot = torch.eye(5, dtype=F64) - p
    close(geo.Fisher(p).dense(), one_hot.T @ torch.diag(p) @ one_hot)


@pytest.mark.parametrize("chart", ["natural", "score", "mean"])
@pytest.mark.parametrize("zeros", [0, 2])
def test_fisher_pseudo_inverse_against_numpy(chart, zeros):
    p = weights(3, 6)
    p[:, :zeros] = 0
    p /= p.sum(-1, keepdim=True)
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=F64)
    F = geo.Fisher(p, chart, tau)
    v = rand(3, 6, seed=1)
    for i in range(3):
        one = geo.Fisher(p[i], chart, tau[i].item())
        close(F.dense()[i], one.dense(), 1e-15)
        close((F @ v)[i], one.dense() @ v[i])
        inverse = torch.from_numpy(np.linalg.pinv(one.dense().numpy(), rcond=1e-10))
        close(F.pinv(v)[i], inverse @ v[i], 1e-10)
        assert np.linalg.matrix_rank(one.dense().numpy(), tol=1e-10) == 5 - zeros


def test_mean_chart_is_the_inverse_of_the_natural_one():
    p, v = weights(4, 5), tangents(4, 5, seed=1)
    natural, mean = geo.Fisher(p), geo.Fisher(p, "mean")
    close(mean @ (natural @ v), v)
    close(natural.pinv(v), mean @ v, 0)
    close((v * (mean @ v)).sum(-1), (v**2 / p).sum(-1))
    # In minimal coordinates the two matrices are inverse to each other.
    edges = torch.eye(5, dtype=F64)[:, :4]
    edges[4] = -1
    minimal = edges.T @ mean.dense() @ edges
    close(minimal, torch.diag_embed(1 / p[:, :4]) + 1 / p[:, 4:, None])
    close(minimal @ natural.dense()[:, :4, :4], torch.eye(4, dtype=F64).expand(4, 4, 4), 1e-11)


@pytest.mark.parametrize("tiny", [1e-11, 1e-30, 1e-200])
def test_tiny_weights_keep_their_digits(tiny):
    p = torch.tensor([1 - 3 * tiny, 2 * tiny, tiny], dtype=F64)
    a = torch.tensor([1.25, -0.5, 2.0], dtype=F64)
    e, b = exact(p), exact(a)
    e[0] = 1 - e[1] - e[2]
    average = sum(x * y for x, y in zip(e, b, strict=True))
    field = [x * (y - average) for x, y in zip(e, b, strict=True)]
    assert relative_error(geo.Fisher(p) @ a, field) < 1e-15
    assert relative_error(geo.replicator_field(p, a), field) < 1e-15
    # The gradient that backpropagation computes loses digits in its largest entry only.
    s = p.log().requires_grad_()
    (grad,) = torch.autograd.grad(-(softmax(s) * a).sum(), s)
    # (The scores of the smallest weights are rounded to 5e-14.)
    close(geo.natural_gradient(grad, p.detach()), -(a - a.mean()), 1e-13)
    close(geo.Fisher(p, "mean").pinv(geo.Fisher(p, "mean") @ (geo.Fisher(p) @ a)), field, 1e-15)


def test_natural_gradient_in_both_units():
    a, tau = torch.tensor([1.0, 0.0, -2.0], dtype=F64), 2.0
    s = (tau * P.log()).requires_grad_()
    (grad,) = torch.autograd.grad(-(softmax(s, tau) * a).sum(), s)
    close(geo.Fisher(P).pinv(grad), [-2 / 3, -1 / 6, 5 / 6])
    close(geo.natural_gradient(grad, P, tau), [-4 / 3, -1 / 3, 5 / 3])
    close(geo.natural_gradient(grad, P, tau, "score"), [-8 / 3, -2 / 3, 10 / 3])
    for chart, unit in (("natural", tau), ("score", 1.0)):
        F = torch.linalg.pinv(geo.Fisher(P, chart, tau).dense())
        close(geo.natural_gradient(grad, P, tau, chart), F @ (unit * grad))


def test_natural_gradient_of_large_utilities_at_tiny_weights():
    s = torch.tensor([0.0, -25.0, -40.0, -80.0], dtype=F64, requires_grad=True)
    a = torch.tensor([1000.5, 1000.0, 1001.0, 1002.0], dtype=F64)
    p = softmax(s)
    (grad,) = torch.autograd.grad(-(p * a).sum(), s)
    close(geo.natural_gradient(grad, p.detach()), -(a - a.mean()), 1e-12)


def test_natural_gradient_on_a_face_ignores_the_rest():
    p = torch.tensor([0.5, 0.0, 0.5], dtype=F64)
    grad = torch.tensor([-0.25, math.nan, 0.25], dtype=F64)
    close(geo.natural_gradient(grad, p), [-0.5, 0.0, 0.5])
    empty = geo.natural_gradient(torch.zeros(3), torch.zeros(3))
    assert (empty == 0).all()


# --- flows and steps -----------------------------------------------------------------------------


def test_replicator_solves_its_equation():
    a, times = rand(4, seed=2), torch.linspace(0, 3, 7, dtype=F64)
    p = weights(4)
    field = lambda t, p: p * (a.numpy() - p @ a.numpy())  # noqa: E731
    flow = solve_ivp(field, (0, 3), p.numpy(), t_eval=times.numpy(), rtol=1e-11, atol=1e-13)
    close(geo.replicator(p, a, times), flow.y.T, 1e-9)
    close(geo.replicator(p, a, 0.5), geo.mirror_step(p, a, 0.5), 0)
    assert geo.replicator(weights(2, 1, 4), rand(3, 4), times).shape == (7, 2, 3, 4)


@pytest.mark.parametrize(
    "member", [*map(Tsallis, ALPHAS), Shannon(), Mixed()], ids=repr
)
def test_mirror_step_maximises_gain_minus_divergence(member):
    p, a, eta = weights(4), rand(4, seed=3), 0.7
    step = geo.mirror_step(p, a, eta, member)

    def objective(q):
        return (q * a).sum(-1) - geo.omega_bregman(q, p, member) / eta

    close(step.sum(), 1.0)
    others = weights(1000, 4, seed=4, spread=3.0)
    near = step + 1e-3 * (others - step)
    assert (objective(step) >= torch.cat([objective(others), objective(near)])).all()


def test_mirror_step_at_zero_weights():
    p, a = torch.tensor([0.5, 0.5, 0.0], dtype=F64), torch.tensor([0.0, 0.0, 1.0], dtype=F64)
    assert geo.mirror_step(p, a, 50.0)[2] == 0
    close(geo.mirror_step(p, a, 1.0, Tsallis(2.0)), [1 / 6, 1 / 6, 2 / 3])
    close(geo.mirror_step(p, -a, 1.0, Tsallis(1.5)), p)
    close(geo.mirror_step(p, a, -1.0, Tsallis(1.5)), p)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_dual_coordinates_give_the_weights_back(alpha):
    member = Tsallis(alpha, LogPrior(torch.zeros(5)))
    p = Tsallis(alpha)(2 * rand(20, 5), 1.3)
    theta = geo.dual_coordinates(p, member)
    close(Tsallis(alpha)(theta), p, 1e-11)
    if alpha > 1:
        edge = -1 / (alpha - 1)
        assert (theta[p == 0] == edge).all() and (theta >= edge).all()


def test_dual_coordinates_of_a_learned_order():
    alpha = torch.tensor([1.0, 1.5, 2.0], dtype=F64)
    p = weights(3, 2, 4)
    p[..., 0] = 0
    theta = geo.dual_coordinates(p, Tsallis(alpha))
    for h in range(3):
        close(theta[h], geo.dual_coordinates(p[h], Tsallis(alpha[h].item())))


@pytest.mark.parametrize("member", [Power(), Inverse()], ids=repr)
def test_members_known_by_one_function_agree_with_their_closed_form(member):
    p, q = weights(6, 4), weights(6, 4, seed=1)
    known = Tsallis(1.5)
    close(geo.omega_bregman(p, q, member), geo.omega_bregman(p, q, known), 1e-10)
    close(geo.embedding(p, member), geo.embedding(p, known), 1e-9)
    close(geo.mirror_step(p, q, 0.4, member), geo.mirror_step(p, q, 0.4, known), 1e-10)
    v = tangents(6, 4, seed=2)
    close(geo.Metric(p, member).norm(v), geo.Metric(p, known).norm(v), 1e-10)


# --- divergences ---------------------------------------------------------------------------------


@mpmath.workdps(50)
def test_kl_against_many_digits():
    p = weights(6)
    pairs = [(p, weights(6, seed=1, spread=8.0))]
    for size in (1e-2, 1e-5, 1e-9):
        q = p + size * tangents(6, seed=2) * p.min()
        pairs += [(p, q), (q, p)]
    for x, y in pairs:
        pairs_of_entries = zip(map(mpmath.mpf, x.tolist()), y.tolist(), strict=True)
        expected = mpmath.fsum(a * mpmath.log(a / b) - a + b for a, b in pairs_of_entries)
        assert abs(geo.kl(x, y).item() / expected - 1) < 1e-13


def test_kl_at_zeros():
    on, off = torch.tensor([0.5, 0.5, 0.0], dtype=F64), torch.tensor([1.0, 0.0, 0.0], dtype=F64)
    assert geo.kl(on, on) == 0 and geo.kl(on, off) == INF
    close(geo.kl(off, on), math.log(2))
    p = off.clone().requires_grad_()
    assert torch.autograd.grad(geo.kl(p, on), p)[0].isfinite().all()
    tiny = torch.tensor([1 - 1e-310, 1e-310], dtype=F64)
    close(geo.kl(tiny.flip(0), tiny), -math.log(1e-310))


def test_kl_gradients_across_the_switch():
    p = weights(5)
    q = p * (1 + torch.tensor([0.05, -0.05, 0.3, -0.3, 0.0], dtype=F64))
    assert gradcheck(geo.kl, (p.requires_grad_(), q.requires_grad_()))


def test_bregman_of_the_potential_is_kl_exchanged():
    t, s, tau = rand(50, 6), rand(50, 6, seed=1), 0.7
    close(geo.bregman(t, s, tau), tau * geo.kl(softmax(s, tau), softmax(t, tau)))
    prior = Shannon(LogPrior(rand(6, seed=2)))
    close(geo.bregman(t, s, tau, prior), tau * geo.kl(prior(s, tau), prior(t, tau)))


def test_bregman_with_excluded_keys():
    t, s = rand(4), rand(4, seed=1)
    t[0] = s[0] = -INF
    close(geo.bregman(t, s), geo.bregman(t[1:], s[1:]))
    t[1] = -INF
    assert geo.bregman(t, s) == INF
    nothing = torch.full((4,), -INF, dtype=F64)
    assert geo.bregman(nothing, nothing) == 0


@mpmath.workdps(50)
@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-5, 1e-8])
def test_divergences_of_close_points_for_shannon(size):
    s, move = torch.tensor([4.0, 2.0, 0.0], dtype=F64), torch.tensor([1.0, 0.0, -2.0], dtype=F64)
    t = s + size * move
    p, q = ([mpmath.exp(mpmath.mpf(x) / 2) for x in z.tolist()] for z in (s, t))
    p, q = ([x / mpmath.fsum(z) for x in z] for z in (p, q))
    expected = 2 * mpmath.fsum(x * mpmath.log(x / y) for x, y in zip(p, q, strict=True))
    ours = [geo.bregman(t, s, 2.0), 2 * geo.omega_bregman(softmax(s, 2.0), softmax(t, 2.0))]
    ours.append(geo.bregman(t[None], s, torch.full((1, 1), 2.0, dtype=F64))[0])
    assert all(abs(x.item() / expected - 1) < 4e-15 / size for x in ours)


def test_bregman_of_weights_that_underflow():
    s = torch.zeros(2, dtype=F64, requires_grad=True)
    t = torch.tensor([2000.0, 0.0], dtype=F64, requires_grad=True)
    divergence = geo.bregman(t, s)
    close(divergence.detach(), 1000 - math.log(2))
    for x, expected in zip(torch.autograd.grad(divergence, (t, s)), ([0.5, -0.5], [-500, 500])):
        close(x, expected)
    assert gradcheck(geo.bregman, (P.clone().requires_grad_(), (P + 0.1 * P**2).requires_grad_()))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_bregman_of_value_and_regulariser(alpha):
    member, tau = Tsallis(alpha), 0.7
    t, s = rand(400, 4), rand(400, 4, seed=1)
    p_t, p_s = member(t, tau), member(s, tau)
    dual = geo.bregman(t, s, tau, member)
    primal = tau * geo.omega_bregman(p_s, p_t, member)
    inside = ((p_s == 0) | (p_t != 0)).all(-1)
    assert (dual >= primal - 1e-12).all()
    close(dual[inside], primal[inside])
    if alpha > 1:
        assert (dual - primal)[~inside].max() > 1e-3
    if alpha == 2:
        close(primal, tau / 2 * ((p_s - p_t) ** 2).sum(-1))
    if alpha == 1:
        close(primal, tau * geo.kl(p_s, p_t))


# --- the sphere ----------------------------------------------------------------------------------


@mpmath.workdps(60)
def test_distance_against_many_digits():
    p = weights(5, spread=3.0)
    others = [weights(5, seed=1), torch.eye(5, dtype=F64)[0]]
    others += [p + size * p.min() * tangents(5, seed=2) for size in (1e-2, 1e-8, 1e-14)]
    for q in others:
        roots = [list(map(mpmath.sqrt, x.tolist())) for x in (p, q)]
        pairs = list(zip(*roots, strict=True))
        short = mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in pairs))
        long = mpmath.sqrt(mpmath.fsum((a + b) ** 2 for a, b in pairs))
        expected = 4 * mpmath.atan2(short, long)
        assert abs(geo.fisher_rao_distance(p, q).item() / expected - 1) < 1e-14
    close(geo.fisher_rao_distance(p, others[0]), 2 * math.acos((p * others[0]).sqrt().sum()))


def test_distance_is_a_metric_with_the_known_values():
    corners = torch.eye(3, dtype=F64)
    close(geo.fisher_rao_distance(corners[0], corners[1]), math.pi)
    p, q, r = weights(200, 4), weights(200, 4, seed=1), weights(200, 4, seed=2)
    d = geo.fisher_rao_distance
    assert (d(p, p) == 0).all() and (d(p, q) == d(q, p)).all()
    assert (d(p, r) <= d(p, q) + d(q, r)).all()
    near = p + 1e-4 * (geo.Fisher(p) @ rand(200, 4, seed=3))
    quadratic = geo.Metric(p).norm(near - p)
    assert ((d(p, near) / quadratic - 1).abs() < 1e-3).all()


def test_distance_in_a_product():
    p, q = weights(2, 3, 5, 4), weights(2, 3, 5, 4, seed=1)
    rows = geo.fisher_rao_distance(p, q)
    close(geo.fisher_rao_distance(p, q, 1), (rows**2).sum(1).sqrt())
    close(geo.fisher_rao_distance(p, q, (-3, -2)), (rows**2).sum((1, 2)).sqrt())
    close(geo.fisher_rao_distance(p, q, (0, 1, 2)), (rows**2).sum().sqrt())


def test_distance_has_no_nan_gradient_where_it_is_not_smooth():
    for q in (P, torch.tensor([1.0, 0.0, 0.0], dtype=F64)):
        p = q.clone().requires_grad_()
        assert torch.autograd.grad(geo.fisher_rao_distance(p, q), p)[0].isfinite().all()
    assert gradcheck(geo.fisher_rao_distance, (P.clone().requires_grad_(), Q))


def metric_in_coordinates(second, tau=1.0):
    """The metric in the first n - 1 weights, from the second derivative of the penalty."""
    return lambda q: tau * (torch.diag(second(q)) + second(1 - q.sum()))


def christoffel(metric, q, create_graph=False):
    d = jacobian(metric, q, create_graph=True)  # d[i, j, k] = derivative k of entry i, j
    low = (d.permute(0, 2, 1) + d - d.permute(2, 0, 1)) / 2
    k = len(q)
    return torch.linalg.solve(metric(q), low.reshape(k, -1)).reshape(k, k, k)


@pytest.mark.parametrize("keys", [2, 3, 4])
def test_great_circles_solve_the_geodesic_equation(keys):
    p, q = weights(keys), weights(keys, seed=1)
    metric = metric_in_coordinates(lambda p: 1 / p)

    def acceleration(_, state):
        x, v = (torch.tensor(part, dtype=F64) for part in np.split(state, 2))
        bend = torch.einsum("lij,i,j->l", christoffel(metric, x).detach(), v, v)
        return torch.cat([v, -bend]).numpy()

    times = torch.linspace(0, 1, 5, dtype=F64)
    velocity = jacobian(lambda t: geo.fisher_rao_geodesic(p, q, t), torch.zeros((), dtype=F64))
    start = torch.cat([p[:-1], velocity[:-1]]).numpy()
    curve = solve_ivp(acceleration, (0, 1), start, t_eval=times.numpy(), rtol=1e-10, atol=1e-12)
    path = geo.fisher_rao_geodesic(p, q, times)
    close(path[:, :-1], curve.y[: keys - 1].T, 1e-8)
    close(path.sum(-1), torch.ones(5, dtype=F64))
    close(path[[0, -1]], torch.stack([p, q]))
    close(geo.fisher_rao_distance(p, path), times * geo.fisher_rao_distance(p, q))


def test_geodesic_edges():
    p = weights(4)
    close(geo.fisher_rao_geodesic(p, p, torch.tensor([0.0, 0.3, 1.0])), p.expand(3, 4))
    q = p + 1e-13 * p.min() * tangents(4, seed=1)
    middle = geo.fisher_rao_geodesic(p, q, 0.5)
    close(middle, (p + q) / 2, 1e-15)
    face = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]], dtype=F64)
    assert geo.fisher_rao_geodesic(*face, 0.5)[2] == 0
    assert geo.fisher_rao_geodesic(weights(2, 3), P, torch.zeros(4, 5)).shape == (4, 5, 2, 3)


def test_lengths_of_the_three_geodesics():
    times = torch.linspace(0, 1, 20_001, dtype=F64)
    paths = [f(P, Q, times) for f in (geo.fisher_rao_geodesic, geo.m_geodesic, geo.e_geodesic)]
    lengths = torch.stack([geo.curve_length(x) for x in paths])
    close(lengths, [0.739291, 0.741132, 0.741375], 1e-6)
    close(lengths[0], geo.fisher_rao_distance(P, Q), 1e-8)
    batch = torch.stack(paths, 1)
    close(geo.curve_length(batch), lengths)
    tau = torch.tensor([[1.0], [4.0], [9.0]])
    close(geo.curve_length(batch, tau=tau), lengths * tau[:, 0].sqrt())
    # The shortest path that a minimiser finds is as long.
    straight = torch.linspace(0, 1, 5, dtype=F64)[1:-1, None] * (Q / P).log() + P.log()

    def polyline(scores):
        inner = softmax(torch.tensor(scores.reshape(3, 3)))
        points = torch.cat([P[None], inner, Q[None]])
        return geo.fisher_rao_distance(points[1:], points[:-1]).sum().item()

    start = straight.flatten().numpy()
    best = minimize(polyline, start).fun - lengths[0].item()
    assert polyline(start) - lengths[0] > 1e-4 and -1e-8 < best < 1e-8


# --- e- and m-geodesics --------------------------------------------------------------------------


def test_e_geodesic_is_straight_in_the_logits():
    p, q, t = weights(3, 5), weights(3, 5, seed=1), torch.tensor([-1.0, 0.0, 0.3, 1.0, 2.0])
    path = geo.e_geodesic(p, q, t)
    product = p ** (1 - t.double().view(-1, 1, 1)) * q ** t.double().view(-1, 1, 1)
    close(path, product / product.sum(-1, keepdim=True))
    assert path.shape == (5, 3, 5)


def test_temperature_and_prior_paths_are_e_geodesics():
    s, pi = rand(5), weights(5, seed=1)
    end = softmax(pi.log() + s)
    for t in (0.1, 0.5, 3.0):
        close(geo.e_geodesic(pi, end, t), Shannon(LogPrior(pi.log()))(s, 1 / t))


def test_e_geodesic_at_zeros():
    p = torch.tensor([0.5, 0.5, 0.0], dtype=F64)
    q = torch.tensor([0.2, 0.0, 0.8], dtype=F64)
    path = geo.e_geodesic(p, q, torch.tensor([0.0, 0.5, 1.0]))
    close(path, torch.stack([p, torch.tensor([1.0, 0.0, 0.0], dtype=F64), q]))
    apart = geo.e_geodesic(p, torch.tensor([0.0, 0.0, 1.0], dtype=F64), torch.tensor([0.0, 0.5]))
    close(apart, torch.stack([p, torch.zeros(3, dtype=F64)]), 0)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_e_geodesic_of_other_members_follows_the_scores(alpha):
    member, s, t = Tsallis(alpha), rand(4) / 16, rand(4, seed=1) / 16
    p, q = member(s), member(t)
    assert (p > 0).all() and (q > 0).all()
    close(geo.e_geodesic(p, q, 0.3, member), member(0.7 * s + 0.3 * t))
    if alpha == 2:
        close(geo.e_geodesic(p, q, 0.3, member), geo.m_geodesic(p, q, 0.3))


# --- the metric of every member ------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.5, 2.0])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_metric_is_the_inverse_of_the_jacobian(alpha, tau):
    member = Tsallis(alpha)
    s = rand(6, seed=5)
    p = member(s, tau)
    G, J = geo.Metric(p, member, tau), jacobian(lambda s: member(s, tau), s)
    v = geo.project(rand(6, seed=1), p > 0) * (p > 0)
    close(G.sharp(G @ v), v)
    close(J @ (G @ v), v)
    on, u = (p > 0).double(), torch.where(p > 0, p ** (2 - alpha), 0.0)
    JG = G @ J  # row by row
    close(JG, torch.diag(on) - torch.outer(u, on) / u.sum())
    close(JG @ J, J, 1e-11)
    g = rand(6, seed=2)
    close(G.sharp(g), J @ g)
    w = G.sharp(g)
    close(G.inner(v, w), v @ g)
    close(G.norm(v) ** 2, tau * (v**2 / torch.where(p > 0, u, 1.0)).sum())


def test_metric_is_the_second_derivative_of_the_regulariser():
    p, v = weights(5), tangents(5, seed=1)
    for member in (Shannon(), Tsallis(1.5), Tsallis(3.0), Mixed()):
        second = hessian(member.penalty, p)
        close(geo.Metric(p, member, 0.7) @ v, 0.7 * second @ v, 1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_embedding_is_an_isometry_onto_a_sphere(alpha):
    p, v, tau = weights(5), tangents(5, seed=1), 0.7
    member = Tsallis(alpha)
    moved = jacobian(lambda p: geo.embedding(p, member, tau), p) @ v
    close(moved.norm(), geo.Metric(p, member, tau).norm(v))
    y = geo.embedding(p, member, tau)
    close((y ** (2 / alpha)).sum() ** (alpha / 2), 2 * math.sqrt(tau) / alpha)
    corner = torch.tensor([1.0, 0.0], dtype=F64)
    assert (geo.embedding(corner, member)[1] == 0).all()


# --- curvature -----------------------------------------------------------------------------------


def curvature_by_christoffel(second, p, x, y, tau):
    """Riemann's tensor in the first n - 1 weights, contracted with the plane of x and y."""
    metric = metric_in_coordinates(second, tau)
    q, x, y = p[:-1], x[:-1], y[:-1]
    gamma = functools.partial(christoffel, metric)
    d = jacobian(gamma, q)  # d[l, i, j, k] = derivative k of Gamma^l_ij
    C = gamma(q).detach()
    R = torch.einsum("ljki->lkij", d) - torch.einsum("likj->lkij", d)
    R = R + torch.einsum("lim,mjk->lkij", C, C) - torch.einsum("ljm,mik->lkij", C, C)
    G = metric(q)
    bend = torch.einsum("al,lkij,a,k,i,j->", G, R, x, y, x, y)
    return bend / ((x @ G @ x) * (y @ G @ y) - (x @ G @ y) ** 2)


@pytest.mark.parametrize("keys", [3, 4, 5])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_curvature_against_christoffel_symbols(keys, alpha):
    p = (weights(keys) + 0.2) / (1 + 0.2 * keys)
    x, y = tangents(keys, seed=1), tangents(keys, seed=2)
    expected = curvature_by_christoffel(lambda p: p ** (alpha - 2), p, x, y, 0.7)
    K = geo.sectional_curvature(p, x, y, Tsallis(alpha), 0.7)
    close(K, expected, 1e-11)
    close(geo.sectional_curvature(p, x + 3 * y, -2 * y, Tsallis(alpha), 0.7), K, 1e-11)
    if alpha == 1:
        close(K, 1 / 2.8)
        close(geo.sectional_curvature(p, x, y, tau=0.7), 1 / 2.8)
    elif alpha == 2:
        assert K == 0
    else:
        assert K > 0
    if keys == 3:
        power = (2 - alpha) ** 2 * p.prod() ** (1 - alpha)
        close(K, power / (2.8 * (p ** (2 - alpha)).sum() ** 2), 1e-11)


def test_curvature_of_any_member_can_have_either_sign():
    second = lambda p: 1 / p + 24 * p**2  # noqa: E731
    signs = []
    for peak in (0.6, 0.8):
        p = torch.tensor([peak, (1 - peak) / 2, (1 - peak) / 2], dtype=F64)
        x, y = tangents(3, seed=1), tangents(3, seed=2)
        K = geo.sectional_curvature(p, x, y, Mixed())
        close(K, curvature_by_christoffel(second, p, x, y, 1.0), 1e-9)
        signs.append(K.sign().item())
    assert signs == [-1, 1]


def test_curvature_at_the_centre_and_between_its_bounds():
    x, y = tangents(100, 6, seed=1), tangents(100, 6, seed=2)
    centre = torch.full((6,), 1 / 6, dtype=F64)
    p = weights(100, 6)
    for alpha in (1.3, 1.5, 2.5, 3.0):
        member = Tsallis(alpha)
        flat = (2 - alpha) ** 2 / 4 * 6 ** (alpha - 1)
        close(geo.sectional_curvature(centre, x, y, member), torch.full((100,), flat, dtype=F64))
        pairs = (p[:, :, None] * p[:, None, :]).masked_fill(torch.eye(6) > 0, math.nan)
        powers = pairs.flatten(1) ** (1 - alpha)
        scale = (2 - alpha) ** 2 / (4 * (p ** (2 - alpha)).sum(-1))
        K = geo.sectional_curvature(p, x, y, member) / scale
        assert (K >= powers.nan_to_num(INF).amin(-1)).all()
        assert (K <= powers.nan_to_num(0.0).amax(-1)).all()


def test_curvature_on_a_face_and_at_tiny_weights():
    x, y = tangents(3, seed=1), tangents(3, seed=2)
    zero = torch.zeros(1, dtype=F64)
    wide = [torch.cat([v, zero]) for v in (P, x, y)]
    member = Tsallis(1.5)
    close(geo.sectional_curvature(*wide, member), geo.sectional_curvature(P, x, y, member))
    p = torch.tensor([1 - 3e-11, 2e-11, 1e-11], dtype=F64)
    expected = 0.0625 / (p.prod().sqrt() * p.sqrt().sum() ** 2)
    close(geo.sectional_curvature(p, x, y, Tsallis(1.5)), expected, 1e-12)
    close(geo.sectional_curvature(p, x, y), 0.25, 1e-14)


# --- projection on a level of the mean score -----------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.999])
def test_information_projection_against_a_general_solver(share):
    prior, s = weights(5), rand(5, seed=1)
    level = (1 - share) * s.min() + share * s.max()
    p, tau = geo.information_projection(prior, s, level)
    close(p @ s, level, 1e-13)
    close(p, softmax(prior.log() + s / tau))
    own = (prior @ s).item()
    assert (tau > 0) == (level > own)
    target = [lambda q: q.sum() - 1, lambda q: q @ s.numpy() - level.item()]
    found = minimize(
        lambda q: (q * np.log(np.maximum(q, 1e-300) / prior.numpy())).sum(),
        prior.numpy(),
        bounds=[(0, 1)] * 5,
        constraints=[{"type": "eq", "fun": f} for f in target],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    close(p, found.x, 1e-4)
    assert geo.kl(p, prior) <= found.fun + 1e-8


def test_information_projection_and_pythagoras():
    prior, s = weights(300, 4), rand(300, 4, seed=1)
    r = weights(300, 4, seed=2)
    p, _ = geo.information_projection(prior, s, (r * s).sum(-1))
    close(geo.kl(r, prior), geo.kl(r, p) + geo.kl(p, prior), 1e-12)


def test_information_projection_recovers_the_temperature():
    s, tau = rand(40, 6), torch.logspace(-0.5, 2, 40, dtype=F64)
    p = softmax(s, tau[:, None])
    uniform = torch.full((6,), 1 / 6, dtype=F64)
    found = geo.information_projection(uniform, s, (p * s).sum(-1))
    close(found.weights, p, 1e-11)
    close(found.tau, tau, 1e-9)


def test_information_projection_edges():
    prior, s = weights(4), rand(4, seed=1)
    same = geo.information_projection(prior, s, prior @ s)
    close(same.weights, prior, 1e-14)
    assert same.tau.abs() > 1e12
    near = geo.information_projection(prior, s, s.max() - 1e-14)
    assert near.weights.max() > 1 - 1e-12 and 0 < near.tau < 0.1
    face = prior * torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=F64)
    s[2] = math.nan
    p, _ = geo.information_projection(face, s, 0.5 * (s[0] + s[1]))
    assert p[2] == 0
    close(p.sum(), 1.0)
    big = geo.information_projection(prior, 1e30 * rand(4, seed=1), 1e29)
    close(big.weights, geo.information_projection(prior, rand(4, seed=1), 0.1).weights, 1e-12)


def test_information_projection_is_differentiable():
    prior, s = weights(4), rand(4, seed=1)

    def project(prior, s, level):
        return geo.information_projection(prior, s, level)

    level = torch.tensor(0.1, dtype=F64)
    inputs = tuple(x.requires_grad_() for x in (prior, s, level))
    assert gradcheck(project, inputs) and gradgradcheck(project, inputs)


# --- projection, shapes, devices, errors ---------------------------------------------------------


def test_project_is_the_orthogonal_projection():
    x, support = rand(5), torch.tensor([True, False, True, True, False])
    flat = torch.eye(5, dtype=F64)[support]
    basis = torch.linalg.qr((flat - flat.mean(0)).T)[0][:, :2]
    close(geo.project(x, support), basis @ basis.T @ x)
    close(geo.project(x), x - x.mean())
    assert (geo.project(x, torch.zeros(5, dtype=torch.bool)) == 0).all()
    x[1] = INF
    assert geo.project(x, support).isfinite().all()


CALLS = {
    "potential": lambda p, q: geo.potential(p, 0.5),
    "project": lambda p, q: geo.project(p, q > 0),
    "fisher": lambda p, q: geo.Fisher(p, "score", 0.5) @ q,
    "fisher pinv": lambda p, q: geo.Fisher(p).pinv(q),
    "fisher mean": lambda p, q: geo.Fisher(p, "mean") @ q,
    "natural_gradient": lambda p, q: geo.natural_gradient(q, p, 0.5),
    "dual_coordinates": lambda p, q: geo.dual_coordinates(p, Tsallis(1.5)),
    "mirror_step": lambda p, q: geo.mirror_step(p, q, 0.5),
    "replicator_field": geo.replicator_field,
    "replicator": lambda p, q: geo.replicator(p, q, 0.5),
    "kl": geo.kl,
    "bregman": lambda p, q: geo.bregman(p, q, 0.5),
    "omega_bregman": lambda p, q: geo.omega_bregman(p, q, Tsallis(1.5)),
    "distance": geo.fisher_rao_distance,
    "geodesic": lambda p, q: geo.fisher_rao_geodesic(p, q, 0.5),
    "e_geodesic": lambda p, q: geo.e_geodesic(p, q, 0.5),
    "m_geodesic": lambda p, q: geo.m_geodesic(p, q, 0.5),
    "flat": lambda p, q: geo.Metric(p, Tsallis(1.5), 0.5) @ (p - q),
    "sharp": lambda p, q: geo.Metric(p, Tsallis(1.5), 0.5).sharp(q),
    "norm": lambda p, q: geo.Metric(p).norm(p - q),
    "embedding": lambda p, q: geo.embedding(p, Tsallis(1.5)),
    "embedding by quadrature": lambda p, q: geo.embedding(p, Power()),
    "curvature": lambda p, q: geo.sectional_curvature(p, p - q, p - q.roll(1, -1), Tsallis(1.5)),
    "projection": lambda p, q: geo.information_projection(p, q, 0.2).weights,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_rows_are_independent_and_live_anywhere(call):
    p, q = weights(2, 3, 4, spread=0.3), weights(2, 3, 4, seed=1, spread=0.3)
    q = q + torch.tensor([0.1, -0.1, 0.0, 0.0], dtype=F64)
    whole = call(p, q)
    close(whole[1, 2], call(p[1, 2], q[1, 2]), 1e-13)
    close(call(p.float(), q.float()), whole, 2e-4)
    assert call(p.bfloat16(), q.bfloat16()).dtype == torch.float32
    elsewhere = call(p.to("meta"), q.to("meta"))
    assert elsewhere.device.type == "meta" and elsewhere.shape == whole.shape
    mapped = torch.vmap(call)(p, q)
    close(mapped, whole, 1e-13)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"projection", "curvature"}))
def test_no_keys_give_empty_results(name):
    out = CALLS[name](torch.zeros(2, 0), torch.zeros(2, 0))
    assert out.shape[0] == 2 and not out.isnan().any()


ONE = torch.tensor([0.5, 0.5, 0.0])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: geo.kl(P, torch.ones(4) / 4), ValueError, r"p \(3,\) and q \(4,\)"),
        (lambda: geo.kl(torch.ones(2, 3), torch.ones(4, 3)), ValueError, r"\(2, 3\).*\(4, 3\)"),
        (lambda: geo.kl(torch.tensor([1, 0]), P), TypeError, "p must be.*int64"),
        (lambda: geo.kl(P, 0.5), TypeError, "q must be a torch.Tensor, got float"),
        (lambda: geo.kl(torch.tensor(1.0), P), ValueError, r"shape \(\)"),
        (lambda: geo.Fisher(P, "theta"), ValueError, "chart.*'theta'"),
        (lambda: geo.Fisher(P, "score", -1.0), ValueError, "tau.*-1.0"),
        (lambda: geo.Fisher(P) @ torch.ones(4), ValueError, r"p \(3,\) and v \(4,\)"),
        (lambda: geo.natural_gradient(P, P, chart="mean"), ValueError, "chart.*'mean'"),
        (lambda: geo.project(P, torch.ones(3)), TypeError, "support.*float32"),
        (lambda: geo.project(P, [True, True, False]), TypeError, "support.*list"),
        (lambda: geo.project(P, torch.tensor([True, False])), ValueError, r"support \(2,\)"),
        (lambda: geo.project(P, torch.tensor([True])), ValueError, r"x \(3,\).*support \(1,\)"),
        (lambda: geo.project(P, torch.tensor(True)), ValueError, r"support \(\)"),
        (lambda: geo.mirror_step(P, P, "x"), TypeError, "eta.*str"),
        (lambda: geo.mirror_step(P, P, math.nan), ValueError, "eta must be finite, got nan"),
        (lambda: geo.mirror_step(P, P, torch.tensor(-INF)), ValueError, "eta.*-inf"),
        (lambda: geo.mirror_step(P, P, P), ValueError, "eta must have size 1.*got 3"),
        (
            lambda: geo.mirror_step(torch.ones(2, 3), P, torch.ones(5, 1)),
            ValueError,
            r"eta of shape \(5, 1\).*p \(2, 3\)",
        ),
        (lambda: geo.replicator(P, P, INF), ValueError, "t must be finite, got inf"),
        (lambda: geo.mirror_step(P, P, 1.0, 1.5), TypeError, "regularizer.*float"),
        (lambda: geo.fisher_rao_distance(P, Q, 0), ValueError, r"product.*\(3,\).*\(0,\)"),
        (lambda: geo.fisher_rao_distance(P[None], Q, (-1,)), ValueError, r"\(-1,\)"),
        (
            lambda: geo.fisher_rao_distance(P.expand(2, 4, 3), Q, (1, -2)),
            ValueError,
            r"\(2, 4, 3\) twice: \(1, -2\)",
        ),
        (lambda: geo.fisher_rao_distance(P[None], Q, 5), ValueError, r"\(5,\)"),
        (lambda: geo.Metric(ONE) @ torch.tensor([1.0, 0, -1]), ValueError, "face: -1.0"),
        (lambda: geo.curve_length(P), ValueError, r"points.*\(3,\)"),
        (lambda: geo.sectional_curvature(P, P, Q - P), ValueError, "x must sum to 0.*1.0"),
        (lambda: geo.sectional_curvature(P, Q - P, P - Q), ValueError, "parallel"),
        (lambda: geo.information_projection(P, Q, 0.5), ValueError, "between 0.2 and 0.5, got 0.5"),
        (lambda: geo.information_projection(P, 0 * Q, 0.0), ValueError, "between 0.0 and 0.0"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()
