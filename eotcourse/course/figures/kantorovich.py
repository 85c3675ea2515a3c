"""Drawings for Kantorovich's problem: plans as graphs, and the area between two distributions."""

import numpy as np

from eotcourse.course.palette import LIGHT


def graph(ax, P, rows, columns):
    """Draw a plan as a graph: one node a place, one edge a route, as wide as the mass on it.

    Parameters
    ----------
    ax : matplotlib Axes
    P : array (m, n)
        Plan; entries that are exactly zero are no routes.
    rows, columns : array (m,), array (n,)
        Horizontal places of the sources (drawn above) and of the targets (drawn below).
    """
    for i, j in np.argwhere(P > 0):
        ends = [rows[i], columns[j]], [1, 0]
        ax.plot(*ends, color=LIGHT["ink"], linestyle="-", linewidth=0.5 + 14 * P[i, j], alpha=0.75,
                solid_capstyle="butt")
    look = {"zorder": 4, "clip_on": False}
    size = 900
    ax.scatter(rows, np.ones(len(rows)), s=60 + size * P.sum(1), color=LIGHT["softmax"], **look)
    ax.scatter(columns, np.zeros(len(columns)), s=60 + size * P.sum(0), facecolor="white",
               edgecolor=LIGHT["entmax"], linewidth=2, **look)
    ax.set(ylim=(-0.25, 1.25), yticks=[1, 0], yticklabels=["from", "to"], xticks=[])
    ax.margins(x=0.12)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def staircases(ax, places, F, G):
    """Draw two distribution functions on a line and shade the area between them.

    Parameters
    ----------
    ax : matplotlib Axes
    places : array (k,)
        Sorted points of the line.
    F, G : array (k,)
        Mass at or before each place, of the sources and of the targets.
    """
    left, right = places[0] - 0.6, places[-1] + 0.6
    x = np.r_[left, places, right]
    F, G = (np.r_[0.0, values, values[-1]] for values in (F, G))
    ax.fill_between(x, F, G, step="post", color=LIGHT["grey"], alpha=0.35, linewidth=0)
    ax.step(x, F, where="post", color=LIGHT["softmax"], linestyle="-", label="$F$, is here")
    ax.step(x, G, where="post", color=LIGHT["entmax"], linestyle="--", label="$G$, is needed")
    ax.set(xlim=(left, right), ylim=(0, 1.05), xticks=places, xlabel="kilometre",
           ylabel="mass up to here")
    ax.legend(loc="lower right")
