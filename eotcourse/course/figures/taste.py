"""The two pictures of the five-minute taste."""

import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT


def trade(fig, points, values, taus, path, shown, keys):
    """Draw score plus entropy on the simplex, and how its maximiser moves with the temperature.

    Parameters
    ----------
    fig : matplotlib Figure
    points, values : arrays (N, 3), (N,)
        The objective on a grid.
    taus, path : arrays (T,), (T, 3)
        Temperatures in increasing order and the maximiser at each.
    shown : list of int
        Positions in ``taus`` to mark; the middle one is the objective's own temperature.
    keys : three strings
    """
    left, right = fig.subplots(1, 2, width_ratios=(1, 1.15))
    simplex.triangle(left, keys)
    simplex.levels(left, points, values)
    simplex.path(left, path)
    simplex.mark(left, path[shown])
    for i in shown:
        x, y = simplex.to_plane(path[i])
        left.text(x + 0.03, y + 0.05, f"$\\tau={taus[i]:g}$", ha="right", va="bottom")
    for weights, key, name in zip(path.T, keys, ("softmax", "entmax", "ink"), strict=True):
        right.plot(taus, weights, color=LIGHT["softmax"], linestyle=DASHES[name])
        right.annotate(key, (taus[0], weights[0]), (4, 4), textcoords="offset points", va="bottom")
    right.axvline(taus[shown[1]], color=LIGHT["grey"], linewidth=1, linestyle="-")
    right.set(xscale="log", xlabel=r"temperature $\tau$", ylabel="weight", ylim=(-0.02, 1.08))


def backward(fig, points, loss, path, keys, weights, advantage, push):
    """Draw the loss on the simplex with a descent path, and what the first step gave each key.

    Parameters
    ----------
    fig : matplotlib Figure
    points, loss : arrays (N, 3), (N,)
        The loss on a grid.
    path : array (T, 3)
        Weights during gradient descent on the scores.
    keys : three strings
    weights, advantage, push : arrays (3,)
        At the start of the path: the weights, the advantages, minus the gradient.
    """
    left, right = fig.subplots(1, 2, width_ratios=(1, 1.15))
    simplex.triangle(left, keys)
    simplex.levels(left, points, -loss)
    simplex.path(left, path, "gradient")
    simplex.mark(left, path[0])
    simplex.mark(left, path[-1], "gradient")
    at = np.arange(3)
    right.bar(at - 0.2, advantage, 0.36, color=LIGHT["grey"], label="advantage")
    right.bar(at + 0.2, push, 0.36, color=LIGHT["gradient"], label="push on the score")
    right.axhline(0, color=LIGHT["ink"], linewidth=1, linestyle="-")
    names = [f"{key}\nweight {p:.2f}" for key, p in zip(keys, weights, strict=True)]
    right.set_xticks(at, names)
    right.tick_params(axis="x", length=0)
    right.spines["bottom"].set_visible(False)
    right.legend(loc="upper left")
