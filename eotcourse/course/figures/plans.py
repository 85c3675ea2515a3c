"""Pictures of transport plans and attention matrices: rows are queries, columns are keys."""

import numpy as np
from matplotlib.colors import to_rgb

from eotcourse.course.palette import LIGHT


def plans(fig, panels, unit="attention weight", labels=None, numbers=False, vmax=None):
    """Draw plans side by side, the mass that each key receives above each of them.

    The bars are what one-sided and two-sided transport disagree about: a column constraint
    makes them level with the line at 1, row softmax does not. Cells that are exactly zero are
    left white with a dot; a small positive weight is a pale cell without one.

    Parameters
    ----------
    fig : matplotlib Figure
        Empty; the panels fill it.
    panels : sequence of (title, P, mass)
        ``P`` is an array (m, n) of non-negative entries. ``mass`` (n,) is the mass of each key
        divided by its fair share, so that 1 means balanced.
    unit : str
        Label of the colour bar, which all panels share.
    labels : (rows, columns), optional
        Names of the m queries and the n keys; without them they are numbered from 1.
    numbers : bool
        Write the entries into the cells.
    vmax : float, optional
        Top of the colour scale; the largest entry when not given.

    Returns
    -------
    list of (bars, heat)
        The pair of axes of each panel.
    """
    top = vmax or max(np.max(P) for _, P, _ in panels)
    tallest = 1.15 * max(1.0, *(np.max(mass) for _, _, mass in panels))
    grid = fig.subplots(
        2, len(panels), squeeze=False, sharex="col", height_ratios=(1, 2.6)
    )
    for (title, P, mass), bars, heat in zip(panels, *grid, strict=True):
        _bars(bars, mass, tallest)
        bars.set_title(title)
        image = _heat(heat, np.asarray(P, dtype=float), top, numbers, labels)
    grid[0, 0].set_ylabel("mass\nof a key")
    grid[1, 0].set_ylabel("query")
    fig.colorbar(image, ax=list(grid[1]), label=unit)
    return list(zip(*grid, strict=True))


def _bars(ax, mass, tallest):
    ax.bar(np.arange(len(mass)), mass, width=0.7, color=LIGHT["softmax"])
    ax.axhline(1, color=LIGHT["ink"], linestyle="--", linewidth=1)
    ax.set(ylim=(0, tallest), yticks=(0, 1))
    ax.tick_params(axis="x", length=0, labelbottom=False)


def _heat(ax, P, top, numbers, labels):
    rows, columns = labels or (range(1, P.shape[0] + 1), range(1, P.shape[1] + 1))
    image = ax.imshow(np.ma.masked_equal(P, 0), vmin=0, vmax=top, aspect="auto")
    i, j = np.nonzero(P == 0)
    ax.scatter(j, i, s=9, color=LIGHT["grey"])
    if numbers:
        for (row, column), value in np.ndenumerate(P):
            if value > 0:
                text = f"{value:.2f}" if value >= 0.005 else "<.01"
                shade = np.mean(to_rgb(image.cmap(image.norm(value))))
                ink = "white" if shade < 0.55 else LIGHT["ink"]
                ax.text(column, row, text, ha="center", va="center", color=ink, fontsize=9.5)
    ax.set_xticks(range(P.shape[1]), columns)
    ax.set_yticks(range(P.shape[0]), rows)
    ax.set_xlabel("key")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image
