"""Answer keys of the page geometry/gradients, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-gradients-1",
    right=14,
    wrong={
        "one too few": (13, "After that many steps it still has less than half."),
        "not rounded": (math.log(1e6 - 1), "A number of steps is whole."),
        "descent": (500013, "That is the time of plain descent."),
        "base 2": (20, "The weights are multiplied by e in each step, not by 2."),
        "base 10": (6, "The weights are multiplied by e in each step, not by 10."),
    },
)

def _renewed(f):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    a = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    return f(p, -p * (a - p @ a) / 2.5, 2.5, 0.4)


exercise(
    "ex-gradients-2",
    probe=_renewed,
    right=lambda p, g, tau, eta: torch.softmax(p.log() - eta * tau * g / p, -1),
    wrong={
        "ascent": (
            lambda p, g, tau, eta: torch.softmax(p.log() + eta * tau * g / p, -1),
            "The loss rises along your step.",
        ),
        "descent": (
            lambda p, g, tau, eta: torch.softmax(p.log() - eta * tau * g, -1),
            "That is a step of plain descent: a light key is still pushed lightly.",
        ),
        "no temperature": (
            lambda p, g, tau, eta: torch.softmax(p.log() - eta * g / p, -1),
            "The gradient was divided by the temperature; the utilities were not.",
        ),
        "raw chart": (
            lambda p, g, tau, eta: torch.softmax(p.log() - eta * tau**2 * g / p, -1),
            "That is the displacement of the raw scores. Which scores does p.log() stand for?",
        ),
        "in the weights": (
            lambda p, g, tau, eta: p - eta * tau * g,
            "A natural step, but taken in the weights; the step was to be in the scaled scores.",
        ),
    },
)

exercise(
    "ex-gradients-3",
    right=0.1365 / 0.07275,
    tol=6e-5,
    wrong={
        "natural": (0.7 / 0.95, "That is the limit for a natural step."),
        "best of all": (1.0, "The best key can lose weight; the opening example is one."),
        "push above zero": (0.7, "Mind that the mean contains the third key too; and a push up is not enough."),
        "largest push": (
            (0.7 * 0.3 + 0.05 * 0.7) / (0.05 * 0.95 + 0.7 * 0.05),
            "You compare with the push on the first key; compare with the mean push.",
        ),
    },
)

exercise(
    "ex-gradients-4",
    right=1382,
    wrong={
        "without the two": (691, "Look at the factor under the root."),
        "not squared": (139, "Both sides have to be squared."),
        "base 10": (600, "The logarithm is natural."),
        "rounded down": (1381, "That is one round too few."),
    },
)
