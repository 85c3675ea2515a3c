"""Pictures of the page "Smooth, broken, and steep: what alpha does to the slopes"."""

import matplotlib.pyplot as plt

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT


def entering(beyond, weights, slopes):
    """Draw the weight of one key, and its slope, as its score passes the edge of the support.

    Parameters
    ----------
    beyond : array (N,)
        Score of the key, minus the score at which it enters.
    weights, slopes : dicts of palette names to (label, array (N,)) and to array (N,)

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.1))
    for name, (label, weight) in weights.items():
        look = {"color": LIGHT[name], "linestyle": DASHES[name]}
        left.plot(beyond, weight, **look)
        right.plot(beyond, slopes[name], label=label, **look)
    for ax, title in ((left, "weight"), (right, "slope in its score")):
        ax.axvline(0, color=LIGHT["grey"], linestyle="-", linewidth=0.8, zorder=0)
        ax.set(xlabel="score, from the edge on", title=title)
    right.legend(loc="upper right")
    return fig


def fans(panels):
    """Draw one simplex per member: level sets of its regulariser, and paths in the temperature.

    Parameters
    ----------
    panels : dict of palette names to (title, grid, regulariser, paths, arrivals)
        Arrays of shape (G, 3), (G,), (K, N, 3), (K, 3): K paths, and the point of each path
        at which it first has a zero.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.7))
    for ax, (name, (title, points, omega, paths, arrivals)) in zip(
        axes, panels.items(), strict=True
    ):
        simplex.levels(ax, points, -omega)
        simplex.triangle(ax)
        for way in paths:
            simplex.path(ax, way, name, path_effects=None, linewidth=1.6)
        simplex.mark(ax, arrivals, name, size=30)
        ax.set_title(title, loc="center")
    return fig


def steepness(delta, slopes):
    """Draw the slope at a point near the rim against its distance from it.

    Parameters
    ----------
    delta : array (N,)
        The two small weights.
    slopes : dict of palette names to (label, array (N,))

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 2.9))
    for name, (label, slope) in slopes.items():
        ax.plot(delta, slope, color=LIGHT[name], linestyle=DASHES[name], label=label)
    ax.set(xscale="log", yscale="log", xlabel=r"the two small weights $\delta$", ylabel="slope")
    ax.legend(loc="upper right")
    return fig


def constants(alpha, bound, found):
    """Draw Lipschitz constants in the Euclidean norm against alpha, for several numbers of keys.

    Parameters
    ----------
    alpha : array (N,)
    bound : array (N,)
        The best constant for any number of keys; its first entry is drawn as a point.
    found : dict of palette names to (label, array (N,))
        Ratios that are attained.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 2.9))
    ax.plot(alpha[1:], bound[1:], color=LIGHT["ink"], linestyle="-", label="any number of keys")
    ax.plot(alpha[:1], bound[:1], "o", color=LIGHT["ink"], zorder=5)
    for name, (label, ratio) in found.items():
        ax.plot(alpha, ratio, color=LIGHT[name], linestyle=DASHES[name], label=label)
    ax.set(xlabel=r"order $\alpha$", ylabel=r"Lipschitz constant $\times\ \tau$", ylim=(0.4, 1.05))
    ax.legend(loc="lower right")
    return fig
