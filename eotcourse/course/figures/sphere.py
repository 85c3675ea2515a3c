"""Pictures of the page "How far apart are two rows"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import Normal, Stroke

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT

# The view along (1, 1, 1), which shows the three corners of the octant alike.
_VIEW = np.array([[-1, 1, 0], [-1, -1, 2]]) / np.sqrt([[2.0], [6.0]])


def octant(ax, labels=("A", "B", "C")):
    """Draw the outline of the part of the sphere of radius 2 with positive coordinates.

    Parameters
    ----------
    ax : matplotlib Axes
    labels : three strings
        At the corners left, right, top.
    """
    angle = np.linspace(0, np.pi / 2, 60)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        side = np.zeros((60, 3))
        side[:, i], side[:, j] = 2 * np.cos(angle), 2 * np.sin(angle)
        ax.plot(*_VIEW @ side.T, color=LIGHT["ink"], linestyle="-", linewidth=1)
    for corner, text in zip(2.17 * np.eye(3), labels, strict=True):
        ax.text(*_VIEW @ corner, text, ha="center", va="center")
    ax.set(aspect="equal", xlim=(-1.68, 1.68), ylim=(-1.3, 2.0))
    ax.axis("off")


def _views(titles):
    fig, axes = plt.subplots(1, 2, figsize=(6.9, 3.3))
    simplex.triangle(axes[0])
    octant(axes[1])
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)
    return fig, axes


def circles(rings):
    """Draw closed curves on the simplex, and their images on the sphere.

    Parameters
    ----------
    rings : array (m, N, 3)
        Points of each curve, in order.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = _views(("on the simplex", "on the sphere"))
    for ring in np.asarray(rings, dtype=float):
        for ax, points in (
            (axes[0], simplex.to_plane(ring).T),
            (axes[1], _VIEW @ (2 * np.sqrt(ring)).T),
        ):
            ax.fill(*points, facecolor=LIGHT["softmax"], alpha=0.25, linewidth=0)
            ax.plot(*points, color=LIGHT["softmax"], linestyle="-", linewidth=1.2)
    return fig


def routes(paths):
    """Draw paths with common ends on the simplex, and their images on the sphere.

    Parameters
    ----------
    paths : sequence of (label, palette name, array (N, 3))

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = _views(("on the simplex", "on the sphere"))
    halo = [Stroke(linewidth=4, foreground="white"), Normal()]
    for label, name, path in paths:
        path = np.asarray(path, dtype=float)
        look = {"color": LIGHT[name], "linestyle": DASHES[name], "path_effects": halo}
        axes[0].plot(*simplex.to_plane(path).T, label=label, zorder=4, **look)
        axes[1].plot(*_VIEW @ (2 * np.sqrt(path)).T, zorder=4, **look)
    ends = np.asarray(paths[0][2], dtype=float)[[0, -1]]
    axes[0].plot(*simplex.to_plane(ends).T, "o", color=LIGHT["ink"], zorder=5)
    axes[1].plot(*_VIEW @ (2 * np.sqrt(ends)).T, "o", color=LIGHT["ink"], zorder=5)
    fig.legend(loc="outside lower center", ncols=len(paths))
    return fig
