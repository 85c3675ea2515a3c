"""Advantages, estimators and their recording, against autograd, enumeration and closed forms."""

import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import entmax as package
import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import eotcourse
from eotcourse import ALiBi, LogPrior, Padding, Regularizer, Shannon, Tsallis, attention, policy
from eotcourse.nn import MultiheadAttention, record_advantages

F64 = torch.float64
INF = math.inf


class Quartic(Regularizer):
    """A member of nobody's family, all of it found from the penalty."""

    def penalty(self, p):
        return (p**2 / 2 + p**4 / 4).sum(-1)


MEMBERS = {
    "default": None,
    "softmax": Shannon(),
    "entmax 1.3": Tsallis(1.3),
    "entmax 1.5": Tsallis(1.5),
    "sparsemax": Tsallis(2.0),
    "entmax 3": Tsallis(3.0),
    "per head": Tsallis(torch.tensor([1.0, 1.7, 2.5])),
    "own": Quartic(),
    "prior": Shannon(ALiBi([0.5, 0.25, 0.125])),
    "sparse prior": Tsallis(1.5, LogPrior(torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05]).log())),
    "padding": Tsallis(2.0, Padding(torch.tensor([[1, 1, 0, 1, 1, 0]]) > 0)),
}
members = pytest.mark.parametrize("member", MEMBERS.values(), ids=list(MEMBERS))


def rand(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=F64, requires_grad=grad)


def close(actual, expected, atol=1e-13):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


def row(*numbers, dtype=F64):
    return torch.tensor(numbers, dtype=dtype)


def scores(heads=3, queries=4, keys=6):
    """Scores with excluded keys; the last query of all may attend to nothing."""
    s = 2 * rand(2, heads, queries, keys)
    s[:, :, 1, 3:] = -INF
    s[-1, :, -1] = -INF
    return s.requires_grad_()


# --- the backward pass ----------------------------------------------------------------------


@members
@pytest.mark.parametrize("tau", [0.7, torch.tensor([0.5, 1.0, 2.0], dtype=F64)[:, None, None]])
def test_score_gradient_is_the_backward_pass(member, tau):
    s, v, target = scores(), rand(2, 3, 6, 5, seed=1), rand(2, 3, 4, 5, seed=2)
    p = (member or Shannon())(s, tau)
    c = p @ v
    loss = (c - target).pow(4).sum()
    ds, dp, dc = torch.autograd.grad(loss, (s, p, c))
    a = policy.marginal_utility(dc, v)
    close(a, -dp)
    ours = policy.score_gradient(a, p, tau, member)
    close(ours, ds, 1e-11)
    close(ours.sum(-1), torch.zeros(2, 3, 4, dtype=F64), 1e-11)
    assert not ours[p == 0].any() and not ours[-1, :, -1].any()
    J = (member or Shannon()).jacobian(p, tau)
    close(ours, -(J @ a), 1e-11)
    close(policy.bandit_gradient(a, p, tau, member), -ours, 0)


@members
def test_advantage_is_what_the_baseline_leaves(member):
    p, a = (member or Shannon())(scores(), 0.7).detach(), rand(2, 3, 4, 6, seed=1)
    b, advantage = policy.baseline(a, p, member), policy.advantage(a, p, member)
    u = p if member is None else member.response(p)
    alive = p.sum(-1) > 0
    close(advantage, a - b[..., None], 0)
    close(b[alive], ((u * a).sum(-1) / u.sum(-1))[alive])
    close((u * advantage).sum(-1)[alive], torch.zeros_like(b[alive]), 1e-11)
    assert not b[~alive].any() and (~alive).sum() == 3
    # A constant more for every key of a row changes no advantage.
    close(policy.advantage(a + 7, p, member)[alive], advantage[alive], 1e-12)


def test_baselines_of_softmax_and_sparsemax_differ():
    a, p = row(3.0, 1.0, 9.0), row(0.9, 0.1, 0.0)
    close(policy.baseline(a, p), row(2.8)[0])
    close(policy.baseline(a, p, Tsallis(2.0)), row(2.0)[0])


@pytest.mark.parametrize("name, alpha", [("entmax15", 1.5), ("sparsemax", 2.0)])
def test_against_the_backward_pass_of_the_package(name, alpha):
    s, a = rand(5, 7, grad=True), rand(5, 7, seed=1)
    p = getattr(package, name)(s)
    (ds,) = torch.autograd.grad(p, s, -a)
    close(policy.score_gradient(a, p, 1.0, Tsallis(alpha)), ds)


def test_sign_and_units_of_the_worked_example():
    s, tau = row(1.0, 0.0, -1.0), 2.0
    v, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]], dtype=F64), row(1.0, 0.0)
    p = eotcourse.softmax(s, tau)
    a = policy.marginal_utility((p @ v - y)[None], v)[0]
    close(a, row(0.67984, -0.49352, -1.17336), 5e-6)
    close(policy.baseline(a, p), row(-0.02591)[0], 5e-6)
    close(policy.score_gradient(a, p, tau), row(-0.17872, 0.07182, 0.10690), 5e-6)


def test_flash_baseline_is_the_baseline_of_softmax():
    s, v, g = scores(), rand(2, 3, 6, 5, seed=1), rand(2, 3, 4, 5, seed=2)
    p = eotcourse.softmax(s)
    a = policy.marginal_utility(g, v)
    close(policy.flash_baseline(g, p @ v), policy.baseline(a, p))
    sparse = eotcourse.sparsemax(s)
    other = policy.baseline(a, sparse, Tsallis(2.0))
    assert (policy.flash_baseline(g, sparse @ v) - other).abs().max() > 0.1


def test_query_gradient_of_scaled_dot_product_attention():
    q, k, v = rand(2, 3, 4, 5, grad=True), rand(2, 3, 6, 5, seed=1), rand(2, 3, 6, 2, seed=2)
    g = rand(2, 3, 4, 2, seed=3)
    (dq,) = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v), q, g)
    tau = math.sqrt(5)
    p = eotcourse.softmax(q @ k.mT, tau)
    a = policy.marginal_utility(g, v)
    close(policy.score_gradient(a, p, tau) @ k, dq)
    close((policy.query_jacobian(p, k, v, tau).mT @ g[..., None]).squeeze(-1), dq)


@members
def test_query_jacobian_against_autograd(member):
    q, k, v = rand(3, 4, 5), rand(3, 6, 5, seed=1), rand(3, 6, 2, seed=2)
    member = member or Shannon()
    tau = torch.tensor([[0.5], [1.0], [2.0], [3.0]], dtype=F64)

    def output(q):
        return member(q @ k.mT, tau) @ v

    p = member(q @ k.mT, tau)
    ours = policy.query_jacobian(p, k, v, tau, member)
    assert ours.shape == (3, 4, 2, 5)
    full = torch.autograd.functional.jacobian(output, q)
    close(ours, torch.einsum("hlvhle->hlve", full), 1e-11)


def test_single_rows_have_no_dimension_of_queries():
    p, k, v = eotcourse.softmax(rand(6)), rand(6, 5, seed=1), rand(6, 2, seed=2)
    one = policy.query_jacobian(p, k, v, 2.0)
    assert one.shape == (2, 5)
    close(one, policy.query_jacobian(p[None], k, v, 2.0)[0], 0)
    close(one, policy.covariance(p, v, k) / 2)


def test_covariance_against_numpy():
    p, x, y = rand(3, 6).square(), rand(2, 1, 6, 5, seed=1), rand(6, 2, seed=2)
    ours = policy.covariance(p, x, y)
    assert ours.shape == (2, 1, 3, 5, 2)
    for b, i in product(range(2), range(3)):
        both = np.concatenate([x[b, 0].T, y.T])
        expected = np.cov(both, aweights=p[i], ddof=0)[:5, 5:]
        close(ours[b, 0, i], torch.from_numpy(expected))


def test_covariance_keeps_its_digits_far_from_the_origin():
    p, x = row(0.25, 0.75), torch.tensor([[0.0], [1.0]], dtype=F64)
    close(policy.covariance(p, x + 2.0**40, x - 2.0**40), torch.full((1, 1), 0.1875, dtype=F64))
    assert not policy.covariance(torch.zeros(3, 2, dtype=F64), x, x).any()
    close(policy.covariance(p.float(), x.float(), x), torch.full((1, 1), 0.1875, dtype=F64))


# --- estimators -----------------------------------------------------------------------------


@members
def test_bandit_gradient_is_that_of_the_expected_reward(member):
    s, r = scores(), rand(2, 3, 4, 6, seed=1)
    p = (member or Shannon())(s, 0.7)
    (expected,) = torch.autograd.grad((p * r).sum(), s)
    close(policy.bandit_gradient(r, p, 0.7, member), expected, 1e-11)


def test_hard_attention_has_another_gradient():
    p, v = row(0.8, 0.2), row(-1.0, 1.0)[:, None]
    soft = policy.marginal_utility((p @ v)[None], v)[0]
    close(-policy.bandit_gradient(soft, p), row(0.192, -0.192))
    close(policy.bandit_gradient(-(v[:, 0] ** 2) / 2, p), row(0.0, 0.0), 1e-16)


CONSTANTS = ["none", "mean", "optimal", 3.0, row(1.0, -1.0, 0.5)[:, None]]


@pytest.mark.parametrize("b", CONSTANTS, ids=str)
def test_mean_and_variance_over_all_keys(b):
    p, a, tau = eotcourse.softmax(rand(3, 2, 5)), rand(3, 2, 5, seed=1), 0.7
    draws = torch.arange(5)[:, None, None].expand(5, 3, 2)
    estimates = policy.reinforce(a, p, draws, tau, b)
    chances = p.movedim(-1, 0)[..., None]
    exact = policy.bandit_gradient(a, p, tau)
    close((chances * estimates).sum(0), exact)
    variance = (chances * (estimates - exact) ** 2).sum((0, -1))
    close(policy.estimator_variance(a, p, b, tau), variance)


@pytest.mark.parametrize("b, shrunk", [("leave_one_out", 1.0), ("batch_mean", 2 / 3)])
def test_baselines_from_other_draws_over_all_batches(b, shrunk):
    p, a = eotcourse.softmax(rand(4)), rand(4, seed=1)
    batches = torch.tensor(list(product(range(4), repeat=3))).T
    # Three draws for each of 64 rows: one row for every batch there is.
    estimates = policy.reinforce(a.expand(64, 4), p, batches, 2.0, b)
    expected = (p[batches].prod(0)[:, None] * estimates).sum(1)
    close(expected, shrunk * policy.bandit_gradient(a, p, 2.0).expand(3, 4))


def test_mean_baseline_can_be_64_times_worse_than_none():
    a, p = row(1.0, 0.0), row(0.9, 0.1)
    variance = [policy.estimator_variance(a, p, b) for b in ("none", "mean", "optimal")]
    close(torch.stack(variance), row(0.0018, 0.1152, 0.0), 1e-15)
    close(policy.optimal_baseline(a, p), row(0.1)[0])


def test_optimal_baseline_is_the_least():
    p, a = eotcourse.softmax(rand(7, 5)), rand(7, 5, seed=1)
    best = policy.optimal_baseline(a, p).requires_grad_()
    (slope,) = torch.autograd.grad(policy.estimator_variance(a, p, best).sum(), best)
    close(slope, torch.zeros(7, dtype=F64))
    least = policy.estimator_variance(a, p, best)
    for other in (best + 0.1, best - 0.1, "mean", "none"):
        assert (policy.estimator_variance(a, p, other) > least).all()
    uniform = torch.full((5,), 0.2, dtype=F64)
    close(policy.optimal_baseline(a, uniform), policy.baseline(a, uniform))


def test_certain_and_empty_rows_have_no_variance():
    a, p = rand(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=F64)
    for b in ("none", "mean", "optimal", 5.0):
        assert not policy.estimator_variance(a, p, b).any()
    assert not policy.optimal_baseline(a, p).any()
    draws = torch.tensor([[1, -1], [1, -1]])
    for b in ("none", "mean", "optimal", "leave_one_out", "batch_mean"):
        assert not policy.reinforce(a, p, draws, baseline=b).any()


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16])
def test_draws_have_the_softmax_distribution(dtype):
    s = torch.tensor([[1.0, 0.0, -2.0, -INF], [0.5, 0.5, 0.5, 0.5]], dtype=dtype)
    count = 200_000
    draws = policy.gumbel_max(s, 0.5, count, generator=torch.Generator().manual_seed(0))
    assert draws.shape == (count, 2) and draws.dtype == torch.int64
    frequency = F.one_hot(draws, 4).double().mean(0)
    p = eotcourse.softmax(s.double(), 0.5)
    assert not frequency[p == 0].any()
    z = (frequency - p) / (p * (1 - p) / count).sqrt()
    assert z[p > 0].abs().max() < 5


def test_draws_follow_generator_and_temperature():
    s, generator = rand(3, 4, 5), torch.Generator()
    first, again = (policy.gumbel_max(s, 1.0, 9, generator=generator.manual_seed(1)) for _ in "ab")
    assert first.shape == (9, 3, 4) and torch.equal(first, again)
    cold = policy.gumbel_max(s, torch.full((4, 1), 1e-6, dtype=F64))
    assert torch.equal(cold[0], s.argmax(-1))
    assert torch.equal(policy.gumbel_max(1e30 * s, 1e20)[0], s.argmax(-1))


def test_rows_without_keys_draw_none():
    s = torch.tensor([[0.0, -INF], [-INF, -INF], [math.nan, 0.0], [INF, 0.0]], dtype=F64)
    assert policy.gumbel_max(s, num_samples=2).tolist() == [[0, -1, -1, -1]] * 2
    assert policy.gumbel_max(torch.zeros(2, 0), num_samples=3).tolist() == [[-1, -1]] * 3


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_groups_along_any_dimension(leave_one_out):
    r = rand(3, 4, 5)
    for dim in range(3):
        ours = policy.group_advantages(r, dim, leave_one_out=leave_one_out)
        n = r.shape[dim]
        for i in range(n):
            kept = [j for j in range(n) if not leave_one_out or j != i]
            others = r.index_select(dim, torch.tensor(kept))
            close(ours.select(dim, i), r.select(dim, i) - others.mean(dim))


# --- numerics, devices, transforms ----------------------------------------------------------


def calls(dtype=F64, device="cpu"):
    """Every function of the module, on small inputs."""
    make = dict(dtype=dtype, device=device)
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.9, 0.0]], **make)
    a = torch.tensor([[1.0, -2.0, 0.5], [0.25, 4.0, 8.0]], **make)
    x, y = torch.ones(3, 4, **make).cumsum(0), torch.ones(3, 2, **make).cumsum(1)
    draws = torch.zeros(5, 2, dtype=torch.int64, device=device)
    tau = torch.tensor([[0.5], [2.0]], **make)
    member = Tsallis(1.5)
    yield "marginal_utility", policy.marginal_utility(x, x), (3, 3)
    yield "baseline", policy.baseline(a, p, member), (2,)
    yield "advantage", policy.advantage(a, p, member), (2, 3)
    yield "score_gradient", policy.score_gradient(a, p, tau, member), (2, 3)
    yield "flash_baseline", policy.flash_baseline(x, x), (3,)
    yield "covariance", policy.covariance(p, x, y), (2, 4, 2)
    yield "query_jacobian", policy.query_jacobian(p, x, y, tau, member), (2, 2, 4)
    yield "bandit_gradient", policy.bandit_gradient(a, p, tau), (2, 3)
    yield "optimal_baseline", policy.optimal_baseline(a, p), (2,)
    yield "estimator_variance", policy.estimator_variance(a, p, "mean", tau), (2,)
    yield "group_advantages", policy.group_advantages(a, leave_one_out=True), (2, 3)
    for b in ("none", "mean", "optimal", "leave_one_out", "batch_mean", 2.0):
        yield "reinforce", policy.reinforce(a, p, draws, tau, b), (5, 2, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision(dtype):
    for (name, ours, _), (_, expected, _) in zip(calls(dtype), calls()):
        assert ours.dtype == torch.float32
        atol = 1e-5 if dtype == torch.float32 else 0.05 * expected.abs().max().item()
        torch.testing.assert_close(ours.double(), expected, atol=atol, rtol=0, msg=name)


def test_every_function_runs_on_any_device():
    """A tensor made on the CPU by mistake can't be combined with one of another device."""
    seen = {"gumbel_max"}
    for name, result, shape in calls(device="meta"):
        assert result.device.type == "meta" and result.shape == shape, name
        seen.add(name)
    assert policy.gumbel_max(torch.zeros(2, 3, device="meta"), num_samples=5).shape == (5, 2)
    assert seen == set(policy.__all__)


def test_half_precision_is_summed_in_single():
    p = torch.full((4096,), 1 / 4096, dtype=torch.bfloat16)
    a = torch.ones(4096, dtype=torch.bfloat16)
    assert policy.baseline(a, p).item() == 1.0
    assert policy.marginal_utility(a[None], a[None]).item() == -4096


@pytest.mark.parametrize("odd", [math.nan, INF, -INF, 1e300])
def test_keys_without_weight_have_no_say(odd):
    p, a, without = row(0.75, 0.25, 0.0), row(1.0, 0.0, odd), row(1.0, 0.0, 0.0)
    draws = torch.tensor([0, 1])
    for member in (None, Tsallis(1.5), Tsallis(2.0), Tsallis(3.0)):
        for f in (policy.baseline, lambda a, p, m: policy.score_gradient(a, p, 1.0, m)):
            close(f(a, p, member), f(without, p, member), 0)
    for f in (policy.optimal_baseline, policy.estimator_variance):
        close(f(a, p), f(without, p), 0)
    v, clean, g = (torch.stack([x, 2 * x]).mT for x in (a, without, row(3.0, 5.0, 0.0)))
    for x, y in ((v, g), (g, v)):
        expected = [clean if z is v else z for z in (x, y)]
        close(policy.covariance(p, x, y), policy.covariance(p, *expected), 0)
        for member in (None, Tsallis(1.5)):
            ours = policy.query_jacobian(p, x, y, 2.0, member)
            close(ours, policy.query_jacobian(p, *expected, 2.0, member), 0)
    for b in ("mean", "optimal", "leave_one_out"):
        ours = policy.reinforce(a, p, draws, baseline=b)
        close(ours, policy.reinforce(without, p, draws, baseline=b), 0)


def test_not_a_number_stays_in_its_row():
    p, a = eotcourse.softmax(rand(3, 4)), rand(3, 4, seed=1)
    bad = a.clone()
    bad[1, 2] = math.nan
    for f in (policy.baseline, policy.score_gradient, policy.estimator_variance):
        ours, expected = f(bad, p), f(a, p)
        assert ours[1].isnan().all()
        close(ours[[0, 2]], expected[[0, 2]], 0)


def test_derivatives():
    a, s, v = rand(2, 4, grad=True), rand(2, 4, seed=1, grad=True), rand(4, 3, seed=2, grad=True)
    for member in (None, Tsallis(1.5)):
        weigh = member or Shannon()
        assert gradcheck(lambda a, s: policy.score_gradient(a, weigh(s), 0.7, member), (a, s))
        assert gradcheck(lambda s, v: policy.query_jacobian(weigh(s), v, v, 0.7, member), (s, v))
    assert gradcheck(lambda a, s: policy.estimator_variance(a, eotcourse.softmax(s)), (a, s))


def test_transforms_of_torch():
    a, p, tau = rand(5, 2, 4), eotcourse.softmax(rand(5, 2, 4, seed=1)), torch.ones(5, dtype=F64)
    ours = torch.vmap(policy.score_gradient)(a, p, tau)
    close(ours, policy.score_gradient(a, p))
    draws = torch.zeros(5, 3, 2, dtype=torch.int64)
    ours = torch.vmap(lambda a, p, d: policy.reinforce(a, p, d, baseline="mean"))(a, p, draws)
    close(ours, policy.reinforce(a, p, draws.movedim(0, 1), baseline="mean").movedim(1, 0))

    def everything(a, p, draws):
        estimates = policy.reinforce(a, p, draws, baseline="leave_one_out")
        ds = policy.score_gradient(a, p, 2.0, Tsallis(1.5))
        return ds, estimates, policy.covariance(p, a.mT, a.mT)

    inputs = a[0], p[0], draws[0]
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    for ours, expected in zip(compiled(*inputs), everything(*inputs)):
        close(ours, expected)


A, P, D = torch.zeros(2, 3), torch.full((2, 3), 1 / 3), torch.zeros(4, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: policy.baseline(A[:, :2], P), ValueError, r"utility \(2, 2\) and p \(2, 3\)"),
        (lambda: policy.advantage(A, torch.zeros(3, 3)), ValueError, r"\(2, 3\) and p \(3, 3\)"),
        (lambda: policy.score_gradient(A.sum(), P), ValueError, r"utility \(\)"),
        (lambda: policy.baseline(A.long(), P), TypeError, "utility must be float.*int64"),
        (lambda: policy.baseline(A, [0.5, 0.5]), TypeError, "p must be a torch.Tensor, got list"),
        (lambda: policy.baseline(A, P, 1.5), TypeError, "Regularizer, got float"),
        (lambda: policy.score_gradient(A, P, 0.0), ValueError, "tau must be positive.*got 0"),
        (lambda: policy.bandit_gradient(A, P, -1.0), ValueError, "tau.*got -1"),
        (lambda: policy.marginal_utility(A, torch.zeros(4, 2)), ValueError, r"value \(4, 2\)"),
        (lambda: policy.marginal_utility(A[0], A), ValueError, r"grad_output \(3,\)"),
        (lambda: policy.flash_baseline(A, A.mT), ValueError, r"output \(3, 2\)"),
        (lambda: policy.covariance(P, A, A.mT), ValueError, r"x of shape \(2, 3\).*3 weights"),
        (lambda: policy.query_jacobian(P, A.mT, A), ValueError, r"value of shape \(2, 3\)"),
        (lambda: policy.query_jacobian(P[0], A, A.mT), ValueError, r"key of.* is \(3,\)$"),
        (
            lambda: policy.covariance(torch.ones(2, 5, 3), *torch.ones(2, 4, 3, 2)),
            ValueError,
            r"p \(2, 5, 3\), x \(4, 3, 2\), y \(4, 3, 2\)",
        ),
        (lambda: policy.covariance(P, A.mT, [1.0]), TypeError, "y must be.*list"),
        (lambda: policy.covariance(P, A.mT, A[0]), ValueError, r"y of shape \(3,\)"),
        (lambda: policy.gumbel_max(A, num_samples=0), ValueError, "num_samples.*got 0"),
        (lambda: policy.gumbel_max(A, 1.0, 2.5), TypeError, "num_samples.*got 2.5"),
        (lambda: policy.gumbel_max(A, math.inf), ValueError, "tau.*got inf"),
        (lambda: policy.gumbel_max(A.int()), TypeError, "int32"),
        (lambda: policy.reinforce(A, P, [0, 1]), TypeError, "draws must be a torch.*got list"),
        (lambda: policy.reinforce(A, P, D.float()), TypeError, "draws must be int64.*float32"),
        (lambda: policy.reinforce(A, P, D + 3), ValueError, "draw 3 among 3 keys"),
        (lambda: policy.reinforce(A, P, D - 2), ValueError, "draw -2 among 3 keys"),
        (lambda: policy.reinforce(A, P, D[0]), ValueError, r"draws of shape \(2,\).*\(2,\)"),
        (lambda: policy.reinforce(A, P, D, 0.0), ValueError, "tau"),
        (lambda: policy.reinforce(A, P, D, baseline="average"), ValueError, "'average'"),
        (lambda: policy.reinforce(A, P, D, baseline=A), ValueError, r"baseline of shape \(2, 3\)"),
        (lambda: policy.reinforce(A, P, D[:1], baseline="leave_one_out"), ValueError, "got 1"),
        (lambda: policy.estimator_variance(A, P, "batch_mean"), ValueError, "'batch_mean'"),
        (lambda: policy.group_advantages(A[:, :1], leave_one_out=True), ValueError, "got 1"),
        (lambda: policy.group_advantages(A.sum()), ValueError, r"shape \(\)"),
        (lambda: record_advantages("x").__enter__(), TypeError, "model must be.*got str"),
    ],
)
def test_errors_name_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- recording --------------------------------------------------------------------------------


class Two(nn.Module):
    """Two layers, one of them the package's module, one that calls the function it imported."""

    def __init__(self, dropout=0.0, regularizer=None):
        super().__init__()
        self.first = MultiheadAttention(6, 3, dropout, regularizer=regularizer, num_kv_heads=1)
        self.second = Foreign(regularizer)
        self.double()

    def forward(self, x):
        return self.second(self.first(x, x, x)[0])


class Foreign(nn.Module):
    def __init__(self, regularizer=None):
        super().__init__()
        self.qkv, self.regularizer = nn.Linear(6, 18), regularizer

    def forward(self, x):
        return attention(*self.qkv(x).chunk(3, -1), is_causal=True, regularizer=self.regularizer)


def model(**arguments):
    torch.manual_seed(0)
    return Two(**arguments), rand(5, 6)


def gradients(model, x):
    model.zero_grad()
    model(x).pow(3).sum().backward()
    return [p.grad.clone() for p in model.parameters()]


@members
def test_recorded_advantages_are_the_backward_pass(member):
    q, k, v = rand(2, 3, 4, 5, grad=True), rand(2, 1, 6, 5, seed=1), rand(2, 1, 6, 2, seed=2)
    mask = torch.ones(2, 1, 4, 6, dtype=torch.bool)
    mask[:, :, 1, 3:] = mask[1, :, 2] = False
    with record_advantages() as calls:
        out = attention(q, k, v, mask, scale=0.5, enable_gqa=True, regularizer=member)
    (call,) = calls
    assert (call.name, call.utility, call.baseline, call.advantage) == (None,) * 4
    assert call.regularizer is member or member is None
    g = rand(*out.shape, seed=3)
    (dq,) = torch.autograd.grad(out, q, g)
    a = policy.marginal_utility(g, v)
    close(call.utility, a)
    close(call.baseline, policy.baseline(a, call.weights, member), 1e-12)
    close(call.advantage, policy.advantage(a, call.weights, member), 1e-12)
    close(policy.score_gradient(call.utility, call.weights, 2.0, member) @ k, dq, 1e-11)
    assert not call.baseline[1, :, 2].any()
    assert not any(x.requires_grad for x in (call.weights, call.utility, call.advantage))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("regularizer", [None, Tsallis(1.5)], ids=["softmax", "entmax"])
def test_recording_changes_no_bit(dropout, regularizer):
    net, x = model(dropout=dropout, regularizer=regularizer)
    torch.manual_seed(1)
    expected = gradients(net, x)
    torch.manual_seed(1)
    with record_advantages(net) as calls:
        ours = gradients(net, x)
    assert all(map(torch.equal, ours, expected))
    assert [call.name for call in calls] == ["first", "second"]
    assert [tuple(call.weights.shape) for call in calls] == [(1, 3, 5, 5), (5, 5)]
    assert all(call.advantage.any() for call in calls)
    hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in net.modules()]
    assert not any(map(any, hooks))


def test_utility_under_dropout_is_that_of_the_weight_before_it():
    q, k, v = rand(4, 3, grad=True), rand(6, 3, seed=1), rand(6, 2, seed=2)
    torch.manual_seed(0)
    with record_advantages() as calls:
        out = attention(q, k, v, dropout_p=0.5)
        out.sum().backward()
    torch.manual_seed(0)
    kept = F.dropout(torch.ones(4, 6, dtype=F64), 0.5)
    close(calls[0].utility, -kept * v.sum(-1))
    # The output alone still gives the baseline.
    close(calls[0].baseline, policy.flash_baseline(torch.ones_like(out), out.detach()))


def test_loss_that_reads_the_weights_counts():
    q, k, v = rand(4, 3, grad=True), rand(6, 3, seed=1), rand(6, 2, seed=2)
    with record_advantages() as calls:
        _, aux = attention(q, k, v, return_aux=True, need_weights=True)
        (5 * aux.weights[:, 0]).sum().backward()
    close(calls[0].utility, -5 * F.one_hot(torch.zeros(4, dtype=torch.long), 6).double(), 0)


def test_only_the_values_learn():
    q, k, v = rand(4, 3), rand(6, 3, seed=1), rand(6, 2, seed=2, grad=True)
    with record_advantages() as calls:
        out, aux = attention(q, k, v, return_aux=True, need_weights=True)
        out.sum().backward()
    close(calls[0].utility, -v.detach().sum(-1).expand(4, 6))
    close(v.grad, aux.weights.sum(0)[:, None].expand(6, 2))


def test_only_the_prior_learns():
    bias = rand(6, grad=True)
    with record_advantages() as calls:
        p = attention(rand(4, 3), rand(6, 3, seed=1), torch.eye(6).double(),
                      regularizer=Shannon(LogPrior(bias)))  # fmt: skip
        p[:, 0].sum().backward()
    ds = policy.score_gradient(calls[0].utility, calls[0].weights)
    close(ds.sum(0), bias.grad)


def test_nothing_learns():
    q, k, v = rand(4, 3), rand(6, 3, seed=1), rand(6, 2, seed=2)
    with record_advantages() as calls:
        assert not attention(q, k, v).requires_grad
        with torch.no_grad():
            attention(q.requires_grad_(), k, v)
        with torch.inference_mode():
            attention(q, k, v)
    assert len(calls) == 3
    assert all(call.advantage is None and call.weights.shape == (4, 6) for call in calls)


def test_every_backward_pass_replaces_the_one_before():
    q, k, v = rand(4, 3, grad=True), rand(6, 3, seed=1), rand(6, 2, seed=2)
    with record_advantages() as calls:
        out = attention(q, k, v)
    out[:, 0].sum().backward(retain_graph=True)
    first = calls[0].utility
    close(first, -v[:, 0].expand(4, 6))
    out[:, 1].sum().backward(retain_graph=True)
    close(calls[0].utility, -v[:, 1].expand(4, 6))
    close(first, -v[:, 0].expand(4, 6))
    torch.autograd.grad(out.pow(2).sum(), q, create_graph=True)
    close(calls[0].utility, policy.marginal_utility(2 * out.detach(), v))
    assert not calls[0].utility.requires_grad and not calls[0].baseline.requires_grad


def test_nested_contexts_see_their_own_calls():
    net, x = model()
    with record_advantages() as outer:
        with record_advantages(net.second) as second, record_advantages(net) as both:
            net(x).sum().backward()
        attention(x, x, x)
    attention(x, x, x)
    assert [[call.name for call in calls] for calls in (outer, second, both)] == [
        [None] * 3, [""], ["first", "second"],
    ]  # fmt: skip
    for calls in (second, both):
        assert torch.equal(calls[-1].advantage, outer[1].advantage)


def test_calls_outside_the_model_are_not_recorded():
    net, x = model()
    with record_advantages(net) as calls:
        attention(x, x, x)
        net.second(x)
        attention(x, x, x)
    assert [call.name for call in calls] == ["second"]


def test_errors_leave_nothing_behind(recwarn):
    net, x = model()
    other = net.first.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(KeyError), record_advantages(net) as calls:
        with pytest.raises(ZeroDivisionError):
            net(x)
        other.remove()
        with pytest.raises(ValueError):
            net(x[:, :3])
        attention(x, x, x)
        net.second(x)
        raise KeyError
    net(x)
    assert [call.name for call in calls] == ["second"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    # PyTorch silences, with a warning, a hook of ours that fails after the error of another.
    assert not any("silenced" in str(warning.message) for warning in recwarn)


def test_threads_do_not_see_each_other():
    net, x = model()
    inside, go = threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)

    def elsewhere():
        inside.wait()
        net(x)
        with record_advantages(net) as calls:
            net.second(x).sum().backward()
        go.wait()
        return calls

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(elsewhere)
        with record_advantages(net) as ours:
            inside.wait()
            go.wait()
            net.first(x, x, x)
            theirs = theirs.result()
    assert [call.name for call in ours] == ["first"]
    assert [call.name for call in theirs] == ["second"] and theirs[0].advantage.any()


def test_tensors_are_let_go():
    net, x = model()
    with record_advantages(net) as calls:
        net(x).sum().backward()
        gone = [weakref.ref(call) for call in calls]
        calls.clear()
        assert not any(ref() for ref in gone)
        out = net(x)
        out.grad_fn.metadata["witness"] = witness = nn.Module()
        graph = weakref.ref(witness)
        del out, witness
        assert len(calls) == 2 and graph() is None


def test_half_precision_and_autocast():
    q, k, v = (rand(4, 8, seed=i).bfloat16().requires_grad_() for i in range(3))
    with record_advantages() as calls:
        attention(q, k, v).float().sum().backward()
        with torch.autocast("cpu"):
            out = attention(q.float(), k.float(), v.float())
        out.float().sum().backward()
    assert len(calls) == 2
    for call in calls:
        for x in (call.weights, call.utility, call.baseline, call.advantage):
            assert x.dtype == torch.float32
        torch.testing.assert_close(call.utility, -v.float().sum(-1).expand(4, 4))


def test_compiled_models_are_seen():
    net, x = model()
    compiled = torch.compile(net, backend="aot_eager")
    expected = gradients(compiled, x)
    with record_advantages(net) as calls:
        ours = gradients(compiled, x)
    assert [call.name for call in calls] == ["first", "second"] and calls[0].advantage.any()
    for one, other in zip(ours, expected):
        close(one, other, 1e-12)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_fills_one_of_two(use_reentrant):
    net, x = model()
    with record_advantages(net) as calls:
        checkpoint(net, x.requires_grad_(), use_reentrant=use_reentrant).sum().backward()
    with record_advantages(net) as expected:
        net(x).sum().backward()
    filled = [call for call in calls if call.advantage is not None]
    assert [call.name for call in filled] == ["first", "second"] and len(calls) == 4
    for one, other in zip(filled, expected):
        close(one.advantage, other.advantage, 1e-14)


def test_transforms_run_unchanged():
    q, k, v = rand(3, 4), rand(5, 4, seed=1), rand(5, 2, seed=2)

    def f(q):
        return attention(q, k, v).square().sum()

    for transform in (torch.func.grad, torch.func.jacrev, torch.func.hessian, torch.vmap):
        x = q.expand(2, 3, 4) if transform is torch.vmap else q
        expected = transform(f)(x)
        with record_advantages():
            close(transform(f)(x), expected, 0)


def test_gradients_at_a_small_weight_above_alpha_2():
    # u = p^-8 of the middle key is 1e24 times that of the first: a - baseline would cancel.
    regularizer = Tsallis(10.0)
    s = torch.tensor([0.0, -1 / 9 + 1e-3, -1.0], dtype=torch.float64, requires_grad=True)
    p = regularizer(s)
    upstream = torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad(p, s, upstream)
    found = policy.score_gradient(-upstream, p.detach(), regularizer=regularizer)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert expected[1] > 2
