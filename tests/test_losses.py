"""Fenchel-Young losses: values, gradients and edges."""

import math

import entmax as package
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from eotcourse import (
    LearnableTsallis,
    LogPrior,
    Shannon,
    Tsallis,
    entmax,
    entmax_loss,
    fenchel_young_loss,
    softmax,
    softmax_loss,
    sparsemax_loss,
)

INF = math.inf
F64 = torch.float64
MEMBERS = [Shannon(), Tsallis(1.3), Tsallis(1.5), Tsallis(2.0), Tsallis(2.5)]


def rand(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=F64, requires_grad=grad)


CLASSES = torch.tensor([2, 0, 4, 1])
SOFT = torch.softmax(rand(4, 5, seed=9), -1)


@pytest.mark.parametrize("target", [CLASSES, SOFT], ids=["classes", "soft"])
@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: str(getattr(m, "alpha", 1)))
@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_value_and_gradient_by_definition(member, target, tau):
    s = rand(4, 5, grad=True)
    y = target if target.is_floating_point() else F.one_hot(target, 5).double()
    loss = fenchel_young_loss(s, target, member, tau, reduction="none")
    expected = member.conjugate(s, tau) + tau * member.omega(y) - (s * y).sum(-1)
    torch.testing.assert_close(loss, expected, atol=1e-13, rtol=0)
    assert (loss > 0).all()
    (gradient,) = torch.autograd.grad(loss.sum(), s)
    torch.testing.assert_close(gradient, member(s, tau) - y, atol=1e-13, rtol=0)
    step = 1e-6 * rand(4, 5, seed=1)
    after = fenchel_young_loss(s + step, target, member, tau, reduction="sum")
    before = fenchel_young_loss(s - step, target, member, tau, reduction="sum")
    assert abs((after - before) / 2 - (gradient * step).sum()) < 1e-12


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: str(getattr(m, "alpha", 1)))
def test_zero_exactly_at_the_prediction(member):
    s = rand(6, 4)
    at_p = fenchel_young_loss(s, member(s, 0.7), member, 0.7, reduction="none")
    assert at_p.abs().max() < 1e-14
    beside = 0.99 * member(s, 0.7) + 0.01 / 4
    assert (fenchel_young_loss(s, beside, member, 0.7, reduction="none") > 1e-6).all()


def test_against_cross_entropy_and_the_package():
    s = rand(4, 5, grad=True)
    torch.testing.assert_close(softmax_loss(s, CLASSES), F.cross_entropy(s, CLASSES))
    loss = softmax_loss(s, CLASSES, tau=3.0, reduction="none")
    torch.testing.assert_close(loss, 3 * F.cross_entropy(s / 3, CLASSES, reduction="none"))
    kl = F.kl_div(F.log_softmax(s, -1), SOFT, reduction="none").sum(-1)
    torch.testing.assert_close(softmax_loss(s, SOFT, reduction="none"), kl)
    for ours, theirs in (
        (sparsemax_loss(s, CLASSES, reduction="none"), package.sparsemax_loss(s, CLASSES)),
        (entmax_loss(s, CLASSES, reduction="none"), package.entmax15_loss(s, CLASSES)),
        (
            entmax_loss(s, CLASSES, 1.3, reduction="none"),
            package.entmax_bisect_loss(s, CLASSES, 1.3, 100),
        ),
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_margin(alpha):
    margin = 1 / (alpha - 1)
    target = torch.tensor([0])
    outside = torch.tensor([[margin + 1e-9, 0.0, -1.0]], dtype=F64)
    inside = torch.tensor([[margin - 0.1, 0.0, -1.0]], dtype=F64)
    assert entmax_loss(outside, target, alpha) == 0
    assert entmax_loss(inside, target, alpha) > 0
    assert softmax_loss(outside, target) > 0


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: str(getattr(m, "alpha", 1)))
@pytest.mark.parametrize("n", [4, 300])
def test_excluded_scores(member, n):
    s = rand(3, n)
    s[0, 1] = s[1, 2] = -INF
    s.requires_grad_()
    target = torch.tensor([0, 2, 1])
    loss = fenchel_young_loss(s, target, member, reduction="none")
    assert loss[[0, 2]].isfinite().all() and loss[1] == INF
    (gradient,) = torch.autograd.grad(loss.sum(), s)
    assert gradient.isfinite().all() and gradient[0, 1] == 0 and not gradient[1].any()
    kept = [0, *range(2, n)]
    alone = fenchel_young_loss(s[0, kept], torch.tensor(0), member)
    torch.testing.assert_close(loss[0], alone, atol=1e-13, rtol=0)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_offsets_cost_no_digits(alpha):
    s = rand(6, 5).float()
    target = torch.tensor([0, 1, 2, 3, 4, 0])
    loss = entmax_loss(s, target, alpha, reduction="none")
    exact = entmax_loss(s.double(), target, alpha, reduction="none")
    torch.testing.assert_close(loss.double(), exact, atol=1e-6, rtol=0)
    shifted = (s * 64).round() / 64  # the sum below is exact in float32
    torch.testing.assert_close(
        entmax_loss(shifted + 2.0**16, target, alpha), entmax_loss(shifted, target, alpha)
    )
    huge = torch.tensor([[1e30, 0.0, -1e30]], requires_grad=True)
    assert entmax_loss(huge, torch.tensor([0]), alpha) == 0
    wrong = entmax_loss(huge, torch.tensor([1]), alpha)
    assert wrong == torch.tensor(1e30)
    (gradient,) = torch.autograd.grad(wrong, huge)
    assert torch.equal(gradient, torch.tensor([[1.0, -1.0, 0.0]]))
    half = entmax_loss(s.bfloat16(), target, alpha)
    assert half.dtype == torch.float32
    assert torch.equal(half, entmax_loss(s.bfloat16().float(), target, alpha))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions_and_dimensions(reduction):
    s = rand(3, 5, 2)
    classes = torch.tensor([[0, 1], [4, 3], [2, 2]])
    loss = entmax_loss(s, classes, dim=1, reduction=reduction)
    flat = entmax_loss(s.movedim(1, -1).reshape(6, 5), classes.flatten(), reduction="none")
    expected = {"mean": flat.mean(), "sum": flat.sum(), "none": flat.view(3, 2)}[reduction]
    torch.testing.assert_close(loss, expected)
    soft = softmax(rand(3, 5, 2, seed=1), dim=1)
    by_row = entmax_loss(s.movedim(1, -1), soft.movedim(1, -1), reduction=reduction)
    torch.testing.assert_close(entmax_loss(s, soft, dim=1, reduction=reduction), by_row)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: str(getattr(m, "alpha", 1)))
def test_first_and_second_derivatives(member):
    s, tau = rand(2, 4, grad=True), torch.tensor([[0.7], [1.5]], dtype=F64, requires_grad=True)
    logits = rand(2, 4, seed=2, grad=True)

    def loss(s, tau, logits):
        return fenchel_young_loss(s, softmax(logits), member, tau)

    assert gradcheck(loss, (s, tau, logits))
    assert gradgradcheck(loss, (s, tau, logits))


def test_priors_and_learned_orders():
    prior = LogPrior(rand(5, seed=3))
    s = rand(4, 5)
    shifted = s / 0.5 + prior.log_pi
    for alpha in (1.0, 1.5):
        loss = fenchel_young_loss(s, CLASSES, Tsallis(alpha, prior), 0.5, reduction="none")
        plain = entmax_loss(shifted, CLASSES, alpha, reduction="none")
        torch.testing.assert_close(loss, 0.5 * plain)
    member = LearnableTsallis(1).double()
    fenchel_young_loss(s, SOFT, member).backward()
    alpha = torch.tensor(1.5, dtype=F64, requires_grad=True)
    entmax_loss(s, SOFT, alpha).backward()
    torch.testing.assert_close(member.logit.grad, alpha.grad[None] * 0.25)


def test_training_finds_the_frequencies():
    s = torch.zeros(3, dtype=F64, requires_grad=True)
    y = torch.tensor([0.6, 0.3, 0.1], dtype=F64).expand(10, 3)
    for _ in range(200):
        (gradient,) = torch.autograd.grad(entmax_loss(s.expand(10, 3), y, 1.5), s)
        s = (s - gradient).detach().requires_grad_()
    p = entmax(s)
    np.testing.assert_allclose(p.detach(), [0.6, 0.3, 0.1], atol=1e-6)


def test_wrong_arguments_are_named():
    s = torch.zeros(2, 3)
    for target, error, match in (
        (torch.tensor([0, 3]), ValueError, "class 3 among 3"),
        (torch.tensor([-1, 0]), ValueError, "class -1 among 3"),
        (torch.tensor([0]), ValueError, r"\(1,\).*\(2,\)"),
        (torch.zeros(3, 2), ValueError, r"\(3, 2\)"),
        (torch.tensor([True, False]), TypeError, "bool"),
    ):
        with pytest.raises(error, match=match):
            softmax_loss(s, target)
    with pytest.raises(ValueError, match="'average'"):
        softmax_loss(s, torch.tensor([0, 1]), reduction="average")
    with pytest.raises(TypeError, match="int64"):
        softmax_loss(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"0\.5"):
        entmax_loss(s, torch.tensor([0, 1]), 0.5)


@pytest.mark.parametrize("loss", [softmax_loss, sparsemax_loss, entmax_loss])
def test_a_padding_row_costs_nothing(loss):
    s = torch.tensor([[1.0, 0.0], [-INF, -INF]], dtype=F64, requires_grad=True)
    y = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=F64)
    each = loss(s, y, reduction="none")
    assert each[1] == 0 and each[0] == loss(s[:1], y[:1])
    (gradient,) = torch.autograd.grad(each.sum(), s)
    assert (gradient[1] == 0).all() and gradient.isfinite().all()
    assert loss(s, torch.tensor([0, 0]), reduction="none")[1] == INF
