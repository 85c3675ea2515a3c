"""Drawings for the page "Pay for certainty": blurred plans, the ascent, and what entropy costs."""

import numpy as np

from eotcourse.course.palette import LIGHT


def blurred(axes, panels, mu, nu):
    """Draw plans side by side, each with its two margins along its edges.

    Parameters
    ----------
    axes : sequence of matplotlib Axes
    panels : sequence of (title, P)
        Plans (m, n), each shaded up to its own largest entry.
    mu, nu : array (m,), array (n,)
        Row masses, drawn along the left edge, and column masses, along the lower edge.
    """
    m, n = len(mu), len(nu)
    height = 0.3 * min(m, n) / max(mu.max(), nu.max())
    for ax, (title, P) in zip(axes, panels, strict=True):
        ax.imshow(P / P.max(), vmin=0, vmax=1, extent=(0, n, m, 0), aspect="equal")
        look = {"linestyle": "-", "linewidth": 1.5}
        ax.plot(height * mu, np.arange(m) + 0.5, color=LIGHT["softmax"], **look)
        ax.plot(np.arange(n) + 0.5, m - height * nu, color=LIGHT["entmax"], **look)
        ax.set(title=title, xticks=[], yticks=[], xlim=(0, n), ylim=(m, 0))


def ascent(axes, errors, missing, distance, factor):
    """Draw how the two marginal errors alternate, how the dual rises, and the guaranteed rate.

    Parameters
    ----------
    axes : two matplotlib Axes
    errors : array (k, 2)
        Error of the row sums and of the column sums after every half-step.
    missing : array (k,)
        What the dual still misses after every half-step.
    distance : array (t,)
        Hilbert's distance from the solution after every full iteration.
    factor : float
        What a full iteration is guaranteed to contract by.
    """
    left, right = axes
    half = np.arange(1, len(errors) + 1)
    left.plot(half[::2], errors[::2, 1], "o", color=LIGHT["softmax"], linestyle="none",
              label="columns, after a row step")
    left.plot(half[1::2], errors[1::2, 0], "D", color=LIGHT["entmax"], linestyle="none",
              label="rows, after a column step")
    left.plot(half, missing, color=LIGHT["ink"], linestyle="-", linewidth=1.2,
              label="missing in the dual")
    left.set(yscale="log", xlabel="half-step", ylabel="error, or what is missing",
             ylim=(missing.min() / 300, None))
    left.legend(loc="lower left", fontsize=9.5, borderaxespad=0.2)
    t = np.arange(len(distance))
    right.plot(t, distance[0] * factor**t, color=LIGHT["grey"], linestyle="--", label="guaranteed")
    right.plot(t, distance, "s", color=LIGHT["sparsemax"], linestyle="-", linewidth=1,
               label="Hilbert's distance")
    right.set(yscale="log", xlabel="full iteration", ylabel="distance from the solution")
    right.legend(loc="lower left")


def price(ax, eps, extra, bound):
    """Draw what the soft plan costs more than the best one, and its bound, against eps.

    Parameters
    ----------
    ax : matplotlib Axes
    eps, extra, bound : array (k,)
    """
    ax.plot(eps, bound, color=LIGHT["grey"], linestyle="--", label="bound")
    ax.plot(eps, extra, "o", color=LIGHT["softmax"], linestyle="-", linewidth=1.2,
            label="extra cost")
    ax.set(xscale="log", yscale="log", xlabel=r"$\varepsilon$", ylabel="cost above the optimum")
    ax.legend(loc="lower right")
