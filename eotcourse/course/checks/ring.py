"""Answer keys of the page kernel/ring, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-ring-1",
    probe=lambda f: [[f(r, h, 4) for h in range(4)] for r in range(4)],
    right=lambda rank, hop, ranks: (rank - hop) % ranks,
    wrong={
        "other way": (lambda r, h, p: (r + h) % p, "Blocks go to the next rank; which one sends to you?"),
        "not round": (lambda r, h, p: r - h, "There is no rank with a negative number."),
        "own": (lambda r, h, p: r, "The queries stay; the keys move."),
        "turned round": (lambda r, h, p: (h - r) % p, "Before the first hop everybody has its own."),
    },
)

exercise(
    "ex-ring-2",
    probe=lambda f: [f(16, 4), f(64, 4), f(60, 6)],
    right=lambda n, P: 1 + (P - 1) / (n + 1),
    wrong={
        "contiguous": (lambda n, P: 2 - (n // P + 1) / (n + 1), "That is one part of the sequence each."),
        "balanced": (lambda n, P: 1.0, "Nearly, but the last rank has a little more."),
        "first to last": (
            lambda n, P: (n / P * P * (n / P - 1) / 2 + n) / (n / P * P * (n / P - 1) / 2 + n / P),
            "Compare the busiest with the mean, not with the idlest.",
        ),
        "difference": (lambda n, P: (P - 1) / (n + 1), "By how much it exceeds the mean, yes; the question is the ratio."),
    },
)

exercise(
    "ex-ring-3",
    probe=lambda f: [f(1, 100, 4, 2, 2), f(3, 50, 8, 8, 2), f(20, 20, 16, 4, 4)],
    right=lambda m, b, d, heads, kv_heads: m * heads * (2 * d + 1) / (b * kv_heads * 2 * d),
    wrong={
        "without the state": (
            lambda m, b, d, h, k: m * h * d / (b * k * 2 * d),
            "A query that forgets what it has met cannot merge.",
        ),
        "without the soft maximum": (
            lambda m, b, d, h, k: m * h * 2 * d / (b * k * 2 * d),
            "Outputs alone do not merge.",
        ),
        "keys only": (
            lambda m, b, d, h, k: m * h * (2 * d + 1) / (b * k * d),
            "The values of the block travel too.",
        ),
        "heads forgotten": (
            lambda m, b, d, h, k: m * (2 * d + 1) / (b * 2 * d),
            "Queries and keys need not have equally many heads.",
        ),
        "upside down": (
            lambda m, b, d, h, k: b * k * 2 * d / (m * h * (2 * d + 1)),
            "Queries over keys was asked for.",
        ),
    },
)

def _blocks(f):
    t = torch.float64
    theta = torch.tensor([[[0.0, 1.0], [0.5, 0.2]], [[-0.5, -3.0], [-1.2, -4.0]],
                          [[-3.0, -2.5], [-2.0, -5.0]], [[-2.0, -9.0], [0.4, -9.0]],
                          [[0.6, -9.0], [0.4, -9.0]]], dtype=t)
    zeta = torch.tensor([1.2, 0.9], dtype=t)
    return torch.stack([torch.as_tensor(f(theta, zeta, a)).expand(5) for a in (1.5, 2.0)]).double()


exercise(
    "ex-ring-4",
    probe=_blocks,
    right=lambda theta, zeta, alpha: (theta.amax(-1) <= zeta - 1 / (alpha - 1)).all(-1),
    wrong={
        "any query": (
            lambda th, z, a: (th.amax(-1) <= z - 1 / (a - 1)).any(-1),
            "One query that does not need the block is not enough.",
        ),
        "no edge": (
            lambda th, z, a: (th.amax(-1) <= z).all(-1),
            "A score may lie below the soft maximum and still have weight.",
        ),
        "edge of sparsemax": (
            lambda th, z, a: (th.amax(-1) <= z - 1).all(-1),
            "How far below the soft maximum weight ends depends on the order.",
        ),
        "the worst key": (
            lambda th, z, a: (th.amin(-1) <= z - 1 / (a - 1)).all(-1),
            "Every key of the block must be without weight.",
        ),
        "the other way round": (
            lambda th, z, a: (th.amax(-1) > z - 1 / (a - 1)).any(-1),
            "Those are the blocks that are needed.",
        ),
    },
)
