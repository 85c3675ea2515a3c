"""Answer keys of the page geometry/sphere, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _rows(f):
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    q = torch.tensor([0.0, 0.36, 0.64], dtype=torch.float64)
    r = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return tuple(float(f(a, b)) for a, b in ((p, q), (p, r), (q, r)))


exercise(
    "ex-sphere-1",
    probe=_rows,
    right=lambda p, q: 2 * torch.acos((p * q).sqrt().sum()),
    wrong={
        "angle": (
            lambda p, q: torch.acos((p * q).sqrt().sum()),
            "That is the angle. How large is the sphere?",
        ),
        "no root": (
            lambda p, q: 2 * torch.acos((p * q).sum()),
            "Which vectors have length one, the rows or their square roots?",
        ),
        "chord": (
            lambda p, q: 2 * (p.sqrt() - q.sqrt()).norm(),
            "You went through the ball; walk on its surface.",
        ),
        "euclid": (
            lambda p, q: (p - q).norm(),
            "That is the distance of sparsemax's geometry.",
        ),
    },
)

exercise(
    "ex-sphere-2",
    right=0.75,
    wrong={
        "straight": (2 / 3, "That is the same curve, but not at constant speed."),
        "no square": (3**0.5 / 2, "That is a coordinate on the sphere of radius one."),
        "other key": (0.25, "That is the weight of B."),
        "half the way": (math.cos(math.pi / 12) ** 2, "How large is the angle between two corners?"),
    },
)

exercise(
    "ex-sphere-3",
    right="b",
    wrong={
        "mirror": ("a", "A symmetric pair is not enough: the middle key has a ratio too."),
        "one key kept": ("c", "A key that keeps its weight has the ratio 1, which counts."),
    },
)

def _scores(f):
    s = torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64)
    t = torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64)
    return float(f(s, t, 2.0))


def _kl(p, q):
    return (p * (p / q).log()).sum()


exercise(
    "ex-sphere-4",
    probe=_scores,
    right=lambda s, t, tau: tau * _kl(torch.softmax(s / tau, -1), torch.softmax(t / tau, -1)),
    wrong={
        "exchanged": (
            lambda s, t, tau: tau * _kl(torch.softmax(t / tau, -1), torch.softmax(s / tau, -1)),
            "Which of the two rows is the candidate, and which the optimum?",
        ),
        "no temperature": (
            lambda s, t, tau: _kl(torch.softmax(s / tau, -1), torch.softmax(t / tau, -1)),
            "A shortfall has the unit of a score.",
        ),
        "no temperature in the weights": (
            lambda s, t, tau: tau * _kl(torch.softmax(s, -1), torch.softmax(t, -1)),
            "What divides raw scores?",
        ),
    },
)
