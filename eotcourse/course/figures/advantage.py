"""Pictures of the page "The gradient is an advantage"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import LIGHT

_MINUS = "\N{MINUS SIGN}"


def plane(value, output, target, advantage):
    """Draw values in the plane, and how far each reaches in the direction that lowers the loss.

    Parameters
    ----------
    value : array (3, 2)
    output, target : arrays (2,)
        Output of attention, and where the loss wants it; the loss falls along their difference.
    advantage : array (3,)
        Of each value, in units of loss.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.6))
    value, output, target = (np.asarray(x, dtype=float) for x in (value, output, target))
    fall = target - output
    unit = fall / np.linalg.norm(fall)
    across = np.array([-unit[1], unit[0]])
    far = output + np.outer([-1.5, 1.5], across)
    ax.plot(*far.T, color=LIGHT["grey"], linestyle="--", linewidth=1)
    for name, v, a in zip("ABC", value, np.asarray(advantage, dtype=float), strict=True):
        foot = v - ((v - output) @ unit) * unit
        ax.plot(*np.stack([foot, v]).T, color=LIGHT["gradient"], linestyle=":")
        ax.plot(*v, "o", color=LIGHT["softmax"], markersize=9)
        ax.annotate(
            f"{name}  {a:+.2f}".replace("-", _MINUS),
            v,
            xytext=(0, 9),
            textcoords="offset points",
            ha="left" if v @ unit > output @ unit else "center",
        )
    arrow = {"arrowstyle": "-|>", "color": LIGHT["ink"], "linewidth": 1.6, "shrinkB": 6}
    ax.annotate("", target, output, arrowprops=arrow)
    ax.plot(*output, "s", color=LIGHT["ink"], markersize=8)
    ax.annotate("output", output, xytext=(-9, -4), textcoords="offset points", ha="right", va="top")
    ax.annotate("target", target, xytext=(0, -15), textcoords="offset points", ha="center")
    ax.set(aspect="equal", xlim=(-1.5, 1.6), ylim=(-0.2, 1.25), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return fig


def signs(step, curves, start):
    """Draw the loss along straight steps in the scores, one curve for each sign.

    Parameters
    ----------
    step : array (N,)
        In multiples of the gradient.
    curves : sequence of (label, palette name, array (N,))
    start : float
        The loss before any step.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 2.9))
    for (label, name, loss), dash in zip(curves, ("-", "--"), strict=True):
        ax.plot(step, loss, color=LIGHT[name], linestyle=dash, label=label)
    ax.axhline(start, color=LIGHT["grey"], linestyle=":", linewidth=1)
    ax.set(xlabel="step, in multiples of the gradient", ylabel="loss")
    ax.legend(loc="center right")
    return fig
