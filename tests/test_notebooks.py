"""What nbval lets pass: stale notebooks, unexecuted cells, stored errors, swapped pictures."""

import nbformat
import notebooks
import pytest


@pytest.mark.parametrize("page", notebooks.pages())
def test_notebook_is_sound(page):
    assert notebooks.faults(nbformat.read(notebooks.target(page), 4)) == []


def test_notebooks_are_in_step_with_their_sources():
    assert notebooks.check() == []


@pytest.mark.parametrize("page", notebooks.pages())
def test_every_notebook_uses_the_course_style(page):
    code = [c.source for c in notebooks.read(page).cells if c.cell_type == "code"]
    draws = any("publish(" in source for source in code)
    assert not draws or any("use_style()" in source for source in code)
    assert not any("rcParams" in source or "plt.show" in source for source in code)


@pytest.mark.parametrize("page", notebooks.pages())
def test_page_metadata_is_complete(page):
    meta = notebooks.read(page).metadata["eotcourse"]
    assert set(meta) == {"read", "run", "needs", "outcomes"}
    assert 1 <= meta["read"] <= 40 and 1 <= meta["run"] <= 5
    assert meta["needs"] and 1 <= len(meta["outcomes"]) <= 5
