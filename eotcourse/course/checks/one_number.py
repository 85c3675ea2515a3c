"""Answer keys of the page kernel/one-number, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _tile(s, zeta, tau, alpha):
    return (1 + (alpha - 1) * (s / tau - zeta[:, None])).clamp_min(0) ** (1 / (alpha - 1))


def _two_orders(f):
    from eotcourse import Tsallis

    g = torch.Generator().manual_seed(3)
    s = 2 * torch.randn(4, 4, generator=g, dtype=torch.float64)
    return torch.cat(
        [f(s[:, :4], Tsallis(a).threshold(s, 1.7), 1.7, a) for a in (1.5, 3.0)]
    )


exercise(
    "ex-one-number-1",
    probe=_two_orders,
    right=_tile,
    wrong={
        "zeta divided": (
            lambda s, z, tau, al: _tile(s, z / tau, tau, al),
            "The soft maximum comes in scaled units already.",
        ),
        "not divided": (
            lambda s, z, tau, al: _tile(s, z, 1.0, al),
            "The scores are raw: what divides them?",
        ),
        "exponential": (
            lambda s, z, tau, al: (s / tau - z[:, None]).exp(),
            "That is the rule of softmax, order 1.",
        ),
        "exponent": (
            lambda s, z, tau, al: (1 + (al - 1) * (s / tau - z[:, None])).clamp_min(0) ** (al - 1),
            "Look at the exponent: the inverse of a power is another power.",
        ),
        "columns": (
            lambda s, z, tau, al: (1 + (al - 1) * (s / tau - z)).clamp_min(0) ** (1 / (al - 1)),
            "Queries are rows: a soft maximum belongs to one.",
        ),
    },
)

exercise(
    "ex-one-number-2",
    right=514,
    wrong={
        "as many": (513, "There they are equal."),
        "soft maxima forgotten": (512, "Each row keeps one number more."),
        "inputs only": (385, "The output is kept as well."),
        "one array": (130, "How many arrays of this size are there?"),
    },
)

def _delta(p, value, grad, alpha):
    u = torch.where(p > 0, p ** (2 - alpha), 0)
    return (grad * (u @ value)).sum(-1) / u.sum(-1)


def _orders(f):
    t = torch.float64
    p = torch.tensor([[0.6, 0.3, 0.1], [0.8, 0.2, 0.0], [0.2, 0.3, 0.5]], dtype=t)
    v = torch.tensor([[1.0, 0, 2], [0, 3, 1], [-1, 1, 5]], dtype=t)
    g = torch.tensor([[0.3, -1, 1], [1.0, 0.2, 0], [-0.5, 0.5, 2]], dtype=t)
    return torch.cat([torch.as_tensor(f(p, v, g, a)) for a in (1.0, 1.5, 2.0)])


exercise(
    "ex-one-number-3",
    probe=_orders,
    right=_delta,
    wrong={
        "the output": (
            lambda p, v, g, al: (g * (p @ v)).sum(-1),
            "That is right for softmax only.",
        ),
        "zero to the zero": (
            lambda p, v, g, al: (g * (p ** (2 - al) @ v)).sum(-1) / (p ** (2 - al)).sum(-1),
            "At order 2, a key without weight takes part in your mean.",
        ),
        "not divided": (
            lambda p, v, g, al: (g * (torch.where(p > 0, p ** (2 - al), 0) @ v)).sum(-1),
            "A mean divides by the sum of its weights.",
        ),
        "the baseline": (
            lambda p, v, g, al: -_delta(p, v, g, al),
            "That is the baseline, a mean of utilities; look at its sign.",
        ),
    },
)

exercise(
    "ex-one-number-4",
    right=256,
    wrong={
        "the value": (128, "That is the coordinate; the position was asked."),
        "one later": (257, "That is the second of the two that fall together."),
        "nine bits": (512, "Count the bits once more: one of them stands before the point."),
        "eight for the fraction": (511, "Count the bits once more: one of them stands before the point."),
    },
)
