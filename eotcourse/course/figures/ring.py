"""Pictures of the page "Ring attention"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from eotcourse.course.palette import DASHES, LIGHT


def hops(panels):
    """Draw which block each rank holds at each hop, shaded by the pairs it has to compute there.

    Parameters
    ----------
    panels : sequence of (title, pairs (P, P))
        ``pairs[r, h]`` are the pairs of the queries of rank r with the block of rank r - h. Below
        each column stands its largest entry, and at its right the sum of these.

    Returns
    -------
    matplotlib Figure
    """
    shades = LinearSegmentedColormap.from_list("pairs", ["white", LIGHT["softmax"]])
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.3))
    top = max(int(pairs.max()) for _, pairs in panels)
    for ax, (title, pairs) in zip(axes, panels, strict=True):
        pairs = np.asarray(pairs)
        size = len(pairs)
        ax.imshow(pairs, cmap=shades, vmin=0, vmax=1.25 * top, aspect="auto")
        for r in range(size):
            for h in range(size):
                block = "ABCDEFGH"[(r - h) % size]
                ax.text(h, r, f"{block}  {pairs[r, h]}", ha="center", va="center")
        slowest = pairs.max(0)
        for h, most in enumerate(slowest):
            ax.text(h, size - 0.1, str(most), ha="center", va="center", fontweight="bold")
        ax.text(size - 0.4, size - 0.1, f"= {slowest.sum()}", va="center", fontweight="bold")
        ax.set_xticks(range(size), [f"hop {h}" for h in range(size)])
        ax.set_yticks([*range(size), size - 0.1], [*map(str, range(size)), "longest"])
        ax.set(title=title, ylim=(size + 0.3, -0.5), xlim=(-0.5, size + 0.25))
        ax.tick_params(length=0)
        ax.xaxis.tick_top()
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
    axes[0].set_ylabel("rank")
    return fig


def cost(ranks, seconds, lengths, shares, edge):
    """Draw what the cost model says about a layer.

    Parameters
    ----------
    ranks : sequence of int
    seconds : sequence of (label, palette name, seconds per number of ranks, label place)
        The place is an index into `ranks` and a shift of the label in points.
    lengths : sequence of int
    shares : sequence of (label, palette name, sending over computing per length)
    edge : float
        Number of ranks beyond which sending takes longer than computing.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.5))
    for label, name, values, (at, shift) in seconds:
        left.plot(ranks, values, color=LIGHT[name], linestyle=DASHES[name])
        left.annotate(
            label, (ranks[at], values[at]), xytext=shift, textcoords="offset points",
            color=LIGHT[name], ha="left" if shift[0] >= 0 else "right", va="center",
        )  # fmt: skip
    left.axvline(edge, color=LIGHT["grey"], linewidth=1, linestyle=":")
    left.set(xscale="log", yscale="log", xlabel="ranks", ylabel="seconds a layer")
    left.set_xticks([4, 32, 256, 4096], ["4", "32", "256", "4096"])
    for label, name, values in shares:
        right.plot(lengths, values, color=LIGHT[name], linestyle=DASHES[name])
        right.annotate(
            label, (lengths[-1], values[-1]), xytext=(4, 0), textcoords="offset points",
            color=LIGHT[name], va="center",
        )  # fmt: skip
    right.axhline(1, color=LIGHT["grey"], linewidth=1, linestyle=":")
    right.set(xscale="log", yscale="log", xlabel="length", ylabel="sending / computing")
    right.set_xlim(lengths[0], lengths[-1] * 9)
    right.set_xticks([2**14, 2**17, 2**20], ["16384", "131072", "a million"])
    for ax in (left, right):
        ax.minorticks_off()
    return fig
