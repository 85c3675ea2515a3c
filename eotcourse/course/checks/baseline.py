"""Answer keys of the page policy/baseline, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _grads(P, v, o, g, tau, axis=-1):
    return P * (g @ v.T - (g * o).sum(axis, keepdim=True)) / tau


def _three(f):
    t = torch.float64
    P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.6, 0.0]], dtype=t)
    v = torch.tensor([[1.0, 0, 2], [0, 1, 1], [-1, 1, 0]], dtype=t)
    g = torch.tensor([[0.3, -1, 1], [1.0, 0.2, 0], [-0.5, 0.5, 2]], dtype=t)
    return f(P, v, P @ v, g, 2.5)


exercise(
    "ex-baseline-1",
    probe=_three,
    right=_grads,
    wrong={
        "wrong axis": (
            lambda P, v, o, g, tau: _grads(P, v, o, g, tau, axis=0),
            "Your rows do not sum to zero: look at the axis of the sum.",
        ),
        "no delta": (
            lambda P, v, o, g, tau: P * (g @ v.T) / tau,
            "Your rows do not sum to zero: against what is each key compared?",
        ),
        "added": (
            lambda P, v, o, g, tau: P * (g @ v.T + (g * o).sum(-1, keepdim=True)) / tau,
            "Both terms have the sign of a gradient; a difference was wanted.",
        ),
        "no temperature": (
            lambda P, v, o, g, tau: _grads(P, v, o, g, 1.0),
            "The scores are raw: what divides them?",
        ),
        "descent": (
            lambda P, v, o, g, tau: -_grads(P, v, o, g, tau),
            "That is the direction of descent; the gradient was asked.",
        ),
    },
)

exercise(
    "ex-baseline-2",
    right=0.1,
    wrong={
        "radii": (0.1 * 8 / 32, "Radius or diameter?"),
        "no temperature": (0.8, "The temperature divides the scores."),
        "temperature 64": (0.0125, "The default temperature is the root of d."),
        "no four": (0.4, "The bound has a constant in its denominator."),
        "per unit": (1.0, "That is the bound on the derivative; how far does the query go?"),
    },
)

exercise(
    "ex-baseline-3",
    right=2.0,
    wrong={
        "softmax": (0.5, "That is what softmax gives; what is the response of sparsemax?"),
        "no baseline": (10.0, "Against what is each utility held?"),
        "signed": (0.0, "That is the sum of the gradients; absolute values were asked."),
        "entmax 1.5": (1.0, "That is the member of order 1.5."),
    },
)

_one, _two = 0.99**0.5, 0.1
exercise(
    "ex-baseline-4",
    right=2 * _one * _two / (_one + _two),
    wrong={
        "softmax": (2 * 0.99 * 0.01, "That is softmax at these weights."),
        "half": (_one * _two / (_one + _two), "The matrix with entries 1 and -1 has a norm of its own."),
        "sparsemax": (1.0, "That is sparsemax, which ignores the weights."),
        "weights": (0.5 * _one * _two, "Divide by the sum of the responses."),
    },
    tol=5e-5,
)
