"""Answer keys of the page transport/sinkhorn, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-sinkhorn-1",
    right=0.01 / math.log(100),
    wrong={
        "both entropies": (0.01 / (2 * math.log(100)), "That is safe, but one of the two entropies is enough."),
        "number of places": (0.01 / 100, "Entropy grows with the logarithm of the number of places."),
        "inverse": (0.01 * math.log(100), "More places must make the allowed weight smaller."),
        "bits": (0.01 / math.log2(100), "The entropy here is in nats."),
    },
    tol=1e-7,
)

exercise(
    "ex-sinkhorn-2",
    probe=lambda f: np.stack([
        np.asarray(f(torch.tensor([[0.0, 1.0, 2.0], [1.5, 0.2, 0.7], [2.0, 0.4, 0.1]]).double() + cost,
                     torch.tensor([0.3, -0.2, 0.5]).double(),
                     torch.tensor([0.2, 0.5, 0.3]).double(), eps))
        for cost, eps in ((0.0, 0.5), (1.0, 0.001))
    ]),
    right=lambda C, g, mu, eps: eps * (mu.log() - torch.logsumexp((g - C) / eps, -1)),
    wrong={
        "mu left out": (lambda C, g, mu, eps: -eps * torch.logsumexp((g - C) / eps, -1),
                        "This makes the row sums one; they should be mu."),
        "eps left out in front": (lambda C, g, mu, eps: mu.log() - torch.logsumexp((g - C) / eps, -1),
                                  "The potential has the unit of the cost: where is eps in front?"),
        "mu without log": (lambda C, g, mu, eps: mu - eps * torch.logsumexp((g - C) / eps, -1),
                           "Take the logarithm of the whole equation, mu included."),
        "sign": (lambda C, g, mu, eps: eps * (mu.log() - torch.logsumexp((C - g) / eps, -1)),
                 "Look at the sign of the exponent: dear routes carry little."),
        "columns": (lambda C, g, mu, eps: eps * (mu.log() - torch.logsumexp((g[:, None] - C) / eps, 0)),
                    "That is a column step: g belongs to the columns, and the sum runs along a row."),
        "hard": (lambda C, g, mu, eps: (C - g).amin(-1), "That is the limit without entropy."),
        "underflow": (
            lambda C, g, mu, eps: eps * (mu / (torch.exp(-C / eps) @ torch.exp(g / eps))).log(),
            "Right on paper. For C = 1 and eps = 0.001 your kernel is zero: stay in logarithms."),
        "underflow, without the kernel": (
            lambda C, g, mu, eps: eps * (mu / torch.exp((g - C) / eps).sum(-1)).log(),
            "Right on paper. For C = 1 and eps = 0.001 your exponentials vanish: take the largest out first."),
    },
)

exercise(
    "ex-sinkhorn-3",
    right=[True, True, False, True, True],
    wrong={
        "rows only": ([True, True, False, False, False], "Both marginals are given: which terms can u absorb, and which v?"),
        "a cost is a cost": ([False, True, False, False, False], "Every plan has the same row sums. What does a row term add to its bill?"),
        "the scale does not matter": ([True, True, True, True, True], "Only the ratio of cost and eps enters K."),
        "squares are special": ([True, True, False, True, False], "What else besides the inner product is in the square?"),
    },
)
