"""Answer keys of the page taste, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-taste-1",
    right=1 / math.log(9),
    wrong={
        "upside down": (math.log(9), "Does a larger temperature sharpen the weights?"),
        "ratio ten": (1 / math.log(10), "0.9 against what is left: which ratio is that?"),
        "no ratio": (1 / math.log(0.9 / 1), "Compare the two weights with each other, not with 1."),
    },
    tol=1e-6,
)

exercise(
    "ex-taste-2",
    right=(10.0, 0.0),
    wrong={
        "scaled": ((5.0, 0.0), "V is in raw units: what multiplies the log-sum-exp?"),
        "tau twice": ((20.0, 0.0), "The temperature divides before it multiplies."),
        "three keys": ((30.0, 0.0), "Three keys share one unit of weight."),
        "nothing": ((0.0, 0.0), "The weights do forget a common shift. Does the value?"),
    },
    tol=1e-9,
)

_P = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
_G = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

exercise(
    "ex-taste-3",
    probe=lambda f: f(_P.clone(), _G.clone(), 2.0),
    right=lambda p, g, tau: p * (g - p @ g) / tau,
    wrong={
        "sign": (lambda p, g, tau: -p * (g - p @ g) / tau, "g is the gradient, not its negative."),
        "no baseline": (lambda p, g, tau: p * g / tau, "Raising one weight lowers the others."),
        "plain mean": (
            lambda p, g, tau: p * (g - g.mean()) / tau,
            "The keys do not count equally in the mean: which weights do they have?",
        ),
        "no tau": (lambda p, g, tau: p * (g - p @ g), "The scores are raw: one factor is missing."),
    },
)
