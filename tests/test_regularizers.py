"""Regularisers that give only a penalty, against the best point of a fine grid."""

import pytest
import torch

from eotcourse import LearnableTsallis, LogPrior, Regularizer, Shannon, Tsallis

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
    """Strictly convex everywhere."""

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


def test_memory_of_the_search_is_bounded():
    seen = []

    class Watched(Cubic):
        def penalty(self, p):
            seen.append(p.numel())
            return super().penalty(p)

    s = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    p = Watched()(s)
    assert max(seen) <= 2**18
    assert sum(seen) > 1e4 * s.numel()
    torch.testing.assert_close(p[:3], Cubic()(s[:3]))
    seen.clear()
    Watched().jacobian(p)
    assert max(seen) <= p.numel()


@pytest.mark.parametrize("make", [Shannon, lambda prior: Tsallis(1.5, prior), Cubic])
@pytest.mark.parametrize("wrong", [torch.zeros(3), [0.0, 1.0], 0.0, LogPrior], ids=str)
def test_a_prior_is_a_prior(make, wrong):
    with pytest.raises(TypeError, match=r"prior must be a Prior, such as LogPrior\(log_pi\)"):
        make(prior=wrong)
    with pytest.raises(TypeError, match="prior must be a Prior"):
        LearnableTsallis(2, prior=wrong)


def test_a_dimension_is_an_integer():
    p = torch.full((2, 2), 0.5)
    for dim in (2.0, "0", None, True, (0,)):
        for f in (
            lambda: Tsallis(1.5).omega(p, dim),
            lambda: Shannon()(p, 1.0, dim),
            lambda: Shannon().weights_at(p, p.sum(-1), 1.0, dim),
        ):
            with pytest.raises(TypeError, match=r"dim must be an integer, got "):
                f()
    with pytest.raises(TypeError, match=r"dim must be an integer, got 2\.0"):
        Shannon().omega(p, 2.0)
