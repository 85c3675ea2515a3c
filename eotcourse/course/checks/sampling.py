"""Answer keys of the page policy/sampling, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-sampling-1",
    right=1.8,
    wrong={
        "mean": (4.2, "That is the average utility. Compare the two estimates it gives."),
        "plain mean": (3.0, "Keys do not count equally here."),
        "none": (0.0, "Then the likely draw says much and the other little; compare them."),
        "squared steps": (
            (0.08 * 5 + 1.28) / 1.36,
            "You weighted with the squared lengths; how often is each drawn?",
        ),
    },
)

exercise(
    "ex-sampling-2",
    probe=lambda f: f(torch.tensor([1.0, 0.5, -2.0, 4.0], dtype=torch.float64)),
    right=lambda r: r - (r.sum() - r) / (len(r) - 1),
    wrong={
        "own included": (lambda r: r - r.mean(), "Your mean contains the reward itself."),
        "divided by M": (
            lambda r: r - (r.sum() - r) / len(r),
            "How many rewards are in your sum?",
        ),
        "only the mean": (
            lambda r: (r.sum() - r) / (len(r) - 1),
            "That is the baseline; what is left of each reward?",
        ),
        "standardised": (
            lambda r: (r - r.mean()) / r.std(),
            "Nobody asked for a standard deviation.",
        ),
    },
)

exercise(
    "ex-sampling-3",
    right=0.0875,
    wrong={
        "other way": (0.8 / 7, "The unbiased estimates are the longer ones."),
        "same": (0.1, "The two estimates are proportional, and not equal."),
        "root": (0.1 * (7 / 8) ** 0.5, "No root is involved: compare the two baselines draw by draw."),
    },
)

def _hard(s, losses, tau):
    p = torch.softmax(s / tau, -1)
    return p * (losses - p @ losses) / tau


exercise(
    "ex-sampling-4",
    probe=lambda f: f(
        torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64),
        torch.tensor([0.3, 2.0, 1.0], dtype=torch.float64),
        1.7,
    ),
    right=_hard,
    wrong={
        "reward": (lambda s, x, t: -_hard(s, x, t), "A step against your vector raises the loss."),
        "no temperature": (
            lambda s, x, t: t * _hard(s, x, t),
            "The scores are raw: what divides them?",
        ),
        "no baseline": (
            lambda s, x, t: torch.softmax(s / t, -1) * x / t,
            "Your row does not sum to zero.",
        ),
        "tau once": (lambda s, x, t: _hard(s / t, x, 1.0 * t), "Your weights divide twice."),
    },
)
