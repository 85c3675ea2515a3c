"""Answer keys of the page geometry/one-matrix, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-one-matrix-1",
    right=0.96,
    wrong={
        "scaled": (0.24, "That is the information about a scaled score."),
        "Hessian": (0.48, "That is the second derivative of the value."),
        "multiplied": (0.06, "A low temperature makes the row more sensitive to a raw score."),
        "uncentred": (2.4, "The gradient of the logarithm of a weight is not a one-hot vector."),
    },
)

exercise(
    "ex-one-matrix-2",
    right=3.0,
    wrong={
        "sign": (-3.0, "A key whose score should rise has a negative gradient."),
        "no temperature": (1.5, "The gradient is in raw scores: the temperature has divided it."),
        "twice": (6.0, "The temperature has acted once only."),
        "differences of the gradient": (0.87, "Each entry contains its key's weight."),
    },
)

def _undo(p, v, before=True, after=True, under=False):
    on = (p > 0).to(p.dtype)
    weight = p if under else on / on.sum()
    x = on * v
    if before:
        x = on * (x - (weight * x).sum())
    x = x / torch.where(p > 0, p, 1.0)
    if after:
        x = on * (x - (weight * x).sum())
    return x


def _case(f):
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    return f(p, torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64))


exercise(
    "ex-one-matrix-3",
    probe=_case,
    right=_undo,
    wrong={
        "division only": (
            lambda p, v: _undo(p, v, False, False),
            "Compare the sum of your result with the sum of a shortest solution.",
        ),
        "not centred first": (
            lambda p, v: _undo(p, v, before=False),
            "A constant vector should be sent to zero.",
        ),
        "not centred last": (
            lambda p, v: _undo(p, v, after=False),
            "Your result has a part along the constants.",
        ),
        "mean under the weights": (
            lambda p, v: _undo(p, v, under=True),
            "A projection that is orthogonal leaves a sum of zero. Which mean does that?",
        ),
        "the matrix itself": (
            lambda p, v: p * (v - (p * v).sum()),
            "That multiplies by the matrix.",
        ),
        "all keys": (
            lambda p, v: _undo(p + 1e-300, v),
            "The keys without weight take part in your means.",
        ),
    },
    tol=1e-8,
)

exercise(
    "ex-one-matrix-4",
    right=2.25,
    wrong={
        "the potential": (0.25, "That is the second derivative of the value."),
        "slope": (1.5, "That is the slope of the output; the loss is quadratic in it."),
        "one value": (0.5625, "Both weights move when one score does."),
        "J once": (9.0, "The Jacobian enters twice."),
    },
)
