"""Print computed numbers and draw figures so that a second run can be compared with the first.

Every output of a notebook is stored and compared again on other machines.  A number is therefore
rounded before it is printed, and refused where the next machine might round it the other way; a
figure carries a text made from the data it draws, because pictures themselves are not comparable.
"""

import hashlib
import io
import pathlib

import numpy as np

__all__ = ["fails", "fingerprint", "holds", "publish", "show", "use_style"]


def _array(value):
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _rounded(x, digits, tol, name):
    if np.isnan(x):
        raise ValueError(f"{name}: NaN cannot be shown")
    if np.isinf(x):
        return "inf" if x > 0 else "-inf"
    scaled = abs(float(x)) * 10.0**digits
    if abs(scaled - np.floor(scaled) - 0.5) <= tol * 10.0**digits:
        raise ValueError(
            f"{name}: {x!r} is within {tol:g} of a rounding edge at {digits} digits; "
            "show another number of digits"
        )
    text = f"{x:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def show(name, value, digits=4, tol=1e-9):
    """Print ``name = value`` with the computed value rounded to ``digits`` decimals.

    Parameters
    ----------
    name : str
        What the number is.
    value : number, numpy array or torch tensor of at most two dimensions
        Integers and booleans are printed as they are; a matrix is printed row by row.
    digits : int
        Decimals to print.
    tol : float
        Uncertainty of the value.  A value within ``tol`` of a rounding edge could print another
        digit on another machine, and is refused.

    Raises
    ------
    ValueError
        For NaN, for a value at a rounding edge, and for more than two dimensions.

    Examples
    --------
    >>> show("weights", [0.665241, 0.244728, 0.090031], digits=3)
    weights = (0.665, 0.245, 0.090)
    >>> show("nothing", -1e-17)
    nothing = 0.0000
    >>> show("keys", 3)
    keys = 3
    """
    a = _array(value)
    if a.ndim > 2:
        raise ValueError(f"{name}: at most two dimensions can be shown, got shape {a.shape}")
    if a.dtype.kind in "biu":
        cells = np.vectorize(str, otypes=[object])(a)
    else:
        cells = np.vectorize(lambda x: _rounded(x, digits, tol, name), otypes=[object])(a)
    if a.ndim == 0:
        print(f"{name} = {cells.item()}")
    elif a.ndim == 1:
        print(f"{name} = ({', '.join(cells)})")
    else:
        width = max((len(c) for c in cells.flat), default=0)
        print(f"{name} =")
        for row in cells:
            print("  " + "  ".join(c.rjust(width) for c in row))


def _largest(error):
    a = np.abs(_array(error).astype(float))
    return float(a.max()) if a.size else 0.0


def holds(statement, error, tol):
    """Assert that ``error`` (anything; its largest absolute entry counts) is at most ``tol``, and say so.

    Examples
    --------
    >>> holds("rows sum to one", [1e-17, 0.0], tol=1e-12)
    rows sum to one: holds to 1e-12
    """
    worst = _largest(error)
    assert worst <= tol, f"{statement}: off by {worst:.3g}, more than {tol:g}"
    print(f"{statement}: holds {f'to {tol:g}' if tol else 'exactly'}")


def fails(statement, error, at_least):
    """Assert that ``error`` is at least ``at_least``, and say that the statement fails.

    The opposite of :func:`holds`, for cells that remove a hypothesis.

    Examples
    --------
    >>> fails("without the maximum subtracted", 0.3, at_least=0.1)
    without the maximum subtracted: fails by more than 0.1
    """
    worst = _largest(error)
    assert worst >= at_least, f"{statement}: off by {worst:.3g} only, expected {at_least:g} or more"
    print(f"{statement}: fails by more than {at_least:g}")


def use_style():
    """Load the course's matplotlib style."""
    import matplotlib.pyplot as plt

    plt.style.use(pathlib.Path(__file__).with_name("eot.mplstyle"))


def _summary(values):
    a = np.ma.asarray(values).astype(float).filled(np.nan).ravel()
    finite = a[np.isfinite(a)]
    if not finite.size:
        return f"n={a.size} all empty"
    # Tails such as 1e-99 differ between machines and carry no information.
    small = 1e-6 * np.abs(finite).max()
    samples = a[np.linspace(0, a.size - 1, min(a.size, 7)).round().astype(int)]
    values = [finite.min(), finite.max(), finite.mean(), *samples]
    values = [0.0 if abs(v) < small else v for v in values]
    low, high, mean, *samples = (f"{v:.3g}" for v in values)
    return f"n={a.size} in [{low}, {high}] mean {mean} at {'/'.join(samples)}"


def fingerprint(fig):
    """A text made from what a figure draws: axes, labels, scales, and the data of every artist.

    Two machines give the same text for the same data, also under different matplotlib releases; a
    changed number of one part in a thousand, a missing curve or a swapped axis changes it.
    """
    from matplotlib.collections import PathCollection

    lines = []
    for i, ax in enumerate(fig.axes):
        scales = f"{ax.get_xscale()}/{ax.get_yscale()}"
        lines.append(f"axes {i} {ax.get_title(loc='left') or ax.get_title()!r} "
                     f"x={ax.get_xlabel()!r} y={ax.get_ylabel()!r} {scales}")
        for line in ax.get_lines():
            x, y = line.get_data()
            lines.append(f"  line x {_summary(x)} y {_summary(y)}")
        for image in ax.get_images():
            lines.append(f"  image {image.get_array().shape} {_summary(image.get_array())}")
        for c in ax.collections:
            if hasattr(c, "levels"):
                lines.append(f"  levels {_summary(c.levels)}")
            elif c.get_array() is not None:
                lines.append(f"  mesh {_summary(c.get_array())}")
            elif isinstance(c, PathCollection):
                x, y = np.asarray(c.get_offsets()).T
                lines.append(f"  points x {_summary(x)} y {_summary(y)}")
        heights = [p.get_height() for p in ax.patches if hasattr(p, "get_height")]
        if heights:
            lines.append(f"  bars {_summary(heights)}")
        words = " | ".join(t.get_text() for t in ax.texts if t.get_text())
        if words:
            lines.append(f"  text {words}")
    return "\n".join(lines)


def publish(fig):
    """Display a figure as PNG together with its data fingerprint, then close it.

    The fingerprint is the output's text, which a re-run compares, and its digest is written into
    the picture, so that a picture put in another's place is found out.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    text = fingerprint(fig)
    digest = hashlib.sha256(text.encode()).hexdigest()
    png = io.BytesIO()
    fig.savefig(png, format="png", metadata={"Software": None, "Description": digest})
    plt.close(fig)
    width = round(fig.get_figwidth() * 100)
    display(
        {"image/png": png.getvalue(), "text/plain": text},
        raw=True,
        metadata={"image/png": {"width": width}},
    )
