"""Pictures of the page "Masks, causality, heads"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import LIGHT


def grids(panels):
    """Draw attention matrices side by side; a cell that is exactly zero is white with a dot.

    Parameters
    ----------
    panels : sequence of (title, weights)
        ``weights`` is an array (queries, keys).

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 1.9))
    for ax, (title, weights) in zip(axes, panels, strict=True):
        m, n = weights.shape
        ax.imshow(np.ma.masked_equal(weights, 0), vmin=0, vmax=1, aspect="auto")
        i, j = np.nonzero(weights == 0)
        ax.scatter(j, i, s=12, color=LIGHT["grey"])
        for (row, column), value in np.ndenumerate(weights):
            if value > 0:
                ink = "white" if value > 0.6 else LIGHT["ink"]
                ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink)
        ax.set_xticks(range(n), range(1, n + 1))
        ax.set_yticks(range(m), range(1, m + 1))
        ax.set(title=title, xlabel="key", ylabel="query")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    return fig
