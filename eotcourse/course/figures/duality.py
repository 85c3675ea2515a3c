"""Pictures of the page "Which rules solve a problem?"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from eotcourse.course.palette import DASHES, LIGHT

_SIGNED = LinearSegmentedColormap.from_list(
    "signed", [LIGHT["softmax"], "#ffffff", LIGHT["gradient"]]
)


def loop(x, y, curl, corners, work):
    """Draw a closed walk through two scores, and the work gathered on it by several rules.

    Parameters
    ----------
    x, y : arrays (N,), (M,)
        Scores of the two keys at which the curl was computed.
    curl : array (M, N)
        Asymmetry of the Jacobian of the first rule.
    corners : array (4, 2)
        Corners of the walk, in order.
    work : dict of palette names to (label, array (K + 1,))
        Work gathered after each of K equal steps.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.2), width_ratios=(1, 1.15))
    size = float(np.abs(curl).max())
    mesh = left.pcolormesh(
        x, y, curl, cmap=_SIGNED, vmin=-size, vmax=size, shading="gouraud", rasterized=True
    )
    fig.colorbar(mesh, ax=left, shrink=0.8, pad=0.02).outline.set_visible(False)
    closed = np.vstack([corners, corners[:1]])
    left.plot(*closed.T, color=LIGHT["ink"], linestyle="-")
    arrow = {"arrowstyle": "-|>", "color": LIGHT["ink"], "shrinkA": 0, "shrinkB": 0}
    for a, b in zip(closed[:-1], closed[1:], strict=True):
        left.annotate("", a + 0.6 * (b - a), a + 0.4 * (b - a), arrowprops=arrow)
    left.plot(*corners[0], "o", color=LIGHT["ink"])
    left.set(xlabel="score of key A", ylabel="score of key B", aspect="equal")
    left.set_title("asymmetry and a loop")
    for name, (label, total) in work.items():
        sides = np.linspace(0, 4, len(total))
        right.plot(sides, total, color=LIGHT[name], linestyle=DASHES[name], label=label)
        right.plot(sides[-1:], total[-1:], "o", color=LIGHT[name], clip_on=False)
    right.axhline(0, color=LIGHT["grey"], linestyle="-", linewidth=0.8)
    right.set(xlabel="sides walked", ylabel="work so far")
    right.set(xticks=range(5), xlim=(0, 4), ylim=(-0.1, 3.4))
    right.set_title("what the walk pays")
    right.legend(loc="upper right")
    return fig


def slopes(score, values, weights):
    """Draw the value of two keys, and its slope, for several regularisers.

    Parameters
    ----------
    score : array (N,)
        Score of the first key; the second has score 0.
    values, weights : dicts of palette names to (label, array (N,)) and to array (N,)
        The value, and the weight of the first key.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.1))
    for name, (label, value) in values.items():
        look = {"color": LIGHT[name], "linestyle": DASHES[name]}
        left.plot(score, value, label=label, **look)
        right.plot(score, weights[name], **look)
    left.set(xlabel="score of key A (B has 0)", title="value", ylim=(-0.1, 2.6))
    right.set(xlabel="score of key A (B has 0)", title="slope of the value = weight of A")
    left.legend(loc="upper left")
    return fig
