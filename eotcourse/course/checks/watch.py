"""Answer keys of the page policy/watch, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-watch-1",
    right=-0.18,
    wrong={
        "sign": (0.18, "Then the whole row would be better than its own average."),
        "equal": (-0.02, "The two groups do not have the same weight."),
        "inverted": (-0.02 / 9, "The lighter group must balance the heavier one."),
    },
)

def _spread_of(f):
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    return f(p, torch.tensor([2.0, -1.0, 4.0], dtype=torch.float64))


exercise(
    "ex-watch-2",
    probe=_spread_of,
    right=lambda p, a: (p @ (a - p @ a) ** 2).sqrt(),
    wrong={
        "no baseline": (lambda p, a: (p @ a**2).sqrt(), "Add 7 to all utilities: does it change?"),
        "no weights": (lambda p, a: (a - p @ a).square().mean().sqrt(), "Not all keys count equally."),
        "variance": (lambda p, a: p @ (a - p @ a) ** 2, "In which unit is your number?"),
        "plain": (lambda p, a: a.std(), "This is the spread of a list that has no weights."),
    },
)

exercise(
    "ex-watch-3",
    right=0.05,
    wrong={
        "no temperature": (0.2, "The temperature divides raw scores, in each Jacobian."),
        "temperature once": (0.1, "It acts on the way forward and on the way back."),
        "one coordinate": (0.025, "Both weights move."),
        "advantage squared": (0.4, "The step goes through the weights as well."),
        "loss": (-0.05, "Which way does descent in the loss move the utility?"),
    },
)
