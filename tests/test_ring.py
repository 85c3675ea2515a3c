"""Attention over a ring of processes equals attention in one process, forward and backward."""

import contextlib
import functools
import itertools
import math
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from eotcourse import (
    ALiBi,
    LearnableTsallis,
    LogPrior,
    Padding,
    Regularizer,
    Shannon,
    Tsallis,
    Window,
    alibi_slopes,
    attention,
)
from eotcourse.engine import ring
from eotcourse.engine.ring import Ring, ring_attention, ring_cost, ring_positions

F64 = torch.float64
LENGTH, HEADS, SHARED, D, D_V = 41, 4, 2, 6, 6
NAMES = ("output", "threshold", "query", "key", "value", "parameters")


def parameter(*shape, seed=7):
    """Numbers that float32 has too, so that its rounding isn't in the comparison."""
    return torch.nn.Parameter(torch.randn(*shape, generator=generator(seed)).double())


def generator(seed):
    return torch.Generator().manual_seed(seed)


def slopes():
    return torch.nn.Parameter(alibi_slopes(HEADS))


class Named(LogPrior):
    """A prior of the user's own."""

    def bias(self, q_positions, k_positions, head=None):
        return super().bias(q_positions, k_positions, head) * torch.cos(q_positions)[:, None]


def padding():
    keep = torch.ones(2, LENGTH, dtype=torch.bool)
    keep[0, 30:] = False
    keep[1] = False
    return Padding(keep)


def far():
    """The second sequence sees nothing of the last rank's keys, the first sees many."""
    keep = torch.ones(2, LENGTH, dtype=torch.bool)
    keep[1, 12:] = False
    return Padding(keep)


# What is asked for, as arguments of attention and of the ring; regularisers are made on each rank.
CASES = {
    "softmax": (Shannon, {}, {}),
    "softmax, threshold unused": (Shannon, dict(is_causal=True), dict(aux=False)),
    "softmax, zigzag, threshold unused": (
        Shannon, dict(is_causal=True), dict(layout="zigzag", aux=False)
    ),
    "softmax, causal": (Shannon, dict(is_causal=True), {}),
    "softmax, zigzag": (Shannon, dict(is_causal=True), dict(layout="zigzag")),
    "softmax, values of another size": (Shannon, dict(is_causal=True), dict(d_v=3)),
    "only the threshold": (Shannon, {}, dict(out=False)),
    "scale": (Shannon, dict(scale=0.3), dict(layout="zigzag")),
    "uneven": (Shannon, dict(is_causal=True), dict(cuts=(0.1, 0.15))),
    "a rank without queries or keys": (lambda: Tsallis(1.5), dict(), dict(cuts=(0.0, 0.4))),
    "other queries": (
        lambda: Shannon(ALiBi(slopes())),
        dict(is_causal=True, causal_align="bottom_right"), dict(queries=20, layout="zigzag"),
    ),
    "queries without keys": (
        lambda: Tsallis(1.5), dict(is_causal=True, causal_align="bottom_right"), dict(queries=60),
    ),
    "alibi": (lambda: Shannon(ALiBi(slopes())), dict(is_causal=True), dict(layout="zigzag")),
    "alibi, two-sided": (lambda: Tsallis(1.5, ALiBi(slopes())), {}, {}),
    "window": (lambda: Tsallis(2.0, Window(9, 0) + ALiBi(slopes())), {}, {}),
    "padding": (lambda: Shannon(padding()), {}, dict(layout="zigzag")),
    "padding, sparse": (lambda: Tsallis(1.5, padding()), dict(is_causal=True), {}),
    "keys of another rank only": (lambda: Tsallis(1.5, far()), {}, {}),
    "log-prior": (lambda: Shannon(LogPrior(parameter(LENGTH))), {}, {}),
    "log-prior per head": (
        lambda: Tsallis(4 / 3, LogPrior(parameter(HEADS, LENGTH, LENGTH))),
        dict(is_causal=True), dict(layout="zigzag"),
    ),
    "a prior of one's own": (lambda: Shannon(Named(parameter(LENGTH))), {}, {}),
    "alpha 1": (lambda: Tsallis(1.0), dict(is_causal=True), {}),
    "alpha 1.1": (lambda: Tsallis(1.1), {}, {}),
    "alpha 4/3": (lambda: Tsallis(4 / 3), dict(is_causal=True), dict(layout="zigzag")),
    "alpha 1.5": (lambda: Tsallis(1.5), dict(is_causal=True), dict(layout="zigzag")),
    "alpha 2": (lambda: Tsallis(2.0), dict(is_causal=True), {}),
    "alpha 2.5": (lambda: Tsallis(2.5), {}, {}),
    "alpha per head": (
        lambda: Tsallis(torch.nn.Parameter(torch.tensor([1.0, 1.25, 1.75, 2.0]))),
        dict(is_causal=True), {},
    ),
    "alpha above 2 too": (
        lambda: Tsallis(torch.nn.Parameter(torch.tensor([1.125, 1.5, 2.0, 2.5]))), {}, {},
    ),
    "alpha learned": (lambda: LearnableTsallis(HEADS), {}, dict(layout="zigzag")),
    "one alpha learned": (
        lambda: Tsallis(torch.nn.Parameter(torch.tensor(1.0))), {}, dict(aux=False)
    ),
}
# How the engine is cut: as it is; into tiny tiles, of which only what has weight is computed; and
# remembering so little that Newton's sums go round the ring.
CUTS = {
    "whole": {},
    "tiles": dict(_COLUMNS=5, _TILE={"cpu": 1, "cuda": 1}, _CROWD=1.0),
    "newton": dict(_KEPT=3),
}
SIZES = (2, 3)


def variants(case, size):
    """In which cuts and precisions a case is computed."""
    yield "whole", torch.float32
    yield "whole", F64
    if size == 2:
        yield "tiles", F64
        if isinstance(CASES[case][0](), Tsallis):
            yield "newton", F64


def tensors(case):
    """Query, key, value and what flows back, on the whole sequence."""
    _, _, how = CASES[case]
    g = generator(0)
    n, e = how.get("queries", LENGTH), how.get("d_v", D_V)
    draw = [(2, HEADS, n, D), (2, SHARED, LENGTH, D), (2, SHARED, LENGTH, e), (2, HEADS, n, e)]
    return [torch.randn(s, generator=g).double() for s in [*draw, (2, HEADS, n)]]


def held(case, n, rank, size):
    """The positions of a rank, of n."""
    how = CASES[case][2]
    if "cuts" not in how:
        return ring_positions(n, rank, size, how.get("layout", "contiguous"))
    edges = [0, *(int(n * x) for x in how["cuts"][: size - 1]), n]
    return torch.arange(edges[rank], edges[rank + 1])


def loss(case, out, aux, up, up_zeta):
    how = CASES[case][2]
    seen = torch.where(aux.threshold == -math.inf, 0.0, aux.threshold)
    total = 0.0
    if how.get("out", True):
        total = total + (out * up.to(out.dtype)).sum()
    if how.get("aux", True):
        total = total + (seen * up_zeta.to(seen.dtype)).sum()
    return total


@functools.cache
def expected(case):
    """What the specification gives in one process, in float64."""
    make, arguments, _ = CASES[case]
    regularizer = make().double()
    q, k, v, up, up_zeta = tensors(case)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, aux = attention(
        *leaves, enable_gqa=True, regularizer=regularizer, return_aux=True, backend="dense",
        **arguments,
    )
    loss(case, out, aux, up, up_zeta).backward()
    found = [out.detach(), aux.threshold.detach()]
    found += [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
    grads = [x.grad for x in regularizer.parameters()]
    return dict(zip(NAMES, [*found, grads]))


def attended(case, dtype, circle):
    """What this rank gets, by name; gradients of parameters are its share."""
    make, arguments, how = CASES[case]
    rank, size, before = circle.rank, circle.size, circle.sent
    regularizer = make().to(F64 if dtype == F64 else torch.float32)
    q, k, v, up, up_zeta = tensors(case)
    at_q, at_k = held(case, q.shape[-2], rank, size), held(case, LENGTH, rank, size)
    q, k, v = (
        x[..., at, :].to(dtype).requires_grad_() for x, at in ((q, at_q), (k, at_k), (v, at_k))
    )
    out, aux = ring_attention(
        q, k, v, enable_gqa=True, regularizer=regularizer, return_aux=True, group=circle,
        layout=how.get("layout", "contiguous"), **arguments,
    )
    there = circle.sent
    loss(case, out, aux, up[..., at_q, :], up_zeta[..., at_q]).backward()
    found = [out.detach(), aux.threshold.detach(), q.grad, k.grad, v.grad]
    grads = [x.grad for x in regularizer.parameters()]
    sent = dict(forward=there - before, backward=circle.sent - there)
    return dict(zip(NAMES, [*found, grads])) | dict(sent=sent)


class Watch:
    """Counts what is said to other ranks while it is entered."""

    NAMES = ("all_gather", "all_gather_object", "all_reduce", "batch_isend_irecv")

    def __enter__(self):
        self.calls, self.kept = [], {name: getattr(dist, name) for name in self.NAMES}
        for name, function in self.kept.items():
            setattr(dist, name, self._counted(name, function))
        return self

    def _counted(self, name, function):
        def call(*args, **kwargs):
            self.calls.append(name)
            return function(*args, **kwargs)

        return call

    def __exit__(self, *_):
        for name, function in self.kept.items():
            setattr(dist, name, function)


class Foreign(Regularizer):
    def penalty(self, p):
        return (p**2).sum(-1)


def zeros(*shape, dtype=torch.float32, grad=False):
    return torch.zeros(shape, dtype=dtype, requires_grad=grad)


def plain(rank, **arguments):
    return (zeros(1, 2, 4, 8),) * 3, arguments


# Refused for what the options say, with nothing sent; then for what shards say, in one exchange.
REFUSED = {
    "mask": (ValueError, "attn_mask", lambda r: plain(r, attn_mask=torch.ones(4, 4).bool())),
    "dropout": (ValueError, "dropout_p", lambda r: plain(r, dropout_p=0.1)),
    "layout": (ValueError, "striped", lambda r: plain(r, layout="striped")),
    "align": (ValueError, "middle", lambda r: plain(r, causal_align="middle")),
    "scale": (ValueError, "scale", lambda r: plain(r, scale=-1.0)),
    "not a regularizer": (TypeError, "str", lambda r: plain(r, regularizer="softmax")),
    "another family": (TypeError, "Foreign", lambda r: plain(r, regularizer=Foreign())),
}
DISAGREED = {
    "integers on rank 1": (
        TypeError, "rank 1: query",
        lambda r: ((zeros(4, 8, dtype=torch.int64) if r else zeros(4, 8), *(zeros(4, 8),) * 2), {}),
    ),
    "a value too short on rank 1": (
        ValueError, "rank 1: key",
        lambda r: ((zeros(4, 8), zeros(4, 8), zeros(4 - r, 8)), {}),
    ),
    "dtypes": (
        ValueError, "dtype: torch.float32 on rank 0, torch.float64 on rank 1",
        lambda r: ((zeros(4, 8, dtype=(torch.float32, F64)[r]),) * 3, {}),
    ),
    "heads": (ValueError, "leading", lambda r: ((zeros(2 + r, 4, 8),) * 3, {})),
    "head sizes": (ValueError, "d_v", lambda r: ((zeros(4, 8), zeros(4, 8), zeros(4, 3 + r)), {})),
    "causal": (ValueError, "is_causal", lambda r: plain(r, is_causal=bool(r))),
    "alpha": (ValueError, "alpha", lambda r: plain(r, regularizer=Tsallis(1.5 + r / 4))),
    "gradients": (
        ValueError, "requires_grad", lambda r: ((zeros(4, 8, grad=bool(r)),) * 3, {}),
    ),
    "grouped heads without enable_gqa": (
        ValueError, "leading", lambda r: ((zeros(4, 4, 8), *(zeros(2, 4, 8),) * 2), {}),
    ),
    "heads that don't divide": (
        ValueError, "leading",
        lambda r: ((zeros(3, 4, 8), *(zeros(2, 4, 8),) * 2), dict(enable_gqa=True)),
    ),
    "zigzag lengths": (
        ValueError, "zigzag needs query shards of lengths",
        lambda r: ((zeros(3 + 4 * r, 8),) * 3, dict(layout="zigzag")),
    ),
    "a prior of the shard only": (
        ValueError, "covers positions",
        lambda r: plain(r, regularizer=Shannon(LogPrior(torch.zeros(4) - 1))),
    ),
    "priors of different lengths": (
        ValueError, "prior",
        lambda r: plain(r, regularizer=Shannon(LogPrior(torch.zeros(8 + r) - 1))),
    ),
    "a prior of other heads": (
        ValueError, "broadcast",
        lambda r: plain(r, regularizer=Shannon(ALiBi([0.5, 0.25, 0.125]))),
    ),
}


def refusal(make, circle):
    args, kwargs = make(circle.rank)
    with Watch() as watch:
        try:
            ring_attention(*args, group=circle, **kwargs)
        except (TypeError, ValueError) as error:
            return type(error), str(error), watch.calls
    return None, "", watch.calls


def untouched(circle):
    """Keys and values that no query may attend to, made huge on the last rank."""
    q, k, v, *_ = tensors("softmax")
    results = []
    for regularizer, filling in itertools.product((Shannon(), Tsallis(1.5)), (0.0, 1e30)):
        at = ring_positions(LENGTH, circle.rank, circle.size)
        k2, v2 = k.clone(), v.clone()
        k2[..., -1:, :], v2[..., -1:, :] = filling, filling
        out = ring_attention(
            q[..., at, :], k2[..., at, :], v2[..., at, :], is_causal=True, enable_gqa=True,
            regularizer=regularizer, group=circle,
        )
        results.append(out[..., :-1, :] if circle.rank == circle.size - 1 else out)
    return [torch.equal(results[0], results[1]), torch.equal(results[2], results[3])]


def second_derivative(circle):
    q = torch.randn(3, 4, generator=generator(circle.rank)).requires_grad_()
    out = ring_attention(q, q, q, group=circle)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    try:
        (grad.square().sum() + out.sum()).backward()
    except RuntimeError as error:
        return str(error)
    return ""


def half(dtype, circle):
    """Output and dtypes for 16-bit shards, and their bytes."""
    q, k, v, up, _ = tensors("softmax")
    at, before = ring_positions(LENGTH, circle.rank, circle.size), circle.sent
    q, k, v = (x[..., at, :].to(dtype).requires_grad_() for x in (q, k, v))
    out = ring_attention(q, k, v, is_causal=True, enable_gqa=True, group=circle)
    there = circle.sent
    (out * up[..., at, :].to(dtype)).sum().backward()
    sent = (there - before, circle.sent - there)
    return dict(out=out.detach(), grads=[q.grad, k.grad, v.grad], sent=sent)


def largest_tensor(circle):
    """The most bytes of any tensor made in a call, over a sequence longer than a tile."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Sizes(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            found = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            found = [x for x in found if x.layout == torch.strided]  # a sparse one is made of such
            Sizes.most = max([Sizes.most, *(x.untyped_storage().nbytes() for x in found)])
            return result

    n, most = 1024, {}
    x = torch.randn(n // circle.size, 8, generator=generator(circle.rank)).requires_grad_()
    for name, regularizer in (("softmax", Shannon(ALiBi([0.1]))), ("alpha 1.5", Tsallis(1.5))):
        Sizes.most = 0
        with Sizes():
            ring_attention(x, x, x, regularizer=regularizer, group=circle).sum().backward()
        most[name] = Sizes.most
    return most


def outside(group):
    """What a process gets that isn't in the group."""
    try:
        ring_attention(*plain(0)[0], group=group)
    except RuntimeError as error:
        return str(error)
    return ""


def work(rank, folder):
    """The ring of three ranks is everybody; that of two leaves out the first, so that its ranks
    have other numbers than the processes."""
    torch.set_num_threads(1)
    # Those who aren't in a group wait for the others at the next one.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=max(SIZES),
        timeout=timedelta(seconds=120),
    )
    usual = {name: getattr(ring, name) for cut in CUTS.values() for name in cut}
    for size in SIZES:
        first = max(SIZES) - size
        group = dist.new_group(range(first, max(SIZES))) if first else None
        if rank < first:
            torch.save(outside(group), f"{folder}/outside")
            continue
        circle, found = Ring(group), {}
        for case in CASES:
            for cut, dtype in variants(case, size):
                vars(ring).update(usual | CUTS[cut])
                found[case, cut, dtype] = attended(case, dtype, circle)
        vars(ring).update(usual)
        found["untouched"] = untouched(circle)
        for dtype in (torch.float16, torch.bfloat16):
            found["half", dtype] = half(dtype, circle)
        if size == 2:
            for name, (_, _, make) in (REFUSED | DISAGREED).items():
                found["refused", name] = refusal(make, circle)
            found["second derivative"] = second_derivative(circle)
            vars(ring).update(_TILE={"cpu": 1 << 16, "cuda": 1 << 16})
            found["largest tensor"] = largest_tensor(circle)
            vars(ring).update(usual)
        torch.save(found, f"{folder}/{circle.rank} of {size}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the processes leave behind; they are started once, for all cases."""
    path = tmp_path_factory.mktemp("ring")
    mp.spawn(work, (str(path),), nprocs=max(SIZES))
    return path


@pytest.fixture(scope="module")
def ranks(folder):
    """What each rank found, by number of ranks."""
    return {
        size: [torch.load(folder / f"{r} of {size}", weights_only=False) for r in range(size)]
        for size in SIZES
    }


def gathered(case, parts, name, size):
    """The whole sequence from the parts of all ranks."""
    if name == "parameters":
        return [sum(x) for x in zip(*(p[name] for p in parts))]
    n = tensors(case)[0].shape[-2] if name in ("output", "threshold", "query") else LENGTH
    at = torch.cat([held(case, n, rank, size) for rank in range(size)])
    dim = -1 if name == "threshold" else -2
    whole = torch.cat([p[name] for p in parts], dim)
    return torch.empty_like(whole).index_copy_(dim, at, whole)


def distance(got, want):
    """The largest difference, relative to the size of what is wanted if that is above 1."""
    if not want.numel():
        return 0.0
    both = (got == -math.inf) & (want == -math.inf)
    gap = torch.where(both, 0.0, got.to(F64) - want).abs().max()
    size = torch.where(want.isinf(), 0.0, want).abs().max().clamp_min(1)
    return float(gap / size)


TABLE = [
    pytest.param(size, case, cut, dtype, id=f"{case}, {size} ranks, {cut}, {str(dtype)[6:]}")
    for size in SIZES
    for case in CASES
    for cut, dtype in variants(case, size)
]


@pytest.mark.parametrize("size, case, cut, dtype", TABLE)
def test_a_ring_equals_one_process(ranks, size, case, cut, dtype):
    want = expected(case)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    if case in ("alpha 2.5", "alpha above 2 too"):
        tolerance = 3e-6 if dtype == torch.float32 else 1e-9  # responses grow with p^(2-alpha)
    parts = [found[case, cut, dtype] for found in ranks[size]]
    for name in NAMES:
        got = gathered(case, parts, name, size)
        pairs = zip(got, want[name]) if name == "parameters" else [(got, want[name])]
        for x, y in pairs:
            assert x.dtype == dtype, name
            # A parameter's gradient is a sum over all pairs.
            allowed = tolerance * (4 if name == "parameters" else 1)
            assert distance(x, y) <= allowed, (name, distance(x, y))


def test_a_mistake_of_a_part_in_a_million_is_seen():
    want = torch.tensor([3.0, -math.inf], dtype=F64)
    assert distance(want, want) == 0
    assert distance(want * (1 + 2e-6), want) > 1e-6
    assert distance(torch.tensor([3.0, 0.0]), want) == math.inf


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=lambda d: str(d)[6:])
def test_half_precision_is_computed_in_single(ranks, dtype):
    """Against float64 on the rounded inputs: the output is off by its own last rounding only."""
    q, k, v, *_ = (x.to(dtype).double() for x in tensors("softmax"))
    want = attention(q, k, v, is_causal=True, enable_gqa=True, backend="dense")
    for size in SIZES:
        parts = [found["half", dtype] for found in ranks[size]]
        at = torch.cat([ring_positions(LENGTH, rank, size) for rank in range(size)])
        got = torch.cat([p["out"] for p in parts], -2)
        assert got.dtype == dtype
        assert all(g.dtype == dtype for p in parts for g in p["grads"])
        gap = (got.double() - want[..., at, :]).abs() / want[..., at, :].abs().clamp_min(1e-2)
        assert float(gap.max()) <= 0.51 * torch.finfo(dtype).eps


def test_halves_travel_as_they_are(ranks):
    for size in SIZES:
        for rank, found in enumerate(ranks[size]):
            lengths = [len(ring_positions(LENGTH, r, size)) for r in range(size)]
            block = 2 * SHARED * (D + D_V)  # numbers per position
            there = (LENGTH - lengths[(rank + 1) % size]) * block * 2
            home = LENGTH * block * 4
            assert found["half", torch.bfloat16]["sent"] == (there, there + home)


COUNTED = {
    "softmax": 1.0, "softmax, values of another size": 1.0, "softmax, zigzag": 1.0,
    "alpha 1.5": 1.5, "alpha 2": 2.0, "alpha 2.5": 2.5,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", COUNTED)
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=lambda d: str(d)[6:])
def test_the_cost_model_counts_every_byte(ranks, case, size, dtype):
    _, arguments, how = CASES[case]
    cost = ring_cost(
        LENGTH, size, heads=HEADS, head_dim=D, kv_heads=SHARED, value_dim=how.get("d_v", D_V),
        batch=2, itemsize=dtype.itemsize, alpha=COUNTED[case],
        is_causal=arguments.get("is_causal", False), layout=how.get("layout", "contiguous"),
    )
    sent = [found[case, "whole", dtype]["sent"] for found in ranks[size]]
    assert cost.forward_bytes == max(s["forward"] for s in sent)
    assert cost.backward_bytes == max(s["backward"] for s in sent)


@pytest.mark.parametrize("layout", ring.LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n, size", [(41, 3), (64, 4), (7, 5)])
def test_the_cost_model_counts_every_pair(layout, causal, n, size):
    most = 0
    for rank in range(size):
        i, j = ring_positions(n, rank, size, layout), torch.arange(n)
        seen = j <= i[:, None] if causal else torch.ones(len(i), n, dtype=torch.bool)
        most = max(most, int(seen.sum()))
    cost = ring_cost(
        n, size, heads=3, head_dim=5, value_dim=7, is_causal=causal, layout=layout
    )
    assert cost.forward_flops == 2 * most * 3 * (5 + 7)
    assert cost.backward_flops == 2 * most * 3 * (3 * 5 + 2 * 7)
    sparse = ring_cost(
        n, size, heads=3, head_dim=5, value_dim=7, is_causal=causal, layout=layout, alpha=1.5,
        newton_rounds=2,
    )
    assert sparse.forward_flops == 2 * most * 3 * (4 * 5 + 2 * 7)


def test_zigzag_halves_the_work_of_a_million_tokens():
    shape = dict(heads=32, head_dim=128, is_causal=True)
    for size in (8, 4096):
        balanced = ring_cost(1 << 20, size, layout="zigzag", **shape).forward_flops
        plain = ring_cost(1 << 20, size, **shape).forward_flops
        assert plain / balanced == pytest.approx(2 - 1 / size, abs=1e-5)


@pytest.mark.parametrize("layout", ring.LAYOUTS)
@pytest.mark.parametrize("n, size", [(0, 2), (1, 3), (24, 3), (41, 4)])
def test_every_position_is_held_once(layout, n, size):
    held_ = [ring_positions(n, rank, size, layout) for rank in range(size)]
    assert sorted(torch.cat(held_).tolist()) == list(range(n))
    assert max(map(len, held_)) - min(map(len, held_)) <= (2 if layout == "zigzag" else 1)


def test_positions_of_no_rank_and_no_layout():
    with pytest.raises(ValueError, match="rank must be between 0 and 1, got 2"):
        ring_positions(8, 2, 2)
    with pytest.raises(ValueError, match="contiguous, zigzag, got 'other'"):
        ring_positions(8, 0, 2, "other")
    with pytest.raises(ValueError, match="contiguous, zigzag, got 'other'"):
        ring_cost(8, 2, heads=1, head_dim=1, layout="other")


@pytest.mark.parametrize("name, value, part", [
    ("n", -5, "n must be an integer from 0 on, got -5"),
    ("n", 5.5, "n must be an integer from 0 on, got 5.5"),
    ("ranks", 0, "ranks must be an integer from 1 on, got 0"),
    ("kv_heads", 3, "4 heads of queries can't share 3"),
    ("alpha", 0.5, "alpha must be at least 1 and finite, got 0.5"),
    ("newton_rounds", -1, "newton_rounds must be an integer from 0 on, got -1"),
])  # fmt: skip
def test_the_cost_of_no_ring_is_refused(name, value, part):
    arguments = dict(n=8, ranks=2, heads=4, head_dim=2) | {name: value}
    with pytest.raises(ValueError, match=part):
        ring_cost(**arguments)


@pytest.mark.parametrize("name", REFUSED)
def test_options_are_refused_before_anything_is_sent(ranks, name):
    kind, part, _ = REFUSED[name]
    answers = [found["refused", name] for found in ranks[2]]
    assert answers[0] == answers[1]
    assert answers[0][0] is kind and part in answers[0][1]
    assert answers[0][2] == []


@pytest.mark.parametrize("name", DISAGREED)
def test_shards_are_refused_alike_on_every_rank(ranks, name):
    kind, part, _ = DISAGREED[name]
    answers = [found["refused", name] for found in ranks[2]]
    assert answers[0] == answers[1]
    assert answers[0][0] is kind and part in answers[0][1]
    assert "batch_isend_irecv" not in answers[0][2]


def test_what_is_masked_changes_no_bit(ranks):
    for size in SIZES:
        assert [found["untouched"] for found in ranks[size]] == [[True, True]] * size


def test_the_second_derivative_is_refused(ranks):
    for found in ranks[2]:
        assert found["second derivative"] == "ring_attention has no second derivative"


def test_no_tensor_has_the_size_of_all_pairs(ranks):
    """1024 keys, 512 queries a rank: 2 MiB of pairs; a tile has 1/4 MiB, its distances 1/2."""
    for found in ranks[2]:
        for name, most in found["largest tensor"].items():
            assert most <= 1 << 19, name


def test_a_process_outside_the_group_is_refused(folder):
    assert torch.load(folder / "outside") == "this process is not in the group"


class Alone(Ring):
    """A ring of this process, without a process group."""

    def __init__(self):
        self.rank, self.size, self.sent = 0, 1, 0

    def numbers(self, mine):
        return [mine]


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_every_tensor_stays_on_the_device_of_the_shards(monkeypatch, alpha):
    """Tensors without data stand for those of a card: what mixes devices, or reads them as NumPy
    does, fails. What asks for numbers, the first round for alpha > 1, is left out."""
    monkeypatch.setattr(ring, "_bounds", lambda call, q, k: (torch.zeros_like(q[..., 0]), []))
    # It knows no such device.
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())
    q, k, v = (torch.empty(2, h, 12, 4, device="meta", requires_grad=True) for h in (4, 2, 2))
    prior = ALiBi(torch.nn.Parameter(torch.empty(4, device="meta")))
    out, aux = ring_attention(
        q, k, v, is_causal=True, enable_gqa=True, group=Alone(), layout="zigzag",
        regularizer=Tsallis(alpha, prior + Window(5, 5)), return_aux=True,
    )
    (out.sum() + aux.threshold.sum()).backward()
    everything = out, aux.threshold, q.grad, k.grad, v.grad, prior.slopes.grad
    assert {x.device.type for x in everything} == {"meta"}


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.5, 2.0, 2.5])
@pytest.mark.parametrize("kind", ["query", "key", "overflow"])
def test_what_is_not_finite_is_not_hidden(alpha, kind):
    q, k, v = torch.randn(3, 1, 2, 40, 8, generator=torch.Generator().manual_seed(0))
    if kind == "overflow":  # in float64, for alpha above 2, it wouldn't
        q[0, 0, 3], k[0, 0, 5] = 1e20, 1e20 if alpha <= 2 else math.inf
    else:
        (q if kind == "query" else k)[0, 0, 3, 0] = math.nan
    ours, theirs = (
        f(q, k, v, regularizer=Tsallis(alpha))
        for f in (lambda *x, **y: ring_attention(*x, group=Alone(), **y), attention)
    )
    assert theirs.isnan().any() and not theirs.isnan().all()
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_without_a_process_group():
    with pytest.raises(RuntimeError, match="init_process_group"):
        ring_attention(*plain(0)[0])
