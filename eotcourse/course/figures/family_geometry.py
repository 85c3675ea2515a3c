"""Pictures of the page "Every member has its geometry"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT


def rulers(panels):
    """Draw on one simplex for each member the steps that it calls equally long.

    Parameters
    ----------
    panels : sequence of (title, palette name, array (m, N, 3))
        Closed curves around m points.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.5))
    for ax, (title, name, rings) in zip(axes, panels, strict=True):
        simplex.triangle(ax)
        for ring in np.asarray(rings, dtype=float):
            points = simplex.to_plane(ring).T
            ax.fill(*points, facecolor=LIGHT[name], alpha=0.25, linewidth=0)
            ax.plot(*points, color=LIGHT[name], linestyle="-", linewidth=1)
        ax.set_title(title)
    return fig


def bending(weight, curves):
    """Draw the curvature against the weight of one key.

    Parameters
    ----------
    weight : array (N,)
    curves : sequence of (label, palette name, array (N,))

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for label, name, K in curves:
        ax.plot(weight, K, color=LIGHT[name], linestyle=DASHES[name], label=label)
    ax.axvline(1 / 3, color=LIGHT["grey"], linewidth=0.8, linestyle="-", zorder=0)
    ax.annotate("uniform", (1 / 3, 0.72), xytext=(5, 0), textcoords="offset points")
    ax.set(
        xlim=(0, 1),
        ylim=(-0.02, 0.8),
        xlabel="weight of C; A and B share the rest equally",
        ylabel="curvature",
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.68, 1.0))
    return fig
