"""Pictures of the page "When to use which"."""

import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator

from eotcourse.course.palette import DASHES, LIGHT, MARKERS

# Ways of the stored benchmarks: label, palette name, panel row.
_WAYS = {
    "SDPA": ("SDPA", "softmax", 0),
    "softmax, matrix of weights": ("softmax, all weights", "ink", 0),
    "package, alpha 1.5": ("entmax package, 1.5", "gradient", 0),
    "package, alpha 2": ("entmax package, 2", "grey", 0),
    "alpha 1.5": ("ours, 1.5", "entmax", 0),
    "alpha 2": ("ours, 2", "sparsemax", 0),
    "SDPA, causal": ("SDPA, no bias", "softmax", 1),
    "SDPA, matrix of biases": ("SDPA, matrix of biases", "ink", 1),
    "ALiBi": ("ours, ALiBi", "entmax", 1),
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
    fig, axes = plt.subplots(2, 2, figsize=(6.9, 6.4), sharex=True)
    lengths = sorted({p["n"] for p in points})
    for way, (label, name, row) in _WAYS.items():
        mine = sorted((p for p in points if p["way"] == way), key=lambda p: p["n"])
        for ax, key in zip(axes[row], ("seconds", "mib")):
            ax.plot(
                [p["n"] for p in mine], [p[key] for p in mine], color=LIGHT[name],
                linestyle=DASHES[name], marker=MARKERS.get(name, "v"), markersize=4,
                linewidth=1.5, label=label,
            )  # fmt: skip
    for row, title in enumerate(("every key", "causal, ALiBi")):
        for ax, what in zip(axes[row], ("CPU seconds", "MiB at the peak")):
            ax.set(xscale="log", yscale="log", title=f"{title}: {what}")
            ax.set_xticks(lengths, [str(n) for n in lengths], rotation=45)
            ax.xaxis.set_minor_locator(NullLocator())
            ax.grid(True, axis="y")
        axes[row, 0].legend(fontsize=8.5, loc="upper left")
    for ax in axes[1]:
        ax.set_xlabel("length n")
    return fig
