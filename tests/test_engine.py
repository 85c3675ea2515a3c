"""The blockwise backend against the dense specification, by name, and what it must not do."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import eotcourse
from eotcourse import (
    ALiBi,
    Causal,
    LearnableTsallis,
    LogPrior,
    Padding,
    Shannon,
    Tsallis,
    Window,
    attention,
)
from eotcourse.engine import blockwise
from eotcourse.priors import Prior
from test_simplex import rand

# Heads have the order named, 0.02 and 0.3 more: on both sides of 1.2 and 2, where methods change.
ORDERS = (1.0, 1.18, 4 / 3, 1.5, 1.98)
SIZES = {"17": (17, 17), "63 and 300": (63, 300), "111 and 40": (111, 40)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, the last of them smaller, at these sizes."""
    monkeypatch.setattr(blockwise, "_BLOCK", 1 << 13)
    monkeypatch.setattr(blockwise, "_LEAST_ROWS", 16)
    monkeypatch.setattr(blockwise, "_FUSED_ROWS", 16)
    monkeypatch.setattr(blockwise, "_PART", 1 << 10)
    monkeypatch.setattr(blockwise, "_LEAST_PART", 7)
    monkeypatch.setattr(blockwise, "_SHORT", 8)


def trained(x):
    return torch.nn.Parameter(x)


class Locality(Prior):
    """A prior that the engine doesn't know: asked for its tiles, and learned."""

    def __init__(self, width):
        super().__init__()
        self.width = torch.nn.Parameter(width)

    def bias(self, q_positions, k_positions, head=None):
        lag = k_positions[None, :] - q_positions[:, None]
        table = -(lag / self.width[:, None, None]) ** 2
        return table if head is None else table[[head]]


FEATURES = {
    "plain": lambda q, k: {},
    "causal": lambda q, k: dict(is_causal=True),
    "causal from the end": lambda q, k: dict(is_causal=True, causal_align="bottom_right"),
    "bool mask": lambda q, k: dict(
        attn_mask=(rand(q, k, seed=5) > -0.5) & (torch.arange(q) != 3)[:, None]
    ),
    "bool mask of keys": lambda q, k: dict(attn_mask=rand(2, 1, 1, k, seed=5) > -0.5),
    "float mask": lambda q, k: dict(attn_mask=trained(rand(2, 3, q, k, seed=6))),
    "float mask of a head": lambda q, k: dict(attn_mask=trained(rand(3, 1, k, seed=6))),
    "float mask of queries, causal": lambda q, k: dict(
        attn_mask=trained(rand(1, q, 1, seed=6)), is_causal=True
    ),
    "excluding mask": lambda q, k: dict(
        attn_mask=trained(rand(q, k, seed=7).masked_fill(rand(q, k, seed=8) > 0.5, -math.inf))
    ),
    "alibi": lambda q, k: dict(prior=ALiBi(trained(slopes()))),
    "causal alibi from the end": lambda q, k: dict(
        prior=ALiBi(trained(slopes())) + Causal(), causal_align="bottom_right"
    ),
    "steep alibi": lambda q, k: dict(prior=ALiBi(trained(40 * slopes()))),
    "steep causal alibi": lambda q, k: dict(
        prior=ALiBi(trained(10 * slopes())) + ALiBi(trained(5 * slopes())), is_causal=True
    ),
    "steep alibi from the end": lambda q, k: dict(
        prior=ALiBi(slopes() * torch.tensor([80, 400, -5])), is_causal=True,
        causal_align="bottom_right",
    ),
    "steep alibi, keys left out": lambda q, k: dict(
        prior=ALiBi(trained(20 * slopes())) + Padding(rand(2, k, seed=9) > -1)
        + LogPrior(rand(3, 1, k, seed=10)), is_causal=True
    ),
    "prior": lambda q, k: dict(prior=LogPrior(trained(rand(k, seed=9))), is_causal=True),
    "fixed prior": lambda q, k: dict(prior=LogPrior(rand(3, 1, k)) + LogPrior(rand(k, seed=9))),
    "prior of heads and queries": lambda q, k: dict(prior=LogPrior(trained(rand(3, q, k)))),
    "window": lambda q, k: dict(prior=Window(20, 3)),
    "window to the left": lambda q, k: dict(prior=Window(9), is_causal=True),
    "sum of priors": lambda q, k: dict(
        prior=ALiBi(trained(slopes())) + Padding(rand(2, k, seed=9) > -1) + Window(None, 60)
        + LogPrior(trained(rand(1, k, seed=10)))
    ),
    "own prior": lambda q, k: dict(prior=Locality(10 * slopes() + 30), is_causal=True),
    "scale": lambda q, k: dict(scale=0.9),
    "scale of zero": lambda q, k: dict(scale=0),
}  # fmt: skip


def slopes():
    return torch.tensor([0.5, 0.1, 0.02], dtype=torch.float64)


def everything(backend, dtype, alpha, q_len, k_len, feature, heads=(3, 3), with_zeta=True):
    """Outputs, soft maxima and all gradients of one call, by name, in float64.

    Without an alpha the regulariser is Shannon's.
    """
    arguments = FEATURES[feature](q_len, k_len)
    prior = arguments.pop("prior", None)
    if alpha is None:
        regularizer = Shannon(prior)
    else:
        order = torch.tensor([alpha, alpha + 0.02, alpha + 0.3], dtype=torch.float64)
        regularizer = Tsallis(trained(order.to(dtype)), prior)
    tensors = {
        "query": rand(2, heads[0], q_len, 20, seed=1).mul(2),
        "key": rand(2, heads[1], k_len, 20, seed=2),
        "value": rand(2, heads[1], k_len, 12, seed=3),
    }
    tensors = {name: trained(x.to(dtype)) for name, x in tensors.items()}
    mask = arguments.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        tensors["attn_mask"] = arguments["attn_mask"] = trained(mask.detach().to(dtype))
    out, aux = attention(
        **{**tensors, **arguments}, enable_gqa=heads[0] != heads[1], backend=backend,
        regularizer=regularizer, return_aux=True,
    )  # fmt: skip
    tensors.update(regularizer.named_parameters())
    finite = aux.threshold.masked_fill(aux.threshold == -math.inf, 0)
    upstream = [rand(*x.shape, seed=20).to(dtype) for x in (out, finite)]
    outputs = (out, finite) if with_zeta else (out,)
    grads = torch.autograd.grad(outputs, list(tensors.values()), upstream[: len(outputs)])
    found = {"out": out, "threshold": aux.threshold}
    found.update({f"d{name}": g for name, g in zip(tensors, grads)})
    return {name: x.detach().double() for name, x in found.items()}


def errors(found, wanted):
    """Relative errors, in the norm, by name."""
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        assert torch.equal(x.isfinite(), found[name].isfinite()), name
    return {
        name: float((found[name] - x).nan_to_num(0).norm() / (1 + x.nan_to_num(0, 0, 0).norm()))
        for name, x in wanted.items()
    }


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("alpha", ORDERS)
def test_equals_the_dense_specification(alpha, size, feature):
    """To rounding in float64; in float32 no worse than the dense one, whose rounding it shares."""
    case = (alpha, *SIZES[size], feature)
    wanted = everything("dense", torch.float64, *case)
    for name, e in errors(everything("blockwise", torch.float64, *case), wanted).items():
        assert e < 1e-12, f"{name}: {e}"
    worst = max(errors(everything("dense", torch.float32, *case), wanted).values())
    for name, e in errors(everything("blockwise", torch.float32, *case), wanted).items():
        assert e < 2e-5 + 3 * worst, f"{name}: {e}, dense {worst}"


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("with_zeta", [False, True])
def test_softmax_equals_the_dense_specification(size, feature, with_zeta):
    case = (None, *SIZES[size], feature, (3, 3), with_zeta)
    wanted = everything("dense", torch.float64, *case)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        for name, e in errors(everything("blockwise", dtype, *case), wanted).items():
            # Where weights are at the diagonal, slopes have nothing but rounding in float32.
            most = 1e-4 if "slopes" in name and dtype == torch.float32 else tolerance
            assert e < most, f"{name}: {e}"


@pytest.mark.parametrize("feature, fused", [
    ("plain", True), ("causal", True), ("causal from the end", True), ("prior", True),
    ("causal alibi from the end", True), ("fixed prior", True), ("float mask of a head", True),
    ("alibi", False),
    ("window", False), ("bool mask", False), ("excluding mask", False), ("own prior", False),
])  # fmt: skip
def test_softmax_goes_through_the_fused_kernel(monkeypatch, feature, fused):
    taken = []
    for name in ("forward", "backward"):
        method = getattr(blockwise.Fused, name)

        def watched(self, *arguments, name=name, method=method):
            taken.append(name)
            return method(self, *arguments)

        monkeypatch.setattr(blockwise.Fused, name, watched)
    everything("blockwise", torch.float32, None, 63, 300, feature, with_zeta=False)
    assert set(taken) == ({"forward", "backward"} if fused else set())


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_groups_of_heads(alpha):
    case = (torch.float64, alpha, 63, 300, "causal from the end")
    found, wanted = (everything(way, *case, heads=(3, 1)) for way in ("blockwise", "dense"))
    assert max(errors(found, wanted).values()) < 1e-12


def paths(monkeypatch):
    """Counts how many blocks keep their support, and how many are formed again."""
    taken = {"kept": 0, "all": 0}

    def watch(name, count):
        function = getattr(blockwise, name)

        def watched(*arguments):
            result = function(*arguments)
            taken[count] += result is not None
            return result

        monkeypatch.setattr(blockwise, name, watched)

    watch("_keep", "kept")
    watch("_solve", "all")
    return taken


@pytest.mark.parametrize("size, kept", [(3.0, True), (0.01, False)])
def test_blocks_keep_their_support_when_it_is_sparse(monkeypatch, size, kept):
    taken = paths(monkeypatch)
    q, k, v = rand(64, 8) * size, rand(512, 8, seed=1), rand(512, 8, seed=2)
    attention(q, k, v, regularizer=Tsallis(1.5), backend="blockwise")
    # A look at a few rows and four blocks, or twelve pieces.
    assert taken == {"kept": 5 * kept, "all": 12 * (not kept)}


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("shift", [0.0, 0.1, 30.0, -30.0, -math.inf, math.nan])
def test_rows_may_be_unlike_those_before(monkeypatch, alpha, shift):
    """Where rows have few zeros, Newton's method starts from the mean cut of the last block."""
    estimate, starts = blockwise._from_level, []

    def watched(*arguments):
        starts.append(found := estimate(*arguments))
        return found

    monkeypatch.setattr(blockwise, "_from_level", watched)
    n = 1000
    # In every second block of seven rows, one or all have other scores than in the block before.
    shifts = torch.zeros(64, 1, dtype=torch.float64)
    shifts[7:14], shifts[24], shifts[36:40] = shift, shift, shift
    q, k, v = (rand(m, 8, seed=i, grad=True) for i, m in enumerate((64, n, n)))
    results = []
    for backend in ("dense", "blockwise"):
        rule = Tsallis(alpha)
        out = attention(0.01 * q, k, v, attn_mask=shifts, regularizer=rule, backend=backend)
        results.append((out, *torch.autograd.grad(out, (q, k, v), rand(64, 8, seed=3))))
    assert (not math.isfinite(shift)) == any(start is None for start in starts)
    kappa = torch.cat([start[1] for start in starts if start is not None])
    assert len(kappa) and bool(((-1 <= kappa) & (kappa < 0)).all())
    if math.isnan(shift):  # of that row, whatever comes after it; sums over rows are lost
        results = [found[0] for found in results]
        assert results[0].isnan().any(-1).sum() == (shifts != shifts).sum()
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11, equal_nan=True)


def test_lists_are_short_whatever_the_scores(monkeypatch):
    """Few groups have weight, but all of their keys: what is kept must not grow with the row."""
    monkeypatch.setattr(blockwise, "_LONGEST", 24)
    keep, lengths = blockwise._keep, []

    def watched(*arguments):
        found = keep(*arguments)
        lengths.append(None if found is None else len(found[0].key) / len(arguments[0]))
        return found

    monkeypatch.setattr(blockwise, "_keep", watched)
    group = torch.arange(1024) % 128
    for full, length in ((16, None), (2, 16.0)):
        k = torch.where(group < full, 1.0, -5.0).double()[:, None]
        for backend in ("dense", "blockwise"):
            lengths.clear()
            out = attention(
                torch.ones(7, 1).double(), k, k, regularizer=Tsallis(1.5), backend=backend
            )
            torch.testing.assert_close(out, torch.ones_like(out))
        assert set(lengths) == {length}


def test_every_head_can_go_both_ways(monkeypatch):
    """Pieces of a crowded block belong to one head each, also those with few weights."""
    monkeypatch.setattr(blockwise, "_BLOCK", 1 << 17)  # all heads in one block
    taken = paths(monkeypatch)
    steep = torch.where(torch.arange(64) < 40, 0.01, 20.0).double()[:, None]
    q, k, v = (rand(3, n, 8, seed=i, grad=True) for i, n in enumerate((64, 512, 512)))
    results = []
    for backend in ("dense", "blockwise"):
        out = attention(q * steep, k, v, regularizer=Tsallis(1.5), backend=backend)
        grads = torch.autograd.grad(out, (q, k, v), rand(3, 64, 8, seed=3))
        results.append((out, *grads))
    assert taken["kept"] > 3 and taken["all"] > 3
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11)


def test_one_head_can_go_both_ways(monkeypatch):
    """Peaked queries before flat ones: the backward pass puts the two together again."""
    taken = paths(monkeypatch)
    q, k, v = (rand(n, 8, seed=i, grad=True) for i, n in enumerate((64, 512, 512)))
    steep = torch.where(torch.arange(64) < 30, 4.0, 0.05)[:, None]
    slope = trained(torch.tensor([0.01], dtype=torch.float64))
    results = []
    for backend in ("dense", "blockwise"):
        regularizer = Tsallis(1.5, ALiBi(slope))
        out = attention(q * steep, k, v, regularizer=regularizer, backend=backend)
        grads = torch.autograd.grad(out, (q, k, v, slope), rand(64, 8, seed=3))
        results.append((out, *grads))
    assert taken["kept"] and taken["all"]
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.5, 2.0, 3.0])
def test_excluded_positions_hold_no_influence(alpha):
    """As in the dense specification, where blocks are wide enough to be screened."""
    allowed = torch.ones(20, 200, dtype=torch.bool)
    allowed[:, 150:170] = False
    results = []
    for filler in (0.0, 1.0, torch.finfo(torch.float32).max, torch.finfo(torch.float32).min):
        q, k, v = (rand(n, 16, seed=n, dtype=torch.float32) for n in (20, 200, 200))
        k[150:170], v[150:170] = filler, filler
        k[180:], v[180:] = filler, filler
        q, k, v = map(trained, (q, k, v))
        out = attention(
            q, k, v, allowed, is_causal=True, backend="blockwise", return_aux=True,
            regularizer=Tsallis(alpha),
        )  # fmt: skip
        results.append((*out, *torch.autograd.grad(out[0].sum(), (q, k, v))))
    for result in results[1:]:
        for x, y in zip(results[0], result):
            if isinstance(x, torch.Tensor):
                assert x.isfinite().all() and torch.equal(x, y)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_is_the_same_in_both_passes(alpha, p):
    """Output and gradients are linear in the values, with the weights that were not dropped."""
    q, k = rand(64, 8, grad=True), rand(512, 8, seed=1, grad=True)
    v = torch.eye(512, dtype=torch.float64).requires_grad_()
    torch.manual_seed(3)
    weights = attention(
        q, k, v, dropout_p=p, regularizer=Tsallis(alpha), backend="blockwise"
    )  # fmt: skip
    plain = attention(q, k, v, regularizer=Tsallis(alpha))
    kept = (weights != 0) & (plain != 0)
    share = kept.sum() / (plain != 0).sum()
    assert abs(share - (1 - p)) < 0.05
    factor = kept.double() / (1 - p) if p < 1 else torch.zeros_like(plain)
    torch.testing.assert_close(weights, plain * factor)
    upstream = rand(64, 512, seed=4)
    found = torch.autograd.grad(weights, (q, k, v), upstream)
    wanted = torch.autograd.grad(plain * factor, (q, k, v), upstream)
    # The values are the identity here: the gradient in them is that of dropped weights.
    torch.testing.assert_close(found[:2], wanted[:2], atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(found[2], (plain * factor).mT @ upstream, atol=1e-12, rtol=1e-10)


def test_dropout_follows_the_seed():
    q, k, v = rand(64, 8), rand(300, 8, seed=1), rand(300, 8, seed=2)
    out = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        out.append(attention(q, k, v, dropout_p=0.5, backend="blockwise"))
    assert torch.equal(out[0], out[1]) and not torch.equal(out[0], out[2])


def test_upstream_gradients_of_any_strides():
    q, k, v = (rand(2, 300, 8, seed=i, grad=True) for i in range(3))
    for alpha in (1.0, 1.5):
        results = []
        for backend in ("dense", "blockwise"):
            out, aux = attention(
                q.transpose(0, 1)[:2], k, v.flip(1), regularizer=Tsallis(alpha), return_aux=True,
                backend=backend,
            )  # fmt: skip
            results.append(torch.autograd.grad(out.sum() + aux.threshold.sum(), (q, k, v)))
        torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("loss", [torch.sum, lambda out: out.sin().sum()])
def test_a_second_derivative_is_refused(alpha, loss):
    """Even where another term of the loss has one: the part that is missing is never left out."""
    q, k, v = (rand(40, 8, seed=i, grad=True) for i in range(3))
    out = attention(q, k, v, regularizer=Tsallis(alpha), backend="blockwise")
    grads = torch.autograd.grad(loss(out), (q, k, v), create_graph=True)
    for g in grads:
        with pytest.raises(RuntimeError, match="twice: use backend='dense'"):
            torch.autograd.grad(g.square().sum() + q.sum(), q, retain_graph=True)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_changing_an_input_before_the_backward_pass_is_noticed(alpha):
    q, k, v = (rand(40, 8, seed=i, grad=True) for i in range(3))
    key = k * 1
    out = attention(q, key, v, regularizer=Tsallis(alpha), backend="blockwise")
    key += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_what_is_not_finite_stays_in_its_query(alpha):
    q, k, v = rand(40, 8), rand(300, 8, seed=1), rand(300, 8, seed=2)
    q[3, 2], q[7, 1] = math.nan, math.inf
    out = attention(q, k, v, regularizer=Tsallis(alpha), backend="blockwise")
    bad = torch.zeros(40, dtype=torch.bool)
    bad[[3, 7]] = True
    assert torch.equal(out.isnan().all(-1), bad) and torch.equal(out.isnan().any(-1), bad)


# ---------------------------------------------------------------- windows of ALiBi


@pytest.fixture
def windows(monkeypatch):
    """The distances found, and the sizes (q, k) of the problems they were cut into."""
    seen = {"far": [], "sizes": []}
    distances, apply = blockwise.distances, blockwise._apply

    def watched(*arguments):
        seen["far"].append(distances(*arguments))
        return seen["far"][-1]

    def measured(call, q, k, *tensors):
        seen["sizes"].append((q.shape[1], k.shape[1]))
        return apply(call, q, k, *tensors)

    monkeypatch.setattr(blockwise, "distances", watched)
    monkeypatch.setattr(blockwise, "_apply", measured)
    return seen


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("alpha, slope, far", [
    (2.0, 0.11, 9), (1.5, 0.11, 18), (4.0, 0.03, 11), (1.25, 0.21, 19)
])  # fmt: skip
def test_the_window_is_not_a_key_too_short(windows, monkeypatch, alpha, slope, far, causal):
    """Two equal keys, the second as far away as it can be with weight; the others have none."""
    q, k = torch.zeros(2, 300, 2, dtype=torch.float64)
    q[250], k[250], k[250 - far], k[249 - far] = (torch.tensor([x, 0.0]) for x in (1, 9, 9, 9))
    v = torch.eye(300, dtype=torch.float64)

    def output(backend):
        rule = Tsallis(alpha, ALiBi(torch.tensor([slope], dtype=torch.float64)))
        return attention(
            q, k, v, scale=1.0, is_causal=causal, regularizer=rule, backend=backend
        )[250]  # fmt: skip

    wanted = output("dense")
    assert wanted[250 - far] > 0 and wanted[249 - far] == 0
    torch.testing.assert_close(output("blockwise"), wanted, atol=1e-14, rtol=1e-12)
    assert windows["far"][0][0, 250] == far
    short = blockwise.distances
    monkeypatch.setattr(blockwise, "distances", lambda *a: short(*a) - 1)
    monkeypatch.setattr(blockwise, "_width", lambda *a: 0)  # rounds up
    monkeypatch.setattr(blockwise, "_LEAST_ROWS", 1)
    assert output("blockwise")[250 - far] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [True, False])
def test_softmax_loses_less_than_rounding(windows, dtype, causal):
    """All weights outside the window are below half a unit in the last place, together."""
    q, k = (rand(2, 3, 300, 20, seed=i, dtype=dtype) for i in range(2))
    rule = Shannon(ALiBi(torch.tensor([2.0, 1.0, 0.02])))
    attention(q, k, k, is_causal=causal, regularizer=rule, backend="blockwise")
    far = windows["far"][0].view(2, 3, 300, 1)
    assert bool((far[:, :2] < 80).all()) and bool((far[:, 2] == math.inf).all())
    q, k = q.double(), k.double()
    _, aux = attention(
        q, k, k, is_causal=causal, regularizer=rule, return_aux=True, need_weights=True
    )
    position = torch.arange(300)
    lost = aux.weights * ((position - position[:, None]).abs() > far)
    assert lost.sum(-1).max() <= torch.finfo(dtype).eps / 2
    assert lost.sum(-1).max() > torch.finfo(dtype).eps * 1e-9


def test_heads_with_short_windows_become_short_problems(windows):
    q, k, v = (rand(2, 3, 512, 8, seed=i, dtype=torch.float32) for i in range(3))
    rule = Tsallis(1.5, ALiBi(torch.tensor([4.0, 1.0, 0.0])))
    attention(q, k, v, is_causal=True, regularizer=rule)
    assert sorted(k_len for _, k_len in windows["sizes"])[-1] == 512
    assert {min(size) for size in windows["sizes"] if size[0] == 8}
    far = windows["far"][0].view(2, 3, 512)
    assert bool((far[:, 0] < 10).all()) and bool((far[:, 2] == math.inf).all())


WITHOUT = {
    "mask of queries": dict(attn_mask=torch.ones(300, 300, dtype=torch.bool)),
    "prior of queries": dict(prior=LogPrior(torch.zeros(300, 300))),
    "own prior": dict(prior=Locality(torch.tensor([30.0]))),
    "no slope": dict(slope=0.0),
    "negative slope": dict(slope=-1.0),
    "slope that isn't a number": dict(slope=math.nan),
    "small slope": dict(slope=1e-4),
    "infinite bias": dict(attn_mask=torch.zeros(300).index_fill(0, torch.tensor(3), math.inf)),
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_no_window_where_nothing_bounds_the_scores(windows, kind):
    arguments = dict(WITHOUT[kind])
    prior = ALiBi(torch.tensor([arguments.pop("slope", 2.0)]))
    if "prior" in arguments:
        prior = prior + arguments.pop("prior")
    q, k, v = (rand(1, 300, 8, seed=i) for i in range(3))
    attention(q, k, v, regularizer=Tsallis(1.5, prior), backend="blockwise", **arguments)
    assert windows["far"][0] is None or bool((windows["far"][0] == math.inf).all())


def test_a_query_beside_excluded_keys_has_no_window(windows):
    keep = torch.arange(300) < 100
    q, k, v = (rand(1, 1, 300, 8, seed=i) for i in range(3))
    rule = Tsallis(1.5, ALiBi([2.0]) + Padding(keep[None]))
    out = [attention(q, k, v, regularizer=rule, backend=x) for x in ("blockwise", "dense")]
    torch.testing.assert_close(*out, atol=1e-12, rtol=1e-12)
    far = windows["far"][0][0]
    assert bool((far[:100] < 30).all()) and bool((far[160:] == math.inf).all())


def test_a_value_that_is_not_finite_is_not_lost():
    """A softmax has no weight of 0: however small, it makes NaN of it."""
    q, k, v = (rand(1, 300, 8, seed=i) for i in range(3))
    v[0, 7, 2] = math.nan
    rule = Shannon(ALiBi([2.0]))
    out = attention(q, k, v, is_causal=True, regularizer=rule, backend="blockwise")
    assert bool(out[0, 7:, 2].isnan().all())


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_key_that_is_not_finite_reaches_every_query(alpha, value):
    """However far away: nothing bounds its scores."""
    q, k, v = (rand(1, 300, 8, seed=i) for i in range(3))
    k[0, 7, 2] = value
    rule = Tsallis(alpha, ALiBi([2.0]))
    found, wanted = (
        attention(q, k, v, is_causal=True, regularizer=rule, backend=x).isnan()
        for x in ("blockwise", "dense")
    )
    assert torch.equal(found, wanted) and bool(found[0, 200:].any())


@pytest.mark.parametrize("causal", [True, False])
def test_slopes_that_are_no_powers_of_two_keep_their_digits(causal):
    """In float32, against float64: hardly less exact than with all weights."""
    tensors = [rand(1, 1000, 16, seed=i, dtype=torch.float32) for i in range(3)]
    rule = Tsallis(2.0, ALiBi([3.3]))
    wanted, dense, found = (
        attention(*(x.to(dtype) for x in tensors), is_causal=causal, regularizer=rule, backend=name)
        for dtype, name in zip((torch.float64, *[torch.float32] * 2), ("dense", "dense", "blockwise"))
    )
    assert (found - wanted).abs().max() < 2 * (dense - wanted).abs().max()


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_bias_that_is_not_a_number_reaches_every_query(alpha):
    q, k, v = (rand(1, 900, 2, seed=i) for i in range(3))
    mask = torch.zeros(900, dtype=q.dtype).index_fill_(0, torch.tensor(7), math.nan)
    rule = Tsallis(alpha, ALiBi([2.0]))
    out = attention(q, k, v, mask, regularizer=rule, backend="blockwise")
    assert bool(out.isnan().all())


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_keys_whose_squares_underflow_have_length(alpha):
    q, v = torch.ones(1, 300, 4), rand(1, 300, 2, dtype=torch.float32)
    k = torch.zeros(1, 300, 4).index_fill_(1, torch.tensor(0), 1e-23)
    assert k.norm() == 0
    rule = Tsallis(alpha, ALiBi([1.0]))
    found, wanted = (
        attention(q, k, v, regularizer=rule, backend=x, scale=5e24)
        for x in ("blockwise", "dense")
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_excluded_keys_change_no_window(windows, alpha):
    results = []
    for filler in (0.0, torch.finfo(torch.float32).max, math.nan):
        q, k, v = (rand(1, 1, n, 8, seed=n, dtype=torch.float32) for n in (200, 300, 300))
        k[..., 150:160, :] = k[..., 210:, :] = filler
        if not math.isnan(filler):
            v[..., 150:160, :] = v[..., 210:, :] = filler
        rule = Tsallis(alpha, ALiBi([2.0]) + Padding((torch.arange(300) // 10 != 15)[None]))
        results.append(attention(
            q, k, v, is_causal=True, regularizer=rule, backend="blockwise"
        ))  # fmt: skip
    assert results[0].isfinite().all() and torch.equal(results[0], results[1])
    assert torch.equal(windows["far"][0], windows["far"][1])
    assert windows["far"][0].isfinite().any()


# ---------------------------------------------------------------- which backend


@pytest.fixture
def calls(monkeypatch):
    """The calls that went block by block."""
    seen = []
    attend = blockwise.attend
    monkeypatch.setattr(blockwise, "attend", lambda *a: seen.append(a) or attend(*a))
    return seen


class Squared(eotcourse.Regularizer):
    def penalty(self, p):
        return (p**2).sum(-1) / 2


class Hidden(Prior):
    """A prior whose gradient goes to a tensor that nobody can find."""

    def __init__(self, width):
        super().__init__()
        self.hidden = [width]

    def bias(self, q_positions, k_positions, head=None):
        return (k_positions[None, :] - q_positions[:, None]) * self.hidden[0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min, 1e4])
def test_a_bias_of_any_size_costs_no_digits(alpha, is_causal, low):
    """All keys have it, or the first ones, and rows that see no others."""
    for padded in (100, 30):
        bias = torch.where(torch.arange(100) < padded, low, 0.0)
        for prior in (LogPrior(bias), LogPrior(trained(bias))):
            results = []
            for backend in ("dense", "blockwise"):
                q, k, v = (rand(100, 8, seed=i).float().requires_grad_() for i in range(3))
                # The fused kernel gets it without what all keys have in common, and so no rounding.
                left_out = backend == "dense" and alpha == 1 and padded == 100
                out = attention(
                    q, k, v, is_causal=is_causal, backend=backend,
                    regularizer=Tsallis(alpha, None if left_out else prior),
                )  # fmt: skip
                grads = torch.autograd.grad(out, (q, k, v), rand(100, 8, seed=3).float())
                results.append((out, *grads))
            # Elsewhere scores of size 10^4 are rounded, before or after the bias is added.
            tol = 2e-3 if low > 0 else 2e-5
            torch.testing.assert_close(results[1][0], results[0][0], atol=tol, rtol=1e-4)
            if low < 0:
                torch.testing.assert_close(results[1], results[0], atol=2e-5, rtol=1e-4)


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that an operation gives."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.layout == torch.strided:
                self.numbers = max(self.numbers, x.untyped_storage().nbytes() // x.element_size())
        return result


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("prior", ["slopes", "log-prior"])
def test_no_matrix_of_all_pairs_in_either_pass(alpha, prior):
    q, k, v = (rand(1, 2, 512, 4, seed=i, grad=True) for i in range(3))
    prior = ALiBi(trained(slopes()[:2])) if prior == "slopes" else LogPrior(trained(rand(512)))
    with Largest() as seen:
        regularizer = Tsallis(alpha, prior)
        out = attention(q, k, v, is_causal=True, regularizer=regularizer, backend="blockwise")
        out.sum().backward()
    assert 0 < seen.numbers < 512 * 512 / 4


@pytest.mark.parametrize("sizes", [(0, 4, 40, 8), (2, 0, 40, 8), (2, 4, 0, 8), (2, 4, 40, 0)])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_nothing_gives_nothing(alpha, sizes):
    b, h, n, e = sizes
    q, k, v = torch.randn(b, h, 40, 8), torch.randn(b, h, n, 8), torch.randn(b, h, n, e)
    slope = torch.full((h,), 0.5)
    results = [
        attention(q, k, v, regularizer=Tsallis(alpha, ALiBi(slope)), backend=backend)
        for backend in ("dense", "blockwise")
    ]
    torch.testing.assert_close(*results)



def test_auto_takes_it_for_large_problems(calls):
    q, k, v = (rand(512, 4, seed=i) for i in range(3))
    attention(q, k, v)
    attention(q, k, v, regularizer=LearnableTsallis(1))
    assert len(calls) == 2
    attention(q[:-1], k, v)
    attention(q, k, v, backend="dense")
    attention(q, k, v, return_aux=True, need_weights=True)
    with eotcourse.nn.record_advantages() as recorded:
        attention(q, k, v)
    assert recorded[0].weights.shape == (512, 512)
    assert len(calls) == 2


OBSTACLES = {
    "own regulariser": (dict(regularizer=Squared()), "Squared"),
    "weights": (dict(need_weights=True, return_aux=True), "need_weights"),
    "alpha of queries": (
        dict(regularizer=Tsallis(torch.full((1, 512, 1), 1.5))),
        r"one alpha per head.*\(1, 512, 1\)",
    ),
    "hidden parameter": (
        dict(regularizer=Shannon(Hidden(torch.tensor(0.1, requires_grad=True)))), "Hidden"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OBSTACLES)
def test_what_it_cannot_do_it_refuses_by_name(kind, calls):
    arguments, words = OBSTACLES[kind]
    q, k, v = (rand(1, 512, 4, seed=i, dtype=torch.float32) for i in range(3))
    if kind != "own regulariser":
        attention(q, k, v, **arguments)
    with pytest.raises(ValueError, match=f"backend 'blockwise' can't be used: .*{words}"):
        attention(q, k, v, **arguments, backend="blockwise")
    assert not calls


def test_transforms_take_the_dense_way(calls):
    q, k, v = (rand(2, 512, 4, seed=i) for i in range(3))

    def f(q, k, v, **arguments):
        return attention(q, k, v, **arguments)

    wanted = f(q, k, v, backend="dense")
    torch.testing.assert_close(torch.func.vmap(f)(q, k, v), wanted)
    torch.testing.assert_close(torch.compile(f, backend="eager", fullgraph=True)(q, k, v), wanted)
    torch.func.jvp(lambda q: f(q, k, v), (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        f(torch.autograd.forward_ad.make_dual(q, q), k, v)
        with pytest.raises(ValueError, match="forward-mode"):
            f(torch.autograd.forward_ad.make_dual(q, q), k, v, backend="blockwise")
    with pytest.raises(ValueError, match="torch.func"):
        torch.func.vmap(lambda *x: f(*x, backend="blockwise"))(q, k, v)
    assert not calls
