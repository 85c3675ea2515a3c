"""Pictures of the page "A family with one knob: alpha-entmax"."""

import matplotlib.pyplot as plt

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT

_KEYS = (("softmax", "-"), ("ink", "--"), ("gradient", "-."))


def knob(alpha, weights, marks):
    """Draw three weights against alpha, and their path through the simplex.

    Parameters
    ----------
    alpha : array (N,)
        Orders, ascending.
    weights : array (N, 3)
        The weights at each of them.
    marks : dict of three palette names to (alpha, weights (3,))
        Points to mark on the path, each with its own colour; the last is labelled on its left.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.0), width_ratios=(1.25, 1))
    for j, (name, dash) in enumerate(_KEYS):
        left.plot(alpha, weights[:, j], color=LIGHT[name], linestyle=dash, label=f"key {'ABC'[j]}")
    left.set(xlabel=r"order $\alpha$", ylabel="weight", ylim=(-0.03, 1.05))
    left.legend(loc="center right")
    simplex.triangle(right)
    simplex.path(right, weights, "grey", path_effects=None)
    beside = ((9, -3, "left"), (9, -5, "left"), (-6, 9, "right"))
    for (name, (order, point)), (dx, dy, side) in zip(marks.items(), beside, strict=True):
        simplex.mark(right, point, name)
        right.annotate(
            rf"$\alpha = {order:g}$",
            simplex.to_plane(point),
            xytext=(dx, dy),
            textcoords="offset points",
            ha=side,
        )
    return fig


def members(panels):
    """Draw one simplex per member: its objective as level sets, and its path in the temperature.

    Parameters
    ----------
    panels : dict of palette names to (title, grid, objective, path, marks)
        Arrays of shape (G, 3), (G,), (N, 3), (M, 3). The first mark is the maximiser of the
        objective that is drawn.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.7))
    for ax, (name, (title, points, objective, path, marks)) in zip(
        axes, panels.items(), strict=True
    ):
        simplex.levels(ax, points, objective)
        simplex.triangle(ax)
        simplex.path(ax, path, name, linestyle=DASHES[name])
        simplex.mark(ax, marks[1:], name, size=32)
        simplex.mark(ax, marks[0], name, size=80)
        ax.set_title(title, loc="center")
    return fig


def factor(alpha, right, wrong):
    """Draw three weights against alpha: the right closed form, and the one without its factor.

    Parameters
    ----------
    alpha : array (N,)
    right, wrong : arrays (N, 3)

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, 2, figsize=(6.9, 2.9), sharey=True)
    titles = (r"with $(\alpha - 1)$", r"without $(\alpha - 1)$")
    for ax, weights, title in zip(axes, (right, wrong), titles, strict=True):
        for j, (name, dash) in enumerate(_KEYS):
            label = f"key {'ABC'[j]}"
            ax.plot(alpha, weights[:, j], color=LIGHT[name], linestyle=dash, label=label)
        ax.axvline(2, color=LIGHT["grey"], linestyle=":", linewidth=1)
        ax.set(xlabel=r"order $\alpha$", title=title, ylim=(-0.03, 1.05))
    axes[0].set_ylabel("weight")
    axes[0].legend(loc="center right")
    return fig


def errors(distance, quotient, series):
    """Draw the relative error of two formulas for the derivative in alpha.

    Parameters
    ----------
    distance : array (N,)
        alpha - 1.
    quotient, series : arrays (N,)
        Relative errors.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.0))
    label = r"divided by $(\alpha - 1)^2$"
    ax.plot(distance, quotient, color=LIGHT["gradient"], linestyle=":", marker="^", label=label)
    label = r"with $\varphi$"
    ax.plot(distance, series, color=LIGHT["softmax"], linestyle="-", marker="o", label=label)
    ax.axhline(1, color=LIGHT["ink"], linestyle="-", linewidth=0.8)
    ax.text(distance.max(), 1.6, "no digit right", ha="right", va="bottom")
    ax.set(xscale="log", yscale="log", xlabel=r"$\alpha - 1$", ylabel="relative error")
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.45))
    return fig
