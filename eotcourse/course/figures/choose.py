"""Pictures of the page "Choose by assumption"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from eotcourse.course.palette import DASHES, LIGHT, MARKERS

_SERIES = ("softmax", "entmax", "sparsemax", "gradient")


def lengths(panels, chance=None, ylabel="share of right answers", lowest=0.0):
    """Draw a number against the length of the input, one mark a seed and a line through the means.

    Parameters
    ----------
    panels : dict of title -> {length: {model: sequence of numbers, one a seed}}
        The same models, at most four, in every panel.
    chance : float, optional
        What guessing reaches.
    lowest : float
        Where the vertical axis starts.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.2), sharey=True)
    for ax, (title, columns) in zip(axes, panels.items(), strict=True):
        at = np.array(list(columns))
        models = list(columns[at[0]])
        for i, (model, name) in enumerate(zip(models, _SERIES)):
            values = np.array([columns[n][model] for n in at])
            # Side by side, or equal results would hide each other.
            x = at * 1.06 ** (i - (len(models) - 1) / 2)
            ax.plot(x, values.mean(1), color=LIGHT[name], linestyle=DASHES[name], label=model)
            ax.plot(
                x, values, MARKERS[name], color=LIGHT[name], markersize=4, alpha=0.55,
                markeredgewidth=0,
            )  # fmt: skip
        if chance is not None:
            ax.axhline(chance, color=LIGHT["ink"], linestyle=":", linewidth=1)
        ax.set(xscale="log", xticks=at, ylim=(lowest - 0.03, 1.03), xlabel="items n")
        ax.set_xticklabels([str(n) for n in at])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_title(title, loc="center")
    if chance is not None:
        axes[0].annotate("chance", (at.min(), chance + 0.015), va="bottom", fontsize=9)
    axes[0].set_ylabel(ylabel)
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=len(names))
    return fig


def strength(power, losses, best):
    """Draw the log loss against the power of the prior, one curve a split.

    Parameters
    ----------
    power : array (P,)
    losses : array (splits, P)
    best : array (splits,)
        Power of the lowest loss.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.2))
    for row, where in zip(losses, best, strict=True):
        ax.plot(power, row, color=LIGHT["softmax"], linestyle="-", linewidth=1, alpha=0.7)
        ax.plot([where], [row.min()], "o", color=LIGHT["softmax"], markersize=5)
    for at, name in ((-1, "reversed"), (0, "none"), (1, "right")):
        ax.axvline(at, color=LIGHT["grey"], linestyle=":", linewidth=1)
        ax.text(at, 1.02, name, ha="center", va="bottom", transform=ax.get_xaxis_transform())
    ax.set(xlabel="power of the prior", ylabel="log loss (nats)", yscale="log")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks([0.03, 0.1, 0.3, 1.0], ["0.03", "0.1", "0.3", "1"])
    return fig
