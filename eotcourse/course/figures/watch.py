"""Pictures of the page "Watch it learn"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from eotcourse.course.palette import DASHES, LIGHT

_WEIGHT = LinearSegmentedColormap.from_list("weight", ["white", LIGHT["ink"]])
_SIGNED = LinearSegmentedColormap.from_list(
    "signed", [LIGHT["entmax"], "white", LIGHT["softmax"]]
)


def patches(picture, steps, weights, advantages):
    """Draw a picture, and the weights and advantages of its patches at some steps of training.

    Parameters
    ----------
    picture : array (8, 8)
    steps : sequence of int
    weights, advantages : arrays (len(steps), 4, 4)
        Of one head. All weights share one scale, all advantages another.

    Returns
    -------
    matplotlib Figure
    """
    fig = plt.figure(figsize=(6.9, 3.4))
    grid = fig.add_gridspec(2, len(steps) + 1, width_ratios=(1.5, *[1] * len(steps)))
    ax = fig.add_subplot(grid[:, 0])
    ax.imshow(picture, cmap="Greys")
    for edge in (1.5, 3.5, 5.5):
        ax.axhline(edge, color=LIGHT["grey"], linewidth=0.7)
        ax.axvline(edge, color=LIGHT["grey"], linewidth=0.7)
    ax.set_title("16 patches", loc="center")
    _bare(ax)
    rows = (("weight", weights, _WEIGHT, 0), ("advantage", advantages, _SIGNED, -1))
    for row, (name, values, colours, low) in enumerate(rows):
        values = np.asarray(values, dtype=float)
        top = np.abs(values).max()
        for column, (step, image) in enumerate(zip(steps, values, strict=True), 1):
            ax = fig.add_subplot(grid[row, column])
            shown = ax.imshow(image, cmap=colours, vmin=low * top, vmax=top)
            if row == 0:
                ax.set_title(f"step {step}", loc="center")
            _bare(ax)
        fig.colorbar(shown, ax=ax, shrink=0.9, label=name)
    return fig


def _bare(ax):
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, linewidth=0.6)


def curves(panels):
    """Draw four quantities against the steps of training.

    Parameters
    ----------
    panels : four of (title, lower and upper limit, curves)
        Each curve is (label, palette name, array (N,)); a label is shown once.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(2, 2, figsize=(6.9, 4.9), sharex=True)
    handles = {}
    for ax, (title, limits, lines) in zip(axes.flat, panels, strict=True):
        for label, name, values in lines:
            (handles[label],) = ax.plot(values, color=LIGHT[name], linestyle=DASHES[name])
        ax.set_title(title)
        ax.set_ylim(*limits)
    for ax in axes[1]:
        ax.set_xlabel("step")
    fig.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    return fig
