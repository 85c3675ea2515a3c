"""Pictures of the page "Softmax is an optimum"."""

import matplotlib.pyplot as plt

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT


def trade(points, panels):
    """Draw level sets of several objectives on the simplex of three keys, each with its optimum.

    Parameters
    ----------
    points : array (N, 3)
        Where the objectives were evaluated.
    panels : sequence of (title, values, best)
        ``values`` (N,) of one objective and its maximiser ``best`` (3,).

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.6))
    for ax, (title, values, best) in zip(axes, panels, strict=True):
        simplex.levels(ax, points, values)
        simplex.triangle(ax)
        simplex.mark(ax, best, size=40)
        ax.set_title(title, loc="center", pad=4)
    return fig


def gap(first, objective, top, best, at, value):
    """Draw the objective of two keys, its maximum, and the shortfall at one other point.

    Parameters
    ----------
    first, objective : arrays (N,)
        Weight of the first key, and the objective there.
    top, best : float
        The maximum, and the weight at which it is attained.
    at, value : float
        Another weight, and the objective there.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    top, best, at, value = float(top), float(best), float(at), float(value)
    ax.plot(first, objective, color=LIGHT["softmax"], linestyle="-")
    ax.axhline(top, color=LIGHT["ink"], linestyle="--", linewidth=1)
    ax.plot([best], [top], "o", color=LIGHT["softmax"], markersize=8)
    bracket = {"arrowstyle": "<->", "color": LIGHT["ink"], "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (at, value), (at, top), arrowprops=bracket)
    name = r"$\tau\,\mathrm{KL}(p\,\|\,p^*)$"
    ax.text(at - 0.015, (top + value) / 2, name, ha="right", va="center")
    ax.text(0.01, top + 0.02, r"$V$", va="bottom")
    ax.text(best, top + 0.03, r"$p^* = \mathrm{softmax}(s/\tau)$", ha="center", va="bottom")
    ax.set(xlabel="weight of the first key", ylabel="score + entropy", xlim=(0, 1))
    ax.set_ylim(top=top + 0.2)
    return fig
