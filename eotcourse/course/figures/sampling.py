"""Pictures of the page "Drawing one key"."""

import matplotlib.pyplot as plt
import numpy as np

from eotcourse.course.palette import DASHES, LIGHT


def baselines(rows, exact, parabola, marks):
    """Draw the estimates that two draws can give, and the variance against the baseline.

    Parameters
    ----------
    rows : sequence of (label, palette name, estimates (2,), probabilities (2,))
        First coordinates of the estimates.
    exact : float
        The gradient they estimate.
    parabola : tuple of arrays (N,)
        Baselines and variances.
    marks : three of (label, palette name, baseline, variance)

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.1), width_ratios=(1.15, 1))
    left.axvline(exact, color=LIGHT["grey"], linestyle="--", linewidth=1.2)
    for height, (_, name, estimates, chances) in enumerate(rows):
        left.scatter(
            estimates,
            [height, height],
            s=500 * np.asarray(chances, dtype=float),
            color=LIGHT[name],
            alpha=0.75,
        )
    left.set(
        xlabel="estimate of the first gradient",
        yticks=range(len(rows)),
        yticklabels=[row[0] for row in rows],
        ylim=(len(rows) - 0.5, -0.5),
        title="what one draw gives",
    )
    right.plot(*parabola, color=LIGHT["ink"], linewidth=1.4)
    # The first two lie side by side at the foot, the last on the right branch.
    offsets = ((-9, 26), (3, 11), (-10, 4))
    for (label, name, b, variance), offset in zip(marks, offsets, strict=True):
        right.plot(b, variance, "o", color=LIGHT[name], markersize=9)
        right.annotate(
            label,
            (b, variance),
            xytext=offset,
            textcoords="offset points",
            ha="left" if offset[0] > -10 else "right",
        )
    right.set(xlabel="number subtracted, $b$", title="total variance")
    return fig


def objectives(chance, curves, at):
    """Draw two objectives against the weight of the first of two keys.

    Parameters
    ----------
    chance : array (N,)
    curves : sequence of (label, palette name, values (N,))
    at : float
        A weight to mark on both.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 2.9))
    chance = np.asarray(chance, dtype=float)
    for label, name, values in curves:
        values = np.asarray(values, dtype=float)
        ax.plot(chance, values, color=LIGHT[name], linestyle=DASHES[name], label=label)
        ax.plot(at, np.interp(at, chance, values), "o", color=LIGHT[name], markersize=8)
    ax.set(xlabel="weight of the first key", ylabel="objective")
    ax.legend(loc="center", bbox_to_anchor=(0.5, 0.7))
    return fig
