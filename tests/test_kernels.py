"""The Triton kernels: interpreted against the dense specification, and compiled for an H100.

Triton decides when it is imported whether it interprets. So what starts with `interpreted_` is
collected by a second pytest only, which `test_in_the_interpreter` starts; to run it by hand,
TRITON_INTERPRET=1 pytest -o python_functions="interpreted_*" tests/test_kernels.py
"""

import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import types

import pytest
import torch
from functorch.compile import make_boxed_func

from eotcourse import (
    ALiBi,
    Causal,
    LogPrior,
    Padding,
    Regularizer,
    Shannon,
    Tsallis,
    Window,
    attention,
)
from eotcourse.engine import kernels
from eotcourse.priors import Prior
from conftest import ROOT
from test_engine import errors
from test_simplex import rand

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
VERSION = importlib.metadata.version("triton") if importlib.util.find_spec("triton") else "0.0"
needs_triton = pytest.mark.skipif(
    tuple(map(int, VERSION.split(".")[:2])) < (3, 9),
    reason=f"needs Triton 3.9 (for Linux on x86-64), there is {VERSION}",
)


def trained(x):
    return torch.nn.Parameter(x)


def slopes():
    return trained(torch.tensor([0.5, 0.05], dtype=torch.float64))


def orders(*alpha):
    return trained(torch.tensor(alpha, dtype=torch.float64))


# ---------------------------------------------------------------- in the interpreter


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks, the last of them smaller, at sizes that can be interpreted."""
    monkeypatch.setattr(kernels, "_blocks", lambda width, dtype: (16, 16))


def everything(backend, dtype, regularizer, sizes=(19, 37), shape=(1, 2), shared=None, **arguments):
    """Outputs, soft maxima and all gradients of one call, by name, in float64.

    `shape` is (batch, heads), `shared` the heads of keys and values.
    """
    q_len, k_len = sizes
    keys = (shape[0], shared) if shared else shape
    tensors = {
        "query": rand(*shape, q_len, 20, seed=1).mul(2),
        "key": rand(*keys, k_len, 20, seed=2),
        "value": rand(*keys, k_len, 17, seed=3),
    }
    tensors = {name: trained(x.to(dtype)) for name, x in tensors.items()}
    mask = arguments.pop("attn_mask", None)
    if mask is not None and mask.is_floating_point():
        tensors["attn_mask"] = mask = trained(mask.to(dtype))
    out, aux = attention(
        tensors["query"], tensors["key"], tensors["value"], mask, enable_gqa=shared is not None,
        regularizer=regularizer, backend=backend, return_aux=True, **arguments,
    )  # fmt: skip
    assert out.dtype == dtype
    tensors.update(regularizer.named_parameters())
    finite = aux.threshold.masked_fill(aux.threshold == -math.inf, 0)
    upstream = [rand(*x.shape, seed=20).to(x.dtype) for x in (out, finite)]
    grads = torch.autograd.grad((out, finite), list(tensors.values()), upstream)
    found = {"o": out, "zeta": aux.threshold}
    found.update({f"d{name}": g for name, g in zip(tensors, grads)})
    return {name: x.detach().double() for name, x in found.items()}


def some(*shape):
    """A boolean mask in which query 3 may attend to nothing."""
    return (rand(*shape, seed=5) > -0.3) & (torch.arange(shape[-2]) != 3)[:, None]


# Reaches of 1 and 17 end one past the edge of a block of 16, and begin one before it.
CASES = {
    "softmax": lambda: (Shannon(), dict(sizes=(37, 19), shape=(1, 1))),
    "softmax, causal alibi from the end": lambda: (
        Shannon(ALiBi(slopes())), dict(is_causal=True, causal_align="bottom_right", sizes=(20, 37))
    ),
    "softmax, causal from the end, more queries": lambda: (
        Shannon(Causal()), dict(sizes=(37, 18), causal_align="bottom_right")
    ),
    "softmax, groups of heads, alibi": lambda: (
        Shannon(ALiBi(orders(0.5, 0.2, 0.1, 0.05))), dict(sizes=(17, 18), shape=(1, 4), shared=2)
    ),
    "softmax, term of pairs": lambda: (
        Shannon(), dict(attn_mask=rand(2, 19, 37, seed=6).masked_fill(~some(19, 37), -math.inf),
                        shape=(2, 2), shared=1)
    ),
    "softmax, term of queries": lambda: (
        Shannon(), dict(attn_mask=rand(1, 19, 1, seed=6), sizes=(19, 17), is_causal=True)
    ),
    "softmax, window, learned prior, padding": lambda: (
        Shannon(
            LogPrior(trained(rand(37, seed=9))) + Padding(rand(2, 37, seed=9) > -1) + Window(1, 17)
        ),
        dict(shape=(2, 1), sizes=(30, 37)),
    ),
    "sparsemax, mask": lambda: (Tsallis(2.0), dict(attn_mask=some(19, 37), shape=(1, 1))),
    "sparsemax, causal": lambda: (
        Tsallis(2.0), dict(is_causal=True, sizes=(35, 37), shape=(1, 1))
    ),
    "sparsemax, mask of keys of a batch": lambda: (
        Tsallis(2.0), dict(attn_mask=rand(2, 1, 1, 37, seed=5) > -0.5, shape=(2, 1))
    ),
    "entmax": lambda: (Tsallis(1.5), dict(sizes=(17, 50), scale=0.4, shape=(1, 1))),
    "entmax, equal scores": lambda: (Tsallis(1.5), dict(scale=0, sizes=(16, 33), shape=(1, 1))),
    "entmax, window and priors": lambda: (
        Tsallis(1.5, ALiBi(slopes()) + Window(1, 17) + LogPrior(trained(rand(2, 1, 37, seed=9)))),
        dict(sizes=(30, 37)),
    ),
    "entmax, groups of heads": lambda: (
        Tsallis(1.5), dict(shape=(1, 2), shared=1, is_causal=True, sizes=(20, 33))
    ),
    "learned alpha, two-sided alibi": lambda: (
        Tsallis(orders(1.3, 1.9), ALiBi(slopes())), dict(sizes=(17, 40))
    ),
    "learned alpha near one": lambda: (
        Tsallis(orders(1.0, 1.1)), dict(attn_mask=some(19, 30), sizes=(19, 30))
    ),
    "alpha 4/3, causal from the end": lambda: (
        Tsallis(4 / 3), dict(is_causal=True, causal_align="bottom_right", shape=(1, 1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def interpreted_equals_the_specification(case, small_blocks):
    """o, zeta, dq, dk, dv, dalpha, dslopes, dlog_pi and the gradient of masks."""
    regularizer, arguments = CASES[case]()
    found = everything("triton", torch.float32, regularizer, **arguments)
    wanted = everything("dense", torch.float64, regularizer, **arguments)
    for name, e in errors(found, wanted).items():
        assert e < 1e-5, f"{name}: {e}"


@pytest.mark.parametrize("dtype, size", [(torch.float16, 2e-3), (torch.bfloat16, 1.5e-2)])
@pytest.mark.parametrize("regularizer", [Shannon(), Tsallis(1.5)])
def interpreted_half_precisions(dtype, size, regularizer, small_blocks):
    """Inputs of 16 bits, statistics of 32: no further off than the rounding of the results."""
    arguments = dict(sizes=(17, 33), is_causal=True, causal_align="bottom_right", shape=(1, 1))
    found = everything("triton", dtype, regularizer, **arguments)
    wanted = everything("dense", dtype, regularizer, **arguments)
    for name, e in errors(found, wanted).items():
        assert e < (1e-6 if name == "zeta" else size), f"{name}: {e}"


def interpreted_blocks_of_other_shapes(monkeypatch):
    """Blocks that aren't square, as on a GPU."""
    for shape in ((32, 16), (16, 32)):
        monkeypatch.setattr(kernels, "_blocks", lambda width, dtype: shape)
        found, wanted = (
            everything(backend, dtype, Tsallis(1.5), is_causal=True, sizes=(40, 40), shape=(1, 1))
            for backend, dtype in (("triton", torch.float32), ("dense", torch.float64))
        )
        assert max(errors(found, wanted).values()) < 1e-5


@pytest.mark.parametrize("lead", [((), (), ()), ((1, 2), (), (2, 1, 1)), ((2, 1, 2), (1,), (2,))])
def interpreted_leading_dimensions(lead, small_blocks):
    """None at all, and several that broadcast: values of more heads than there are scores of."""
    q, k, v = (rand(*x, n, 8, seed=n, grad=True) for x, n in zip(lead, (5, 18, 18)))
    mask = rand(*lead[0][:1], *[1] * len(lead[0][1:]), 5, 18, seed=4, grad=True)
    results = []
    for backend, dtype in (("triton", torch.float32), ("dense", torch.float64)):
        out, aux = attention(
            *(x.to(dtype) for x in (q, k, v, mask)), regularizer=Tsallis(2.0), backend=backend,
            return_aux=True,
        )  # fmt: skip
        grads = torch.autograd.grad(out.sum() + aux.threshold.sin().sum(), (q, k, v, mask))
        results.append([x.double() for x in (out, aux.threshold, *grads)])
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def interpreted_strides(small_blocks):
    """Transposed inputs, and an upstream gradient that is one number repeated."""
    q, k, v = (rand(18, 2, 8, seed=i, dtype=torch.float32, grad=True) for i in range(3))
    results = []
    for backend in ("triton", "dense"):
        out = attention(*(x.transpose(0, 1) for x in (q, k, v)), backend=backend)
        results.append((out, *torch.autograd.grad(out.sum(), (q, k, v))))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("q_len, k_len", [(0, 5), (5, 0), (1, 1)])
def interpreted_hardly_anything(q_len, k_len):
    for regularizer in (Shannon(), Tsallis(1.5)):
        q, k, v = (
            rand(n, 4, seed=n, dtype=torch.float32, grad=True) for n in (q_len, k_len, k_len)
        )
        results = []
        for backend in ("triton", "dense"):
            out, aux = attention(q, k, v, regularizer=regularizer, backend=backend, return_aux=True)
            results.append((out, aux.threshold, *torch.autograd.grad(out.sum(), (q, k, v))))
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("regularizer", [Shannon(), Tsallis(1.5)])
def interpreted_excluded_positions_hold_no_influence(regularizer, small_blocks):
    allowed = torch.ones(17, 40, dtype=torch.bool)
    allowed[:, 18:20] = False
    results = []
    for filler in (0.0, torch.finfo(torch.float32).max):
        q, k, v = (rand(n, 8, seed=n, dtype=torch.float32) for n in (17, 40, 40))
        k[18:20], v[18:20], k[30:], v[30:] = (filler,) * 4
        q, k, v = map(trained, (q, k, v))
        out = attention(q, k, v, allowed, is_causal=True, backend="triton", regularizer=regularizer)
        results.append((out, *torch.autograd.grad(out.sum(), (q, k, v))))
    for x, y in zip(*results):
        assert x.isfinite().all() and torch.equal(x, y)


@pytest.mark.parametrize("regularizer", [Shannon(), Tsallis(2.0)])
def interpreted_what_is_not_finite_stays_in_its_query(regularizer, small_blocks):
    q, k, v = (rand(n, 4, seed=n, dtype=torch.float32) for n in (18, 20, 20))
    q[3, 2], q[7, 1] = math.nan, math.inf
    out = attention(q, k, v, regularizer=regularizer, backend="triton")
    bad = torch.zeros(18, dtype=torch.bool)
    bad[[3, 7]] = True
    assert torch.equal(out.isnan().all(-1), bad) and torch.equal(out.isnan().any(-1), bad)


def interpreted_rows_far_below_zero(small_blocks):
    """A finite term excludes nothing: its row keeps its weights, and their gradient its digits."""
    mask = torch.full((17, 20), -1e30)
    for regularizer in (Shannon(), Tsallis(1.5)):
        found, wanted = (
            everything(backend, dtype, regularizer, sizes=(17, 20), shape=(1, 1), attn_mask=mask)
            for backend, dtype in (("triton", torch.float32), ("dense", torch.float32))
        )
        assert max(errors(found, wanted).values()) < 1e-5


def live_blocks(alpha):
    """The pairs of blocks the kernels touch in the end, and those that have weight."""
    q = rand(33, 8, dtype=torch.float32)
    k = torch.cat([q, rand(30, 8, seed=1, dtype=torch.float32) / 9])[torch.arange(63) // 3 * 3 % 63]
    v = rand(63, 8, seed=2, dtype=torch.float32)
    tensors = (x[None] for x in (q, k, v))
    far = 1 << 30
    live = kernels._forward(
        *tensors, torch.tensor([alpha]), None, None, alpha, 1, 2.0, 0, far, far, False
    )[-1]
    _, aux = attention(
        *(x.double() for x in (q, k, v)), scale=2.0, regularizer=Tsallis(alpha), return_aux=True,
        need_weights=True,
    )  # fmt: skip
    weights = torch.nn.functional.pad(aux.weights, (0, 1, 0, 15)).view(3, 16, 4, 16)
    return live[0].bool(), (weights > 0).any(3).any(1)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def interpreted_live_blocks_are_those_with_weight(alpha, small_blocks):
    live, wanted = live_blocks(alpha)
    assert torch.equal(live, wanted)
    assert 0 < wanted.sum() < wanted.numel(), "the case shows nothing"


@pytest.mark.parametrize("regularizer", [Shannon(), Tsallis(1.5)])
def interpreted_a_second_derivative_is_refused(regularizer):
    q, k, v = (rand(5, 4, seed=i, dtype=torch.float32, grad=True) for i in range(3))
    out = attention(q, k, v, regularizer=regularizer, backend="triton")
    for g in torch.autograd.grad(out.sin().sum(), (q, k, v), create_graph=True):
        with pytest.raises(RuntimeError, match="twice: use backend='dense'"):
            torch.autograd.grad(g.square().sum() + q.sum(), q, retain_graph=True)


def interpreted_changing_an_input_before_the_backward_pass_is_noticed():
    q, k, v = (rand(5, 4, seed=i, dtype=torch.float32, grad=True) for i in range(3))
    key = k * 1
    out = attention(q, key, v, backend="triton")
    key += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def interpreted_goes_through_compile(small_blocks):
    q, k, v = (rand(2, 5, 8, seed=i, dtype=torch.float32, grad=True) for i in range(3))
    regularizer = Tsallis(orders(1.2, 1.8), ALiBi(slopes()))
    parameters = (q, k, v, *regularizer.parameters())

    def f(q, k, v):
        return attention(q, k, v, is_causal=True, regularizer=regularizer, backend="triton")

    results = []
    for way in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        out = way(q, k, v)
        results.append((out, *torch.autograd.grad(out.square().sum(), parameters)))
    torch.testing.assert_close(*results)


class Squared(Regularizer):
    def penalty(self, p):
        return (p**2).sum(-1) / 2


class Steps(Prior):
    def bias(self, q_positions, k_positions, head=None):
        return (k_positions[None, :] // 4 - q_positions[:, None] // 4).float()


def dual(q):
    return torch.autograd.forward_ad.make_dual(q, q)


REFUSED = {
    "weights": (dict(need_weights=True, return_aux=True), "need_weights"),
    "dropout": (dict(dropout_p=0.1), "dropout_p=0.1"),
    "own regulariser": (dict(regularizer=Squared()), "Squared"),
    "own prior": (dict(regularizer=Shannon(Steps() + Causal())), "Steps"),
    "alpha above 2": (dict(regularizer=Tsallis(2.5)), "2.5"),
    "learned alpha above 2": (dict(regularizer=Tsallis(orders(2.25))), "2.25"),
    "alpha of queries": (
        dict(regularizer=Tsallis(torch.full((1, 5, 1), 1.5))), r"one alpha per head.*\(1, 5, 1\)"
    ),
    "float64": (dict(change=lambda x: x.double()), "float64"),
    "wide": (dict(change=lambda x: x.repeat(1, 1, 65)), "256 features, got 260"),
    "tangent": (dict(change=dual), "forward-mode"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def interpreted_what_it_cannot_do_it_refuses_by_name(kind, monkeypatch):
    arguments, words = REFUSED[kind]
    arguments = dict(arguments)
    change = arguments.pop("change", lambda x: x)
    monkeypatch.setattr(kernels, "attend", None)  # whoever calls it, fails otherwise
    with torch.autograd.forward_ad.dual_level():
        q, k, v = (change(rand(1, 5, 4, seed=i, dtype=torch.float32)) for i in range(3))
        with pytest.raises(ValueError, match=f"backend 'triton' can't be used: .*{words}"):
            attention(q, k, v, backend="triton", **arguments)


def interpreted_vmap_is_refused():
    q, k, v = (rand(2, 5, 4, seed=i, dtype=torch.float32) for i in range(3))
    with pytest.raises(ValueError, match="torch.func"):
        torch.func.vmap(lambda *x: attention(*x, backend="triton"))(q, k, v)


def interpreted_operators_are_what_they_say():
    """Schemas, and shapes without data, of both operators."""
    q, k, v = (rand(2, 5, 4, seed=i, dtype=torch.float32) for i in range(3))
    table = rand(1, 1, 1, 5, dtype=torch.float32)
    call = (1.5, 2, 0.5, 0, 1 << 30, 0)
    inputs = (q, k, v, torch.full((2,), 1.5), torch.full((2,), 0.1), table)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(kernels._forward, (*inputs, *call, True), test_utils=checks)
    out, zeta, *left = kernels._forward(*inputs, *call, True)
    arguments = (out, zeta, *inputs, *left, *call, True, True, True)
    torch.library.opcheck(kernels._backward, arguments, test_utils=checks)


@pytest.fixture
def benchmark(monkeypatch, tmp_path):
    """benchmarks/gpu.py, and what runs it: exit status and rows."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import gpu

    def run(*arguments):
        path = tmp_path / "rows"
        status = gpu.main([*arguments, "--json", str(path)])
        return status, [json.loads(line) for line in path.read_text().splitlines()]

    return gpu, run


def interpreted_benchmark_measures_all_of_its_plan(benchmark, small_blocks):
    """With nothing wrong; and of planted blocks just those are live that were planted."""
    status, rows = benchmark[1]("--dry-run")
    failed = [row for row in rows if "failed" in row]
    assert all("does not support backward on CPU" in row["failed"] for row in failed), failed
    assert status == 0 and rows[-1] == {**rows[-1], "wrong": 0, "finished": True}
    assert {row["goal"] for row in rows} == {"what", "all", *(f"G{i}" for i in range(1, 9))}
    assert not any("skipped" in row for row in rows)
    live = {row["what"]: row["live"] for row in rows if row["goal"] == "G4"}
    what = "alpha 1.5, planted {}, n=32"
    assert live == {what.format("1 of 10"): 1 / 2, what.format("2 of 5"): 3 / 4}


def interpreted_benchmark_knows_what_is_wrong(benchmark, monkeypatch, small_blocks):
    """And begins nothing that its budget has no room for."""
    gpu, run = benchmark
    monkeypatch.setattr(gpu, "problems", lambda *_: {"softmax": (Shannon(), False)})
    right = kernels.attend
    monkeypatch.setattr(kernels, "attend", lambda *a: (1.1 * right(*a)[0], None))
    status, rows = run("--dry-run", "--budget", "0")
    assert status == 1 and rows[-1]["wrong"] == 2
    assert [row["right"] for row in rows[1:3]] == [False, False]
    assert [row["skipped"][:4] for row in rows[3:-1]] == ["part"] * len(gpu.plan(gpu.TOY))


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="starts the interpreter itself")
def test_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-o", "python_functions=interpreted_*"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [*command, "-p", "no:xdist", __file__], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    count = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert count >= 40, done.stdout[-300:]


# ---------------------------------------------------------------- without a GPU, not interpreted


def test_a_tensor_on_a_cpu_is_refused():
    """Or Triton is missing; both say so."""
    q, k, v = (rand(5, 4, seed=i, dtype=torch.float32) for i in range(3))
    words = "query is on cpu" if kernels.triton is not None else "Triton isn't installed"
    with pytest.raises(ValueError, match=f"backend 'triton' can't be used: .*{words}"):
        attention(q, k, v, backend="triton")


def test_the_package_works_without_triton_and_does_not_load_it():
    code = """
import sys
sys.modules["triton"] = None
import torch, eotcourse
from eotcourse.engine import kernels
from eotcourse.priors import Prior
q = torch.ones(3, 2)
print(eotcourse.attention(q, q, q).sum().item())
try:
    eotcourse.attention(q, q, q, backend="triton")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6.0\nbackend 'triton' can't be used: Triton isn't installed")


@pytest.fixture
def as_on_a_gpu(monkeypatch, tmp_path):
    """Triton is told of a card, and keeps nothing for the next run."""
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", 90, 32)
    driver = types.SimpleNamespace(get_current_target=lambda: target)
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    return target


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_the_benchmark_says_that_there_is_no_card(benchmark, capsys):
    assert benchmark[0].main([]) == 2
    assert "no CUDA card here; try --dry-run" in capsys.readouterr().err


@needs_triton
@pytest.mark.parametrize("regularizer, count", [
    (Shannon(ALiBi([0.5, 0.4, 0.2, 0.1])), (1, 2)), (Tsallis(1.5), (3, 4)),
])  # fmt: skip
def test_compile_sees_the_kernels(regularizer, count, as_on_a_gpu, monkeypatch):
    """Fake tensors have the right shapes and dtypes; traced, every kernel is in the graph."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr(kernels, "obstacle", lambda *_: None)
    graphs = []

    def keep(graph, inputs):
        graphs.append(sum("triton_kernel" in str(node.target) for node in graph.graph.nodes))
        return make_boxed_func(graph.forward)

    def f(q, k, v):
        return attention(
            q, k, v, is_causal=True, enable_gqa=True, regularizer=regularizer, backend="triton",
            return_aux=True,
        )  # fmt: skip

    compiled = torch.compile(f, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [
            torch.empty(2, heads, n, d, dtype=torch.bfloat16, requires_grad=True)
            for heads, n, d in ((4, 19, 20), (2, 30, 20), (2, 30, 12))
        ]
        for way in (f, compiled):
            out, aux = way(*tensors)
            assert out.shape == (2, 4, 19, 12) and out.dtype == torch.bfloat16
            assert aux.threshold.shape == (2, 4, 19) and aux.threshold.dtype == torch.float32
            for g, x in zip(torch.autograd.grad(out.sum(), tensors), tensors):
                assert g.shape == x.shape and g.dtype == x.dtype
    assert tuple(graphs) == count


POINTERS = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
SHARED_MEMORY = 227 * 1024  # of an H100 or H200, for one program
IN_THE_DTYPE = {"q", "k", "v", "out", "mean", "grad_out", "grad_q", "grad_k", "grad_v"}
OTHERS = {"live": "*u8", "index": "*i32", "count": "*i32", "scale": "fp32", "slopes": "*fp32"}


def compiled(kernel, dtype, target, constants):
    """A kernel as the machine code of a card that isn't here."""
    import triton
    from triton.compiler import ASTSource

    signature, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        kind = OTHERS.get(name, "i32")
        if kernel.params[place].is_constexpr:
            kind = "constexpr"
        elif name in IN_THE_DTYPE:
            kind = POINTERS[dtype]
        elif name == "table":
            kind = "*u8" if constants["TABLE"] == 1 else "*fp32"
        elif name in ("alpha", "zetas", "tops", "rests", "totals", "deltas") or "grad_" in name:
            kind = "i32" if name in ("grad_b", "grad_h") else "*fp32"
        signature[name] = kind
        if kind.startswith("*"):
            attributes[place,] = [["tt.divisibility", 16]]
    constants = {
        (kernel.arg_names.index(name),): x for name, x in constants.items() if name in signature
    }
    options = dict(num_warps=kernels._WARPS, num_stages=kernels._STAGES)
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=target, options=options)


@needs_triton
@pytest.mark.parametrize("name", ["_softmax", "_screen", "_list", "_entmax", "_queries", "_keys"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_compiles_for_an_h100(name, dtype, as_on_a_gpu):
    """To machine code that fits: bfloat16 with a mask, float32 with all there is."""
    half = dtype == torch.bfloat16
    d = 64 if half else 10
    width = kernels._width(d)
    block_i, block_j = kernels._blocks(width, dtype)
    constants = dict(
        ALIBI=not half, TABLE=1 if half else 2, LIMITED=True, D=d, E=d, BLOCK_D=width,
        BLOCK_E=width, BLOCK_I=block_i, BLOCK_J=block_j, UPCAST=False, ORDER=1.5 if half else 0,
        WITH_MEAN=True, WITH_ALPHA=not half, WITH_SLOPES=not half, WITH_TABLE=0 if half else 2,
        BLOCK=512,
    )  # fmt: skip
    found = compiled(getattr(kernels, name), dtype, as_on_a_gpu, constants)
    assert found.asm["cubin"] and ".target sm_90a" in found.asm["ptx"]
    assert found.metadata.shared <= SHARED_MEMORY
    assert ("wgmma" in found.asm["ptx"]) == (half and name != "_list")
