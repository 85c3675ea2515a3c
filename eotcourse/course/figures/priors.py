"""Pictures of the page "Priors: what is assumed before the scores"."""

import matplotlib.pyplot as plt

from eotcourse.course.palette import DASHES, LIGHT, MARKERS


def laws(lag, panels):
    """Draw laws of the lag side by side as bars, each with its mean and entropy.

    Parameters
    ----------
    lag : array (N,)
        Lags.
    panels : sequence of (title, law, mean, entropy)
        ``law`` (N,) and two numbers computed from it.

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 2.5), sharex=True, sharey=True)
    for ax, (title, law, mean, entropy) in zip(axes, panels, strict=True):
        ax.bar(lag, law, width=0.8, color=LIGHT["softmax"])
        ax.axvline(float(mean), color=LIGHT["ink"], linestyle=":", linewidth=1.2)
        ax.set_title(title)
        words = f"mean {float(mean):.2f}\nentropy {float(entropy):.3f}"
        ax.text(0.97, 0.95, words, transform=ax.transAxes, ha="right", va="top")
        ax.set(xlabel="lag")
    axes[0].set_ylabel("prior weight")
    return fig


def horizons(lag, laws, edge):
    """Draw weights against the lag on a logarithmic axis; exact zeros go to a row of their own.

    Parameters
    ----------
    lag : array (N,)
    laws : sequence of (name, label, weights)
        ``name`` in the palette, ``weights`` (N,).
    edge : float
        Lag from which a theorem makes the weights of the second and later laws zero.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.3))
    floor = 1e-6
    for k, (name, label, weights) in enumerate(laws):
        on = weights > 0
        style = {"color": LIGHT[name], "marker": MARKERS[name], "markersize": 5}
        ax.plot(lag[on], weights[on], linestyle=DASHES[name], label=label, **style)
        ax.plot(lag[~on], [floor * 4 ** (1 - k)] * (~on).sum(), linestyle="", mfc="white", **style)
    ax.axvline(edge, color=LIGHT["ink"], linestyle=":", linewidth=1.2)
    ax.text(edge + 0.2, 0.6, "no weight from here on (entmax)", va="top")
    ax.axhline(floor * 6, color=LIGHT["grey"], linewidth=0.8, linestyle="-")
    ax.text(lag[-1] + 0.4, floor / 2, "exactly 0", va="center", ha="left", color=LIGHT["ink"])
    ax.set(yscale="log", xlabel="lag", ylabel="weight", ylim=(floor / 12, 1.2))
    ax.set_xticks(lag[::4])
    ax.set_yticks([1e-4, 1e-2, 1])
    ax.minorticks_off()
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.22))
    return fig


def crossing(query, curves, crossings):
    """Draw the weight of the longer of two keys on a line, as the query moves.

    Parameters
    ----------
    query : array (N,)
    curves : sequence of (name, label, weight)
        ``name`` in the palette, ``weight`` (N,).
    crossings : sequence of (position, text)
        Where a curve passes one half.

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.0))
    for name, label, weight in curves:
        ax.plot(query, weight, color=LIGHT[name], linestyle=DASHES[name], label=label)
    ax.axhline(0.5, color=LIGHT["grey"], linewidth=0.8, linestyle="-")
    for position, text in crossings:
        ax.plot([position], [0.5], "o", color=LIGHT["ink"], markersize=5)
        ax.annotate(text, (position, 0.5), (6, -6), textcoords="offset points", va="top")
    ax.set(xlabel="query (keys at 1 and 3)", ylabel="weight of the key at 3", ylim=(-0.02, 1.02))
    ax.legend(loc="lower right")
    return fig


def landscapes(x, y, panels, keys):
    """Draw an energy over the plane with descending trajectories, one panel for each temperature.

    Parameters
    ----------
    x, y : arrays (A,), (B,)
        Axes of the grid.
    panels : sequence of (title, energy, paths)
        ``energy`` (B, A); ``paths`` (starts, steps, 2).
    keys : array (n, 2)

    Returns
    -------
    matplotlib Figure
    """
    fig, axes = plt.subplots(1, len(panels), figsize=(6.9, 3.5), sharex=True, sharey=True)
    for ax, (title, energy, paths) in zip(axes, panels, strict=True):
        ax.contour(x, y, energy, levels=14, colors=LIGHT["grey"], linewidths=0.7, linestyles="-")
        for steps in paths:
            ax.plot(*steps.T, color=LIGHT["softmax"], linestyle="-", linewidth=1.5, marker=".")
            ax.plot(*steps[0], "o", color="white", markeredgecolor=LIGHT["softmax"], zorder=4)
        ax.plot(*keys.T, "*", color=LIGHT["entmax"], markersize=12, linestyle="", zorder=5)
        ax.set(title=title, aspect="equal", xticks=[], yticks=[])
    return fig
