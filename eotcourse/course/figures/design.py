"""Pictures of the page "Design your own mechanism"."""

import matplotlib.pyplot as plt

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT


def curves(x, lines, xlabel, ylabel, ylim):
    """Draw one quantity of several mechanisms over a common axis.

    Parameters
    ----------
    x : array (N,)
    lines : sequence of (name, label, y)
        ``name`` in the palette, ``y`` (N,).
    xlabel, ylabel : str
    ylim : (float, float)

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for name, label, y in lines:
        ax.plot(x, y, color=LIGHT[name], linestyle=DASHES[name], label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=ylim, xlim=(x[0], x[-1]))
    ax.legend()
    return fig


def mechanisms(points, panels):
    """Draw several mechanisms on the simplex: objective, path in the temperature, one optimum.

    Parameters
    ----------
    points : array (N, 3)
        Where the objectives were evaluated.
    panels : sequence of (name, title, values, path, best)
        ``name`` in the palette, ``values`` (N,), ``path`` (steps, 3), ``best`` (k, 3) to mark.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.3))
    for ax, (name, title, values, path, best) in zip(axes, panels, strict=True):
        simplex.levels(ax, points, values)
        simplex.triangle(ax)
        simplex.path(ax, path, name)
        simplex.mark(ax, best, name, size=34)
        ax.set_title(title, loc="center", pad=9)
    return fig


def jump(first, objectives, lead, best):
    """Draw a non-convex problem of two keys: its objective at three leads, and where the best is.

    Parameters
    ----------
    first : array (N,)
        Weight of the first key.
    objectives : sequence of (label, values)
        ``values`` (N,) at one lead.
    lead, best : arrays (M,)
        Leads of the first key, and the best weight at each.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 2.9))
    names = ("softmax", "entmax", "sparsemax")
    for name, (label, values) in zip(names, objectives, strict=True):
        left.plot(first, values, color=LIGHT[name], linestyle=DASHES[name], label=label)
        at = values.argmax()
        left.plot(first[at], values[at], "o", color=LIGHT[name])
    left.set(xlabel="weight of the first key", ylabel="objective")
    left.legend(title="lead", loc="lower center", ncols=3, columnspacing=1, handlelength=1.6)
    left.set_ylim(bottom=left.get_ylim()[0] - 0.35)
    right.plot(lead, best, ".", color=LIGHT["gradient"], markersize=4)
    right.set(xlabel="lead of the first key", ylabel="its best weight", ylim=(-0.05, 1.05))
    return fig
