"""Drawings show the arrays they were given, and show an exact zero differently from a small one."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")
import matplotlib.pyplot as plt

from eotcourse.course.figures import plans, simplex


@pytest.fixture
def ax():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def test_the_simplex_is_equilateral_and_affine():
    corners = simplex.to_plane(np.eye(3))
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=-1)
    assert np.allclose(sides, 1)
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 5))
    assert np.allclose(simplex.to_plane(p), np.einsum("ijk,kl->ijl", p, corners))


def test_the_grid_covers_the_simplex_with_exact_zeros():
    points = simplex.grid(10)
    assert len({tuple(p) for p in points.tolist()}) == 66
    assert np.allclose(points.sum(-1), 1) and points.min() == 0
    assert {tuple(p) for p in np.eye(3).tolist()} <= {tuple(p) for p in points.tolist()}


def test_only_exact_zeros_are_hollow(ax):
    points = np.array([[0.6, 0.4, 0.0], [0.6, 0.4 - 1e-9, 1e-9], [0.2, 0.3, 0.5]])
    assert simplex.mark(ax, points) == [True, False, False]
    drawn = {tuple(c.get_facecolor()[0][:3]): c.get_offsets() for c in ax.collections}
    assert np.allclose(drawn[(1.0, 1.0, 1.0)], simplex.to_plane(points[:1]))
    assert sum(len(offsets) for offsets in drawn.values()) == 3


def test_a_path_is_drawn_through_its_points(ax):
    points = np.random.default_rng(0).dirichlet(np.ones(3), size=7)
    (line,) = simplex.path(ax, points)
    assert np.allclose(line.get_xydata(), simplex.to_plane(points))


def test_levels_are_highest_at_the_maximum(ax):
    points = simplex.grid(20)
    simplex.levels(ax, points, -np.square(points - [0.5, 0.3, 0.2]).sum(-1), count=5)
    filled = ax.collections[0]
    top = [path for path in filled.get_paths() if len(path.vertices)][-1]
    assert top.contains_point(simplex.to_plane([0.5, 0.3, 0.2]))
    assert not top.contains_point(simplex.to_plane([0.0, 0.0, 1.0]))


def test_a_plan_shows_masses_cells_and_zeros():
    P = np.array([[1.0, 0.0, 0.0], [0.3, 0.6, 0.1]])
    fig = plt.figure()
    panels = plans.plans(fig, [("one", P, [1.3, 0.6, 0.1]), ("two", P, [1, 1, 1])], numbers=True)
    (bars, heat), _ = panels
    assert [bar.get_height() for bar in bars.patches] == [1.3, 0.6, 0.1]
    assert bars.lines[0].get_ydata() == [1, 1]
    shown = heat.images[0].get_array()
    assert np.array_equal(shown.filled(-1), np.where(P > 0, P, -1))
    assert heat.collections[0].get_offsets().tolist() == [[1, 0], [2, 0]]
    assert [text.get_text() for text in heat.texts] == ["1.00", "0.30", "0.60", "0.10"]
    plt.close(fig)


def test_panels_share_their_scales():
    small, large = np.full((2, 2), 0.25), np.eye(2)
    fig = plt.figure()
    (a, heat_a), (b, heat_b) = plans.plans(fig, [("", small, [1, 1]), ("", large, [0.5, 3.0])])
    assert a.get_ylim() == b.get_ylim() and b.get_ylim()[1] > 3
    assert heat_a.images[0].get_clim() == heat_b.images[0].get_clim() == (0, 1)
    plt.close(fig)
