"""Pictures of the page "One number per row"."""

import matplotlib.pyplot as plt

from eotcourse.course.palette import DASHES, LIGHT, MARKERS


def collapse(rows):
    """Draw weights of several rows against their scores, and against the scores less one number.

    Parameters
    ----------
    rows : sequence of (label, palette name, scores (n,), weights (n,), gaps (n,))
        Consecutive entries with the same label belong to one member; gaps are scores minus the
        row's soft maximum.

    Returns
    -------
    matplotlib Figure
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3.1), sharey=True)
    seen = set()
    for label, name, scores, weights, gaps in rows:
        style = {"color": LIGHT[name], "marker": MARKERS[name], "markersize": 4, "linewidth": 1.2}
        left.plot(scores, weights, linestyle=DASHES[name], **style)
        right.plot(gaps, weights, linestyle="none", label=None if label in seen else label, **style)
        seen.add(label)
    left.set(xlabel=r"scaled score $\theta$", ylabel="weight", title="as they come")
    right.set(xlabel=r"$\theta - \zeta$", title="less one number per row")
    right.legend(loc="upper left")
    return fig


def rounding(n, curves):
    """Draw the error of rounded scores against the length, with its bound.

    Parameters
    ----------
    n : sequence of int
    curves : sequence of (label, palette name, errors, bounds)

    Returns
    -------
    matplotlib Figure
    """
    fig, ax = plt.subplots(figsize=(6.9, 3.3))
    for label, name, errors, bounds in curves:
        ax.plot(n, errors, color=LIGHT[name], linestyle="-", marker=MARKERS[name])
        ax.plot(n, bounds, color=LIGHT[name], linestyle="--", linewidth=1.2)
        for text, values in ((label, errors), ("its bound", bounds)):
            ax.annotate(
                text,
                (n[-1], values[-1]),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=LIGHT[name],
            )
    ax.set(xscale="log", yscale="log", xlim=(n[0] * 0.8, n[-1] * 4.5))
    ax.set_xticks(n, [str(x) for x in n])
    ax.minorticks_off()
    ax.set(xlabel="number of keys", ylabel="error of the weights")
    return fig
