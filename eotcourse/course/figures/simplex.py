"""Drawings on the simplex of three keys.

Each function draws arrays that the page computed. A point of the simplex is given by its three
weights; the only computation here is their place in the plane.
"""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patheffects import Normal, Stroke

from eotcourse.course.palette import LIGHT, MARKERS

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
_LABELS = ((0.0, -0.035, "top"), (1.0, -0.035, "top"), (0.5, 0.9, "bottom"))
_QUIET = LinearSegmentedColormap.from_list("quiet", ["#f6f8fa", "#b9c5d3"])


def to_plane(p):
    """Place points of the simplex in the plane (barycentric coordinates).

    Parameters
    ----------
    p : array (..., 3)
        Weights on the three keys; each row sums to 1.

    Returns
    -------
    array (..., 2)
        Corners go to (0, 0), (1, 0) and (1/2, sqrt(3)/2), so all sides have length 1.

    Examples
    --------
    >>> to_plane([1.0, 0.0, 0.0]).tolist()
    [0.0, 0.0]
    """
    return np.asarray(p, dtype=float) @ _CORNERS


def grid(n=80):
    """Points of the simplex on a triangular grid, on which a page evaluates an objective.

    Parameters
    ----------
    n : int
        Steps along a side.

    Returns
    -------
    array ((n+1)(n+2)/2, 3)
        Weights in steps of 1/n; the rim, with its exact zeros, is included.

    Examples
    --------
    >>> grid(2).shape
    (6, 3)
    """
    i, j = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    inside = i + j <= n
    i, j = i[inside], j[inside]
    return np.stack([i, j, n - i - j], axis=-1) / n


def triangle(ax, labels=("A", "B", "C")):
    """Draw the empty simplex: three sides and one label at each corner.

    Parameters
    ----------
    ax : matplotlib Axes
    labels : three strings
        Names of the keys, in the order of the weights: left, right, top.
    """
    rim = _CORNERS[[0, 1, 2, 0]]
    ax.plot(*rim.T, color=LIGHT["ink"], linestyle="-", linewidth=1, zorder=3, clip_on=False)
    for (x, y, side), text in zip(_LABELS, labels, strict=True):
        ax.text(x, y, text, ha="center", va=side)
    ax.set(aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.12, 0.98))
    ax.axis("off")


def levels(ax, points, values, count=9):
    """Fill the level sets of an objective on the simplex, darker where it is larger.

    Parameters
    ----------
    ax : matplotlib Axes
    points : array (N, 3)
        Where the objective was evaluated, for instance :func:`grid`.
    values : array (N,)
        Its values there.
    count : int
        Number of levels, spread over the quantiles of the values so that the
        neighbourhood of the maximum is resolved.
    """
    at = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
    x, y = to_plane(points).T
    ax.tricontourf(x, y, values, levels=at, cmap=_QUIET, zorder=0)
    ax.tricontour(x, y, values, levels=at[1:-1], colors="white", linewidths=0.8, linestyles="solid")


def path(ax, points, name="softmax", **style):
    """Draw a path through the simplex, for instance a maximiser as the temperature changes.

    Parameters
    ----------
    ax : matplotlib Axes
    points : array (N, 3)
        Points of the path in order.
    name : str
        Which colour of the palette.
    **style
        Passed on to ``ax.plot``.
    """
    look = {"color": LIGHT[name], "linestyle": "-", "zorder": 4, "clip_on": False}
    halo = [Stroke(linewidth=4.5, foreground="white"), Normal()]
    return ax.plot(*to_plane(points).T, **look | {"path_effects": halo} | style)


def mark(ax, points, name="softmax", size=55):
    """Mark points: filled where every weight is positive, hollow where one is exactly zero.

    Parameters
    ----------
    ax : matplotlib Axes
    points : array (3,) or (N, 3)
        A very small weight is not a zero: the point stays filled.
    name : str
        Which colour and marker of the palette.
    size : float
        Area of the marker in points squared.

    Returns
    -------
    list of bool
        For each point whether it was drawn hollow.
    """
    points = np.atleast_2d(np.asarray(points, dtype=float))
    on_rim = (points == 0).any(-1)
    for group, face in ((~on_rim, LIGHT[name]), (on_rim, "white")):
        if group.any():
            ax.scatter(
                *to_plane(points[group]).T,
                s=size,
                marker=MARKERS.get(name, "o"),
                facecolor=face,
                edgecolor="white" if face != "white" else LIGHT[name],
                linewidth=0.8 if face != "white" else 2,
                zorder=5,
                clip_on=False,
            )
    return on_rim.tolist()
