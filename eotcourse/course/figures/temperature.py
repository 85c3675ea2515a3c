"""Pictures of the page "One division: temperature, and why the root of d"."""

import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator

from eotcourse.course.figures import simplex
from eotcourse.course.palette import LIGHT

_THREE = (("softmax", "-", "o"), ("ink", "--", "D"), ("grey", "-.", "s"))


def cooling(tau, weights, marks):
    """Draw three weights against the temperature, and their path through the simplex.

    Parameters
    ----------
    tau : array (N,) or (N, 1)
        Temperatures, ascending.
    weights : array (N, 3)
        The weights at each of them.
    marks : array (M, 3)
        Weights to mark on the path.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.0), width_ratios=(1.25, 1))
    for j, (name, dash, _) in enumerate(_THREE):
        left.plot(tau, weights[:, j], color=LIGHT[name], linestyle=dash, label=f"key {'ABC'[j]}")
    left.axhline(1 / 3, color=LIGHT["grey"], linestyle=":", linewidth=1)
    left.set(xscale="log", xlabel=r"temperature $\tau$", ylabel="weight", ylim=(-0.02, 1.02))
    left.legend(loc="center right", bbox_to_anchor=(1, 0.72))
    simplex.triangle(right)
    simplex.path(right, weights, path_effects=None)
    simplex.mark(right, marks, size=40)
    return fig


def divisions(sizes, means, top):
    """Draw the mean entropy against the head size, one curve for each way to divide.

    Parameters
    ----------
    sizes : array (D,)
        Head sizes.
    means : dict of three names to arrays (D,)
        Mean entropies in nats.
    top : float
        The largest possible entropy.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for (label, values), (name, dash, marker) in zip(means.items(), _THREE, strict=True):
        ax.plot(sizes, values, color=LIGHT[name], linestyle=dash, marker=marker)
        ax.text(sizes[-1] * 1.15, values[-1], label, va="center")
    ax.plot([sizes[0], sizes[-1]], [top, top], color=LIGHT["ink"], linestyle=":", linewidth=1)
    ax.text(sizes[0], top + 0.08, r"$\log n$", va="bottom")
    ax.set(xscale="log", xlabel="head size d", ylabel="mean entropy (nats)")
    ax.set(xlim=(0.9, sizes[-1] * 4), ylim=(0, top + 0.6), xticks=sizes)
    ax.set_xticklabels([str(d) for d in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    return fig


def crowd(n, limit, drawn, grown):
    """Draw the largest weight of a row against the number of keys.

    Parameters
    ----------
    n : array (N,)
        Numbers of keys.
    limit, drawn, grown : arrays (N,)
        The bound for a fixed range of scores, random scores in that range, and a range that grows.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    ax.plot(n, grown, color=LIGHT["gradient"], linestyle="-.", label="range grows like log n")
    ax.plot(n, limit, color=LIGHT["ink"], linestyle="--", label="bound, fixed range")
    label = "random scores, fixed range"
    ax.plot(n, drawn, color=LIGHT["softmax"], linestyle="-", marker="o", label=label)
    ax.set(xscale="log", yscale="log", xlabel="number of keys n", ylabel="largest weight")
    ax.legend(loc="lower left")
    return fig
