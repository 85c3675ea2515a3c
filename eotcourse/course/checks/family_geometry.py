"""Answer keys of the page geometry/family-geometry, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _squares(f):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    v = torch.tensor([0.3, -0.4, 0.1], dtype=torch.float64)
    return tuple(float(f(p, v, a, t)) for a, t in ((1.0, 2.0), (1.5, 0.5), (2.0, 3.0)))


exercise(
    "ex-family-geometry-1",
    probe=_squares,
    right=lambda p, v, a, t: t * (v**2 * p ** (a - 2)).sum(),
    wrong={
        "jacobian": (
            lambda p, v, a, t: (v**2 * p ** (2 - a)).sum() / t,
            "That is the inverse: what maps gradients to steps.",
        ),
        "no temperature": (
            lambda p, v, a, t: (v**2 * p ** (a - 2)).sum(),
            "What stands in front of the regulariser?",
        ),
        "softmax for all": (
            lambda p, v, a, t: t * (v**2 / p).sum(),
            "That is softmax's ruler; the order must enter.",
        ),
        "length": (
            lambda p, v, a, t: (t * (v**2 * p ** (a - 2)).sum()) ** 0.5,
            "The square was asked for.",
        ),
    },
)

exercise(
    "ex-family-geometry-2",
    right=0.7,
    wrong={
        "sum": (1.1, "You moved the rows one after the other; there is a diagonal."),
        "square": (0.49, "That is the square of a distance."),
        "largest": (0.6, "All rows count."),
        "mean": (1.1 / 3, "A product does not average its rows."),
    },
)

exercise(
    "ex-family-geometry-3",
    right=0.5,
    wrong={
        "unchanged": (1.0, "That is softmax's answer."),
        "one copy": (0.25, "There are two copies."),
        "doubled": (2.0, "Each copy moves half as far, and lengths are squared."),
        "root": (0.5**0.5, "That is the factor of the length."),
    },
)

exercise(
    "ex-family-geometry-4",
    right=3 / 32,
    wrong={
        "no temperature": (3 / 16, "What does the temperature do to lengths? Hotter is larger, and larger is flatter."),
        "temperature multiplied": (3 / 8, "Hotter is larger, and larger is flatter."),
        "softmax": (1 / 8, "That is the sphere of softmax."),
        "no keys": (1 / 32, "The number of keys enters."),
    },
)
