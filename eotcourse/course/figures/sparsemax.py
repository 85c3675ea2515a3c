"""Pictures of the page "Sparsemax shaves the scores"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT


def shave(scores, panels):
    """Draw the scores as bars, cut at a level, with what is cut off in colour.

    Parameters
    ----------
    scores : array (n,)
        Raw scores.
    panels : sequence of (temperature, array (n,))
        Temperature, and the weights; a key loses temperature times weight.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.9), sharey=True)
    keys = np.arange(len(scores))
    floor = min(float(np.min(scores - tau * np.asarray(p))) for tau, p in panels) - 0.8
    for ax, (tau, p) in zip(axes, panels, strict=True):
        p = np.asarray(p)
        left = np.asarray(scores) - tau * p
        ax.bar(keys, left - floor, 0.7, bottom=floor, color=LIGHT["grey"], alpha=0.45)
        ax.bar(keys, tau * p, 0.7, bottom=left, color=LIGHT["sparsemax"])
        ax.axhline(left.max(), color=LIGHT["ink"], linestyle="--", linewidth=1)
        for key, weight, top in zip(keys, p, scores, strict=True):
            ax.text(key, top + 0.12, f"{weight:.2f}", ha="center", va="bottom")
        ax.set(xticks=keys, ylim=(floor, float(np.max(scores)) + 0.9))
        ax.set_xticklabels(["A", "B", "C"])
        ax.set_title(f"{tau:g} units to cut")
    axes[0].set_ylabel("raw score")
    return fig


def paths(points, panels):
    """Draw how weights move through the simplex of three keys as the temperature changes.

    Parameters
    ----------
    points : array (N, 3)
        Grid on the simplex.
    panels : dict of palette names to (objective (N,), path (T, 3), marks (M, 3))
        An objective on the grid, the weights at many temperatures in order, and those to mark;
        exact zeros are drawn hollow.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.1))
    for ax, (name, (objective, path, marks)) in zip(axes, panels.items(), strict=True):
        simplex.levels(ax, points, objective)
        simplex.triangle(ax)
        simplex.path(ax, path, name)
        simplex.mark(ax, marks, name)
        ax.set_title(name, loc="center", pad=4)
    return fig


def nested(free, signed, inside):
    """Draw the maximiser for two keys over the plane, the line of sum one, and its segment.

    Parameters
    ----------
    free, signed, inside : arrays (N, 2)
        The three maximisers for N score vectors.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 4.0))
    ax.plot([-0.9, 1.9], [1.9, -0.9], color=LIGHT["grey"], linestyle="--", linewidth=1.2)
    ax.plot([0, 1], [1, 0], color=LIGHT["sparsemax"], linestyle="-", linewidth=4)
    for a, b, c in zip(free, signed, inside, strict=True):
        ax.plot(*np.stack([a, b]).T, color=LIGHT["softmax"], linestyle="-", linewidth=1.2)
        ax.plot(*np.stack([b, c]).T, color=LIGHT["entmax"], linestyle="-", linewidth=2)
    ax.plot(*np.asarray(free).T, "o", color=LIGHT["softmax"], label="all weights allowed")
    ax.plot(*np.asarray(signed).T, "D", color=LIGHT["entmax"], label="sum one")
    ax.plot(
        *np.asarray(inside).T,
        "s",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor=LIGHT["sparsemax"],
        markeredgewidth=2,
        label="sum one, none negative",
    )
    ax.set(xlabel="weight of key A", ylabel="weight of key B", aspect="equal")
    ax.set(xlim=(-1.0, 2.3), ylim=(-1.0, 2.0))
    ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    return fig
