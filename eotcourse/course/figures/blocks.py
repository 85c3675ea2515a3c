"""Pictures of the page "Blockwise attention"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import DASHES, LIGHT, MARKERS


def row(groups, bound, cut):
    """Draw the scores of a row in their groups, with the cut and a lower bound of it.

    Parameters
    ----------
    groups : array (groups, keys)
        Scaled scores.
    bound, cut : float
        What the maxima say about the cut, and the cut.

    Returns
    -------
    matplotlib Figure
    """
    groups = np.asarray(groups, dtype=float)
    m, size = groups.shape
    fig, ax = plt.subplots(figsize=(6.9, 3.5))
    at = np.arange(groups.size).reshape(m, size)
    for x, scores in zip(at, groups, strict=True):
        left = scores.max() > bound
        if left:
            ax.axvspan(x[0] - 0.5, x[-1] + 0.5, color="#eef1f5", zorder=0)
        ax.hlines(scores.max(), x[0] - 0.3, x[-1] + 0.3, color=LIGHT["ink"], linewidth=1)
    x, y = at.ravel(), groups.ravel()
    kinds = (
        (y <= bound, "out: at or below the bound", {"color": LIGHT["grey"], "s": 12}),
        (
            (y > bound) & (y <= cut),
            "survives, has no weight",
            {"facecolors": "white", "edgecolors": LIGHT["entmax"], "s": 38},
        ),
        (y > cut, "has weight", {"color": LIGHT["sparsemax"], "s": 38, "marker": "s"}),
    )
    for on, label, style in kinds:
        ax.scatter(x[on], y[on], label=label, zorder=3, **style)
    for level, text, dash, name, va, up in (
        (cut, "cut", "-", "sparsemax", "bottom", 3),
        (bound, "bound", "--", "entmax", "top", -3),
    ):
        ax.axhline(level, color=LIGHT[name], linewidth=1.4, linestyle=dash)
        ax.annotate(
            text,
            (groups.size + 0.6, level),
            xytext=(0, up),
            textcoords="offset points",
            color=LIGHT[name],
            va=va,
        )
    ax.set_xticks(at.mean(1), [str(i + 1) for i in range(m)])
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-1, groups.size + 6.5), xlabel="group of keys", ylabel=r"scaled score $\theta$")
    fig.legend(loc="outside upper left", ncols=3, handletextpad=0.2, columnspacing=1.2)
    return fig


def left_over(deviations, curves):
    """Draw shares of keys with weight and of groups that are left against the scores' deviation.

    Parameters
    ----------
    deviations : sequence of float
    curves : sequence of (label, palette name, keys, groups)

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, 2, figsize=(6.9, 3.3), sharey=True)
    for label, name, keys, groups in curves:
        style = {"color": LIGHT[name], "linestyle": DASHES[name], "marker": MARKERS[name]}
        axes[0].plot(deviations, keys, markersize=4.5, **style)
        axes[1].plot(deviations, groups, markersize=4.5, label=label, **style)
    axes[0].axhspan(0.1, 1.6, color="#eef1f5", zorder=0)
    axes[0].text(
        deviations[-1], 0.4, "too many for a list", ha="right", va="center", fontsize=9.5
    )
    for ax, title in zip(axes, ("keys with weight", "groups of 8 left"), strict=True):
        ax.set(xscale="log", yscale="log", title=title, xlabel="deviation of the scores")
        ax.set_xticks(deviations, [f"{x:g}" for x in deviations])
        ax.minorticks_off()
    axes[0].set(ylabel="share of the row", ylim=(2e-4, 1.6))
    axes[0].set_yticks([1e-3, 1e-2, 1e-1, 1], ["0.001", "0.01", "0.1", "1"])
    axes[1].legend(loc="lower left")
    return fig


def held(n, curves):
    """Draw numbers held for each query against the length.

    Parameters
    ----------
    n : sequence of int
    curves : sequence of (label, palette name, numbers for each of the first lengths)

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.4))
    for label, name, numbers in curves:
        ax.plot(
            n[: len(numbers)],
            numbers,
            color=LIGHT[name],
            linestyle=DASHES[name],
            marker=MARKERS.get(name, "x"),
        )
        ax.annotate(
            label,
            (n[len(numbers) - 1], numbers[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=LIGHT[name],
        )
    ax.set(xscale="log", yscale="log", xlim=(n[0] * 0.85, n[-1] * 2.6))
    ax.set_xticks(n, [str(x) for x in n])
    ax.minorticks_off()
    ax.set(xlabel="queries and keys", ylabel="numbers held per query")
    return fig
