"""Softmax and the Shannon regulariser, at the edges and through every transform of PyTorch."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.special
import torch
from torch.autograd import gradcheck, gradgradcheck

from eotcourse import LogPrior, Regularizer, Shannon, softmax
from eotcourse.priors import ALiBi

INF, NAN = math.inf, math.nan
EPS = torch.finfo(torch.float64).eps


def rand(*shape, seed=0, dtype=torch.float64, grad=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.to(dtype).requires_grad_(grad)


class Sparsemax(Regularizer):
    """The whole of a member of the family: what a subclass has to say."""

    def penalty(self, p):
        return ((p * p).sum(-1) - 1) / 2

    def response(self, p):
        return (p > 0).to(p.dtype)

    def solve_threshold(self, theta):
        z = theta.sort(-1, descending=True).values
        count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        inside = (1 + count * z > z.cumsum(-1)).to(z.dtype)
        kappa = (torch.where(inside > 0, z, 0.0).sum(-1) - 1) / inside.sum(-1)
        return torch.where(theta.amax(-1) == -INF, -INF, kappa + 1)

    def pointwise(self, gap):
        return (gap + 1).clamp_min(0)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("tau", [0.3, 1.0, 4])
def test_softmax_divides_once_along_the_asked_dimension(dim, tau):
    s = rand(3, 4, 5)
    np.testing.assert_allclose(
        softmax(s, tau, dim), scipy.special.softmax(s.numpy() / tau, axis=dim), atol=4 * EPS
    )


def test_temperature_tensor_belongs_to_its_row():
    s, tau = rand(3, 4), torch.tensor([0.2, 1.0, 5.0, 0.7], dtype=torch.float64)
    expected = np.stack([scipy.special.softmax(s[:, j] / tau[j]) for j in range(4)], 1)
    np.testing.assert_allclose(softmax(s, tau[None, :], 0), expected, atol=4 * EPS)
    np.testing.assert_allclose(softmax(s.T, tau[:, None]), expected.T, atol=4 * EPS)
    with pytest.raises(ValueError, match="size 1 along the reduced dimension -1, got 4"):
        softmax(s, tau)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    s = rand(6, 300, dtype=dtype)
    p = softmax(s, 0.7)
    assert p.dtype == dtype
    assert torch.equal(p, softmax(s.float(), 0.7).to(dtype))
    assert Shannon().threshold(s, 0.7).dtype == torch.float32
    assert torch.equal(Shannon().conjugate(s, 0.7), Shannon().conjugate(s.float(), 0.7))


@pytest.mark.parametrize("score", [1e30, -1e30, 3e38])
@pytest.mark.parametrize("tau", [1e-30, 1.0, 1e30])
def test_large_scores_and_extreme_temperatures(score, tau):
    s = torch.tensor([score, score], requires_grad=True)
    t = torch.tensor(tau, requires_grad=True)
    p = softmax(s, t)
    assert torch.equal(p, torch.tensor([0.5, 0.5]))
    for g in torch.autograd.grad(p[0], (s, t)):
        assert g.isfinite().all()


def test_underflow_with_a_tiny_temperature_has_gradient_zero():
    s = torch.tensor([-1e30, 0.0, -INF], requires_grad=True)
    t = torch.tensor([1e-20], requires_grad=True)
    p = softmax(s, t)
    assert torch.equal(p, torch.tensor([0.0, 1.0, 0.0]))
    for g in torch.autograd.grad(p @ torch.tensor([3.0, 1.0, 2.0]), (s, t)):
        assert torch.equal(g, torch.zeros_like(g))


# ---------------------------------------------------------------- edges


def test_excluded_entries_and_empty_rows():
    s = torch.tensor([[1.0, -INF, 2.0], [-INF] * 3], dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([[0.5], [2.0]], dtype=torch.float64, requires_grad=True)
    p = softmax(s, tau)
    assert torch.equal(p[1], torch.zeros(3, dtype=torch.float64))
    np.testing.assert_allclose(p[0].detach(), scipy.special.softmax([2.0, -INF, 4.0]), atol=EPS)
    shannon = Shannon()
    value, zeta = shannon.conjugate(s, tau), shannon.threshold(s, tau)
    np.testing.assert_allclose(value.detach(), [0.5 * np.logaddexp(2, 4), -INF], atol=4 * EPS)
    np.testing.assert_allclose(zeta.detach(), [np.logaddexp(2, 4), -INF], atol=4 * EPS)
    upstream = torch.tensor([[1.0, 5.0, -2.0], [3.0, 1.0, 4.0]], dtype=torch.float64)
    for y, weight in ((p, upstream), (value, torch.ones(2)), (zeta, torch.ones(2))):
        ds, dtau = torch.autograd.grad(y, (s, tau), weight.to(y), retain_graph=True)
        assert ds.isfinite().all() and dtau.isfinite().all()
        assert ds[0, 0] != 0 and dtau[0] != 0
        assert ds[0, 1] == 0 and not ds[1].any() and dtau[1] == 0


@pytest.mark.parametrize("bad", [NAN, INF])
def test_nan_and_infinity_stay_in_their_row(bad):
    s = torch.tensor([[0.0, bad, -INF], [1.0, 2.0, 3.0], [bad, 0.0, 0.0]])
    p = softmax(s)
    assert p[[0, 2]].isnan().all()
    assert torch.equal(p[1], softmax(s[1]))
    zeta = Shannon().threshold(s)
    assert zeta[[0, 2]].isnan().all() and zeta[1] == Shannon().threshold(s[1])


def test_finite_scores_are_never_excluded():
    assert torch.equal(softmax(torch.full((4,), -3e38)), torch.full((4,), 0.25))


def test_empty_and_single_rows():
    s = torch.zeros(2, 0, requires_grad=True)
    assert softmax(s).shape == (2, 0)
    assert torch.equal(Shannon().conjugate(s, 2.0), torch.full((2,), -INF))
    assert softmax(torch.zeros(0, 3)).shape == (0, 3)
    assert softmax(torch.zeros(3, 0, 2), dim=0).shape == (3, 0, 2)
    one = torch.tensor([[1e30], [-7.0]], requires_grad=True)
    p = softmax(one, 1e-3)
    (ds,) = torch.autograd.grad(p, one, torch.tensor([[3.0], [5.0]]))
    assert torch.equal(p, torch.ones(2, 1)) and torch.equal(ds, torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"shape \(\)"):
        softmax(torch.tensor(1.0))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_are_equal_to_the_last_bit_in_any_order(dim, dtype):
    generator = torch.Generator().manual_seed(1)
    for n in (6, 17, 67):
        level = torch.randint(0, 3, (5, n), generator=generator)
        s = torch.tensor([0.1, -1.7, 3.3], dtype=dtype)[level]
        p = softmax(s.T, 0.3, 0).T if dim == 0 else softmax(s, 0.3)
        for row, levels in zip(p, level):
            for k in range(3):
                assert row[levels == k].unique().numel() <= 1


@pytest.mark.parametrize("s", [torch.tensor([1, 2]), torch.tensor([True]), torch.tensor([1j])])
def test_scores_that_are_not_real_floats(s):
    with pytest.raises(TypeError, match=str(s.dtype)):
        softmax(s)
    with pytest.raises(TypeError, match=str(s.dtype)):
        Shannon().omega(s)
    with pytest.raises(TypeError, match="list"):
        softmax([1.0, 2.0])


@pytest.mark.parametrize("tau", [0, 0.0, -1.5, NAN, INF, 1e-50])
@pytest.mark.parametrize("form", [lambda x: x, torch.tensor, lambda x: torch.tensor([[1.0], [x]])])
def test_wrong_temperatures(tau, form):
    s = torch.zeros(2, 3)
    shown = {1e-50: "0.0|1e-50"}.get(tau, str(tau))
    for f in (softmax, Shannon(), Shannon().conjugate, Shannon().threshold):
        with pytest.raises(ValueError, match=shown):
            f(s, form(tau))
    with pytest.raises(ValueError, match=shown):
        Shannon().jacobian(s, form(tau))


# ---------------------------------------------------------------- derivatives and transforms


def maps():
    """Every differentiable map of the module, as a function of scores and temperature."""
    shannon = Shannon(LogPrior(rand(4, seed=7)))
    return {
        "softmax": softmax,
        "forward": shannon,
        "conjugate": shannon.conjugate,
        "threshold": shannon.threshold,
        "omega": lambda s, tau: shannon.omega(shannon(s, tau)),
        "weights_at": lambda s, tau: shannon.weights_at(s, shannon.threshold(s, tau), tau),
    }


@pytest.mark.parametrize(
    "tau, kind",
    [("2", "str"), (None, "NoneType"), ([1.0], "list"), (1j, "complex"), (True, "bool")],
)
def test_a_temperature_is_a_number_or_a_tensor(tau, kind):
    for f in (softmax, Shannon(), Shannon().conjugate, Shannon().jacobian):
        with pytest.raises(TypeError, match=f"tau must be a number or a tensor.*, got {kind}"):
            f(torch.ones(3), tau)
    for wrong in (torch.tensor(True), torch.tensor(1j)):
        with pytest.raises(TypeError, match="tau must be a number or a tensor.*, got torch"):
            softmax(torch.ones(3), wrong)
    for good in (np.float32(2.0), np.int64(2), 2, torch.tensor(2)):
        assert torch.equal(softmax(torch.ones(3), good), softmax(torch.ones(3), 2.0))


@pytest.mark.parametrize("name", maps())
def test_first_and_second_derivatives(name):
    f = maps()[name]
    s = rand(3, 4, grad=True)
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(f, (s, tau))
    assert gradgradcheck(f, (s, tau))


@pytest.mark.parametrize("name", maps())
def test_vmap_and_forward_mode(name):
    f = maps()[name]
    s = rand(3, 4)
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    batched = torch.func.vmap(f)(s, tau)
    torch.testing.assert_close(batched, torch.stack([f(r, t) for r, t in zip(s, tau)]))
    torch.testing.assert_close(
        torch.func.jacfwd(f, argnums=(0, 1))(s[0], tau[0]),
        torch.func.jacrev(f, argnums=(0, 1))(s[0], tau[0]),
    )
    slope = torch.func.grad(lambda s, tau: f(s, tau).sum(), argnums=1)
    torch.testing.assert_close(
        torch.func.vmap(slope)(s, tau), torch.stack([slope(r, t) for r, t in zip(s, tau)])
    )


def test_compiles_without_a_graph_break():
    functions = list(maps().values())

    def everything(s, tau):
        return torch.cat([f(s, tau).flatten().sin() for f in functions])

    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    s, tau = rand(3, 4, grad=True), (rand(3, 1).abs() + 0.1).requires_grad_()
    out, expected = compiled(s, tau), everything(s, tau)
    torch.testing.assert_close(out, expected)
    upstream = rand(len(out), seed=1)
    torch.testing.assert_close(
        torch.autograd.grad(out, (s, tau), upstream),
        torch.autograd.grad(expected, (s, tau), upstream),
    )


def test_wrong_temperature_out_of_reach_gives_nan():
    tau = torch.tensor([[1.0], [-1.0]])
    p = torch.func.vmap(softmax)(torch.zeros(2, 3), tau)
    assert torch.equal(p[0], softmax(torch.zeros(3))) and p[1].isnan().all()


def test_autocast_keeps_the_dtype():
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            s = rand(2, 5, dtype=dtype)
            assert softmax(s).dtype == dtype
    assert torch.equal(softmax(s), softmax(s.clone()))


# ---------------------------------------------------------------- the problem itself


@pytest.mark.parametrize("prior", [None, torch.tensor([0.5, 0.25, 0.15, 0.1])])
@pytest.mark.parametrize("member", [Shannon, Sparsemax])
@pytest.mark.parametrize("tau", [0.4, 3.0])
def test_solution_is_optimal_and_value_is_reached(member, prior, tau):
    regularizer = member(None if prior is None else LogPrior(prior.double().log()))
    s = rand(4, seed=3)
    p = regularizer(s, tau)
    value = regularizer.conjugate(s, tau)
    assert abs(p.sum() - 1) < 1e-14
    assert abs(s @ p - tau * regularizer.omega(p) - value) < 1e-13
    rivals = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(4), 500))
    objective = rivals @ s - tau * regularizer.omega(rivals)
    assert (objective < value).all()
    torch.testing.assert_close(regularizer.omega(rivals.T, dim=0), regularizer.omega(rivals))


@pytest.mark.parametrize("tau", [0.4, 3.0])
def test_gibbs_gap_is_a_divergence(tau):
    s, q = rand(5, seed=4), torch.softmax(rand(5, seed=5), 0)
    pi = torch.softmax(rand(5, seed=6), 0)
    shannon = Shannon(LogPrior(pi.log()))
    p = shannon(s, tau)
    kl = (q * (q / p).log()).sum()
    gap = shannon.conjugate(s, tau) - (q @ s - tau * shannon.omega(q))
    assert abs(gap - tau * kl) < 1e-13
    assert abs(shannon.omega(q) - (q * (q / pi).log()).sum()) < 1e-14


@pytest.mark.parametrize("member", [Shannon, Sparsemax])
def test_jacobian_is_the_derivative_and_the_hessian(member):
    regularizer = member()
    s = rand(3, 5, seed=2)
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    J = regularizer.jacobian(regularizer(s, tau), tau)
    v = rand(3, 5, seed=9)
    for i in range(3):
        dense = torch.func.jacrev(lambda x: regularizer(x, tau[i]))(s[i])
        hessian = torch.func.hessian(lambda x: regularizer.conjugate(x, tau[i]))(s[i])
        torch.testing.assert_close(J.dense()[i], dense, atol=1e-13, rtol=0)
        torch.testing.assert_close(hessian, dense, atol=1e-13, rtol=0)
        torch.testing.assert_close((J @ v)[i], dense @ v[i], atol=1e-13, rtol=0)


def test_jacobian_of_an_empty_row_is_zero():
    J = Shannon().jacobian(torch.zeros(3))
    assert torch.equal(J.dense(), torch.zeros(3, 3))
    assert torch.equal(J @ torch.ones(3), torch.zeros(3))


def test_shift_and_scale_laws():
    s, tau, c = rand(6), 0.7, 3.0
    shannon = Shannon()
    assert abs(shannon.conjugate(s + c, tau) - shannon.conjugate(s, tau) - c) < 1e-13
    assert abs(shannon.threshold(s + c, tau) - shannon.threshold(s, tau) - c / tau) < 1e-13
    assert abs(shannon.conjugate(2 * s, 2 * tau) - 2 * shannon.conjugate(s, tau)) < 1e-13
    assert abs(shannon.conjugate(s, tau) - tau * shannon.threshold(s, tau)) < 1e-13


@pytest.mark.parametrize("member", [Shannon, Sparsemax])
def test_methods_agree_on_dimension_and_empty_rows(member):
    regularizer = member()
    s = rand(3, 4)
    s[1] = -INF
    s[2, 0] = -INF
    for name in ("conjugate", "threshold", "forward"):
        f = getattr(regularizer, name)
        torch.testing.assert_close(f(s.T, 0.5, 0), f(s, 0.5).T if name == "forward" else f(s, 0.5))
    zeta = regularizer.threshold(s, 0.5)
    assert regularizer.conjugate(s, 0.5)[1] == -INF and zeta[1] == -INF
    p = regularizer(s, 0.5)
    torch.testing.assert_close(regularizer.weights_at(s, zeta, 0.5), p)
    torch.testing.assert_close(regularizer.weights_at(s.T, zeta, 0.5, 0), p.T)
    # Pointwise: a part of the row needs nothing but the threshold of the whole row.
    torch.testing.assert_close(regularizer.weights_at(s[:, :2], zeta, 0.5), p[:, :2])
    assert not p[1].any()


def test_omega_is_infinite_on_excluded_keys_only():
    shannon = Shannon(LogPrior(torch.tensor([0.0, -INF])))
    assert shannon.omega(torch.tensor([0.5, 0.5])) == INF
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    value = shannon.omega(p)
    assert value == 0
    assert torch.autograd.grad(value, p)[0].isfinite().all()


# ---------------------------------------------------------------- priors inside the problem


def test_prior_is_added_after_the_division():
    s, pi, tau = rand(5, seed=1), torch.softmax(rand(5, seed=2), 0), 3.0
    p = Shannon(LogPrior(pi.log()))(s, tau)
    expected = scipy.special.softmax(s.numpy() / tau + np.log(pi.numpy()))
    np.testing.assert_allclose(p, expected, atol=4 * EPS)


def test_prior_positions_are_rows_and_columns():
    slope = 0.3
    s = rand(4, 5)
    lag = np.abs(np.arange(4)[:, None] - np.arange(5)[None, :])
    expected = scipy.special.softmax(s.numpy() / 0.5 - slope * lag, axis=-1)
    shannon = Shannon(ALiBi([slope]).double())
    np.testing.assert_allclose(shannon(s, 0.5), expected, atol=1e-7)
    np.testing.assert_allclose(shannon(s.T, 0.5, 0), expected.T, atol=1e-7)


def test_excluded_score_does_not_set_the_scale():
    s = torch.tensor([1e30, 1.0, 0.0], requires_grad=True)
    p = Shannon(LogPrior(torch.tensor([-INF, 0.0, 0.0])))(s)
    np.testing.assert_allclose(p.detach(), [0, 1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-6)
    assert torch.autograd.grad(p[1], s)[0][0] == 0


def test_prior_that_does_not_fit_is_named():
    shannon = Shannon(LogPrior(torch.zeros(2, 3, 4)))
    with pytest.raises(ValueError, match=r"\(2, 3, 4\).*\(3, 4\)"):
        shannon(torch.zeros(3, 4))


def test_prior_as_a_parameter_is_trained():
    log_pi = torch.nn.Parameter(rand(3))
    shannon = Shannon(LogPrior(log_pi))
    assert [name for name, _ in shannon.named_parameters()] == ["prior.log_pi"]
    s = rand(3, seed=1)

    def weights(value):
        return torch.func.functional_call(shannon, {"prior.log_pi": value}, (s,))

    assert gradcheck(weights, (rand(3, grad=True),))
    assert torch.autograd.grad(shannon(s)[0], log_pi)[0].any()


def test_module_list_of_an_import():
    code = (
        "import sys, warnings, random, numpy, torch; "
        "filters = list(warnings.filters); r, t = random.getstate(), torch.get_rng_state(); "
        "n = repr(numpy.random.get_state()); before = set(sys.modules); import eotcourse; "
        "assert filters == warnings.filters and r == random.getstate(); "
        "assert torch.equal(t, torch.get_rng_state()) and n == repr(numpy.random.get_state()); "
        "print(*(m for m in set(sys.modules) - before if m.split('.')[0] != 'eotcourse')); "
        "print(*(m for m in ('matplotlib', 'scipy', 'ot', 'entmax') if m in sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [], run.stdout
