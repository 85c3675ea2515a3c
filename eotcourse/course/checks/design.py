"""Answer keys of the page family/design, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-design-1",
    right=12.0,
    wrong={
        "scaled": (6.0, "That is the lead of scaled scores."),
        "divided": (3.0, "Raw scores are tau times the scaled ones."),
        "values of phi": (4.0, "The margin compares slopes, not values."),
        "second derivative": (28.0, "One derivative is enough."),
        "tau twice": (24.0, "The temperature acts once."),
    },
)

exercise(
    "ex-design-2",
    probe=lambda f: f(torch.tensor([-2.0, -0.05, 0.0, 0.3, 1.7, 4.0], dtype=torch.float64)),
    right=lambda gap: ((1 + 12 * gap.clamp(min=0)).sqrt() - 1) / 6,
    wrong={
        "no clamp": (
            lambda gap: ((1 + 12 * gap).sqrt() - 1) / 6,
            "What does your rule say about a key far below the soft maximum?",
        ),
        "clamped under the root only": (
            lambda gap: ((1 + 12 * gap).clamp(min=0).sqrt() - 1) / 6,
            "Weights can't be negative.",
        ),
        "derivative itself": (
            lambda gap: gap + 3 * gap**2,
            "That is the derivative of phi. The rule is its inverse.",
        ),
        "inverse of phi without the square": (
            lambda gap: (gap.clamp(min=0) / 3).sqrt(),
            "The derivative of phi has two terms.",
        ),
        "softened twice": (
            lambda gap: ((1 + 4 * gap.clamp(min=0)).sqrt() - 1) / 2,
            "Check the coefficient: the derivative of the cube is three times the square.",
        ),
    },
)

exercise(
    "ex-design-3",
    probe=lambda f: f(torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)),
    right=lambda p: torch.exp(p) - 1 - p,
    wrong={
        "the derivative": (lambda p: torch.exp(p) - 1, "That is the derivative still."),
        "constant": (lambda p: torch.exp(p) - p, "And the value at 0?"),
        "integral of the rule": (
            lambda p: (1 + p) * torch.log(1 + p) - p,
            "You integrated the rule. Which function should be integrated?",
        ),
        "the rule": (lambda p: torch.log(1 + p), "The rule turns gaps into weights; phi is a price."),
        "sign": (lambda p: p + 1 - torch.exp(p), "That function is concave."),
    },
)

def _losses(answer):
    from eotcourse import Shannon, Tsallis

    s = torch.tensor([[1.0, 0.2, -0.5], [0.0, 2.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], dtype=torch.float64)
    return torch.stack([answer(R, s, y, 1.6) for R in (Shannon(), Tsallis(1.5))])


exercise(
    "ex-design-4",
    probe=_losses,
    right=lambda R, s, y, tau: R.conjugate(s, tau) + tau * R.omega(y) - (s * y).sum(-1),
    wrong={
        "regulariser without tau": (
            lambda R, s, y, tau: R.conjugate(s, tau) + R.omega(y) - (s * y).sum(-1),
            "At the prediction your loss isn't zero; the price of the regulariser is missing.",
        ),
        "scaled scores": (
            lambda R, s, y, tau: R.conjugate(s, tau) + tau * R.omega(y) - (s * y).sum(-1) / tau,
            "Raw and scaled scores are mixed.",
        ),
        "temperature one": (
            lambda R, s, y, tau: R.conjugate(s) + tau * R.omega(y) - (s * y).sum(-1),
            "The value is taken at another temperature.",
        ),
        "sign of omega": (
            lambda R, s, y, tau: R.conjugate(s, tau) - tau * R.omega(y) - (s * y).sum(-1),
            "The objective subtracts the regulariser, and the loss subtracts the objective.",
        ),
        "no regulariser": (
            lambda R, s, y, tau: R.conjugate(s, tau) - (s * y).sum(-1),
            "For a soft target something is left over at the prediction.",
        ),
        "negative": (
            lambda R, s, y, tau: (s * y).sum(-1) - tau * R.omega(y) - R.conjugate(s, tau),
            "A shortfall is measured from above.",
        ),
    },
)

exercise(
    "ex-design-5",
    right="a",
    wrong={
        "b": ("b", "A common shift is what a multiplier does; look at the theorem about threshold rules."),
        "c": ("c", "Half of a symmetric matrix is symmetric."),
    },
)
