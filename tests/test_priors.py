"""Priors: their terms for whole rows and for tiles, their sums and their errors."""

import math

import numpy as np
import pytest
import torch

from eotcourse import ALiBi, Causal, LogPrior, Padding, Shannon, Window, alibi_slopes, attention
from eotcourse.priors import Prior

INF = math.inf
Q, K = torch.arange(4), torch.arange(6)


def table(rule):
    """0 where rule(i, j) holds for query i and key j, else -inf."""
    return torch.tensor([[0.0 if rule(i, j) else -INF for j in range(6)] for i in range(4)])


@pytest.mark.parametrize(
    "prior, rule",
    [
        (Causal(), lambda i, j: j <= i),
        (Window(1, 2), lambda i, j: i - 1 <= j <= i + 2),
        (Window(0, 0), lambda i, j: i == j),
        (Window(None, 1), lambda i, j: j <= i + 1),
        (Window(2, None), lambda i, j: j >= i - 2),
        (Window(), lambda i, j: True),
        (Causal() + Window(1), lambda i, j: i - 1 <= j <= i),
    ],
)
def test_masks_keep_what_their_rule_keeps(prior, rule):
    assert torch.equal(prior.bias(Q, K), table(rule))


def test_padding_is_per_sequence_and_true_may_attend():
    keep = torch.tensor([[True] * 4 + [False] * 2, [False] + [True] * 5])
    bias = Padding(keep).bias(Q, K)
    assert bias.shape == (2, 1, 1, 6)
    assert torch.equal(bias[:, 0, 0] == 0, keep)
    assert torch.equal(bias[:, 0, 0] == -INF, ~keep)


def test_alibi_is_a_penalty_per_head():
    bias = ALiBi([0.5, 0.25]).bias(Q, K)
    assert bias.shape == (2, 4, 6)
    for h, m in enumerate([0.5, 0.25]):
        for i in range(4):
            for j in range(6):
                assert bias[h, i, j] == -m * abs(i - j)


@pytest.mark.parametrize("n", range(1, 40))
def test_alibi_slopes_follow_the_published_rule(n):
    """The recursive form of the rule, as its authors state it."""

    def rule(n):
        if n & (n - 1) == 0:
            return [2 ** (-8 / n * h) for h in range(1, n + 1)]
        closest = 2 ** math.floor(math.log2(n))
        return rule(closest) + rule(2 * closest)[0::2][: n - closest]

    np.testing.assert_allclose(alibi_slopes(n), rule(n), rtol=1e-14)


@pytest.mark.parametrize(
    "shape, expected",
    [
        ((6,), (1, 6)),
        ((4, 6), (4, 6)),
        ((1, 6), (1, 6)),
        ((3, 4, 6), (3, 4, 6)),
        ((3, 1, 6), (3, 1, 6)),
        ((2, 3, 4, 6), (2, 3, 4, 6)),
        ((2, 1, 1, 6), (2, 1, 1, 6)),
    ],
)
def test_log_prior_shapes(shape, expected):
    log_pi = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(LogPrior(log_pi).bias(Q, K), log_pi.reshape(expected))


@pytest.mark.parametrize(
    "pi", [[0.7, 0.2, 0.1], [[0.5, 0.5], [0.0, 1.0]], torch.full((2, 3, 4), 0.25), [0.5, 0.5]]
)
def test_probabilities_are_not_taken_as_logarithms_in_silence(pi):
    with pytest.warns(UserWarning, match="LogPrior.from_probabilities"):
        LogPrior(pi)


@pytest.mark.filterwarnings("error")
def test_probabilities_have_their_own_constructor():
    pi = torch.tensor([[0.7, 0.2, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]])
    for given in (pi, pi.tolist(), pi.numpy(), 8 * pi):
        prior = LogPrior.from_probabilities(given)
        assert isinstance(prior, LogPrior)
        torch.testing.assert_close(Shannon(prior)(torch.zeros(2, 4)), pi)
    counts = LogPrior.from_probabilities(torch.tensor([1, 0, 3]))
    torch.testing.assert_close(Shannon(counts)(torch.zeros(3)), torch.tensor([0.25, 0, 0.75]))
    for logs in (pi.log(), torch.zeros(3), torch.eye(3) - 1, torch.randn(3, 3), torch.zeros(2, 0),
                 torch.zeros(0, 3)):
        LogPrior(logs)
    LogPrior(torch.tensor([0.0]))
    for bad, kind, words in (
        ([0.5, -0.5], ValueError, "probabilities must be finite and not negative, got -0.5"),
        ([0.5, math.nan], ValueError, "got nan"),
        ([INF, 1.0], ValueError, "got inf"),
        (pi.clone().requires_grad_(), TypeError, "LogPrior its logarithms as a parameter"),
        ("even", TypeError, "pi must be numbers, got 'even'"),
    ):
        with pytest.raises(kind, match=words):
            LogPrior.from_probabilities(bad)


PRIORS = {
    "alibi": ALiBi(alibi_slopes(3)),
    "log vector": LogPrior(torch.linspace(-1, 1, 6) ** 3),
    "log table": LogPrior(torch.linspace(-1, 1, 24).reshape(4, 6) ** 3),
    "log heads": LogPrior(torch.linspace(-1, 1, 72).reshape(3, 4, 6) ** 3),
    "log batch": LogPrior(torch.linspace(-1, 1, 144).reshape(2, 3, 4, 6) ** 3),
    "causal": Causal(),
    "window": Window(1, 2),
    "padding": Padding(torch.tensor([[True] * 4 + [False] * 2, [False] + [True] * 5])),
    "sum": ALiBi(alibi_slopes(3))
    + Causal()
    + Padding(torch.tensor([[True] * 4 + [False] * 2, [False] + [True] * 5])),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("head", [None, 0, 2])
def test_a_tile_is_the_part_of_the_whole(name, head):
    prior = PRIORS[name]
    whole = prior.bias(Q, K).broadcast_to(2, 3, 4, 6)
    queries, keys = torch.tensor([3, 1]), torch.tensor([0, 5, 2])
    tile = prior.bias(queries, keys, head)
    part = whole[:, :, queries][..., keys]
    if head is not None:
        assert tile.dim() < 3 or tile.shape[-3] == 1
        part = part[:, [head]]
    assert torch.equal(tile.broadcast_to(part.shape), part)


def test_head_out_of_range():
    with pytest.raises(IndexError):
        ALiBi([0.5, 0.25]).bias(Q, K, 2)


@pytest.mark.parametrize("head", [None, 1])
def test_priors_add(head):
    first, second = PRIORS["alibi"], PRIORS["log batch"]
    total = (first + second).bias(Q, K, head)
    assert torch.equal(total, first.bias(Q, K, head) + second.bias(Q, K, head))
    with pytest.raises(TypeError):
        first + 1.0


def test_a_prior_has_to_say_its_bias():
    with pytest.raises(TypeError, match="bias"):
        Prior()


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: ALiBi(torch.ones(2, 2)), ValueError, r"\(2, 2\)"),
        (lambda: ALiBi("steep"), TypeError, "slopes must be numbers, got 'steep'"),
        (lambda: alibi_slopes(0), ValueError, "0"),
        (lambda: alibi_slopes(2.0), TypeError, "n_heads must be an integer, got 2.0"),
        (lambda: alibi_slopes("8"), TypeError, "n_heads must be an integer, got '8'"),
        (lambda: LogPrior(None), TypeError, "log_pi must be numbers, got None"),
        (lambda: LogPrior(torch.tensor([0.0, math.nan])), ValueError, "NaN"),
        (lambda: LogPrior(torch.tensor([0.0, INF])), ValueError, "inf"),
        (lambda: LogPrior(torch.tensor(0.0)), ValueError, r"\(\)"),
        (lambda: Window(-1, None), ValueError, "left.*-1"),
        (lambda: Window(None, -2), ValueError, "right.*-2"),
        (lambda: Window("1"), TypeError, "left must be None or an integer, got '1'"),
        (lambda: Window(1, 0.5), TypeError, "right must be None or an integer, got 0.5"),
        (lambda: Padding([[True]]), TypeError, "keep must be a torch.Tensor, got list"),
        (lambda: Padding(torch.ones(2, 3)), TypeError, "float32"),
        (lambda: Padding(torch.ones(3, dtype=torch.bool)), ValueError, r"\(3,\)"),
        (lambda: LogPrior(torch.zeros(5)).bias(Q, K), ValueError, r"\(1, 5\).*0 to 4.*0 to 5"),
        (lambda: LogPrior(torch.zeros(3, 6)).bias(Q, K), ValueError, r"\(3, 6\).*0 to 2.*0 to 3"),
        (lambda: LogPrior(torch.zeros(4, 6)).bias(Q - 1, K), ValueError, "-1 to 2"),
        (lambda: Padding(torch.ones(2, 5) > 0).bias(Q, K), ValueError, r"\(2, 5\)"),
    ],
)
def test_errors_name_what_is_wrong(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_constants_move_with_the_module_and_parameters_are_trained():
    trained = ALiBi(torch.nn.Parameter(torch.tensor([0.5, 0.25])))
    fixed = ALiBi(torch.tensor([0.5, 0.25]))
    assert [n for n, _ in trained.named_parameters()] == ["slopes"]
    assert not list(fixed.parameters()) and fixed.double().slopes.dtype == torch.float64
    assert set(Shannon(trained + Causal()).state_dict()) == {"prior.first.slopes"}


def test_a_slope_learns():
    """The derivative of the output in a slope, against a central difference."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 3, generator=g, dtype=torch.float64) for _ in range(3))

    def loss(slopes):
        prior = ALiBi(slopes) + Causal()
        return attention(q, k, v, regularizer=Shannon(prior)).sin().sum()

    slopes = torch.tensor([0.5, 0.25], dtype=torch.float64)
    parameter = torch.nn.Parameter(slopes.clone())
    (gradient,) = torch.autograd.grad(loss(parameter), parameter)
    for h in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[h] = 1e-6
        slope = (loss(slopes + step) - loss(slopes - step)) / 2e-6
        assert abs(slope) > 1e-3 and abs(gradient[h] - slope) < 1e-8


def test_a_mask_is_a_prior_with_zeros():
    """Causal() as a prior, is_causal, a boolean mask and Padding mean the same thing."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 4, generator=g) for n in (3, 5, 5))
    keep = torch.tensor([[True] * 4 + [False], [False] + [True] * 4])
    for align, offset in (("top_left", 0), ("bottom_right", 2)):
        causal = torch.arange(5) <= torch.arange(3)[:, None] + offset
        expected = attention(q, k, v, causal & keep[:, None, None, :])
        prior = Shannon(Causal() + Padding(keep))
        out = attention(q, k, v, regularizer=prior, causal_align=align)
        assert torch.equal(out, expected)
        out = attention(
            q, k, v, is_causal=True, regularizer=Shannon(Padding(keep)), causal_align=align
        )
        assert torch.equal(out, expected)
