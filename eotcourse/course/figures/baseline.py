"""Pictures of the page "The baseline that kernels read off the output"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import DASHES, LIGHT


def means(value, panels):
    """Draw values in the plane with the output of a row and the mean that is its baseline.

    Parameters
    ----------
    value : array (3, 2)
    panels : sequence of (title, output (2,), mean (2,), direction (2,))
        The direction in which the loss falls at the output.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.9))
    value = np.asarray(value, dtype=float)
    for ax, (title, output, mean, fall) in zip(axes, panels, strict=True):
        output, mean, fall = (np.asarray(x, dtype=float) for x in (output, mean, fall))
        unit = fall / np.linalg.norm(fall)
        line = mean + np.outer([-2, 2], [-unit[1], unit[0]])
        ax.plot(*line.T, color=LIGHT["grey"], linestyle="--", linewidth=1.2)
        ax.fill(*value.T, facecolor="none", edgecolor=LIGHT["grey"], linewidth=0.8)
        ax.plot(*value.T, "o", color=LIGHT["ink"], markersize=6)
        arrow = {"arrowstyle": "-|>", "color": LIGHT["ink"], "linewidth": 1.4}
        ax.annotate("", output + 0.45 * unit, output, arrowprops=arrow)
        ax.plot(*output, "X", color=LIGHT["gradient"], markersize=9, label="output")
        ring = {"markersize": 14, "markerfacecolor": "none", "markeredgewidth": 2}
        ax.plot(*mean, "o", color=LIGHT["softmax"], label="mean value under $u$", **ring)
        for key, v in zip("ABC", value, strict=True):
            out = v - value.mean(0)
            ax.annotate(
                key,
                v,
                xytext=13 * out / np.linalg.norm(out),
                textcoords="offset points",
                ha="center",
                va="center",
            )
        ax.text(0.5, 1.32, title, ha="center", weight="bold")
        ax.set(aspect="equal", xlim=(-0.25, 1.25), ylim=(-0.25, 1.45), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    handles, labels = axes[-1].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=2)
    return fig


def saturation(delta, curves):
    """Draw the norm of the Jacobian of two keys against the weight of the weaker one.

    Parameters
    ----------
    delta : array (N,)
    curves : sequence of (label, palette name, array (N,))

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for label, name, norm in curves:
        ax.plot(delta, norm, color=LIGHT[name], linestyle=DASHES[name])
        ax.annotate(
            label,
            (delta[0], norm[0]),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            va="bottom" if norm[0] > 1.5 else "center",
        )
    ax.set(
        xscale="log",
        yscale="log",
        xlim=(delta[0] / 8, 0.6),
        xlabel="weight of the weaker key",
        ylabel=r"$\tau\,\|J\|_2$",
    )
    return fig
