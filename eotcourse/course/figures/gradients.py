"""Pictures of the page "Natural gradients, and what descent does"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT

_LOOKS = (("softmax", "-"), ("entmax", "--"))


def race(paths, steps, shares):
    """Draw paths through the simplex, and the weight of key C along each.

    Parameters
    ----------
    paths : two pairs of (label, array (N, 3))
        From a common start.
    steps : two arrays (N,)
        Elapsed time at each point of the paths.
    shares : two arrays (N,)
        The weight drawn against it.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.2), width_ratios=(1, 1.25))
    simplex.triangle(left)
    rows = zip(paths, steps, shares, _LOOKS, strict=True)
    for (label, path), t, share, (name, dash) in rows:
        simplex.path(left, path, name, linestyle=dash, path_effects=None)
        right.plot(t, share, color=LIGHT[name], linestyle=dash, label=label)
    simplex.mark(left, np.asarray(paths[0][1])[0], "gradient")
    right.set(xlabel="time", ylabel="weight of C", ylim=(0, 1.02))
    right.legend(loc="center")
    return fig


def plateau(natural, descent):
    """Draw the weight of the better of two keys against the number of steps.

    Parameters
    ----------
    natural, descent : sequences of arrays
        One array of weights after 0, 1, 2, ... steps for each start.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for runs, (name, dash), label in zip(
        (natural, descent), _LOOKS, ("natural gradient", "plain descent"), strict=True
    ):
        for k, share in enumerate(runs):
            ax.plot(
                np.arange(1, len(share) + 1), share, color=LIGHT[name], linestyle=dash,
                label=None if k else label,
            )
    ax.axhline(0.5, color=LIGHT["grey"], linestyle=":", linewidth=1)
    ax.set(xscale="log", xlabel="1 + number of steps", ylabel="weight of the better key")
    ax.legend(loc="upper right")
    return fig


def regrets(t, runs, bound):
    """Draw the regret of mirror ascent against time, under its bound.

    Parameters
    ----------
    t : array (T,)
    runs : three pairs of (label, array (T,))
    bound : array (T,)

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    looks = (("softmax", "-"), ("entmax", "--"), ("sparsemax", "-."))
    ax.plot(t, bound, color=LIGHT["ink"], linestyle=":", label="bound")
    for (label, regret), (name, dash) in zip(runs, looks, strict=True):
        ax.plot(t, regret, color=LIGHT[name], linestyle=dash, linewidth=1.4, label=label)
    ax.set(xlabel="rounds", ylabel="regret", ylim=(min(0, ax.get_ylim()[0]), None))
    ax.legend(loc="upper left", ncols=2)
    return fig
