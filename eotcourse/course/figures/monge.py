"""Drawings for Monge's problem: routes in the plane and books on a shelf."""

import numpy as np

from eotcourse.course.palette import LIGHT

_HALO = {"facecolor": "white", "linewidth": 1.6, "zorder": 4}


def routes(ax, heaps, holes, crossings=()):
    """Draw one straight route from each heap to its hole.

    Parameters
    ----------
    ax : matplotlib Axes
    heaps, holes : array (n, 2)
        Route i runs from ``heaps[i]`` to ``holes[i]``.
    crossings : array (k, 2)
        Points to be ringed, where two routes meet on the way.
    """
    for start, end in zip(heaps, holes, strict=True):
        ax.plot(*np.transpose([start, end]), color=LIGHT["ink"], linestyle="-", linewidth=1.1)
    if len(crossings):
        ax.scatter(*np.transpose(crossings), s=90, edgecolor=LIGHT["gradient"], **_HALO)
        ax.scatter(*np.transpose(crossings), s=6, color=LIGHT["gradient"], zorder=5)
    ax.scatter(*np.transpose(heaps), s=70, color=LIGHT["softmax"], marker="o", zorder=6)
    ax.scatter(*np.transpose(holes), s=60, marker="D", edgecolor=LIGHT["entmax"], **_HALO)
    ax.set_aspect("equal", adjustable="datalim")
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])


def shelf(ax, x, y):
    """Draw moves along a line as arcs, each from ``x[i]`` to ``y[i]``.

    Parameters
    ----------
    ax : matplotlib Axes
    x, y : array (n,)
        Where each book stands before and after; a book that stays has no arc.
    """
    angle = np.linspace(0, np.pi, 60)
    for start, end in zip(x, y, strict=True):
        if start != end:
            middle, reach = (start + end) / 2, (end - start) / 2
            arc = middle - reach * np.cos(angle), np.abs(reach) * np.sin(angle) + 0.12
            ax.plot(*arc, color=LIGHT["ink"], linestyle="-", linewidth=1.4)
            ax.plot(end, 0.16, marker="v", color=LIGHT["ink"], markersize=6, linestyle="none")
    ax.scatter(x, np.zeros(len(x)), s=80, color=LIGHT["softmax"], marker="s", zorder=5)
    ax.scatter(y, np.full(len(y), -0.45), s=70, edgecolor=LIGHT["entmax"], marker="s", **_HALO)
    ax.set(xlabel="place on the shelf", yticks=[0, -0.45], yticklabels=["before", "after"])
    ax.set_xticks(np.unique(np.r_[x, y]))
    ax.set_ylim(-0.75, 2.3)
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
