"""Answer keys of the page kernel/merging, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _three_blocks(f):
    t = torch.float64
    zetas = torch.tensor([[0.3, 2.0, -1.0], [1.2, 0.1, 0.4], [-0.5, 1.0, -torch.inf]], dtype=t)
    outs = torch.arange(27, dtype=t).reshape(3, 3, 3).sin()
    outs[2, 2] = 0
    return f(zetas, outs)


exercise(
    "ex-merging-1",
    probe=_three_blocks,
    right=lambda z, o: (torch.softmax(z, 0)[..., None] * o).sum(0),
    wrong={
        "wrong axis": (
            lambda z, o: (torch.softmax(z, 1)[..., None] * o).sum(0),
            "Your weights sum to one over the rows; which axis are the blocks?",
        ),
        "average": (lambda z, o: o.mean(0), "A block with better keys must count more."),
        "shares of the soft maxima": (
            lambda z, o: ((z / z.sum(0))[..., None] * o).sum(0),
            "A soft maximum is the logarithm of a mass, and may be negative.",
        ),
        "not normalised": (
            lambda z, o: (z.exp()[..., None] * o).sum(0),
            "The weights of the blocks must sum to one.",
        ),
        "winner": (
            lambda z, o: o.gather(0, z.argmax(0)[None, :, None].expand(1, -1, o.shape[-1]))[0],
            "The best block does not have all the weight.",
        ),
    },
)

def _forget(zeta, out, old, out_old):
    rest = zeta + torch.log1p(-(old - zeta).exp())
    return rest, (zeta - rest).exp()[:, None] * out - (old - rest).exp()[:, None] * out_old


def _cache(f):
    t = torch.float64
    zeta, old = torch.tensor([1.5, 0.2, 3.0], dtype=t), torch.tensor([0.3, -1.0, 2.8], dtype=t)
    out = torch.arange(6, dtype=t).reshape(3, 2).sin()
    out_old = torch.arange(6, dtype=t).reshape(3, 2).cos()
    rest, left = f(zeta, out, old, out_old)
    return torch.cat([torch.as_tensor(rest)[:, None], torch.as_tensor(left)], -1)


exercise(
    "ex-merging-2",
    probe=_cache,
    right=_forget,
    wrong={
        "plain difference": (
            lambda z, o, zo, oo: (_forget(z, o, zo, oo)[0], o - oo),
            "Outputs are means; subtract sums.",
        ),
        "difference of soft maxima": (
            lambda z, o, zo, oo: (z - zo, _forget(z, o, zo, oo)[1]),
            "Soft maxima do not subtract; their exponentials do.",
        ),
        "not rescaled": (
            lambda z, o, zo, oo: (
                _forget(z, o, zo, oo)[0],
                o - (zo - z).exp()[:, None] * oo,
            ),
            "What is left must be divided by its own mass.",
        ),
        "merged again": (
            lambda z, o, zo, oo: (
                torch.logaddexp(z, zo),
                torch.sigmoid(z - zo)[:, None] * o + torch.sigmoid(zo - z)[:, None] * oo,
            ),
            "That puts the old block in twice.",
        ),
    },
)

def _shards(f):
    from eotcourse import Tsallis

    g = torch.Generator().manual_seed(2)
    theta = torch.randn(4, 40, generator=g, dtype=torch.float64)
    theta = theta * torch.tensor([[0.5], [1.0], [1.5], [1.0]], dtype=torch.float64)
    found = [f(theta, Tsallis(a).threshold(theta), a) for a in (1.5, 3.0)]
    return torch.stack([torch.as_tensor(x).expand(4, 40) for x in found]).double()


exercise(
    "ex-merging-3",
    probe=_shards,
    right=lambda theta, zetas, alpha: theta > zetas.max() - 1 / (alpha - 1),
    wrong={
        "own cut": (
            lambda th, z, al: th > z[:, None] - 1 / (al - 1),
            "That is safe, but some of these keys can be excluded.",
        ),
        "lowest": (
            lambda th, z, al: th > z.min() - 1 / (al - 1),
            "That is safe, but which of the bounds is the sharpest?",
        ),
        "no edge": (
            lambda th, z, al: th > z.max(),
            "A score may lie below the soft maximum and still have weight.",
        ),
        "edge of sparsemax": (
            lambda th, z, al: th > z.max() - 1,
            "How far below the soft maximum weight ends depends on the order.",
        ),
        "edge multiplied": (
            lambda th, z, al: th > z.max() - (al - 1),
            "Where is the zero of $1 + (\\alpha-1)x$?",
        ),
    },
)

exercise(
    "ex-merging-4",
    right=3.9375,
    wrong={
        "softmax": (3 + math.log(16), "That is what softmax could add."),
        "any number": (4.0, "That is not reached by a finite number of shards."),
        "the largest": (3.0, "That is how small it can be."),
        "entmax 1.5": (3 + 2 * (1 - 16**-0.5), "That is order 1.5."),
        "sum": (48.0, "Soft maxima do not add."),
    },
)
