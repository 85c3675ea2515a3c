"""Pictures of the page "Merging blocks"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import DASHES, LIGHT, MARKERS


def cuts(panels, lines):
    """Draw scores as bars, the part above a cut filled: the weights of sparsemax.

    Parameters
    ----------
    panels : sequence of (title, names, scores (n,), cut)
    lines : sequence of float
        Cuts to repeat, dotted, in the last panel.

    Returns
    -------
    matplotlib Figure
    """
    widths = [len(names) + 1 for _, names, _, _ in panels]
    fig, axes = plt.subplots(
        1, len(panels), figsize=(6.9, 2.9), sharey=True, width_ratios=widths
    )
    for ax, (title, names, scores, cut) in zip(axes, panels, strict=True):
        scores = np.asarray(scores, dtype=float)
        above = np.maximum(scores - cut, 0)
        at = np.arange(len(names))
        ax.bar(at, scores - above, color="#d9dde3", width=0.7)
        ax.bar(at, above, bottom=scores - above, color=LIGHT["sparsemax"], width=0.7)
        for x, score, weight in zip(at, scores, above, strict=True):
            text = f"{weight:.2f}" if weight > 0 else "0"
            y, va = (score + 0.02, "bottom") if weight > 0 else (score - 0.02, "top")
            ax.text(x, y, text, ha="center", va=va, fontsize=9)
        ax.axhline(cut, color=LIGHT["entmax"], linewidth=1.6)
        ax.set_xticks(at, names)
        ax.set(title=title, xlim=(-0.6, len(names) - 0.4), ylim=(0, 1.25))
    for cut in lines:
        axes[-1].axhline(cut, color=LIGHT["entmax"], linewidth=1.2, linestyle=":")
    axes[0].set_ylabel("score")
    return fig


def screening(asked, curves):
    """Draw the keys that survive a bound from a few entries against how many these are.

    Parameters
    ----------
    asked : sequence of int
        Number of entries that gave the bound.
    curves : sequence of (label, palette name, survivors, support, label height)
        Mean survivors for each, the mean size of the support, and how far the label is moved up,
        in points.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.4))
    for label, name, survivors, support, up in curves:
        ax.plot(asked, survivors, color=LIGHT[name], linestyle=DASHES[name], marker=MARKERS[name])
        ax.axhline(support, color=LIGHT["grey"], linewidth=1, linestyle=":")
        ax.annotate(
            label,
            (asked[4], survivors[4]),
            xytext=(4, up),
            textcoords="offset points",
            ha="left",
            va="center",
            color=LIGHT[name],
        )
    ax.set(xscale="log", yscale="log", xlim=(asked[0] * 0.85, asked[-1] * 1.2))
    ax.set_xticks(asked, [str(x) for x in asked])
    ax.minorticks_off()
    ax.set(xlabel="group maxima that gave the bound", ylabel="keys that survive")
    return fig
