"""Answer keys of the page family/duality, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _jacobian(rule, s):
    return torch.func.jacrev(rule)(s)


def _quotient(s):
    return s**3 / (s**3).sum(-1, keepdim=True)


def _probe(asymmetry):
    s = torch.tensor([0.4, 1.1, 0.8], dtype=torch.float64)
    return float(asymmetry(_quotient, s)), float(asymmetry(lambda s: torch.softmax(s, -1), s))


exercise(
    "ex-duality-1",
    probe=_probe,
    right=lambda rule, s: (_jacobian(rule, s) - _jacobian(rule, s).T).abs().max(),
    wrong={
        "sum": (
            lambda rule, s: (_jacobian(rule, s) + _jacobian(rule, s).T).abs().max(),
            "Your number is not zero for a symmetric matrix.",
        ),
        "no absolute value": (
            lambda rule, s: (_jacobian(rule, s) - _jacobian(rule, s).T).sum(),
            "Positive and negative entries of J - J^T cancel in a sum.",
        ),
        "half": (
            lambda rule, s: (_jacobian(rule, s) - _jacobian(rule, s).T).abs().max() / 2,
            "That is the antisymmetric part; the question asks for the difference itself.",
        ),
        "norm": (
            lambda rule, s: (_jacobian(rule, s) - _jacobian(rule, s).T).norm(),
            "That is a length; the question asks for the largest entry.",
        ),
        "row sums": (
            lambda rule, s: _jacobian(rule, s).sum(-1).abs().max(),
            "You test the shift; that is a consequence of symmetry, not symmetry.",
        ),
    },
)

exercise(
    "ex-duality-2",
    right=-0.125,
    wrong={
        "sign": (0.125, "Which of the two keys reacts more strongly to its own score?"),
        "one weight": (-0.5, "Both weights enter the formula."),
        "slopes added": (0.375, "The formula has the difference of the slopes."),
        "not normalised": (-2.0, "These are amplitudes, not weights: divide."),
        "derivatives of f": (0.0, "The slopes are those of log f, not those of f."),
    },
    tol=1e-9,
)

def _half_moon(d):
    return (d * math.atan(d) - math.log(1 + d * d) / 2) / math.pi


exercise(
    "ex-duality-3",
    probe=lambda f: [float(f(x, y)) for x, y in ((0.0, 0.0), (1.0, 0.5), (-2.0, 1.0))],
    right=lambda x, y: (x + y) / 2 + _half_moon(x - y),
    wrong={
        "only the difference": (
            lambda x, y: _half_moon(x - y),
            "Your two partial derivatives add up to zero; the weights add up to one.",
        ),
        "half of x only": (
            lambda x, y: x / 2 + _half_moon(x - y),
            "Check the derivative in y.",
        ),
        "no pi": (
            lambda x, y: (x + y) / 2 + math.pi * _half_moon(x - y),
            "A factor is missing in G.",
        ),
        "second derivative": (
            lambda x, y: (x + y) / 2 + 1 / (math.pi * (1 + (x - y) ** 2)),
            "You differentiated the weights; integrate them.",
        ),
        "log not halved": (
            lambda x, y: (x + y) / 2
            + ((x - y) * math.atan(x - y) - math.log(1 + (x - y) ** 2)) / math.pi,
            "Differentiate your G: one half is missing.",
        ),
    },
)

def _sine(p):
    return -np.log(np.sin(np.pi * p)) / np.pi


exercise(
    "ex-duality-4",
    probe=lambda f: [float(f(p)) for p in (0.5, 0.25, 0.9)],
    right=_sine,
    wrong={
        "sign": (
            lambda p: -_sine(p),
            "Is your function convex?",
        ),
        "no pi": (lambda p: np.pi * _sine(p), "The chain rule leaves a factor."),
        "derivative": (
            lambda p: -1 / np.tan(np.pi * p),
            "That is the derivative of the regulariser; integrate it.",
        ),
        "no pi inside": (
            lambda p: -np.log(np.sin(p) / np.sin(0.5)),
            "The argument of the trigonometric function is not right.",
        ),
        "entropy": (
            lambda p: p * np.log(p) + (1 - p) * np.log(1 - p) + np.log(2),
            "That regulariser belongs to softmax.",
        ),
    },
)
