"""Pictures of the page "ALiBi without a bias"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import LIGHT


def profile(panels, level):
    """Draw weights against the distance of their keys, on logarithmic axes, and where they end.

    Parameters
    ----------
    panels : sequence of (title, palette name, curves)
        Each curve is a (label, weights (n,)) by distance; weights of 0 are left out.
    level : float
        A weight to mark with a dotted line.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.3), sharex=True, sharey=True)
    for ax, (title, name, curves) in zip(axes, panels, strict=True):
        for shade, (label, weights) in zip(np.linspace(1, 0.35, len(curves)), curves):
            weights = np.asarray(weights, dtype=float)
            at = np.flatnonzero(weights > 1e-14)
            ax.plot(
                at + 1, weights[at], ".", markersize=3, color=LIGHT[name], alpha=shade, zorder=2
            )
            end = np.flatnonzero(weights > 1e-9)[-1] + 1
            if end > at[-1]:
                ax.vlines(end, 1e-14, weights[at[-1]], color=LIGHT[name], linewidth=0.8)
            ax.text(
                0.92 * end, 3e-12, label, rotation=90, ha="right", va="center", color=LIGHT[name]
            )
        ax.axhline(level, color=LIGHT["grey"], linestyle=":", linewidth=1.2)
        ax.set(title=title, xscale="log", yscale="log", ylim=(1e-14, 3), xlim=(0.8, 1e4))
        ax.set_xlabel("distance of the key, plus 1")
    axes[0].set_ylabel("weight")
    return fig


def windows(n, bands):
    """Draw which keys each query can see, one triangle for each head.

    Parameters
    ----------
    n : int
        Number of queries and keys.
    bands : sequence of (title, palette name, window)
        How many keys before its own a query can see.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(2, 4, figsize=(6.9, 4.0), sharex=True, sharey=True)
    i = np.array([0.0, n])
    for ax, (title, name, window) in zip(axes.flat, bands, strict=True):
        ax.fill_betweenx(i, 0 * i, i, color="#e3e6eb", linewidth=0)
        rows = np.linspace(0, n, 257)
        ax.fill_betweenx(
            rows, np.maximum(0, rows - window), rows, color=LIGHT[name], linewidth=0.8
        )
        ax.set(title=title, xlim=(0, n), ylim=(n, 0), aspect="equal")
        ax.set_xticks([0, n])
        ax.set_yticks([0, n])
        ax.grid(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("query")
    for ax in axes[-1]:
        ax.set_xlabel("key")
    return fig
