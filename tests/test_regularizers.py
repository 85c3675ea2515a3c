"""Regularisers that give only a penalty, against the best point of a fine grid."""

import pytest
import torch

from eotcourse import Regularizer

F64 = torch.float64
GRID = torch.linspace(0, 1, 100_001, dtype=F64)


class Bent(Regularizer):
    """Strictly convex on [0, 1] for c < 1/2, but not beyond."""

    def __init__(self, c):
        super().__init__()
        self.c = c

    def penalty(self, p):
        return (torch.special.xlogy(p, p) - self.c * p**2).sum(-1)


class Circle(Regularizer):
    """Defined on [0, 1] only, with an infinite slope at 1."""

    def penalty(self, p):
        return -(1 - p.clamp(max=1) ** 2 + 1e-12).sqrt().sum(-1)


class Cubic(Regularizer):
    def penalty(self, p):
        return (p**2 / 2 + p**3).sum(-1)


@pytest.mark.parametrize("regularizer", [Bent(0.1), Bent(0.4), Circle(), Cubic()], ids=repr)
@pytest.mark.parametrize("score", [0.0, 0.3, 2.0])
def test_two_keys_against_a_grid(regularizer, score):
    s = torch.tensor([score, 0.0], dtype=F64)
    points = torch.stack([GRID, 1 - GRID], -1)
    best = points[(points @ s - regularizer.penalty(points)).argmax()]
    assert (regularizer(s) - best).abs().max() <= 2e-5


def test_gradients():
    s = torch.tensor([0.4, -0.1], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(Bent(0.4), (s,), fast_mode=True)
    assert torch.autograd.gradgradcheck(Cubic(), (s,), fast_mode=True)
