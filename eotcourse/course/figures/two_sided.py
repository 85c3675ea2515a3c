"""Pictures of the page "Two-sided attention, for comparison"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from eotcourse.course.palette import DASHES, LIGHT

_HUES = ("softmax", "entmax", "sparsemax", "gradient")


def support(eps, mass, counts, collapse):
    """Draw the self-consistent masses of the keys, and how many are positive, against eps.

    Parameters
    ----------
    eps : array (E,)
        Weights of the information, ascending.
    mass : array (E, n)
        Mass of each key; at most four keys are ever used, the others lie on the axis.
    counts : array (E,)
        Number of keys in use.
    collapse : float
        From this weight on there is one key.

    Returns
    -------
    matplotlib Figure
    """
    fig, (top, below) = plt.subplots(
        2, 1, figsize=(6.9, 3.8), sharex=True, height_ratios=(1, 2.6)
    )
    top.step(eps, counts, where="mid", color=LIGHT["ink"], linestyle="-")
    top.set(ylabel="keys in use", ylim=(0.5, counts.max() + 0.5), yticks=range(1, 4))
    used = [j for j in range(mass.shape[1]) if mass[:, j].max() > 1e-3]
    for name, j in zip(_HUES, used, strict=True):
        below.plot(eps, mass[:, j], color=LIGHT[name], linestyle=DASHES[name])
        # Label a curve where it is farthest from the others, on the side away from the nearest.
        gaps = mass[:, [j]] - mass[:, [other for other in used if other != j]]
        nearest = np.take_along_axis(gaps, np.abs(gaps).argmin(1)[:, None], 1)[:, 0]
        clear = (mass[:, j] > 0.12) & (eps < collapse)
        at = np.where(clear, np.abs(nearest), 0).argmax()
        lift, side = (0.04, "bottom") if nearest[at] > 0 else (-0.02, "top")
        look = {"color": LIGHT[name], "ha": "right", "va": side}
        below.text(eps[at], mass[at, j] + lift, f"key {j + 1}", **look)
    for ax in (top, below):
        ax.axvline(collapse, color=LIGHT["grey"], linestyle="--", linewidth=1)
    below.text(collapse * 1.04, 0.5, "collapse", color=LIGHT["ink"])
    below.set(xscale="log", ylim=(-0.03, 1.13), ylabel="mass of a key")
    below.set_xlabel(r"weight $\varepsilon$ of the information")
    below.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    below.xaxis.set_minor_locator(NullLocator())
    return fig
