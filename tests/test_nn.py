"""The multi-head module against PyTorch's, and where PyTorch's has nothing to say."""

import copy
import inspect
import io
import itertools
import math
import warnings
from functools import partial

import pytest
import torch
from entmax import entmax_bisect, sparsemax
from torch import nn

import eotcourse
from eotcourse import ALiBi, Causal, LogPrior, Padding, Shannon, alibi_slopes
from eotcourse.nn import MultiheadAttention
from eotcourse.regularizers import LearnableTsallis, Tsallis
from test_simplex import Sparsemax, rand

INF = math.inf
N, L, S, E, H = 2, 3, 5, 12, 4
ATOL = {torch.float64: 1e-13, torch.float32: 4e-6, torch.bfloat16: 4e-2}
VARIANTS = {
    "plain": {},
    "batch first": dict(batch_first=True),
    "no bias": dict(bias=False, batch_first=True),
    "dims": dict(kdim=7, vdim=9),
    "kdim": dict(kdim=7, batch_first=True),
    "bias_kv": dict(add_bias_kv=True),
    "zero": dict(add_zero_attn=True, batch_first=True),
    "everything": dict(add_bias_kv=True, add_zero_attn=True, kdim=7, vdim=9, batch_first=True),
}


def pair(dtype=torch.float64, seed=0, **arguments):
    """Our module and PyTorch's, with the same parameters, none of them trivial."""
    theirs = nn.MultiheadAttention(E, H, dtype=dtype, **arguments)
    for i, parameter in enumerate(theirs.parameters()):
        parameter.data = 0.5 * rand(*parameter.shape, seed=seed + i, dtype=dtype)
    ours = MultiheadAttention(E, H, dtype=dtype, **arguments)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(module, dtype=torch.float64, batch=N, q_len=L, k_len=S):
    """Query, key and value; `batch` None is unbatched."""

    def shape(length, features):
        if batch is None:
            return length, features
        return (batch, length, features) if module.batch_first else (length, batch, features)

    sizes = (q_len, module.embed_dim), (k_len, module.kdim), (k_len, module.vdim)
    return tuple(rand(*shape(*x), seed=i, dtype=dtype, grad=True) for i, x in enumerate(sizes))


def gradients(out, weights, tensors):
    total = (rand(*out.shape, seed=20, dtype=out.dtype) * out).sum()
    if weights is not None:
        total = total + (rand(*weights.shape, seed=21, dtype=out.dtype) * weights).sum()
    return torch.autograd.grad(total, tensors, allow_unused=True)


def same(ours, theirs, x, **arguments):
    """Equal results and gradients for the inputs `x`, drawing the same dropout."""
    dtype = x[0].dtype
    tolerance = dict(atol=ATOL[dtype], rtol=ATOL[dtype])
    results = []
    for module in (ours, theirs):
        torch.manual_seed(0)
        out, weights = module(*x, **arguments)
        masks = [m for m in arguments.values() if getattr(m, "requires_grad", False)]
        names, parameters = zip(*sorted(module.named_parameters()))
        g = gradients(out, weights, [*x, *masks, *parameters])
        results.append((out, weights, dict(zip(["query", "key", "value", *masks, *names], g))))
    (out, weights, g), (their_out, their_weights, their_g) = results
    assert out.dtype == dtype and out.is_contiguous()
    torch.testing.assert_close(out, their_out, **tolerance)
    torch.testing.assert_close(weights, their_weights, **tolerance)
    assert len(g) == len(their_g)
    scale = max(1.0, *(x.abs().max().item() for x in their_g.values()))
    for (name, one), other in zip(g.items(), their_g.values()):
        difference = (one - other).abs().max().item()
        assert one.dtype == other.dtype and difference <= scale * ATOL[dtype], (name, difference)


# True = ignore; no row loses every key.
def bools(*shape, seed):
    mask = rand(*shape, seed=seed) > 0.3
    mask[..., -1] = False
    return mask


def masks(kind, dtype, batch=N):
    """Arguments of `forward`, for L queries and S keys."""
    n = 1 if batch is None else batch
    padding = (S,) if batch is None else (batch, S)
    floats = rand(n * H, L, S, seed=32, dtype=dtype, grad=True)
    return {
        "none": {},
        "padding": dict(key_padding_mask=bools(*padding, seed=30)),
        "2-D": dict(attn_mask=bools(L, S, seed=31)),
        "3-D": dict(attn_mask=bools(n * H, L, S, seed=31)),
        "float": dict(attn_mask=floats),
        "float padding": dict(
            key_padding_mask=rand(*padding, seed=33, dtype=dtype).masked_fill(
                bools(*padding, seed=30), -INF
            )
        ),
        "both": dict(
            attn_mask=bools(n * H, L, S, seed=31), key_padding_mask=bools(*padding, seed=30)
        ),
        "both float": dict(
            attn_mask=floats, key_padding_mask=rand(*padding, seed=33, dtype=dtype)
        ),
    }[kind]


MASKS = ["none", "padding", "2-D", "3-D", "float", "float padding", "both", "both float"]


# ---------------------------------------------------------------- PyTorch's module


def test_takes_the_arguments_of_pytorch():
    for ours, theirs, extra in [
        (MultiheadAttention.__init__, nn.MultiheadAttention.__init__, 2),
        (MultiheadAttention.forward, nn.MultiheadAttention.forward, 0),
    ]:
        ours = [(p.name, p.default) for p in inspect.signature(ours).parameters.values()]
        theirs = [(p.name, p.default) for p in inspect.signature(theirs).parameters.values()]
        assert ours[: len(theirs)] == theirs and len(ours) == len(theirs) + extra


@pytest.mark.parametrize("variant", VARIANTS)
def test_starts_with_the_parameters_of_pytorch(variant):
    state = []
    for kind in (MultiheadAttention, nn.MultiheadAttention):
        torch.manual_seed(0)
        module = kind(E, H, dtype=torch.float64, **VARIANTS[variant])
        assert all(p.requires_grad and p.dtype == torch.float64 for p in module.parameters())
        state.append(module.state_dict())
    assert state[0].keys() == state[1].keys()
    for name in state[0]:
        assert torch.equal(state[0][name], state[1][name]), name


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch", [N, None], ids=["batched", "unbatched"])
def test_equals_pytorch_for_every_mask(variant, batch):
    ours, theirs = pair(**VARIANTS[variant])
    x = inputs(ours, batch=batch)
    for mask, need, average in itertools.product(MASKS, [True, False], [True, False]):
        how = dict(need_weights=need, average_attn_weights=average)
        if need or average:
            same(ours, theirs, x, **masks(mask, torch.float64, batch), **how)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_equals_pytorch_in_other_precisions(variant, dtype):
    ours, theirs = pair(dtype, **VARIANTS[variant])
    x = inputs(ours, dtype)
    for mask in MASKS:
        same(ours, theirs, x, **masks(mask, dtype))


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_dropout_in_training_draws_what_pytorch_draws(variant, need):
    ours, theirs = pair(dropout=0.4, **VARIANTS[variant])
    x = inputs(ours)
    same(ours, theirs, x, need_weights=need, average_attn_weights=False)
    out = ours(*x, need_weights=need)[0]
    assert not torch.equal(out, ours(*x, need_weights=need)[0])
    ours.eval(), theirs.eval()
    same(ours, theirs, x, need_weights=need)
    assert torch.equal(ours(*x, need_weights=need)[0], ours(*x)[0])


def test_evaluation_equals_the_fused_kernel_of_pytorch():
    ours, theirs = pair(torch.float32, batch_first=True)
    ours.eval(), theirs.eval()
    x = rand(N, S, E, dtype=torch.float32)
    mask = dict(key_padding_mask=bools(N, S, seed=30))
    for arguments in ({}, mask, dict(attn_mask=bools(S, S, seed=31))):
        with torch.no_grad():
            torch.testing.assert_close(
                ours(x, x, x, **arguments), theirs(x, x, x, **arguments), atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_autocast(dtype):
    ours, theirs = pair(dtype, add_bias_kv=True, dropout=0.5)
    x = inputs(ours, dtype)
    lower = torch.bfloat16 if dtype == torch.float32 else dtype
    arguments = dict(attn_mask=bools(L, S, seed=31))
    with torch.autocast("cpu", torch.bfloat16):
        ours(*x, **arguments)[0].sum().backward()
        ours.eval(), theirs.eval()
        results = ours(*x, **arguments), theirs(*x, **arguments)
    assert results[0][0].dtype == results[0][1].dtype == lower
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=4e-2, rtol=4e-2, check_dtype=False)


def test_true_is_ignored_here_and_attended_to_elsewhere():
    module = MultiheadAttention(E, H, dtype=torch.float64, bias=False)
    module.out_proj.weight.data = torch.eye(E, dtype=torch.float64)
    query, key, value = inputs(module, batch=None)
    ignore = bools(L, S, seed=31)
    out, weights = module(query, key, value, attn_mask=ignore)
    assert torch.equal(weights == 0, ignore)
    q, k, v = (
        (x @ w.T).unflatten(-1, (H, E // H)).transpose(0, 1)
        for x, w in zip((query, key, value), module.in_proj_weight.chunk(3))
    )
    attended = eotcourse.attention(q, k, v, ~ignore).transpose(0, 1).flatten(1)
    torch.testing.assert_close(out, attended, atol=1e-13, rtol=0)
    padding = torch.tensor([True, False, True, False, False])
    assert torch.equal(module(query, key, value, padding)[1] == 0, padding.expand(L, S))
    for meaning, docstring in [
        (MultiheadAttention, "True = ignore"), (eotcourse.attention, "True = may attend")
    ]:  # fmt: skip
        assert docstring in meaning.__doc__


# ---------------------------------------------------------------- beyond PyTorch's


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("variant", ["plain", "everything"])
@pytest.mark.parametrize("q_len, k_len", [(4, 4), (3, 5), (5, 3)])
def test_causal_with_and_without_a_mask(q_len, k_len, variant, need):
    ours, theirs = pair(**VARIANTS[variant])
    x = inputs(ours, q_len=q_len, k_len=k_len)
    later = torch.arange(k_len) > torch.arange(q_len)[:, None]
    padding = bools(N, k_len, seed=30)
    padding[:, 0] = False
    extra = bools(q_len, k_len, seed=31)
    extra[:, 0] = False
    for arguments, mask in [
        ({}, later),
        (dict(attn_mask=later), later),
        (dict(attn_mask=extra), extra | later),
        (dict(key_padding_mask=padding), later),
    ]:
        out = ours(*x, need_weights=need, is_causal=True, **arguments)
        expected = theirs(*x, need_weights=need, **(arguments | dict(attn_mask=mask)))
        torch.testing.assert_close(out, expected, atol=1e-13, rtol=1e-12)


@pytest.mark.parametrize("dtype", ATOL, ids=str)
@pytest.mark.parametrize("kind", ["padding", "attn", "float", "prior"])
@pytest.mark.parametrize("regularizer", [Shannon, Sparsemax, partial(Tsallis, 1.5)])
def test_query_that_may_attend_to_nothing(regularizer, kind, dtype):
    nothing = torch.zeros(L, S, dtype=torch.bool)
    nothing[1] = True
    bias = torch.zeros(L, S).masked_fill(nothing, -INF)
    prior = LogPrior(bias) if kind == "prior" else None
    module = MultiheadAttention(E, H, dtype=dtype, regularizer=regularizer(prior=prior))
    nn.init.ones_(module.out_proj.bias)
    x = inputs(module, dtype)
    arguments = {
        "padding": dict(key_padding_mask=torch.tensor([[True] * S, [False] * S])),
        "attn": dict(attn_mask=nothing),
        "float": dict(attn_mask=bias),
        "prior": {},
    }[kind]
    empty = torch.zeros(N, L, dtype=torch.bool)
    if kind == "padding":
        empty[0] = True
    else:
        empty[:, 1] = True
    out, weights = module(*x, **arguments)
    assert not weights[empty].any()
    assert (weights[~empty].sum(-1) - 1).abs().max() < 1e-2
    assert (out.transpose(0, 1)[empty] == 1).all() and out.isfinite().all()
    assert torch.equal(out, module(*x, need_weights=False, **arguments)[0])
    dq, *others = gradients(out, weights, [*x, *module.parameters()])
    assert not dq.transpose(0, 1)[empty].any() and dq.transpose(0, 1)[~empty].any()
    assert all(g.isfinite().all() for g in others)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_shared_heads_are_repeated_in_consecutive_groups(variant, kv_heads):
    arguments = VARIANTS[variant] | dict(dropout=0.4, dtype=torch.float64)
    ours = MultiheadAttention(E, H, num_kv_heads=kv_heads, **arguments)
    for i, parameter in enumerate(ours.parameters()):
        parameter.data = 0.5 * rand(*parameter.shape, seed=i)
    shared = kv_heads * E // H
    state = ours.state_dict()
    assert "in_proj_weight" not in state and state["q_proj_weight"].shape == (E, E)
    assert state["k_proj_weight"].shape == (shared, ours.kdim)
    assert state["v_proj_weight"].shape == (shared, ours.vdim)
    assert state["in_proj_bias"].shape == (E + 2 * shared,)

    def repeat(x, dim):
        return x.unflatten(dim, (kv_heads, -1)).repeat_interleave(H // kv_heads, dim).flatten(
            dim, dim + 1
        )

    names = ["k_proj_weight", "v_proj_weight"]
    if ours.bias_k is not None:
        assert state["bias_k"].shape == state["bias_v"].shape == (1, 1, shared)
        state |= {name: repeat(state[name], 2) for name in ("bias_k", "bias_v")}
    state |= {name: repeat(state[name], 0) for name in names}
    q, k, v = state["in_proj_bias"].split([E, shared, shared])
    state["in_proj_bias"] = torch.cat([q, repeat(k, 0), repeat(v, 0)])
    theirs = nn.MultiheadAttention(E, H, **arguments)
    if ours.kdim == E:
        stacked = [state.pop(name) for name in ["q_proj_weight", *names]]
        state["in_proj_weight"] = torch.cat(stacked)
    theirs.load_state_dict(state)
    x = inputs(ours)
    for need in (True, False):
        results = []
        for module in (ours, theirs):
            torch.manual_seed(0)
            out, weights = module(*x, need_weights=need, average_attn_weights=False)
            results.append((out, weights, gradients(out, weights, x)))
        torch.testing.assert_close(*results, atol=1e-12, rtol=1e-12)


def reference(module, x, solve):
    """Sequence by sequence and head by head; `solve(scaled scores, n, h)` gives the weights."""
    d = E // H
    parts = zip(x, module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3))
    q, k, v = ([p.split(d, -1) for p in y @ w.T + b] for y, w, b in parts)
    out, weights = [], []
    for n in range(N):
        p = [solve(q[n][h] @ k[n][h].T / math.sqrt(d), n, h) for h in range(H)]
        out.append(torch.cat([p[h] @ v[n][h] for h in range(H)], -1))
        weights.append(torch.stack(p))
    return torch.stack(out) @ module.out_proj.weight.T + module.out_proj.bias, torch.stack(weights)


def test_any_regulariser_with_priors_of_heads_and_sequences():
    slopes = nn.Parameter(torch.tensor([0.1, 0.4, 0.8, 1.6], dtype=torch.float64))
    keep = torch.tensor([[True] * S, [True, True, False, True, False]])
    lag = (torch.arange(L)[:, None] - torch.arange(S)).abs()
    for kind, solve in [(Shannon, torch.softmax), (Sparsemax, sparsemax)]:
        module, _ = pair(batch_first=True)
        module.regularizer = kind(ALiBi(slopes) + Padding(keep))
        x = inputs(module)
        out, weights = module(*x, average_attn_weights=False)
        ours = gradients(out, weights, [*x, slopes])
        expected = reference(
            module, x, lambda z, n, h: solve((z - slopes[h] * lag).masked_fill(~keep[n], -1e9), -1)
        )
        theirs = gradients(*expected, [*x, slopes])
        torch.testing.assert_close((out, weights), expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)
        torch.testing.assert_close(module(*x)[1], weights.mean(1))
        assert ours[-1].abs().max() > 1e-3


def learned_prior(fill):
    slopes, table = torch.full((H,), fill), torch.full((S,), fill)
    return Shannon(ALiBi(nn.Parameter(slopes)) + LogPrior(nn.Parameter(table)) + Causal())


LEARNED = {
    "prior": (learned_prior, {"slopes", "log_pi"}),
    "alpha": (lambda fill: LearnableTsallis(H, 1 + fill), {"logit"}),
    "free alpha": (lambda fill: Tsallis(nn.Parameter(torch.full((H,), 1 + fill))), {"alpha"}),
}


@pytest.mark.parametrize("kind", LEARNED)
def test_what_the_regulariser_learns_is_saved_and_moved(kind):
    build, names = LEARNED[kind]
    module, other = (MultiheadAttention(E, H, regularizer=build(fill)) for fill in (0.25, 0.5))
    learned = [n for n, _ in module.named_parameters() if n.startswith("regularizer")]
    assert {name.rsplit(".", 1)[1] for name in learned} == names
    missing, unexpected = module.load_state_dict(
        nn.MultiheadAttention(E, H).state_dict(), strict=False
    )
    assert missing == learned and not unexpected
    state = module.state_dict()
    rest = {name: x for name, x in state.items() if name not in learned}
    x = inputs(module, torch.float32)
    other.load_state_dict(rest, strict=False)
    assert not torch.equal(module(*x)[0], other(*x)[0])
    other.load_state_dict(state)
    assert torch.equal(module(*x)[0], other(*x)[0])
    module.to(torch.float64)
    assert all(p.dtype == torch.float64 for p in module.parameters())
    module(*inputs(module))[0].sum().backward()
    assert all(module.get_parameter(name).grad.any() for name in learned)
    assert all(p.device.type == "meta" for p in module.to("meta").parameters())


def test_each_head_has_its_alpha():
    alpha = nn.Parameter(torch.tensor([1.1, 1.3, 1.5, 2.0], dtype=torch.float64))
    module, _ = pair(batch_first=True)
    module.regularizer = Tsallis(alpha, ALiBi([0.1] * H))
    x = inputs(module)
    lag = (torch.arange(L)[:, None] - torch.arange(S)).abs()
    tensors = [*x, module.in_proj_weight, alpha]

    def bisect(theta, n, h):
        return entmax_bisect(theta - 0.1 * lag, alpha[h], n_iter=60)

    ours, theirs = module(*x, average_attn_weights=False), reference(module, x, bisect)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
    g = gradients(*ours, tensors)
    torch.testing.assert_close(g, gradients(*theirs, tensors), atol=1e-6, rtol=1e-6)
    assert (ours[1] == 0).any() and g[-1].all()


def test_appended_keys_are_the_last_positions_of_a_prior():
    module = MultiheadAttention(
        E, H, add_bias_kv=True, add_zero_attn=True, dtype=torch.float64,
        regularizer=Shannon(LogPrior(torch.tensor([0.0] * S + [-INF, 60.0]))),
    )  # fmt: skip
    weights = module(*inputs(module))[1]
    assert weights.shape == (N, L, S + 2)
    assert not weights[..., S].any() and (weights[..., S + 1] > 0.99).all()


REGULARIZERS = {
    "Shannon": Shannon,
    "user's own": Sparsemax,
    "alpha per head": lambda: Tsallis(torch.tensor([1.0, 1.3, 1.5, 2.0])),
    "sparse ALiBi": lambda: Tsallis(1.5, ALiBi(alibi_slopes(H))),
    "learnable": lambda: LearnableTsallis(H, prior=ALiBi(alibi_slopes(H))),
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_takes_the_place_of_attention_in_an_encoder(name):
    """In evaluation too, where PyTorch's layers would rather call their own kernel."""
    layer = nn.TransformerEncoderLayer(E, H, 8, 0.0, batch_first=True, dtype=torch.float64)
    stock = layer.self_attn
    layer.self_attn = MultiheadAttention(
        E, H, batch_first=True, dtype=torch.float64, regularizer=REGULARIZERS[name]()
    )
    layer.self_attn.load_state_dict(stock.state_dict(), strict=False)
    x = rand(N, S, E)
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[1, 3:] = True
    causal = nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        encoder = nn.TransformerEncoder(layer, 2)
    for arguments in [dict(src_key_padding_mask=padding), dict(mask=causal), {}]:
        training = encoder.train()(x, **arguments)
        with torch.no_grad():
            torch.testing.assert_close(encoder.eval()(x, **arguments), training)
        encoder.train()
        assert training.isfinite().all()
        if name == "Shannon":
            with torch.no_grad():
                layer.self_attn, mine = stock, layer.self_attn
                theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
                layer.self_attn = mine
                kept = ~padding if "src_key_padding_mask" in arguments else padding | True
                torch.testing.assert_close(training[kept], theirs(x, **arguments)[kept])


def test_put_into_an_encoder_that_makes_nested_tensors():
    layer = nn.TransformerEncoderLayer(E, H, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=True).eval()
    encoder.layers[0].self_attn = MultiheadAttention(E, H, batch_first=True)
    padding = torch.arange(S).expand(N, S) > 2
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(TypeError, match="nested.*enable_nested_tensor=False"):
            encoder(torch.ones(N, S, E), src_key_padding_mask=padding)


def test_works_in_a_decoder():
    decoder = nn.TransformerDecoderLayer(E, H, 8, 0.0, dtype=torch.float64)
    x, memory = rand(L, N, E), rand(S, N, E, seed=1)
    causal = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    padding = bools(N, S, seed=2)
    arguments = dict(tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding)
    expected = decoder(x, memory, **arguments)
    for name in ("self_attn", "multihead_attn"):
        stock = getattr(decoder, name)
        setattr(decoder, name, MultiheadAttention(E, H, dtype=torch.float64))
        getattr(decoder, name).load_state_dict(stock.state_dict())
    torch.testing.assert_close(decoder(x, memory, **arguments), expected)


@pytest.mark.parametrize("name", REGULARIZERS)
def test_copies_and_pickles(name):
    module = MultiheadAttention(E, H, num_kv_heads=2, regularizer=REGULARIZERS[name]())
    x = inputs(module, torch.float32)
    expected = module(*x)[0]
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
        assert torch.equal(other(*x)[0], expected)
        other.in_proj_bias.data += 1.0
        assert not torch.equal(other(*x)[0], expected)
        assert torch.equal(module(*x)[0], expected)


@pytest.mark.parametrize("name", ["Shannon", "learnable"])
def test_compiles_without_a_graph_break(name):
    module = MultiheadAttention(E, H, add_bias_kv=True, regularizer=REGULARIZERS[name]())
    x = inputs(module, torch.float32)
    arguments = dict(key_padding_mask=bools(N, S, seed=30), is_causal=True)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    ours, expected = compiled(*x, **arguments), module(*x, **arguments)
    torch.testing.assert_close(ours, expected, atol=2e-6, rtol=1e-5)
    tensors = [*x, *module.parameters()]
    torch.testing.assert_close(
        gradients(*ours, tensors), gradients(*expected, tensors), atol=2e-5, rtol=1e-4
    )


def test_derivatives_of_second_order():
    module = MultiheadAttention(4, 2, dtype=torch.float64, regularizer=Shannon(ALiBi([0.5, 0.1])))
    x = inputs(module, batch=1, q_len=2, k_len=3)
    mask = torch.tensor([[True, True, True], [False, True, False]])
    assert torch.autograd.gradcheck(lambda *x: module(*x, attn_mask=mask), x)
    assert torch.autograd.gradgradcheck(lambda *x: module(*x, attn_mask=mask), x)


@pytest.mark.parametrize("batch, q_len, k_len", [(0, L, S), (N, 0, S), (N, L, 0), (None, L, 0)])
def test_empty_sizes(batch, q_len, k_len):
    module = MultiheadAttention(E, H, dtype=torch.float64)
    x = inputs(module, batch=batch, q_len=q_len, k_len=k_len)
    heads = (1 if batch is None else batch) * H
    mask = torch.zeros(heads, q_len, k_len, dtype=torch.bool)
    out, weights = module(*x, attn_mask=mask, is_causal=True)
    assert out.shape == x[0].shape and not (k_len == 0 and out.any())
    assert weights.shape == (() if batch is None else (batch,)) + (q_len, k_len)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(num_heads=5), ValueError, "embed_dim 12.*5 heads"),
        (dict(num_heads=0), ValueError, "num_heads.*0"),
        (dict(embed_dim=-4), ValueError, "embed_dim.*-4"),
        (dict(kdim=0), ValueError, "kdim.*0"),
        (dict(num_kv_heads=3), ValueError, "4 heads.*num_kv_heads 3"),
        (dict(num_kv_heads=8), ValueError, "4 heads.*num_kv_heads 8"),
        (dict(num_kv_heads=0), ValueError, "num_kv_heads.*0"),
        (dict(dropout=1.5), ValueError, "dropout.*1.5"),
        (dict(dropout=math.nan), ValueError, "dropout.*nan"),
        (dict(regularizer="softmax"), TypeError, "Regularizer.*str"),
        (dict(regularizer=Shannon), TypeError, "Regularizer"),
    ],
)
def test_refusals_of_the_constructor(arguments, error, words):
    with pytest.raises(error, match=words):
        MultiheadAttention(**(dict(embed_dim=E, num_heads=H) | arguments))


NESTED = torch.nested.nested_tensor([torch.ones(2, E), torch.ones(3, E)], layout=torch.jagged)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(query=torch.ones(L, N, E, dtype=torch.int64)), TypeError, "query.*int64"),
        (dict(value=torch.ones(S, N, 9, dtype=torch.bool)), TypeError, "value.*bool"),
        (dict(key=[1.0]), TypeError, "key.*list"),
        (dict(query=NESTED), TypeError, "query is a nested tensor.*enable_nested_tensor"),
        (dict(query=torch.ones(L, N, 8)), ValueError, r"query.*\(3, 2, 8\).*12 features"),
        (dict(key=torch.ones(S, N, E)), ValueError, r"key.*\(5, 2, 12\).*7 features"),
        (dict(value=torch.ones(S, N, 7)), ValueError, r"value.*\(5, 2, 7\).*9 features"),
        (dict(value=torch.ones(4, N, 9)), ValueError, r"\(5, 2, 7\).*\(4, 2, 9\).*length"),
        (dict(query=torch.ones(L, 3, E)), ValueError, r"\(3, 3, 12\).*\(5, 2, 7\).*dimension 1"),
        (dict(query=torch.ones(L, E)), ValueError, r"key.*\(5, 2, 7\).*query \(3, 12\)"),
        (dict(query=torch.ones(1, L, N, E)), ValueError, r"query.*\(1, 3, 2, 12\)"),
        (dict(attn_mask=torch.zeros(L, S).long()), TypeError, "attn_mask.*int64"),
        (dict(attn_mask=torch.zeros(L, S).double()), TypeError, "attn_mask.*float64"),
        (dict(key_padding_mask=torch.zeros(N, S).half()), TypeError, "key_padding_mask.*float16"),
        (
            dict(attn_mask=torch.zeros(S, L)),
            ValueError,
            r"attn_mask.*\(3, 5\) or \(8, 3, 5\), got \(5, 3\)",
        ),
        (dict(attn_mask=torch.zeros(H, L, S)), ValueError, r"got \(4, 3, 5\)"),
        (dict(attn_mask=torch.zeros(N, H, L, S)), ValueError, r"got \(2, 4, 3, 5\)"),
        (dict(attn_mask=torch.zeros(S)), ValueError, r"got \(5,\)"),
        (dict(attn_mask=torch.zeros(L, 1)), ValueError, r"got \(3, 1\)"),
        (
            dict(key_padding_mask=torch.zeros(S, N)),
            ValueError,
            r"key_padding_mask.*\(2, 5\), got \(5, 2\)",
        ),
        (dict(key_padding_mask=torch.zeros(S)), ValueError, r"got \(5,\)"),
        (dict(key_padding_mask=torch.zeros(N, S, device="meta")), ValueError, "padding.*meta.*cpu"),
    ],
)
def test_refusals_of_the_call(change, error, words):
    module = MultiheadAttention(E, H, kdim=7, vdim=9)
    arguments = dict(
        query=torch.ones(L, N, E), key=torch.ones(S, N, 7), value=torch.ones(S, N, 9)
    )
    module(**arguments)
    with pytest.raises(error, match=words):
        module(**(arguments | change))


def test_priors_of_another_number_of_heads_are_refused():
    module = MultiheadAttention(E, H, regularizer=Shannon(ALiBi(alibi_slopes(3))))
    with pytest.raises(ValueError, match=r"\(3, 3, 5\).*\(2, 4, 3, 5\)"):
        module(*inputs(module, torch.float32))
