"""Attention against PyTorch's, on the whole grid, and where PyTorch's isn't defined."""

import contextlib
import functools
import itertools
import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from eotcourse import ALiBi, Aux, Causal, LogPrior, Shannon, attention
from test_simplex import Sparsemax, rand

INF, NAN = math.inf, math.nan
HALF = (torch.float16, torch.bfloat16)
# PyTorch may round the weights of a half-precision row, which attention never does.
ATOL = {torch.float64: 1e-13, torch.float32: 4e-6, torch.float16: 1e-2, torch.bfloat16: 8e-2}


def inputs(lead=(2, 4), q_len=3, k_len=5, d=4, d_v=6, dtype=torch.float64, kv_lead=None):
    kv_lead = lead if kv_lead is None else kv_lead
    return (
        rand(*lead, q_len, d, seed=1, dtype=dtype, grad=True),
        rand(*kv_lead, k_len, d, seed=2, dtype=dtype, grad=True),
        rand(*kv_lead, k_len, d_v, seed=3, dtype=dtype, grad=True),
    )


def gradients(out, tensors):
    upstream = rand(*out.shape, seed=4, dtype=out.dtype)
    return torch.autograd.grad(out, tensors, upstream)


def same(ours, theirs, tensors, dtype):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    atol = ATOL[dtype]
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol)
    for x, y in zip(gradients(ours, tensors), gradients(theirs, tensors)):
        torch.testing.assert_close(x, y, atol=atol, rtol=atol)


@pytest.fixture(params=["dense", "blockwise"])
def attend(request):
    """`attention` by either backend, as the name it has in the tests that ask for both."""
    return functools.partial(attention, backend=request.param)


MASKS = {
    "none": lambda lead, q, k, dtype: None,
    "bool": lambda lead, q, k, dtype: rand(*lead, q, k) > -0.5,
    "bool row": lambda lead, q, k, dtype: rand(1, k, seed=5) > -0.5,
    "bool column": lambda lead, q, k, dtype: rand(q, 1, seed=5) > -0.5,
    "bool empty row": lambda lead, q, k, dtype: (torch.arange(q) != 1)[:, None]
    & (torch.arange(k) != 0),
    "float": lambda lead, q, k, dtype: rand(*lead, q, k, dtype=dtype, grad=True),
    "float broadcast": lambda lead, q, k, dtype: rand(q, k, dtype=dtype, grad=True),
    "float excluding": lambda lead, q, k, dtype: rand(q, k, dtype=dtype).masked_fill(
        rand(q, k, seed=6) > 0.5, -INF
    ),
}


@pytest.mark.parametrize("dtype", ATOL, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_equals_sdpa_for_every_mask_shape_and_size(attend, dtype, mask):
    for lead, (q_len, k_len) in itertools.product(
        [(), (3,), (2, 3), (2, 1, 3)], [(3, 5), (5, 3), (4, 4)]
    ):
        tensors = inputs(lead, q_len, k_len, dtype=dtype)
        m = MASKS[mask](lead, q_len, k_len, dtype)
        wanted = tensors + ((m,) if m is not None and m.requires_grad else ())
        same(attend(*tensors, m), sdpa(*tensors, m), wanted, dtype)


@pytest.mark.parametrize("dtype", ATOL, ids=str)
@pytest.mark.parametrize("gqa", [False, True])
@pytest.mark.parametrize("scale", [None, 1.0, 0.3, 0.0, 2])
def test_equals_sdpa_for_causal_scale_and_groups(attend, dtype, gqa, scale):
    for lead, (q_len, k_len) in itertools.product(
        [(4,), (2, 4), (2, 1, 4)], [(3, 5), (5, 3), (4, 4)]
    ):
        kv_lead = lead[:-1] + (2,) if gqa else lead
        tensors = inputs(lead, q_len, k_len, dtype=dtype, kv_lead=kv_lead)
        for causal in (False, True):
            arguments = dict(is_causal=causal, scale=scale, enable_gqa=gqa)
            ours, theirs = attend(*tensors, **arguments), sdpa(*tensors, **arguments)
            same(ours, theirs, tensors, dtype)


def test_equals_sdpa_for_broadcast_batches_and_unequal_groups(attend):
    for q_lead, k_lead, v_lead, gqa in [
        ((2, 3), (1, 3), (2, 1), False),
        ((1, 3), (5, 1), (1, 1), False),
        ((2, 4), (4,), (2, 4), False),
        ((2, 4), (2, 2), (2, 1), True),
        ((2, 4), (2, 4), (2, 4), True),
    ]:
        tensors = (
            rand(*q_lead, 3, 4, grad=True),
            rand(*k_lead, 5, 4, seed=1, grad=True),
            rand(*v_lead, 5, 2, seed=2, grad=True),
        )
        arguments = dict(enable_gqa=gqa)
        same(attend(*tensors, **arguments), sdpa(*tensors, **arguments), tensors, torch.float64)


@pytest.mark.parametrize("q_len, k_len, batch, d, d_v", [
    (0, 5, 2, 4, 3), (3, 0, 2, 4, 3), (0, 0, 2, 4, 3), (3, 5, 0, 4, 3), (3, 5, 2, 0, 3),
    (3, 5, 2, 4, 0), (1, 1, 1, 1, 1),
])  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_empty_sizes(attend, q_len, k_len, batch, d, d_v, causal):
    tensors = inputs((batch, 2), q_len, k_len, d, d_v)
    out, aux = attend(*tensors, is_causal=causal, return_aux=True)
    same(out, sdpa(*tensors, is_causal=causal), tensors, torch.float64)
    assert aux.threshold.shape == (batch, 2, q_len)
    aux = attention(*tensors, is_causal=causal, return_aux=True, need_weights=True)[1]
    assert aux.weights.shape == (batch, 2, q_len, k_len)
    if k_len == 0:
        assert (aux.threshold == -INF).all()


@pytest.mark.parametrize("q_heads, shared", [(0, 0), (0, 2)])
def test_groups_of_no_heads(attend, q_heads, shared):
    query, key = rand(2, q_heads, 3, 4, grad=True), rand(2, shared, 5, 4, seed=1, grad=True)
    value = rand(2, shared, 5, 6, seed=2, grad=True)
    out = attend(query, key, value, enable_gqa=True)
    assert out.shape == (2, 0, 3, 6)
    for g, x in zip(torch.autograd.grad(out.sum(), (query, key, value)), (query, key, value)):
        assert g.shape == x.shape and not g.any()


STRANGE = {
    "expanded": lambda dtype: (
        rand(1, 1, 3, 4, dtype=dtype, grad=True).expand(2, 4, 3, 4),
        rand(2, 4, 1, 4, seed=1, dtype=dtype, grad=True).expand(2, 4, 5, 4),
        rand(4, 5, 6, seed=2, dtype=dtype, grad=True).expand(2, 4, 5, 6),
        rand(3, 1, seed=3, dtype=dtype, grad=True).expand(2, 1, 3, 5),
    ),
    "transposed": lambda dtype: (
        rand(2, 3, 4, 4, dtype=dtype, grad=True).transpose(1, 2),
        rand(4, 5, 4, 2, seed=1, dtype=dtype, grad=True).permute(3, 2, 1, 0),
        rand(2, 4, 6, 5, seed=2, dtype=dtype, grad=True).mT,
        rand(5, 3, seed=3, dtype=dtype, grad=True).T,
    ),
    "in steps": lambda dtype: (
        rand(2, 4, 6, 4, dtype=dtype, grad=True)[..., ::2, :],
        rand(2, 4, 5, 8, seed=1, dtype=dtype, grad=True)[..., 1::2],
        rand(2, 8, 5, 6, seed=2, dtype=dtype, grad=True)[:, ::2],
        rand(6, 10, seed=3, dtype=dtype, grad=True)[::2, ::2],
    ),
    "one tensor thrice": lambda dtype: (
        *([rand(2, 4, 5, 4, dtype=dtype, grad=True)] * 3),
        rand(1, 5, seed=3, dtype=dtype, grad=True),
    ),
    "an empty row of a trained mask": lambda dtype: (
        *inputs(dtype=dtype),
        torch.tensor([[0.0] * 5, [-INF] * 5, [-INF, 1, 2, 3, -INF]], dtype=dtype).requires_grad_(),
    ),
    "a row of the smallest number": lambda dtype: (
        *inputs(dtype=dtype), torch.full((3, 5), torch.finfo(dtype).min, dtype=dtype)
    ),
    "float32 mask": lambda dtype: (
        *inputs(dtype=dtype), rand(4, 1, 5, dtype=torch.float32, grad=True)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ATOL, ids=str)
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("backend, p", [("dense", 0.0), ("dense", 0.4), ("blockwise", 0.0)])
def test_equals_sdpa_for_strange_strides_and_masks(kind, dtype, backend, p):
    *tensors, mask = STRANGE[kind](dtype)
    wanted = tuple(x for x in (*tensors, mask) if x.requires_grad)
    torch.manual_seed(0)
    ours = attention(*tensors, mask, dropout_p=p, backend=backend)
    torch.manual_seed(0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        theirs = sdpa(*tensors, mask, dropout_p=p)
    same(ours, theirs, wanted, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_draws_what_sdpa_draws(dtype, p):
    tensors = inputs(dtype=dtype)
    torch.manual_seed(0)
    ours, aux = attention(*tensors, dropout_p=p, return_aux=True, need_weights=True)
    torch.manual_seed(0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        theirs = sdpa(*tensors, dropout_p=p)
    same(ours, theirs, tensors, dtype)
    kept = attention(*tensors, return_aux=True, need_weights=True)[1]
    assert torch.equal(aux.weights, kept.weights)
    if p == 1.0:
        assert not ours.any()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("outer", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_autocast_gives_what_sdpa_gives(dtype, outer):
    tensors = inputs(dtype=outer)
    mask = rand(3, 5, dtype=outer)
    with torch.autocast("cpu", dtype):
        ours, aux = attention(*tensors, mask, return_aux=True, need_weights=True)
        theirs = sdpa(*tensors, mask)
    same(ours, theirs, tensors, dtype if outer != torch.float64 else torch.float64)
    assert aux.weights.dtype == ours.dtype
    assert aux.threshold.dtype == (torch.float64 if outer == torch.float64 else torch.float32)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_rounds_the_output_only(attend, dtype):
    tensors = inputs(k_len=300, dtype=dtype)
    out, aux = attend(*tensors, return_aux=True)
    full, exact = attend(*(x.float() for x in tensors), return_aux=True)
    assert torch.equal(out, full.to(dtype))
    assert torch.equal(aux.threshold, exact.threshold)
    aux = attention(*tensors, return_aux=True, need_weights=True)[1]
    exact = attention(*(x.float() for x in tensors), return_aux=True, need_weights=True)[1]
    assert torch.equal(aux.weights, exact.weights.to(dtype))


# ---------------------------------------------------------------- beyond PyTorch's


@pytest.mark.parametrize("q_len, k_len", [(2, 5), (5, 2), (4, 4), (1, 3)])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_causal_alignments(attend, q_len, k_len, align):
    tensors = inputs(q_len=q_len, k_len=k_len)
    offset = {"top_left": 0, "bottom_right": k_len - q_len}[align]
    allowed = torch.tensor([[j <= i + offset for j in range(k_len)] for i in range(q_len)])
    out = attend(*tensors, is_causal=True, causal_align=align)
    same(out, sdpa(*tensors, allowed), tensors, torch.float64)
    extra = rand(q_len, k_len, seed=8) > -0.5
    out = attend(*tensors, extra, is_causal=True, causal_align=align)
    same(out, sdpa(*tensors, extra & allowed), tensors, torch.float64)
    bias = rand(q_len, k_len, seed=8)
    out = attend(*tensors, bias, is_causal=True, causal_align=align)
    same(out, sdpa(*tensors, bias.masked_fill(~allowed, -INF)), tensors, torch.float64)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("causal", [False, True])
def test_alibi_measures_from_the_position_of_the_query(attend, align, causal):
    q_len, k_len, slopes = 2, 5, torch.tensor([0.5, 0.25, 0.1, 0.9], dtype=torch.float64)
    tensors = inputs(q_len=q_len, k_len=k_len)
    i = torch.arange(q_len)[:, None] + (k_len - q_len if align == "bottom_right" else 0)
    j = torch.arange(k_len)[None, :]
    bias = -slopes[:, None, None] * (i - j).abs()
    if causal:
        bias = bias.masked_fill(j > i, -INF)
    out = attend(
        *tensors, is_causal=causal, scale=0.7, causal_align=align,
        regularizer=Shannon(ALiBi(slopes)),
    )  # fmt: skip
    same(out, sdpa(*tensors, bias, scale=0.7), tensors, torch.float64)


def test_log_prior_is_added_in_scaled_units(attend):
    tensors = inputs()
    log_pi = rand(5, seed=9)
    out = attend(*tensors, scale=0.2, regularizer=Shannon(LogPrior(log_pi)))
    same(out, sdpa(*tensors, log_pi[None], scale=0.2), tensors, torch.float64)


def test_positions_a_prior_does_not_have(attend):
    with pytest.raises(ValueError, match="-2 to 2"):
        attend(
            *inputs(q_len=5, k_len=3), causal_align="bottom_right",
            regularizer=Shannon(LogPrior(torch.zeros(5, 3))),
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"\(2, 1, 5\).*\(3, 5\)"):
        attend(*inputs(lead=()), regularizer=Shannon(LogPrior(torch.zeros(2, 1, 5))))
    with pytest.raises(ValueError, match=r"\(3, 3, 5\).*\(2, 4, 3, 5\)"):
        attend(*inputs(), regularizer=Shannon(ALiBi([0.1, 0.2, 0.3])))


@pytest.mark.parametrize("kind", ["bool", "float", "prior"])
@pytest.mark.parametrize("dtype", ATOL, ids=str)
def test_query_that_may_attend_to_nothing(attend, kind, dtype):
    tensors = inputs(dtype=dtype)
    allowed = (torch.arange(3) != 1)[:, None].expand(3, 5)
    bias = torch.zeros(3, 5).masked_fill(~allowed, -INF)
    arguments = {
        "bool": dict(attn_mask=allowed),
        "float": dict(attn_mask=bias),
        "prior": dict(regularizer=Shannon(LogPrior(bias))),
    }[kind]
    weights = attention(*tensors, **arguments, return_aux=True, need_weights=True)[1].weights
    assert not weights[..., 1, :].any()
    out, aux = attend(*tensors, **arguments, return_aux=True)
    assert not out[..., 1, :].any()
    assert (aux.threshold[..., 1] == -INF).all()
    assert aux.threshold[..., [0, 2]].isfinite().all()
    every = out.sum() + weights.square().sum() + aux.threshold[..., [0, 2]].sum()
    every = every + aux.threshold.exp().sum()
    for g in torch.autograd.grad(every, tensors):
        assert g.isfinite().all()
    dq, _, _ = gradients(attend(*tensors, **arguments), tensors)
    assert not dq[..., 1, :].any() and dq[..., 0, :].any()


@pytest.mark.parametrize("dtype", ATOL, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float", "prior", "causal", "dropout"])
def test_excluded_positions_hold_no_influence(attend, dtype, kind):
    """Whatever finite keys and values stand there, no bit changes, gradients included."""
    allowed = torch.ones(3, 5, dtype=torch.bool)
    allowed[:, 3:] = False
    bias = torch.zeros(3, 5).masked_fill(~allowed, -INF)
    arguments = {
        "bool": dict(attn_mask=allowed),
        "float": dict(attn_mask=bias),
        "prior": dict(regularizer=Shannon(LogPrior(bias))),
        "causal": dict(is_causal=True),
        "dropout": dict(attn_mask=allowed, dropout_p=0.4),
    }[kind]
    results = []
    for filler in (0.0, 1.0, torch.finfo(dtype).max, torch.finfo(dtype).min):
        q, k, v = inputs(dtype=dtype)
        with torch.no_grad():
            k[..., 3:, :] = filler
            v[..., 3:, :] = filler
        torch.manual_seed(0)
        out, aux = attend(q, k, v, **arguments, return_aux=True)
        dq, dk, dv = gradients(out, (q, k, v))
        assert not dk[..., 3:, :].any() and not dv[..., 3:, :].any()
        results.append((out, aux.threshold, dq, dk, dv))
    for result in results[1:]:
        for x, y in zip(results[0], result):
            assert x.isfinite().all() and torch.equal(x, y)


def test_a_finite_bias_never_excludes(attend):
    tensors = inputs()
    bias = torch.full((3, 5), -1e30, dtype=torch.float64)
    out = attend(*tensors, bias, scale=0.0)
    torch.testing.assert_close(out, tensors[2].mean(-2, keepdim=True).expand_as(out))


def test_zero_scale_is_the_prior(attend):
    tensors = inputs()
    pi = torch.softmax(rand(5), 0)
    out = attend(*tensors, scale=0, regularizer=Shannon(LogPrior(pi.log())))
    torch.testing.assert_close(out, (pi @ tensors[2])[..., None, :].expand_as(out))


def test_nan_stays_in_its_query(attend):
    q, k, v = inputs()
    with torch.no_grad():
        q[0, 1, 2] = NAN
    out = attend(q, k, v)
    bad = torch.zeros(2, 4, 3, dtype=torch.bool)
    bad[0, 1, 2] = True
    assert torch.equal(out.isnan().all(-1), bad) and torch.equal(out.isnan().any(-1), bad)


def test_aux_holds_what_the_regulariser_says():
    q, k, v = inputs()
    mask = rand(3, 5, seed=7) > -0.5
    regularizer = Shannon(ALiBi([0.1, 0.2, 0.3, 0.4]))
    out, aux = attention(
        q, k, v, mask, scale=0.4, regularizer=regularizer, return_aux=True, need_weights=True
    )
    assert isinstance(aux, Aux)
    scores = (q @ k.mT).masked_fill(~mask, -INF)
    torch.testing.assert_close(aux.weights, regularizer(scores, 2.5), atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(aux.threshold, regularizer.threshold(scores, 2.5))
    torch.testing.assert_close(aux.weights @ v, out)
    lean = attention(q, k, v, mask, scale=0.4, regularizer=regularizer, return_aux=True)[1]
    assert lean.weights is None and torch.equal(lean.threshold, aux.threshold)


def test_another_regulariser_takes_the_place_of_shannon():
    from entmax import sparsemax

    q, k, v = inputs()
    mask = rand(3, 5, seed=7) > -0.5
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    lag = (torch.arange(3)[:, None] - torch.arange(5)).abs()
    theta = (0.4 * q @ k.mT - slopes[:, None, None] * lag).masked_fill(~mask, -1e9)
    out = attention(q, k, v, mask, scale=0.4, regularizer=Sparsemax(ALiBi(slopes)))
    torch.testing.assert_close(out, sparsemax(theta, -1) @ v, atol=1e-12, rtol=0)
    empty = attention(q, k, v, torch.zeros(3, 5, dtype=torch.bool), regularizer=Sparsemax())
    assert not empty.any()


# ---------------------------------------------------------------- transforms


FEATURES = {
    "plain": {},
    "mask": dict(attn_mask=torch.tensor([[True] * 5, [False] * 5, [True, False] * 2 + [True]])),
    "prior": dict(regularizer=Shannon(ALiBi([0.5, 0.25]) + Causal()), causal_align="bottom_right"),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_derivatives_of_second_order_and_vmap(feature):
    def f(q, k, v):
        out, aux = attention(q, k, v, **FEATURES[feature], return_aux=True, need_weights=True)
        return out, aux.weights

    tensors = inputs((2,), d=2, d_v=2)
    assert torch.autograd.gradcheck(f, tensors)
    assert torch.autograd.gradgradcheck(f, tensors)
    batched = tuple(torch.stack([x, 2 * x, -x]).detach() for x in tensors)
    torch.testing.assert_close(
        torch.func.vmap(f)(*batched), tuple(map(torch.stack, zip(*(f(*b) for b in zip(*batched)))))
    )
    gradient = torch.func.grad(lambda *x: f(*x)[0].sin().sum(), argnums=(0, 1, 2))
    torch.testing.assert_close(
        torch.func.vmap(gradient)(*batched),
        tuple(map(torch.stack, zip(*(gradient(*b) for b in zip(*batched))))),
    )
    forward = torch.func.jacfwd(lambda q: f(q, *tensors[1:])[0])(tensors[0])
    reverse = torch.func.jacrev(lambda q: f(q, *tensors[1:])[0])(tensors[0])
    torch.testing.assert_close(forward, reverse)


@pytest.mark.parametrize("cast", [False, True])
def test_compiles_without_a_graph_break(cast):
    shannon = Shannon(ALiBi([0.1, 0.2, 0.3, 0.4]) + LogPrior(rand(5)))

    def f(q, k, v):
        plain, aux = attention(q, k, v, is_causal=True, return_aux=True, need_weights=True)
        return plain + attention(q, k, v, regularizer=shannon), *aux

    tensors = inputs(dtype=torch.float32)
    context = torch.autocast("cpu", torch.bfloat16) if cast else contextlib.nullcontext()
    with context:
        ours = torch.compile(f, fullgraph=True, backend="aot_eager")(*tensors)
        expected = f(*tensors)
    tolerance = dict(atol=2e-2, rtol=2e-2) if cast else dict(atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours, expected, **tolerance)
    torch.testing.assert_close(
        gradients(ours[0], tensors), gradients(expected[0], tensors), **tolerance
    )


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(backend="triton"), ValueError, "backend 'triton' can't be used: "),
        (dict(backend="flash"), ValueError, "flash.*unknown"),
        (dict(causal_align="top-left"), ValueError, "top-left"),
        (dict(need_weights=True), ValueError, "return_aux"),
        (dict(scale=-0.5), ValueError, "-0.5"),
        (dict(scale=NAN), ValueError, "nan"),
        (dict(scale=INF), ValueError, "inf"),
        (dict(scale=torch.tensor(1.0)), TypeError, "number"),
        (dict(scale="1"), TypeError, "scale must be a number, got '1'"),
        (dict(scale=1j), TypeError, "scale must be a number, got 1j"),
        (dict(dropout_p=None), TypeError, "dropout_p must be a number, got None"),
        (dict(dropout_p="0.5"), TypeError, "dropout_p must be a number, got '0.5'"),
        (dict(dropout_p=torch.tensor(0.5)), TypeError, "dropout_p must be a number, got a Tensor"),
        (dict(dropout_p=-0.1), ValueError, "-0.1"),
        (dict(dropout_p=1.5), ValueError, "1.5"),
        (dict(dropout_p=NAN), ValueError, "nan"),
        (dict(regularizer="softmax"), TypeError, "str"),
        (dict(regularizer=Shannon), TypeError, "Regularizer"),
        (dict(attn_mask=[[True] * 5] * 3), TypeError, "attn_mask must be a torch.Tensor, got list"),
        (dict(attn_mask="causal"), TypeError, "attn_mask must be a torch.Tensor, got str"),
        (dict(attn_mask=torch.ones(3, 5, dtype=torch.int64)), TypeError, "int64"),
        (dict(attn_mask=torch.ones(3, 5, dtype=torch.float16)), TypeError, "float16"),
        (dict(attn_mask=torch.ones(3, 4) > 0), ValueError, r"\(3, 4\).*\(2, 4, 3, 5\)"),
        (dict(attn_mask=torch.ones(7, 2, 4, 3, 5) > 0), ValueError, r"\(7, 2, 4, 3, 5\)"),
        (dict(attn_mask=torch.ones(3, 5, device="meta") > 0), ValueError, "meta.*cpu"),
        (dict(query=torch.ones(2, 4, 3, 4, dtype=torch.int64)), TypeError, "query.*int64"),
        (dict(key=torch.ones(2, 4, 5, 4, dtype=torch.complex64)), TypeError, "key.*complex64"),
        (dict(value=[1.0]), TypeError, "value.*list"),
        (dict(key=torch.ones(2, 4, 5, 4).half()), TypeError, "key is torch.float16"),
        (dict(value=torch.ones(2, 4, 5, 4, device="meta")), ValueError, "value.*meta"),
        (dict(query=torch.ones(4)), ValueError, r"query.*\(4,\)"),
        (dict(query=torch.ones(2, 4, 3, 7)), ValueError, r"\(2, 4, 3, 7\).*\(2, 4, 5, 4\)"),
        (dict(value=torch.ones(2, 4, 6, 4)), ValueError, r"\(2, 4, 5, 4\).*\(2, 4, 6, 4\)"),
        (dict(query=torch.ones(3, 4, 3, 4)), ValueError, r"\(3, 4, 3, 4\).*broadcast"),
        (dict(query=torch.ones(2, 8, 3, 4)), ValueError, r"\(2, 8, 3, 4\).*broadcast"),
        (dict(query=torch.ones(2, 6, 3, 4), enable_gqa=True), ValueError, "6 query.*4 key"),
        (dict(query=torch.ones(3, 4), enable_gqa=True), ValueError, "head dimension"),
    ],
)
def test_refusals_name_what_is_wrong(change, error, words):
    arguments = dict(
        query=torch.ones(2, 4, 3, 4), key=torch.ones(2, 4, 5, 4), value=torch.ones(2, 4, 5, 4)
    )
    attention(**arguments)
    with pytest.raises(error, match=words):
        attention(**(arguments | change))


def test_there_is_nowhere_to_put_a_second_temperature():
    with pytest.raises(TypeError, match="tau"):
        attention(*inputs(), tau=2.0)
    with pytest.raises(TypeError, match="tau"):
        Shannon(tau=2.0)
