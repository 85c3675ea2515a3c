"""The two pictures of the five-minute taste."""

from eotcourse.course.figures import simplex
from eotcourse.course.palette import DASHES, LIGHT, MARKERS

_DASHES = ("softmax", "entmax", "ink")


def trade(fig, points, values, taus, path, shown, keys):
    """Draw score plus entropy on the simplex, and how its maximiser moves with the temperature.

    Parameters
    ----------
    fig : matplotlib Figure
    points, values : arrays (N, 3), (N,)
        The objective on a grid.
    taus, path : arrays (T,), (T, 3)
        Temperatures in increasing order and the maximiser at each.
    shown : list of int
        Positions in ``taus`` to mark; the middle one is the objective's own temperature.
    keys : three strings
    """
    left, right = fig.subplots(1, 2, width_ratios=(1.1, 1))
    simplex.triangle(left, keys)
    simplex.levels(left, points, values)
    simplex.path(left, path)
    simplex.mark(left, path[shown])
    for i in shown:
        x, y = simplex.to_plane(path[i])
        at, align = ((x + 0.05, y), "left") if y > 0.05 else ((x - 0.02, y - 0.08), "left")
        left.text(*at, f"$\\tau={taus[i]:g}$", ha=align, va="center")
    here = shown[1]
    right.axvline(taus[here], color=LIGHT["grey"], linewidth=1, linestyle="-")
    sides = ((6, 4, "left"), (-6, 2, "right"), (6, -14, "left"))
    for weights, key, name, (dx, dy, align) in zip(path.T, keys, _DASHES, sides, strict=True):
        right.plot(taus, weights, color=LIGHT["softmax"], linestyle=DASHES[name])
        right.plot(taus[here], weights[here], MARKERS["softmax"], color=LIGHT["softmax"])
        where = {"xytext": (dx, dy), "textcoords": "offset points", "ha": align}
        right.annotate(f"{key} {weights[here]:.3f}", (taus[here], weights[here]), **where)
    right.set(xscale="log", xlabel=r"temperature $\tau$", ylabel="weight", ylim=(-0.02, 1.02))
    right.set_xticks([0.25, 1, 4, 16, 64], ["0.25", "1", "4", "16", "64"])
    right.minorticks_off()


def backward(fig, points, loss, path, keys, weights, advantage, push):
    """Draw the loss on the simplex with a descent path, and what the first step gave each key.

    Parameters
    ----------
    fig : matplotlib Figure
    points, loss : arrays (N, 3), (N,)
        The loss on a grid.
    path : array (T, 3)
        Weights during gradient descent on the scores.
    keys : three strings
    weights, advantage, push : arrays (3,)
        At the start of the path: the weights, the advantages, minus the gradient.
    """
    axes = fig.subplot_mosaic([["loss", "advantage"], ["loss", "push"]], width_ratios=(1.1, 1))
    simplex.triangle(axes["loss"], keys)
    simplex.levels(axes["loss"], points, -loss)
    simplex.path(axes["loss"], path, "gradient")
    simplex.mark(axes["loss"], path[0])
    simplex.mark(axes["loss"], path[-1], "gradient")
    rows = (
        ("advantage", "advantage", advantage, "grey"),
        ("push", r"push = weight $\times$ advantage / $\tau$", push, "gradient"),
    )
    for name, title, heights, color in rows:
        ax = axes[name]
        bars = ax.bar(range(3), heights, 0.5, color=LIGHT[color])
        ax.bar_label(bars, [f"{h:+.2f}".replace("-", "\N{MINUS SIGN}") for h in heights], padding=2)
        ax.axhline(0, color=LIGHT["ink"], linewidth=1, linestyle="-")
        ax.margins(y=0.25)
        ax.set(title=title, yticks=[])
        ax.tick_params(axis="x", length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
    names = [f"{key}\nweight {p:.3f}" for key, p in zip(keys, weights, strict=True)]
    axes["push"].set_xticks(range(3), names)
    axes["advantage"].set_xticks([])
