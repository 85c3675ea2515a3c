"""Pictures of the page "When to use which"."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from eotcourse.course.palette import DASHES, LIGHT, MARKERS

# Ways of the stored benchmarks: label, palette name, panel row.
_WAYS = {
    "package, alpha 1.5": ("entmax package, 1.5", "gradient", 0),
    "package, alpha 2": ("entmax package, 2", "grey", 0),
    "softmax, matrix of weights": ("softmax, by hand", "ink", 0),
    "SDPA": ("SDPA", "softmax", 0),
    "alpha 1.5": ("this package, 1.5", "entmax", 0),
    "alpha 2": ("this package, 2", "sparsemax", 0),
    "SDPA, matrix of biases": ("SDPA, matrix of biases", "ink", 1),
    "ALiBi": ("this package, ALiBi", "entmax", 1),
    "SDPA, causal": ("SDPA without bias", "softmax", 1),
}


def scaling(points):
    """Draw seconds and peak memory of both passes against the length, on logarithmic axes.

    Parameters
    ----------
    points : sequence of dict
        As `benchmarks.scaling` makes them, with "way", "n", "seconds" and "mib".

    Returns
    -------
    matplotlib Figure
    """
    fig = plt.figure(figsize=(6.9, 7.6))
    lengths = sorted({p["n"] for p in points})
    parts = fig.subfigures(2, 1, height_ratios=(1.07, 1))
    for row, (part, title) in enumerate(zip(parts, ("no bias", "causal ALiBi"))):
        axes = part.subplots(1, 2)
        for ax, key, what in zip(axes, ("seconds", "mib"), ("CPU seconds", "peak in MiB")):
            for way, (label, name, at) in _WAYS.items():
                mine = sorted((p for p in points if p["way"] == way), key=lambda p: p["n"])
                if at == row:
                    ax.plot(
                        [p["n"] for p in mine], [p[key] for p in mine], color=LIGHT[name],
                        linestyle=DASHES[name], marker=MARKERS.get(name, "v"), markersize=4,
                        linewidth=1.5, label=label,
                    )  # fmt: skip
            ax.set(xscale="log", yscale="log", title=f"{title}: {what}", xlabel="length n")
            ax.set_xticks(lengths, [str(n) for n in lengths], rotation=45)
            ax.xaxis.set_minor_locator(NullLocator())
            ax.grid(True, axis="y")
        handles, names = axes[0].get_legend_handles_labels()
        part.legend(handles, names, loc="outside lower center", ncols=3, fontsize=9)
    return fig


def density(panels):
    """Draw ratios to a dense kernel against the share of keys with weight, with a fitted line.

    Parameters
    ----------
    panels : dict of title -> (points, intercept, slope)
        Points are dicts as `benchmarks.scaling` makes them, with "density", "sparse", "blocks" and
        "chosen"; the line is the cost of "sparse" as a function of the density.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.5), sharey=True)
    for ax, (title, (points, intercept, slope)) in zip(axes, panels.items(), strict=True):
        at = np.array([p["density"] for p in points])
        for key, name in (("sparse", "entmax"), ("blocks", "softmax")):
            label = {"sparse": "keys with weight", "blocks": "all keys, by blocks"}[key]
            ax.plot(at, [p[key] for p in points], MARKERS[name], color=LIGHT[name], label=label)
        x = np.geomspace(at.min(), at.max(), 50)
        ax.plot(x, intercept + slope * x, color=LIGHT["entmax"], linestyle="--", linewidth=1.2,
                label="line fitted")  # fmt: skip
        ax.plot(at, [p["chosen"] for p in points], "o", markersize=11, markerfacecolor="none",
                color=LIGHT["ink"], markeredgewidth=1.2, label="what the package took")  # fmt: skip
        ax.axhline(1, color=LIGHT["grey"], linestyle="-", linewidth=1)
        ax.annotate("SDPA", (1e-3, 1.05), va="bottom", color=LIGHT["grey"])
        ax.set(xscale="log", yscale="log", title=title, xlabel="share of keys with weight")
        ax.set(xlim=(8e-4, 1.2))
        ax.set_xticks([1e-3, 1e-2, 1e-1], ["0.1 %", "1 %", "10 %"])
        ax.set_yticks([0.2, 0.5, 1, 2, 5, 10], ["0.2", "0.5", "1", "2", "5", "10"])
        ax.yaxis.set_minor_locator(NullLocator())
    axes[0].set_ylabel("times SDPA, both passes")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=4, fontsize=9)
    return fig
