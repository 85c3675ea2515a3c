"""Answer keys of the page kernel/blocks, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _screened(rough, error, alpha, low=-1, high=1, edge=None):
    from eotcourse import Tsallis

    cut = Tsallis(alpha).threshold(rough + low * error) - (edge or 1 / (alpha - 1))
    return rough + high * error > cut


def _rough_rows(f):
    g = torch.Generator().manual_seed(5)
    rough = torch.randn(6, 60, generator=g, dtype=torch.float64)
    error = 0.4 * torch.rand(6, 60, generator=g, dtype=torch.float64)
    found = [f(x, e, a) for x, e in zip(rough, error) for a in (1.25, 1.5, 2.0, 3.0)]
    return torch.stack([torch.as_tensor(x).expand(60) for x in found]).double()


exercise(
    "ex-blocks-1",
    probe=_rough_rows,
    right=_screened,
    wrong={
        "rough as exact": (
            lambda r, e, al: _screened(r, e, al, 0, 0),
            "A key can be lost whose exact score is a little higher.",
        ),
        "the other way round": (
            lambda r, e, al: _screened(r, e, al, 1, -1),
            "Each error is on the wrong side: when could a key with weight be lost?",
        ),
        "upper bounds only": (
            lambda r, e, al: _screened(r, e, al, 1, 1),
            "The soft maximum of upper bounds bounds nothing from below.",
        ),
        "lower bounds only": (
            lambda r, e, al: _screened(r, e, al, -1, -1),
            "The key that is compared may be better than its lower bound.",
        ),
        "largest error": (
            lambda r, e, al: _screened(r, e.max().expand_as(e), al),
            "That is safe, but the errors differ, and fewer keys can do.",
        ),
        "edge of sparsemax": (
            lambda r, e, al: _screened(r, e, al, edge=1.0),
            "How far below the soft maximum weight ends depends on the order.",
        ),
    },
)

def _added(i, j, z, q, k_len):
    return q.new_zeros(k_len, q.shape[-1]).index_add_(0, j, z[:, None] * q[i])


def _assigned(i, j, z, q, k_len):
    dk = q.new_zeros(k_len, q.shape[-1])
    for a, b, c in zip(i.tolist(), j.tolist(), z):
        dk[b] = c * q[a]
    return dk


def _pairs(f):
    i = torch.tensor([0, 0, 1, 2, 2, 3])
    j = torch.tensor([1, 4, 1, 0, 1, 4])
    z = torch.tensor([0.5, -1.0, 2.0, 0.3, -0.7, 1.1], dtype=torch.float64)
    q = torch.arange(12, dtype=torch.float64).reshape(4, 3).sin()
    return f(i, j, z, q, 6)


exercise(
    "ex-blocks-2",
    probe=_pairs,
    right=_added,
    wrong={
        "assigned": (_assigned, "A key that stands in several rows has lost some of its terms."),
        "mean": (
            lambda i, j, z, q, n: (
                _added(i, j, z, q, n)
                / torch.bincount(j, minlength=n).clamp_min(1).to(q.dtype)[:, None]
            ),
            "The terms of a key are summed, not averaged.",
        ),
        "weights forgotten": (
            lambda i, j, z, q, n: _added(i, j, torch.ones_like(z), q, n),
            "Each query comes with its own factor.",
        ),
        "by position": (
            lambda i, j, z, q, n: _added(torch.arange(len(z)) % len(q), j, z, q, n),
            "Which query does the pair at this place of the list belong to?",
        ),
    },
)

exercise(
    "ex-blocks-3",
    right=0.15,
    wrong={
        "scores for nothing": (7 / 40, "The scores are formed, all of them, once."),
        "scores from the list": (7 / 48, "Which of the products is dense in both?"),
        "no price": (1.2, "Multiplications over a list are dearer."),
        "backward only": (5 / 32, "Count both passes; forward there is a list as well."),
        "forward only": (1 / 8, "Count both passes."),
    },
)

def _two_heads(f):
    q = torch.arange(24, dtype=torch.float64).reshape(2, 4, 3).sin()
    dq = (1.7 * torch.arange(24, dtype=torch.float64)).reshape(2, 4, 3).cos()
    return f(q, dq)


exercise(
    "ex-blocks-4",
    probe=_two_heads,
    right=lambda q, dq: -(q * dq).sum((-2, -1)),
    wrong={
        "sign": (lambda q, dq: (q * dq).sum((-2, -1)), "A hotter head has smaller scores."),
        "all heads": (
            lambda q, dq: -(q * dq).sum().expand(len(q)),
            "Each head has a temperature of its own.",
        ),
        "mean over queries": (
            lambda q, dq: -(q * dq).sum(-1).mean(-1),
            "The loss has a term for every query.",
        ),
        "lengths": (
            lambda q, dq: -(q.norm(dim=-1) * dq.norm(dim=-1)).sum(-1),
            "A product of vectors also has an angle.",
        ),
    },
)
