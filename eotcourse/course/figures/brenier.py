"""Drawings for the page "When the map comes back": orders on a line, quantiles, ellipses."""

import numpy as np

from eotcourse.course.palette import LIGHT


def orders(ax, p, costs, named):
    """Draw what every order of the books costs, as a function of the exponent of the distance.

    Parameters
    ----------
    ax : matplotlib Axes
    p : array (k,)
        Exponents.
    costs : array (k, orders)
        Cost of each order at each exponent.
    named : dict
        ``label: (column, colour name, line style)`` of the orders to single out.
    """
    grey = np.unique(np.round(costs, 9), axis=1)
    ax.plot(p, grey, color=LIGHT["grey"], linestyle="-", linewidth=0.8, alpha=0.7)
    for label, (column, color, dash) in named.items():
        ax.plot(p, costs[:, column], color=LIGHT[color], linestyle=dash, linewidth=2.6, label=label)
    ax.set(xlabel="exponent $p$ of the distance", ylabel="cost of the order")
    ax.legend(loc="upper left")


def quantiles(ax, x, y, F, G, levels, pairs):
    """Draw two distribution functions and, at some levels, the arrow from one to the other.

    Parameters
    ----------
    ax : matplotlib Axes
    x, y : array (m,), array (n,)
        Sorted places.
    F, G : array (m,), array (n,)
        Mass at or before each place.
    levels : array (k,)
        Levels of mass.
    pairs : array (k, 2)
        The place in ``x`` and the place in ``y`` where each level is reached.
    """
    ax.step(np.r_[x[0], x], np.r_[0, F], where="post", color=LIGHT["softmax"], linestyle="-",
            label="$F$, sources")
    ax.step(np.r_[y[0], y], np.r_[0, G], where="post", color=LIGHT["entmax"], linestyle="--",
            label="$G$, targets")
    for level, (start, end) in zip(levels, pairs, strict=True):
        ax.annotate("", (end, level), (start, level),
                    arrowprops={"arrowstyle": "-|>", "color": LIGHT["ink"], "linewidth": 1.1,
                                "shrinkA": 0, "shrinkB": 0})
    ax.set(xlabel="place", ylabel="mass up to here", ylim=(0, 1.02))
    ax.legend(loc="lower right")


def ellipses(ax, source, image):
    """Draw a closed curve, its image, and what happens to some of its points.

    Parameters
    ----------
    ax : matplotlib Axes
    source, image : array (k, 2)
        Points of the curve and their images.
    """
    step = len(source) // 16
    ax.plot(*source.T, color=LIGHT["softmax"], linestyle="-")
    ax.plot(*image.T, color=LIGHT["entmax"], linestyle="--")
    for start, end in zip(source[::step], image[::step], strict=True):
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LIGHT["ink"],
                                                "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0})
    ax.set_aspect("equal")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
