"""Answer keys of the page policy/two-advantages, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _ahead(f):
    s = torch.tensor([2.0, 1.0, -1.0], dtype=torch.float64)
    b = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    return torch.stack([f(s, 1.5, b), f(1e4 + s, 0.5, b)])


exercise(
    "ex-two-advantages-1",
    probe=_ahead,
    right=lambda s, tau, b: s - tau * torch.logsumexp(s / tau + b, -1),
    wrong={
        "no prior": (
            lambda s, tau, b: s - tau * torch.logsumexp(s / tau, -1),
            "The prior has no influence on your value.",
        ),
        "prior divided": (
            lambda s, tau, b: s - tau * torch.logsumexp((s + b) / tau, -1),
            "In which units is a log-prior?",
        ),
        "log p": (
            lambda s, tau, b: tau * torch.log_softmax(s / tau + b, -1),
            "Your vector is tau log p; the advantage is measured against the prior.",
        ),
        "value in scaled units": (
            lambda s, tau, b: s - torch.logsumexp(s / tau + b, -1),
            "Scores and value must have the same unit.",
        ),
        "overflow": (
            lambda s, tau, b: s - tau * ((s / tau).exp() * b.exp()).sum(-1).log(),
            "Large scores overflow.",
        ),
    },
    tol=1e-8,
)

exercise(
    "ex-two-advantages-2",
    right=math.log(1 - math.exp(-0.1)),
    wrong={
        "mean zero": (0.1 * math.exp(-0.1) / (1 - math.exp(-0.1)), "Backward advantages have mean zero; these do not."),
        "opposite": (0.1, "No forward advantage is positive here."),
        "the weight": (1 - math.exp(-0.1), "That is the weight of the second key."),
        "complement": (-0.9, "It is not the advantages that sum to something."),
    },
    tol=1e-5,
)

exercise(
    "ex-two-advantages-3",
    right=0.1875,
    wrong={
        "none": (0.0, "That is so for softmax."),
        "sign": (-0.1875, "Which of the two is larger?"),
        "not halved": (0.375, "The regulariser of order 2 has a factor in front."),
        "the value": (1.0625, "That is the value."),
        "the soft maximum": (1.25, "That is the soft maximum."),
    },
)

exercise(
    "ex-two-advantages-4",
    right=-0.125,
    wrong={
        "plus": (0.125, "A key with a better reward should get a higher score from descent."),
        "twice": (-0.25, "Something is missing: the temperature, or the mean that is subtracted?"),
        "no weight": (-0.5, "One factor in front of the advantage is missing."),
    },
)
