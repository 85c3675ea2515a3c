"""Printed numbers and figure fingerprints: what they refuse and what they notice."""

import hashlib

import matplotlib.pyplot as plt
import notebooks
import numpy as np
import pytest
import torch

from eotcourse.course import fails, holds, publish, show
from eotcourse.course.report import fingerprint


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (0.66524, 4, "x = 0.6652"),
        (-1e-17, 4, "x = 0.0000"),
        (-0.0, 2, "x = 0.00"),
        (torch.tensor(2.0, dtype=torch.float64, requires_grad=True), 1, "x = 2.0"),
        (np.array([1.0, -0.26]), 1, "x = (1.0, -0.3)"),
        (7, 4, "x = 7"),
        (True, 4, "x = True"),
        (np.float64("-inf"), 4, "x = -inf"),
        (np.array([[1.0, 10.0], [100.0, 2.0]]), 1, "x =\n    1.0   10.0\n  100.0    2.0"),
    ],
)
def test_show(value, digits, text, capsys):
    show("x", value, digits)
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize("value", [0.125, 0.125 + 1e-11, -0.125 - 1e-11])
def test_show_refuses_a_rounding_edge(value):
    with pytest.raises(ValueError, match="rounding edge"):
        show("x", value, digits=2)


def test_show_refuses_nan_and_cubes():
    with pytest.raises(ValueError, match="NaN"):
        show("x", float("nan"))
    with pytest.raises(ValueError, match=r"\(1, 1, 1\)"):
        show("x", np.zeros((1, 1, 1)))


def test_holds_and_fails_can_fail(capsys):
    holds("a", torch.tensor([1e-13, -2e-13]), 1e-12)
    holds("c", 0, 0)
    fails("b", [0.0, -0.5], 0.4)
    assert capsys.readouterr().out == "a: holds to 1e-12\nc: holds exactly\nb: fails by more than 0.4\n"
    with pytest.raises(AssertionError, match="off by"):
        holds("a", -1e-11, 1e-12)
    with pytest.raises(AssertionError):
        holds("a", float("nan"), 1e-12)
    with pytest.raises(AssertionError, match="only"):
        fails("b", 0.3, 0.4)
    with pytest.raises(AssertionError):
        fails("b", float("nan"), 0.4)


def draw(data, label="mass", dot=(1, 2)):
    fig, ax = plt.subplots()
    ax.plot(data)
    ax.scatter(*dot)
    ax.bar([0, 1], [0.3, 0.7])
    ax.set_ylabel(label)
    return fig


@pytest.mark.parametrize(
    "other",
    [
        draw([1.0, 2.0, 3.01]),
        draw([1.0, 2.0]),
        draw([3.0, 2.0, 1.0]),
        draw([1.0, 2.0, np.nan]),
        draw([1.0, 2.0, 3.0], label="weight"),
        draw([1.0, 2.0, 3.0], dot=(1, 2.02)),
    ],
)
def test_fingerprint_notices_changes(other):
    assert fingerprint(other) != fingerprint(draw([1.0, 2.0, 3.0]))
    plt.close("all")


def test_fingerprint_ignores_rounding_noise():
    assert fingerprint(draw([1.0, 2.0, 3.0, 1e-99])) == fingerprint(draw([1.0, 2.0, 3 + 1e-13, 0.0]))
    plt.close("all")


def test_published_picture_carries_its_fingerprint(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    fig = draw([1.0, 2.0, 3.0])
    text = fingerprint(fig)
    publish(fig)
    (bundle,) = shown
    assert bundle["text/plain"] == text
    assert notebooks.png_digest(bundle["image/png"]) == hashlib.sha256(text.encode()).hexdigest()
