"""Pictures of the page "Straight lines, and the whole map"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT


def fans(panels):
    """Draw on one simplex each a bundle of paths with a common start.

    Parameters
    ----------
    panels : sequence of (title, palette name, start (3,), array (m, N, 3))

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.2))
    for ax, (title, name, start, bundle) in zip(axes, panels, strict=True):
        simplex.triangle(ax)
        for points in np.asarray(bundle, dtype=float):
            simplex.path(ax, points, name, linewidth=1.5, path_effects=[])
        simplex.mark(ax, start, name)
        ax.set_title(title)
    return fig


def right_angle(start, foot, other, path, level, plane):
    """Draw a projection on the simplex, and its neighbourhood on the sphere seen from above.

    Parameters
    ----------
    start, foot, other : array (3,)
        The prior, its projection, and another point with the mean score of the projection.
    path, level : array (N, 3), array (M, 3)
        The path through prior and projection, and the points of equal mean score.
    plane : array (2, 3)
        Orthonormal tangent directions of the sphere at the projection.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, 2, figsize=(6.9, 3.3))
    plane, base = np.asarray(plane, dtype=float), 2 * np.sqrt(np.asarray(foot, dtype=float))

    def above(p):
        return (2 * np.sqrt(np.asarray(p, dtype=float)) - base) @ plane.T

    simplex.triangle(axes[0])
    for ax, place, prior, name in (
        (axes[0], simplex.to_plane, (-18, -2), (17, 0)),
        (axes[1], above, (-4, 9), (14, 9)),
    ):
        ax.plot(*place(path).T, color=LIGHT["entmax"], linestyle=DASHES["entmax"], zorder=4)
        ax.plot(*place(level).T, color=LIGHT["sparsemax"], linestyle=DASHES["sparsemax"], zorder=4)
        for p, text, shift in (
            (start, r"$\pi$", prior),
            (foot, r"$p^*$", name),
            (other, r"$r$", (9, 3)),
        ):
            ax.plot(*place(p), "o", color=LIGHT["ink"], zorder=5)
            ax.annotate(text, place(p), xytext=shift, textcoords="offset points", zorder=6)
    corner = 0.06 * np.array([[1, 0], [1, 1], [0, 1]])
    axes[1].plot(*corner.T, color=LIGHT["ink"], linestyle="-", linewidth=1)
    axes[0].set_title("on the simplex")
    axes[1].set_title("on the sphere, from above $p^*$")
    axes[1].set(aspect="equal", adjustable="datalim")
    axes[1].axis("off")
    return fig


_BOXES = {
    "FORWARD": (
        (0.17, 0.13),
        "$V(s) = \\max_p\\ \\langle s, p\\rangle - \\tau\\,\\Omega(p)$\n$p = \\nabla V(s)$",
    ),
    "BACKWARD": (
        (0.83, 0.13),
        "$a = -\\partial L/\\partial p$\n"
        "$\\partial L/\\partial s = -\\frac{u}{\\tau}\\,(a - \\bar a)$",
    ),
    "GEOMETRY": (
        (0.5, 0.87),
        "$G = \\tau\\,\\mathrm{diag}(1/u)$ on steps of $p$\nits inverse is $J$",
    ),
}


def whole_map(arrows):
    """Draw the three corners forward, backward and geometry, with what each arrow says.

    Parameters
    ----------
    arrows : sequence of (number, from, to, text)
        From and to are ``"FORWARD"``, ``"BACKWARD"`` or ``"GEOMETRY"``.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 5.2))
    for name, (at, words) in _BOXES.items():
        box = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3fa", "edgecolor": LIGHT["softmax"]}
        words = f"{name}\n{words}"
        ax.text(*at, words, ha="center", va="center", linespacing=1.5, bbox=box, zorder=3)
    # Tail, head, number, and text of each arrow; texts stand outside a pair or well within it.
    routes = {
        ("FORWARD", "BACKWARD"): ((0.36, 0.10), (0.66, 0.10), (0.5, 0.035), "center"),
        ("BACKWARD", "FORWARD"): ((0.66, 0.19), (0.36, 0.19), (0.5, 0.255), "center"),
        ("FORWARD", "GEOMETRY"): ((0.10, 0.25), (0.34, 0.76), (0.16, 0.53), "right"),
        ("GEOMETRY", "FORWARD"): ((0.43, 0.76), (0.19, 0.25), (0.31, 0.41), "left"),
        ("GEOMETRY", "BACKWARD"): ((0.66, 0.76), (0.90, 0.25), (0.84, 0.53), "left"),
        ("BACKWARD", "GEOMETRY"): ((0.81, 0.25), (0.57, 0.76), (0.69, 0.41), "right"),
    }
    for number, start, end, text in arrows:
        tail, head, place, side = routes[start, end]
        look = {"arrowstyle": "-|>", "color": LIGHT["ink"], "linewidth": 1.5}
        ax.annotate("", head, tail, arrowprops=look)
        ring = {"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": LIGHT["ink"]}
        middle = (np.array(tail) + np.array(head)) / 2
        ax.text(*middle, number, ha="center", va="center", fontsize=10, bbox=ring)
        ax.text(*place, text, ha=side, va="center", linespacing=1.4)
    ax.set(xlim=(-0.06, 1.06), ylim=(0, 1))
    ax.axis("off")
    return fig
