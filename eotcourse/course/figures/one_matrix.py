"""Pictures of the page "One matrix and its readings"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT


def charts(scores, weights):
    """Draw the same curves in the plane of scaled scores and in the simplex.

    Parameters
    ----------
    scores, weights : arrays (N, M, 3)
        N closed curves of M points, in each of the two charts.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.2))
    scores = np.asarray(scores, dtype=float)
    centred = scores - scores.mean(-1, keepdims=True)
    for curve in simplex.to_plane(centred):
        left.plot(*curve.T, color=LIGHT["softmax"], linestyle="-", linewidth=1.3)
    left.set(aspect="equal", xticks=[], yticks=[], title="scaled scores, up to a constant")
    left.spines[:].set_visible(False)
    simplex.triangle(right)
    for curve in np.asarray(weights, dtype=float):
        simplex.path(right, curve, linewidth=1.3, path_effects=None)
    right.set(title="weights")
    return fig


def cuts(step, curves, moved):
    """Draw an objective along two directions, and how far the optimum moves along each.

    Parameters
    ----------
    step : array (N,)
        Distance from the optimum.
    curves : two pairs of (label, array (N,))
        The objective minus its maximum.
    moved : two floats
        Displacements of the optimum.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 2.9))
    looks = (("softmax", "-", "o"), ("entmax", "--", "D"))
    for (label, below), at, (name, dash, marker) in zip(curves, moved, looks, strict=True):
        ax.plot(step, below, color=LIGHT[name], linestyle=dash, label=label)
        height = np.interp(float(at), np.asarray(step), np.asarray(below))
        ax.plot([float(at)], [height], marker, color=LIGHT[name], markersize=8)
    ax.set(xlabel="distance from the optimum, in weights", ylabel="objective minus its maximum")
    ax.legend(loc="lower center")
    return fig
