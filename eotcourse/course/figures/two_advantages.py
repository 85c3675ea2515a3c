"""Pictures of the page "Two advantages, two rewards"."""

import matplotlib.pyplot as plt

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT


def pair(forward, backward):
    """Draw the forward and the backward advantages of the same three keys as bars.

    Parameters
    ----------
    forward, backward : arrays (3,)

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, 2, figsize=(6.9, 2.7))
    panels = (
        ("forward: score minus value", forward, "softmax"),
        ("backward: utility minus mean", backward, "gradient"),
    )
    for ax, (title, heights, name) in zip(axes, panels, strict=True):
        bars = ax.bar(range(3), heights, 0.5, color=LIGHT[name])
        labels = [f"{h:+.2f}".replace("-", "\N{MINUS SIGN}") for h in heights]
        ax.bar_label(bars, labels, padding=2)
        ax.axhline(0, color=LIGHT["ink"], linewidth=1, linestyle="-")
        ax.margins(y=0.2)
        ax.set(yticks=[], xticks=range(3))
        ax.set_xticklabels(["A", "B", "C"])
        ax.set_title(title, loc="center")
        ax.tick_params(axis="x", length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
    return fig


def rewards(points, panels):
    """Draw two ascents on the simplex, each on the level sets of what it maximises.

    Parameters
    ----------
    points : array (N, 3)
    panels : sequence of (title, palette name, objective (N,), path (T, 3))

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.1))
    for ax, (title, name, objective, path) in zip(axes, panels, strict=True):
        simplex.levels(ax, points, objective)
        simplex.triangle(ax)
        simplex.path(ax, path, name)
        simplex.mark(ax, path[0], "grey", size=40)
        simplex.mark(ax, path[-1], name, size=70)
        ax.set_title(title, loc="center")
    return fig
