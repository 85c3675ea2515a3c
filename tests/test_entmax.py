"""entmax and sparsemax for every alpha: values, edges, derivatives, and both ways to solve."""

import math

import entmax as package
import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from eotcourse import (
    ALiBi,
    LearnableTsallis,
    LogPrior,
    Regularizer,
    Shannon,
    Tsallis,
    _ragged,
    attention,
    entmax,
    softmax,
    sparsemax,
)
from eotcourse.simplex import tsallis

INF, NAN = math.inf, math.nan
F32, F64 = torch.float32, torch.float64
ORDERS = [1.0, 1.05, 1.19, 1.25, 1.5, 1.8, 2.0, 2.5, 3.0]


def rand(*shape, seed=0, dtype=F64, grad=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=F64)
    return x.to(dtype).requires_grad_(grad)


def by_bisection(theta, alpha):
    """Weights in float64, from the definition of zeta alone."""
    theta = np.asarray(theta, np.float64)
    z = theta - theta.max(-1, keepdims=True)
    a = alpha - 1
    n = z.shape[-1]
    low = np.zeros_like(z[..., :1])
    high = low + (math.log(n) if a == 0 else (1 - n**-a) / a)
    for step in range(101):
        zeta = (low + high) / 2
        with np.errstate(divide="ignore"):
            log = z - zeta if a == 0 else np.log1p(np.maximum(a * (z - zeta), -1)) / a
        p = np.exp(log)
        more = p.sum(-1, keepdims=True) > 1
        low, high = np.where(more, zeta, low), np.where(more, high, zeta)
    return p / p.sum(-1, keepdims=True)


def slope_in_alpha(p, alpha):
    """dp/dalpha in float64 as published, and its limit where that cancels."""
    h = np.where(p > 0, -p * np.log(np.where(p > 0, p, 1)), 0)
    if alpha < 1 + 1e-5:
        log2 = np.log(np.where(p > 0, p, 1)) ** 2
        return (p * (p * log2).sum(-1, keepdims=True) - p * log2) / 2
    u = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)
    tilde = u / u.sum(-1, keepdims=True)
    a = alpha - 1
    return (p - tilde) / a**2 + (h - tilde * h.sum(-1, keepdims=True)) / a


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_values_against_bisection(alpha, tau):
    s = 2 * rand(20, 30)
    np.testing.assert_allclose(entmax(s, alpha, tau), by_bisection(s / tau, alpha), atol=2e-12)
    order = torch.full((20, 1), alpha, dtype=F64)
    np.testing.assert_allclose(entmax(s, order, tau), entmax(s, alpha, tau), atol=1e-14)


def test_values_against_the_package():
    s = 2 * rand(50, 40, seed=1)
    np.testing.assert_allclose(sparsemax(s), package.sparsemax(s, -1), atol=1e-14)
    np.testing.assert_allclose(entmax(s), package.entmax15(s, -1), atol=1e-13)
    by_package = package.entmax_bisect(s, 1.3, n_iter=100)
    np.testing.assert_allclose(entmax(s, 1.3), by_package, atol=1e-12)


def test_ends_of_the_family():
    s = rand(5, 9)
    assert torch.equal(entmax(s, 1.0, 0.7), softmax(s, 0.7))
    order = torch.ones(5, 1, dtype=F64)
    torch.testing.assert_close(entmax(s, order, 0.7), softmax(s, 0.7), atol=1e-15, rtol=0)
    assert torch.equal(entmax(s, 2.0, 0.7), sparsemax(s, 0.7))
    # Where the two ways of writing the weights meet, and where the power is written out.
    for edge in (1.0, 1.2, 1.5, 2.0):
        below, above = max(1.0, edge - 1e-12), edge + 1e-12
        torch.testing.assert_close(entmax(s, below), entmax(s, above), atol=1e-11, rtol=0)


NEARLY_ONE = [1.0, 1 + 2.0**-23, 1.001, 1.01]


@pytest.mark.parametrize("alpha", [*NEARLY_ONE, 1.19, 1.21, 4 / 3, 1.5, 1.9, 2.0, 3.0])
@pytest.mark.parametrize("n", [2, 300, 8192])
@pytest.mark.parametrize("deviation", [1.0, 4.0])
def test_float32_against_float64(alpha, n, deviation):
    s = (deviation * rand(8, n, seed=n)).float()
    p = entmax(s, alpha).double()
    expected = torch.from_numpy(by_bisection(s, alpha))
    bound = 1e-5 if alpha > 2 else 1e-6 if deviation == 1 else 2e-6
    assert (p - expected).abs().max() <= bound
    assert (p.sum(-1) - 1).abs().max() <= 1e-6
    order = torch.tensor(alpha, dtype=F32).expand(8, 1)
    assert (entmax(s, order).double() - p).abs().max() <= bound


@pytest.mark.parametrize("dtype, ulp", [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_half_precision_is_computed_in_float32(dtype, ulp):
    s = rand(8, 300, dtype=dtype)
    for alpha in (1.0, 1.5, 2.0):
        p = entmax(s, alpha, 0.7)
        assert p.dtype == dtype
        assert torch.equal(p, entmax(s.float(), alpha, 0.7).to(dtype))
        assert (p.double().sum(-1) - 1).abs().max() <= ulp


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-7, 1.001, 1.01, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("n", [20, 1000])
def test_gradient_in_alpha_in_float32(alpha, n):
    order = torch.full((8, 1), alpha, dtype=F32, requires_grad=True)
    exact = order[0].item()
    s = (2 * rand(8, n, seed=3)).float()
    expected = torch.from_numpy(slope_in_alpha(by_bisection(s, exact), exact))
    p = entmax(s, order)
    (slope,) = torch.autograd.grad(p, order, expected.float())
    wanted = (expected**2).sum(-1, keepdims=True)
    assert ((slope - wanted).abs() <= 1e-4 * wanted).all()
    _, moved = torch.func.jvp(lambda a: entmax(s, a), (order.detach(),), (torch.ones(8, 1),))
    scale = expected.abs().amax(-1, keepdim=True)
    assert ((moved - expected).abs() <= 1e-4 * scale).all()


def by_forty_digits(s, alpha):
    """Weights of one row, each score and alpha taken as the exact binary number it is."""
    with mpmath.workdps(120):
        a = mpmath.mpf(alpha) - 1
        y = [a * mpmath.mpf(x) for x in s]

        def weights(kappa):
            return [max(v - kappa, mpmath.mpf(0)) ** (1 / a) for v in y]

        low, high = max(y) - 1, max(y)
        for _ in range(380):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(weights(middle)) > 1 else (low, middle)
        return np.array([float(w) for w in weights(low)])


@pytest.mark.parametrize("alpha", [1.0001, 1.5, 3.0, 10.0])
def test_float64_against_forty_digits(alpha):
    s = [0.3, -0.2, 1.1, 0.0, 1.05, -3.0]
    p = entmax(torch.tensor(s, dtype=F64), alpha)
    np.testing.assert_allclose(p, by_forty_digits(s, alpha), atol=1e-12)


@pytest.mark.parametrize("alpha", [2.001, 3.0, 10.0])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_right_digits_at_the_edge_of_the_support(alpha, dtype):
    eps = torch.finfo(dtype).eps
    rows = 0.1 * rand(40, 6, seed=5, dtype=dtype)
    # A key that has just entered, alone and with a twin a rounding away.
    for i, gap in enumerate((1e-3, 2.0**-10, 2.0**-14)):
        rows[i, 0], rows[i, 1], rows[i, 2:] = 0.0, -1 / (alpha - 1) + gap, -1.0
        rows[i + 3] = rows[i]
        rows[i + 3, 2] = rows[i, 1] * (1 + 2 * eps)
    rows -= rows.amax(-1, keepdim=True)
    exact = np.stack([by_forty_digits(row, alpha) for row in rows.tolist()])
    each = entmax(rows, torch.full((40, 1), alpha, dtype=dtype))
    for p in (entmax(rows, alpha), each):
        np.testing.assert_allclose(p.double(), exact, atol=8 * eps, rtol=0)


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("alpha", ORDERS)
def test_offsets_and_large_scores(alpha):
    base = torch.tensor([0.0, 0.5, 1.0, -3.0], dtype=F32)
    expected = entmax(base, alpha)
    torch.testing.assert_close(entmax(base + 1e6, alpha), expected, atol=1e-6, rtol=0)
    for big in (1e8, 1e30, -1e30, 3e38):
        s = torch.tensor([big, big, -3e38], requires_grad=True)
        p = entmax(s, alpha)
        shares = [0.5, 0.5, 0.0] if big > -1e30 else [0.5, 0.5, 0.0]
        assert torch.equal(p, torch.tensor(shares))
        assert torch.autograd.grad(p[0], s)[0].isfinite().all()
    assert torch.equal(entmax(torch.tensor([1.0, 2.0]), alpha, 1e-30), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("n", [3, 200])
@pytest.mark.parametrize("form", [float, lambda a: rand(1, 1, grad=True) * 0 + a])
@pytest.mark.parametrize("alpha", ORDERS)
def test_excluded_entries_and_empty_rows(alpha, form, n):
    s = rand(3, n)
    s[0, 1] = -INF
    s[1] = -INF
    s.requires_grad_()
    order = form(alpha)
    p, zeta = tsallis(s, order, 1.0)
    assert not p[1].any() and zeta[1] == -INF and p[0, 1] == 0
    kept = [0] + list(range(2, n))
    torch.testing.assert_close(p[0, kept], entmax(s[0, kept], alpha), atol=1e-13, rtol=0)
    torch.testing.assert_close(p[2], entmax(s[2], alpha), atol=1e-13, rtol=0)
    wanted = [s] if isinstance(order, float) else [s, order]
    upstream = torch.where(s == -INF, INF, rand(3, n, seed=1))
    for g in torch.autograd.grad((p, zeta), wanted, (upstream, torch.ones(3, dtype=F64))):
        assert g.isfinite().all()
        if g.shape == s.shape:
            assert not g[1].any() and g[0, 1] == 0 and g[2].any()


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("n", [3, 300])
@pytest.mark.parametrize("alpha", ORDERS)
def test_nan_and_infinity_stay_in_their_row(alpha, n, bad):
    s = rand(3, n)
    s[1, 1] = bad
    s.requires_grad_()
    p = entmax(s, alpha)
    assert p[1].isnan().all()
    torch.testing.assert_close(p[[0, 2]], entmax(s[[0, 2]], alpha), atol=1e-13, rtol=0)
    (ds,) = torch.autograd.grad(p, s, rand(3, n, seed=1))
    assert ds[1].isnan().any() and ds[[0, 2]].isfinite().all()


@pytest.mark.parametrize("alpha", ORDERS)
def test_empty_and_single_rows(alpha):
    order = torch.tensor(alpha, requires_grad=True)
    for a in (alpha, order):
        assert entmax(torch.zeros(2, 0), a).shape == (2, 0)
        assert entmax(torch.zeros(0, 3), a).shape == (0, 3)
        assert entmax(torch.zeros(3, 0, 2), a, dim=0).shape == (3, 0, 2)
        one = torch.tensor([[1e30], [-7.0]], requires_grad=True)
        p = entmax(one, a)
        assert torch.equal(p, torch.ones(2, 1))
        (ds,) = torch.autograd.grad(p, one, torch.tensor([[3.0], [5.0]]))
        assert not ds.any()


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("alpha", [*ORDERS, 1.37])
def test_ties_are_equal_to_the_last_bit_in_any_order(alpha, dtype):
    generator = torch.Generator().manual_seed(1)
    for n in (6, 17, 67, 259):
        level = torch.randint(0, 3, (5, n), generator=generator)
        s = torch.tensor([0.1, -0.07, 0.3], dtype=dtype)[level]
        for p in (entmax(s, alpha), entmax(s.T, alpha, dim=0).T):
            for row, levels in zip(p, level):
                for k in range(3):
                    assert row[levels == k].unique().numel() <= 1
    p = entmax(torch.zeros(2, 4096, dtype=dtype), alpha)
    assert p.unique().numel() == 1 and abs(p.double().sum() - 2) < 1e-6


@pytest.mark.parametrize("n", [5, 160])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_dimensions_and_strides(dim, n):
    s = rand(n, n, n)[:, ::2].transpose(0, 2) if n < 100 else rand(n, 3, n).transpose(0, 2)
    order = 1 + rand(*[1 if i == dim % 3 else m for i, m in enumerate(s.shape)], seed=2).abs()
    moved, orders = s.movedim(dim, -1).contiguous(), order.movedim(dim, -1)
    for along, last in (
        (entmax(s, 1.5, 0.5, dim), entmax(moved, 1.5, 0.5)),
        (entmax(s, order, 0.5, dim), entmax(moved, orders, 0.5)),
        (sparsemax(s, dim=dim), sparsemax(moved)),
    ):
        torch.testing.assert_close(along.movedim(dim, -1), last)


@pytest.mark.parametrize("alpha", [0.999, 0, -1.0, NAN, INF])
@pytest.mark.parametrize("form", [float, torch.tensor, lambda a: torch.tensor([[1.5], [a]])])
def test_wrong_orders_are_named(alpha, form):
    for f in (lambda a: entmax(torch.zeros(2, 3), a), lambda a: Tsallis(a)(torch.zeros(2, 3))):
        with pytest.raises(ValueError, match=f"alpha must be at least 1.*{alpha}"):
            f(form(alpha))


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="int64"):
        entmax(torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="list"):
        sparsemax([1.0])
    with pytest.raises(ValueError, match=r"-0\.5"):
        entmax(torch.zeros(3), tau=-0.5)
    with pytest.raises(ValueError, match="size 1 along the reduced dimension -1, got 3"):
        entmax(torch.zeros(3, 3), torch.full((3,), 1.5))
    for order in (True, torch.tensor(True), torch.tensor([[True], [False]])):
        for f in (entmax, lambda s, a: Tsallis(a)(s)):
            with pytest.raises(TypeError, match="alpha must be a number or a tensor.*bool"):
                f(torch.zeros(2, 3), order)
    with pytest.raises(TypeError, match="alpha must be a number or a tensor.*NoneType"):
        entmax(torch.zeros(3), None)
    p = torch.func.vmap(entmax)(torch.zeros(2, 3), torch.tensor([[1.5], [0.5]]))
    assert p[0].isfinite().all() and p[1].isnan().all()


# ---------------------------------------------------------------- derivatives and transforms


@pytest.mark.parametrize("alpha", [1 + 1e-4, *ORDERS[1:-1], 3.0])
def test_first_and_second_derivatives(alpha):
    s = rand(2, 4, grad=True)
    tau = torch.tensor([[0.5], [2.0]], dtype=F64, requires_grad=True)
    order = torch.full((2, 1), alpha, dtype=F64, requires_grad=True)
    assert gradcheck(tsallis, (s, order, tau), check_forward_ad=True)
    assert gradgradcheck(tsallis, (s, order, tau))
    assert gradgradcheck(lambda s, tau: entmax(s, alpha, tau), (s, tau))


def test_derivatives_at_alpha_exactly_one():
    s, one = rand(4, 6, grad=True), torch.ones(4, 1, dtype=F64, requires_grad=True)
    g = rand(4, 6, seed=1)
    ds, slope = torch.autograd.grad(entmax(s, one), (s, one), g)
    torch.testing.assert_close(ds, torch.autograd.grad(softmax(s), s, g)[0], atol=1e-14, rtol=0)
    h = 1e-4
    p = [entmax(s, 1 + k * h) for k in range(3)]
    forward = (-3 * p[0] + 4 * p[1] - p[2]) / (2 * h)
    torch.testing.assert_close(slope, (g * forward).sum(-1, keepdim=True), atol=1e-6, rtol=0)


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.5, 2.0, 2.5])
def test_transforms_agree_with_the_plain_call(alpha):
    s, tau = rand(3, 5), torch.tensor([[0.5], [1.0], [2.0]], dtype=F64)
    order = torch.full((3, 1), alpha, dtype=F64)
    everything = entmax(s, order, tau)
    close = torch.testing.assert_close
    close(torch.func.vmap(entmax)(s, order, tau), everything)
    close(torch.func.vmap(entmax, (1, 1, 1))(s.T, order.T, tau.T), everything)
    close(torch.func.vmap(entmax, (0, None, 0))(s, order[0], tau), everything)
    close(torch.func.vmap(lambda s: entmax(s, alpha))(s), entmax(s, alpha))
    same = s[:1].expand(3, 5)
    close(torch.func.vmap(entmax, (None, 0, 0))(s[0], order, tau), entmax(same, order, tau))
    for i in range(3):
        point = (s[i], order[i], tau[i])
        forward = torch.func.jacfwd(entmax, (0, 1, 2))(*point)
        close(forward, torch.func.jacrev(entmax, (0, 1, 2))(*point))
        close(forward[0], Tsallis(alpha).jacobian(everything[i], tau[i]).dense())
        hessian = torch.func.hessian(lambda x: Tsallis(alpha).conjugate(x, tau[i]))(s[i])
        close(hessian, forward[0], atol=1e-12, rtol=0)
    per_row = torch.func.vmap(torch.func.jacrev(lambda s, a: entmax(s, a)))(s, order)
    close(per_row, torch.stack([torch.func.jacrev(entmax)(s[i], order[i]) for i in range(3)]))


def test_compiles_without_a_graph_break():
    def everything(s, order, tau):
        parts = entmax(s, order, tau), sparsemax(s, 0.5), Tsallis(1.5).threshold(s, tau)
        return torch.cat([p.flatten().sin() for p in parts])

    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    s, tau = rand(3, 200, grad=True), (rand(3, 1).abs() + 0.1).requires_grad_()
    order = torch.tensor([[1.0], [1.4], [2.5]], dtype=F64, requires_grad=True)
    out, expected = compiled(s, order, tau), everything(s, order, tau)
    torch.testing.assert_close(out, expected)
    upstream = rand(len(out), seed=1)
    torch.testing.assert_close(
        torch.autograd.grad(out, (s, order, tau), upstream),
        torch.autograd.grad(expected, (s, order, tau), upstream),
    )


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("n", [6, 300])
def test_deterministic_algorithms(deterministic, n):
    s = rand(4, n, grad=True)
    for alpha in (1.1, 1.5, torch.tensor(1.5, requires_grad=True)):
        p = entmax(s, alpha)
        (ds,) = torch.autograd.grad(p, s, rand(4, n, seed=1))
        assert ds.isfinite().all() and p.isfinite().all()


# ---------------------------------------------------------------- small weights above alpha = 2


def exact_derivatives(p, alpha):
    """The Jacobian at given weights, as numbers, and the derivatives in alpha of p and zeta."""
    with mpmath.workdps(1600):
        p = [mpmath.mpf(x) for x in p]
        a = mpmath.mpf(alpha) - 1
        u = [x ** (1 - a) if x else mpmath.mpf(0) for x in p]
        total, n = sum(u), range(len(p))
        jacobian = np.array(
            [[u[i] * ((total if i == j else 0) - u[j]) / total for j in n] for i in n]
        )
        # log_alpha p = theta - zeta, differentiated at fixed scores.
        slope = [(x**a * (a * mpmath.log(x) - 1) + 1) / a**2 if x else 0 for x in p]
        zeta = -sum(x * y for x, y in zip(u, slope)) / total
        weights = np.array([-x * (y + zeta) for x, y in zip(u, slope)])
        return jacobian, np.array([x / total for x in u]), weights, zeta


def digits_lost(found, exact, scale=None):
    """The largest error relative to `exact`, entry by entry, or to `scale`, in units of eps."""
    eps = torch.finfo(found.dtype).eps
    found = found.detach().reshape(-1).tolist()
    exact = np.asarray(exact).reshape(-1)
    assert np.isfinite(found).all()
    sizes = exact if scale is None else np.broadcast_to(scale, exact.shape)
    off = [
        abs(x - y) / abs(size) if size else abs(x) for x, y, size in zip(found, exact, sizes)
    ]
    return float(max(off)) / eps


def edge_rows(alpha, dtype):
    """Rows with weights near 0: one, two of different size, many; the last entries have none."""
    edge = -1 / (alpha - 1)
    rows = torch.full((5, 8), -1.0, dtype=F64)
    rows[:, 0] = 0.0
    rows[0, 1] = edge + 1e-3
    rows[1, 1], rows[1, 2] = edge + 2e-2, edge + 1e-2
    rows[2, 1] = -1e-2
    rows[2, 2] = 0.9 * edge
    rows[3, 1] = edge + 2.0**-16
    rows[4, 1:6] = torch.tensor([-1e-3, 0.6, 0.8, 0.85, 0.9]) * torch.tensor([1.0] + 4 * [edge])
    return rows.to(dtype)


UPSTREAM = [1.0, 3.0, -0.5, 2.0, 0.25, -1.0, 7.0, 0.0]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("alpha", [2.001, 3.0, 6.0, 10.0])
@pytest.mark.parametrize("row", range(5))
def test_gradients_keep_their_digits_at_small_weights(row, alpha, dtype):
    s = edge_rows(alpha, dtype)[row].requires_grad_()
    alpha = torch.tensor(alpha, dtype=dtype).item()
    order = torch.tensor([alpha], dtype=dtype, requires_grad=True)
    p, _ = tsallis(s, order)
    jacobian, shares, slope, zeta = exact_derivatives(p.tolist(), alpha)
    response = np.array([mpmath.mpf(x) ** (2 - mpmath.mpf(alpha)) if x else 0 for x in p.tolist()])
    limit = 40 * alpha
    for size in (1e-8, 1.0, 1e3):
        w, v = size * torch.tensor(UPSTREAM, dtype=dtype), torch.tensor(0.7 * size, dtype=dtype)
        exact_w, exact_v = np.array(w.tolist()), v.item()
        # An entry answers with its response to differences, the one of the largest to the others'.
        other = np.where(shares == max(shares), 0, response)
        reach = np.where(shares == max(shares), sum(other), response) * max(abs(exact_w))
        for a, inputs in ((alpha, (s,)), (order, (s, order))):
            ds, *rest = torch.autograd.grad(tsallis(s, a), inputs, (w, v))
            exact = jacobian @ exact_w + shares * exact_v
            assert digits_lost(ds, exact, reach + shares * exact_v) <= limit
            for da in rest:
                scale = abs(slope) @ abs(exact_w) + abs(zeta * exact_v)
                assert digits_lost(da, slope @ exact_w + zeta * exact_v, scale) <= limit
        move = torch.func.jvp(lambda x: tsallis(x, alpha), (s.detach(),), (w,))[1]
        assert digits_lost(move[0], jacobian @ exact_w, reach) <= limit
        assert digits_lost(move[1], shares @ exact_w, shares @ abs(exact_w)) <= limit
        assert digits_lost(Tsallis(alpha).jacobian(p) @ w, jacobian @ exact_w, reach) <= limit
    assert digits_lost(Tsallis(alpha).jacobian(p).dense(), jacobian) <= limit
    turn = torch.func.jvp(lambda a: tsallis(s, a), (order.detach(),), (torch.ones_like(order),))[1]
    assert digits_lost(turn[0], slope, 1.0) <= limit
    assert digits_lost(turn[1], zeta) <= limit


def test_gradient_of_a_key_that_has_just_entered():
    s = [0.0, -1 / 9 + 1e-3, -1.0]
    x = torch.tensor(s, dtype=F64, requires_grad=True)
    w = torch.tensor([1.0, 3.0, 0.0], dtype=F64)
    (ds,) = torch.autograd.grad(entmax(x, 10.0), x, w)
    jacobian, *_ = exact_derivatives(by_forty_digits(s, 10.0).tolist(), 10.0)
    np.testing.assert_allclose(ds, (jacobian @ w.numpy()).astype(float), rtol=1e-12)
    np.testing.assert_allclose(ds, [-2.016, 2.016, 0.0], atol=5e-4)


@pytest.mark.parametrize("alpha", [7.0, 10.0, 40.0, 200.0])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e9])
def test_a_response_out_of_range_spoils_nothing(alpha, size):
    edge = -1 / (alpha - 1)
    rows = torch.full((4, 4), -1.0)
    rows[:, 0] = 0.0
    rows[0, 1] = edge + 2.0**-22
    rows[1, 1:3] = edge + torch.tensor([2.0**-21, 2.0**-22])
    rows[2, 1:3] = edge + 2.0**-22
    rows[3, 1] = -1e-3
    rows.requires_grad_()
    order = torch.tensor(alpha, requires_grad=True)
    w = size * torch.tensor([1.0, 3.0, -2.0, 0.0]).expand(4, 4)
    p = entmax(rows, alpha)
    assert mpmath.mpf(p[0, 1].item()) ** (2 - mpmath.mpf(alpha)) > 1e32
    for a, inputs in ((alpha, (rows,)), (order, (rows, order))):
        ds, *rest = torch.autograd.grad(entmax(rows, a), inputs, w)
        assert ds.isfinite().all() and not ds[:, 3].any() and not ds[[0, 3], 2].any()
        # One weight out of range: the other answers with its own response, and this one pays.
        jacobian, *_ = exact_derivatives(p[0].tolist(), alpha)
        exact = (jacobian @ w[0].double().numpy()).astype(float)
        np.testing.assert_allclose(ds[0].double(), exact, rtol=1e-5)
        for da in rest:
            assert da.isfinite()
    moved = torch.func.jvp(lambda x: tsallis(x, alpha), (rows.detach(),), (w,))[1]
    assert moved[0].isfinite().all() and moved[1].isfinite().all()
    jacobian = Tsallis(alpha).jacobian(p)
    assert (jacobian @ w).isfinite().all() and jacobian.dense().isfinite().all()
    (again,) = torch.autograd.grad(
        torch.autograd.grad(entmax(rows, order), rows, w, create_graph=True)[0][3].sin().sum(),
        rows,
    )
    assert again[[0, 1, 2]].isfinite().all()


@pytest.mark.parametrize("alpha", [3.0, 6.0, 10.0])
def test_second_derivatives_and_transforms_at_small_weights(alpha):
    edge = -1 / (alpha - 1)
    s = torch.tensor(
        [[0.0, edge + 0.04, -1.0], [0.3 * edge, 0.0, 0.7 * edge], [0.0, edge - 0.01, -1.0]],
        dtype=F64,
        requires_grad=True,
    )
    order = torch.full((3, 1), alpha, dtype=F64, requires_grad=True)
    for a, inputs in ((alpha, (s,)), (order, (s, order))):

        def f(s, a=a):
            return tsallis(s, a)

        assert gradcheck(f, inputs, eps=1e-7, rtol=1e-4, check_forward_ad=True)
        assert gradgradcheck(f, inputs, eps=1e-7, rtol=1e-4)
    close = torch.testing.assert_close
    plain = torch.stack([torch.func.jacrev(entmax)(s[i], order[i]) for i in range(3)])
    close(torch.func.vmap(torch.func.jacrev(entmax))(s, order), plain)
    close(torch.func.vmap(torch.func.jacfwd(entmax))(s, order), plain)
    close(torch.func.vmap(torch.func.jacrev(lambda s: entmax(s, alpha)))(s), plain)
    close(Tsallis(alpha).jacobian(entmax(s, alpha)).dense(), plain)
    hessian = torch.func.hessian(lambda x: Tsallis(alpha).conjugate(x))(s[1])
    close(hessian, plain[1], atol=1e-9, rtol=1e-9)
    compiled = torch.compile(tsallis, fullgraph=True, backend="aot_eager")
    w = (rand(3, 3, seed=1), rand(3, seed=2))
    for a, inputs in ((alpha, (s,)), (order, (s, order))):
        found = torch.autograd.grad(compiled(s, a), inputs, w)
        close(found, torch.autograd.grad(tsallis(s, a), inputs, w))


@pytest.mark.parametrize("alpha", [1.5, 3.0])
def test_gradients_without_entries(alpha):
    s = torch.zeros(2, 0, requires_grad=True)
    order = torch.tensor(alpha, requires_grad=True)
    for a in (alpha, order):
        assert torch.autograd.grad(entmax(s, a).sum(), s)[0].shape == (2, 0)
    assert (Tsallis(alpha).jacobian(torch.zeros(2, 0)) @ torch.zeros(2, 0)).shape == (2, 0)
    assert Tsallis(alpha).jacobian(torch.zeros(2, 0)).dense().shape == (2, 0, 0)


# ---------------------------------------------------------------- two ways, one result


@pytest.fixture
def ways(monkeypatch):
    """A function that forces a way, and a list of which was gone: True for the ragged one."""
    gone = []
    find = _ragged.find

    def watched(*arguments):
        support = find(*arguments)
        gone.append(support is not None)
        return support

    monkeypatch.setattr(_ragged, "find", watched)

    def force(ragged):
        gone.clear()
        monkeypatch.setattr(_ragged, "SHORTEST", 1 if ragged else 10**9)
        monkeypatch.setattr(_ragged, "DENSEST", 1.0)

    return force, gone


@pytest.mark.parametrize("n", [1, 31, 32, 130, 513, 2048])
@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.8, 2.0, "each"])
@pytest.mark.parametrize("tau", [0.3, 7.0])
def test_both_ways_give_the_same(ways, n, alpha, tau):
    force, gone = ways
    results = []
    for ragged in (True, False):
        force(ragged)
        s = 2 * rand(5, n)
        s[1] += 1e3
        s[2, : n // 2] = -INF
        s[3] = -INF
        s.requires_grad_()
        inputs = [s]
        if alpha == "each":
            order = torch.tensor([[1.3], [1.5], [2.0], [1.9], [1.7]], dtype=F64)
            inputs.append(order.requires_grad_())
        p, zeta = tsallis(s, alpha if len(inputs) == 1 else inputs[1], tau)
        assert gone == ([True] if ragged else [])
        upstream = (rand(5, n, seed=1), rand(5, seed=2))
        first = torch.autograd.grad((p, zeta), inputs, upstream, retain_graph=True)
        again = torch.autograd.grad((p, zeta), inputs, upstream, create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in again), inputs)
        results.append((p, zeta, *first, *again, *second))
    for x, y in zip(*results):
        torch.testing.assert_close(x, y, atol=1e-9, rtol=1e-9)


def test_long_rows_go_the_ragged_way_and_nothing_else_does(ways):
    _, gone = ways
    s = rand(4, 300, dtype=F32)
    order = torch.nn.Parameter(torch.tensor(1.5))

    def way(f):
        gone.clear()
        f()
        return gone

    for f in (
        lambda: entmax(s),
        lambda: sparsemax(s.T, 0.5, 0),
        lambda: entmax(s, order),
        lambda: entmax(s.bfloat16()),
        lambda: Tsallis(1.5)(s),
        lambda: Tsallis(1.5, LogPrior(torch.zeros(300)))(s),
        lambda: attention(s.T[:4, :2], s.T[:, :2], s.T, scale=2.0, regularizer=Tsallis(1.5)),
        lambda: Tsallis(1.5).conjugate(s),
    ):
        assert way(f) == [True]
    # Tried, and found too dense for it, or made of NaN.
    assert way(lambda: entmax(0.01 * s)) == [False]
    assert way(lambda: entmax(s * NAN)) == [False]
    for f in (
        lambda: entmax(s[:, :100]),
        lambda: entmax(s, 1.1),
        lambda: entmax(s, 2.5),
        lambda: entmax(s, 1.5, torch.ones(4, 1)),
        lambda: torch.func.vmap(entmax)(s),
        lambda: torch.func.jvp(entmax, (s,), (s,)),
        lambda: torch.func.grad(lambda s: entmax(s)[0, 0])(s),
        lambda: torch.compile(entmax, fullgraph=True, backend="eager")(s),
    ):
        assert way(f) == []
    with torch.autograd.forward_ad.dual_level():
        assert way(lambda: entmax(torch.autograd.forward_ad.make_dual(s, s))) == []


def test_derivatives_on_a_long_row():
    s = rand(2, 130, grad=True)
    order = torch.tensor([[1.6], [1.5]], dtype=F64, requires_grad=True)
    assert gradcheck(entmax, (s, order), fast_mode=True)
    assert gradgradcheck(entmax, (s, order), fast_mode=True)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_adversarial_rows(alpha):
    n = 2000
    rows = torch.stack(
        [
            torch.linspace(0, -1e-3, n),
            -torch.logspace(-12, 3, n),
            torch.zeros(n),
            torch.cat([torch.zeros(1), torch.full((n - 1,), -0.3)]),
            torch.arange(n, 0, -1).float(),
            torch.where(torch.arange(n) == n - 1, 30.0, -30.0),
        ]
    ).double()
    p = entmax(rows, alpha)
    np.testing.assert_allclose(p, by_bisection(rows, alpha), atol=1e-9)
    assert (p.sum(-1) - 1).abs().max() < 1e-14


# ---------------------------------------------------------------- regularisers


@pytest.mark.parametrize("alpha", ORDERS)
@pytest.mark.parametrize("prior", [None, LogPrior(rand(7, seed=4))])
def test_solution_is_optimal_and_value_is_reached(alpha, prior):
    regularizer, s, tau = Tsallis(alpha, prior), rand(7, seed=3), 0.8
    p, value = regularizer(s, tau), regularizer.conjugate(s, tau)
    assert abs(s @ p - tau * regularizer.omega(p) - value) < 1e-13
    rivals = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(7), 300))
    assert (rivals @ s - tau * regularizer.omega(rivals) < value).all()
    (gradient,) = torch.autograd.grad(
        regularizer.conjugate(x := s.clone().requires_grad_(), tau), x
    )
    torch.testing.assert_close(gradient, p, atol=1e-14, rtol=0)
    zeta = regularizer.threshold(s, tau)
    torch.testing.assert_close(regularizer.weights_at(s, zeta, tau), p, atol=1e-11, rtol=0)
    direct = tau * (zeta + ((p**alpha).sum() - 1) / alpha)
    assert abs(direct - value) < 1e-13


def test_one_and_two_are_shannon_and_the_projection():
    s = rand(4, 6)
    for name in ("forward", "conjugate", "threshold", "omega"):
        f, g = getattr(Tsallis(1.0), name), getattr(Shannon(), name)
        x = softmax(s) if name == "omega" else s
        torch.testing.assert_close(f(x), g(x), atol=1e-14, rtol=0)
    p = Tsallis(2)(s)
    torch.testing.assert_close(Tsallis(2).omega(p), ((p**2).sum(-1) - 1) / 2)
    assert torch.equal(p, sparsemax(s))


@pytest.mark.parametrize("alpha", [1.0, 1.0005, 1.3, 2.0, 2.5])
def test_value_and_regulariser_are_differentiated_in_alpha(alpha):
    s = rand(3, 6)
    at = torch.tensor(alpha, dtype=F64, requires_grad=True)

    def value(a):
        return Tsallis(a).conjugate(s, 0.7)

    def omega(a):
        return Tsallis(a).omega(softmax(s))

    if alpha > 1:
        for f in (value, omega):
            assert gradcheck(f, (at,), eps=1e-7) and gradgradcheck(f, (at,), eps=1e-7)
    p = entmax(s, alpha, 0.7)
    (by_envelope,) = torch.autograd.grad(-0.7 * Tsallis(at).omega(p).sum(), at)
    (slope,) = torch.autograd.grad(value(at).sum(), at)
    torch.testing.assert_close(slope, by_envelope, atol=1e-12, rtol=0)


def test_alpha_per_head_inside_attention():
    orders = torch.tensor([1.0, 1.5, 2.0], dtype=F64)
    q, k, v = (rand(2, 3, 5, 4, seed=i) for i in range(3))
    together = attention(q, k, v, regularizer=Tsallis(orders))
    for h, alpha in enumerate(orders.tolist()):
        alone = attention(q[:, h], k[:, h], v[:, h], regularizer=Tsallis(alpha))
        torch.testing.assert_close(together[:, h], alone)
    one = attention(q, k, v, regularizer=Tsallis(torch.tensor([1.5])))
    torch.testing.assert_close(one, attention(q, k, v, regularizer=Tsallis(1.5)))
    with pytest.raises(ValueError, match=r"alpha of shape \(3,\).*\(2, 5, 5\)"):
        attention(q[:, 0], k[:, 0], v[:, 0], regularizer=Tsallis(orders))


def test_sparse_alibi_is_a_prior_like_any_other():
    s = rand(6, 6)
    lag = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    p = Tsallis(1.5, ALiBi(torch.tensor([0.5], dtype=F64)))(s, 0.7)
    torch.testing.assert_close(p, entmax(s / 0.7 - 0.5 * lag))


def test_learned_orders_stay_in_their_interval():
    module = LearnableTsallis(2, 1.25, 1.75).double()
    assert [name for name, _ in module.named_parameters()] == ["logit"]
    torch.testing.assert_close(module.alpha, torch.tensor([1.25, 1.25], dtype=F64))
    q, k, v = (rand(1, 2, 6, 4, seed=i) for i in range(3))
    before = module.logit.clone()
    attention(q, k, v, regularizer=module).square().sum().backward()
    assert module.logit.grad.abs().min() > 0
    with torch.no_grad():
        for value, alpha in ((-1e4, 1.0), (1e4, 1.75)):
            module.logit.fill_(value)
            assert (module.alpha == alpha).all()
            out = attention(q, k, v, regularizer=module)
            torch.testing.assert_close(out, attention(q, k, v, regularizer=Tsallis(alpha)))
        module.load_state_dict({"logit": before})
    assert (LearnableTsallis(3, alpha_max=1.7).float().alpha <= 1.7).all()
    for bad in (dict(num_heads=0), dict(num_heads=1, alpha=2.0), dict(num_heads=1, alpha=1.0)):
        with pytest.raises(ValueError, match=r"got (0|2\.0|1\.0)"):
            LearnableTsallis(**bad)


def test_tsallis_as_a_module():
    module = Tsallis(torch.nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    assert [name for name, _ in Tsallis(torch.tensor([1.2, 1.5])).named_buffers()] == ["alpha"]
    module(rand(3, 200)).square().sum().backward()
    assert module.alpha.grad.isfinite() and module.alpha.grad != 0


# ---------------------------------------------------------------- regularisers of one's own


class Quartic(Regularizer):
    """Known by its penalty alone, and nobody's: sparse, as p + p^3 is finite at 0."""

    def penalty(self, p):
        return (p**2 / 2 + p**4 / 4).sum(-1)


class Softplus(Regularizer):
    """Known by its rule alone, and nobody's: dense, and linear for large gaps."""

    def pointwise(self, gap):
        return torch.nn.functional.softplus(3 * gap) / 3


class Entropic(Regularizer):
    """Shannon's, known by its penalty alone."""

    def penalty(self, p):
        return torch.special.xlogy(p, p).sum(-1)


class Exponential(Regularizer):
    """Shannon's, known by its rule alone."""

    def pointwise(self, gap):
        return gap.exp()


class Projection(Regularizer):
    """Sparsemax, known by its rule alone."""

    def pointwise(self, gap):
        return (gap + 1).clamp_min(0)


OWN = [Quartic, Softplus]


@pytest.mark.parametrize("own, known", [(Entropic, 1.0), (Exponential, 1.0), (Projection, 2.0)])
def test_own_regularisers_that_are_known(own, known):
    s = rand(3, 6)
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=F64)
    p = entmax(s, known, tau)
    torch.testing.assert_close(own()(s, tau), p, atol=1e-12, rtol=0)
    for v in (own().jacobian(p, tau), Tsallis(known).jacobian(p, tau)):
        torch.testing.assert_close(v.dense(), Tsallis(known).jacobian(p, tau).dense())
    shift = Tsallis(known).omega(p) - own().omega(p)
    torch.testing.assert_close(shift, shift[:1].expand(3), atol=1e-6, rtol=0)
    value = own().conjugate(s, tau) + tau.squeeze(-1) * -shift
    torch.testing.assert_close(value, Tsallis(known).conjugate(s, tau), atol=1e-6, rtol=0)


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("prior", [None, LogPrior(rand(3, seed=8))])
def test_own_regularisers_solve_their_problem(own, prior):
    regularizer, s, tau = own(prior), rand(3, seed=2), 0.7
    p, value = regularizer(s, tau), regularizer.conjugate(s, tau)
    assert abs(p.sum() - 1) < 1e-12
    rivals = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(3), 300))
    assert (rivals @ s - tau * regularizer.omega(rivals) < value).all()
    s = s.requires_grad_()
    assert gradcheck(regularizer, (s,), fast_mode=True)
    assert gradgradcheck(regularizer, (s,), fast_mode=True)
    (gradient,) = torch.autograd.grad(regularizer.conjugate(s, tau), s)
    torch.testing.assert_close(gradient, p, atol=1e-5, rtol=0)
    dense = torch.func.jacrev(lambda x: regularizer(x, tau))(s.detach())
    torch.testing.assert_close(regularizer.jacobian(p, tau).dense(), dense, atol=1e-10, rtol=0)


@pytest.mark.parametrize("own", OWN)
def test_own_regularisers_in_attention(own):
    q, k, v = (rand(2, 4, 3, seed=i, grad=True) for i in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    f = own()
    out, aux = attention(q, k, v, mask, regularizer=f, return_aux=True, need_weights=True)
    assert not out[:, 0].any() and not aux.weights.triu().any()
    assert (aux.threshold[:, 0] == -INF).all()
    torch.testing.assert_close(aux.weights[:, 1:].sum(-1), torch.ones(2, 3, dtype=F64))
    gradients = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(g.isfinite().all() and g.any() for g in gradients)
    assert f(rand(2, 4, dtype=F32)).dtype == F32
    assert f(torch.zeros(2, 0)).shape == (2, 0)
    bad = f(torch.tensor([[0.0, NAN, 1.0], [0.0, 1.0, 2.0]]))
    assert bad[0].isnan().all() and abs(bad[1].sum() - 1) < 1e-6


def test_a_regulariser_says_something():
    with pytest.raises(TypeError, match="Nothing must define penalty or pointwise"):
        type("Nothing", (Regularizer,), {})()
