"""Answer keys of the page geometry/dually-flat, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _cooled(f):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return f(p, 2.0), f(p, 0.5)


exercise(
    "ex-dually-flat-1",
    probe=_cooled,
    right=lambda p, c: p**c / (p**c).sum(),
    wrong={
        "warmed": (
            lambda p, c: p ** (1 / c) / (p ** (1 / c)).sum(),
            "Your row became flatter, and it should become sharper for c above 1.",
        ),
        "not normalised": (lambda p, c: p**c, "Your weights do not sum to one."),
        "softmax of weights": (
            lambda p, c: torch.softmax(c * p, -1),
            "Weights are not scores; take their logarithm first.",
        ),
        "straight in the weights": (
            lambda p, c: 1 / 3 + c * (p - 1 / 3),
            "That is straight in the weights; temperature is straight in the scores.",
        ),
    },
)

exercise(
    "ex-dually-flat-2",
    right=0.75,
    wrong={
        "m-geodesic": (0.7, "That is half way in the weights."),
        "sphere": (0.72360679775, "That is half way on the sphere.", ),
        "ratio halved": (5 / 6, "Not the ratio but its logarithm moves evenly."),
        "other key": (0.25, "That is the second weight."),
    },
)

exercise(
    "ex-dually-flat-3",
    right=0.85,
    wrong={
        "right angle": (0.7, "The angle is not right: the mean scores differ."),
        "temperature multiplied": (1.3, "The multiplier is one over the temperature."),
        "other sign": (0.55, "A larger mean score takes the row farther from the prior."),
        "squares": (0.29**0.5, "These are divergences; they already play the part of squares."),
    },
)

exercise(
    "ex-dually-flat-4",
    right="b",
    wrong={
        "arrow": ("a", "That arrow holds for every member."),
        "temperature": ("c", "A temperature changes the length of the step, not its direction."),
    },
)
