"""Answer keys of the page policy/advantage, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _row(f):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    value = torch.tensor([[1.0, 0], [0, 1], [-1, 1]], dtype=torch.float64)
    return f(p, value, torch.tensor([-0.7, 0.5], dtype=torch.float64), 2.5)


def _push(p, value, g, tau):
    use = -value @ g
    return p * (use - p @ use) / tau


exercise(
    "ex-advantage-1",
    probe=_row,
    right=_push,
    wrong={
        "the gradient": (
            lambda p, v, g, tau: -_push(p, v, g, tau),
            "Take a small step along your vector: the loss rises.",
        ),
        "no temperature": (
            lambda p, v, g, tau: _push(p, v, g, 1.0),
            "The scores are raw: what divides them?",
        ),
        "no baseline": (
            lambda p, v, g, tau: p * (-v @ g) / tau,
            "Your row does not sum to zero.",
        ),
        "plain mean": (
            lambda p, v, g, tau: p * ((-v @ g) - (-v @ g).mean()) / tau,
            "The mean of a softmax row is taken under its weights.",
        ),
        "no weight": (
            lambda p, v, g, tau: ((-v @ g) - p @ (-v @ g)) / tau,
            "A key with little weight should move its score little.",
        ),
    },
)

exercise(
    "ex-advantage-2",
    right=-1.0,
    wrong={
        "plus": (1.0, "A better key should get a higher score from descent."),
        "p-weighted mean": (-0.6, "That is the mean under the weights; this is not softmax."),
        "softmax": (-0.42, "That is the formula of softmax."),
        "all keys": (-(1 - 10 / 3) / 0.5, "Your mean contains a key that has no response."),
        "no temperature": (-0.5, "The scores are raw: what divides them?"),
        "times tau": (-0.25, "The temperature divides."),
    },
)

exercise(
    "ex-advantage-3",
    right=0.05,
    wrong={
        "unchanged": (0.4, "That is the gradient in the scaled score."),
        "twice": (0.4 / 64, "The temperature has acted twice."),
        "multiplied": (3.2, "A larger temperature makes the row less sensitive to a raw score."),
    },
)

exercise(
    "ex-advantage-4",
    right=2.0,
    wrong={
        "none": (1.0, "Then freezing would not matter: look at what else depends on the scores."),
        "half": (0.5, "You have divided in the other direction."),
        "sign": (-2.0, "Compare with the gradient of R, which already has the sign of a reward."),
        "zero": (0.0, "The two terms have the same sign."),
    },
)
