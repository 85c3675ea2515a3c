"""Notebooks with one known fault each: every run must report all of them.

A healthy small page is built with the notebook tool; each canary is a copy with one thing broken.
"""

import base64
import copy
import os
import subprocess
import sys

import nbformat
import notebooks
import pytest

PAGE = '''---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3}
eotcourse: {read: 1, run: 1, needs: [nothing], outcomes: ["Find the fault."]}
---
# A canary

```{code-cell} ipython3
import math
import matplotlib.pyplot as plt
from eotcourse.course import check, holds, publish, show, use_style
use_style()
show("entropy of a fair coin", math.log(2))
holds("log 4 = 2 log 2", math.log(4) - 2 * math.log(2), 1e-12)
```

```{code-cell} ipython3
---
mystnb:
  image: {alt: "A line that rises from one to four, drawn for a canary."}
---
fig, ax = plt.subplots(figsize=(2, 1))
ax.plot([1, 2, 4])
publish(fig)
```

```{code-cell} ipython3
---
mystnb:
  image: {alt: "A line that falls from four to one, drawn for a canary."}
---
fig, ax = plt.subplots(figsize=(2, 1))
ax.plot([4, 2, 1])
publish(fig)
```

```{code-cell} ipython3
---
nbgrader: {grade: false, grade_id: ex-canary-page-1, locked: false, schema_version: 3, solution: true, task: false}
---
### BEGIN SOLUTION
half = 0.5
### END SOLUTION
```

```{code-cell} ipython3
---
nbgrader: {grade: true, grade_id: ex-canary-page-1-check, locked: true, points: 1, schema_version: 3, solution: false, task: false}
---
assert half == 0.5
### BEGIN HIDDEN TESTS
assert half + half == 1
### END HIDDEN TESTS
```
'''


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebooks, "BOOK", root)
        patch.setattr(notebooks, "SRC", root / "src")
        patch.setattr(notebooks, "CHECKS", root / "checks")
        (root / "src").mkdir()
        (root / "src" / "canary-page.md").write_text(PAGE, encoding="utf-8")
        notebooks.build("canary-page")
        assert notebooks.check() == []
        yield root


@pytest.fixture
def page(book):
    return nbformat.read(book / "canary-page.ipynb", 4)


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def nbval(nb, folder):
    nbformat.write(nb, folder / "canary.ipynb")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env",
         f"--nbval-sanitize-with={notebooks.ROOT / 'tests' / 'nbval.cfg'}", "canary.ipynb"],
        cwd=folder, capture_output=True, text=True, env={**os.environ, **notebooks.KERNEL_ENV},
    )
    return run.returncode, run.stdout


def test_the_healthy_page_passes(page, tmp_path):
    assert notebooks.faults(page) == []
    status, out = nbval(page, tmp_path)
    assert status == 0, out


def test_the_page_edition_keeps_no_marker_and_no_hidden_test(page):
    text = "\n".join(c.source for c in page.cells)
    assert "half = 0.5" in text
    assert "###" not in text and "half + half" not in text


def test_canary_wrong_digit(page, tmp_path):
    (output,) = [o for o in code(page)[0].outputs if "entropy" in o.text]
    output.text = output.text.replace("0.6931", "0.6932")
    status, out = nbval(page, tmp_path)
    assert status == 1 and "0.6932" in out


def test_canary_changed_data_in_a_figure(page, tmp_path):
    code(page)[1].source = code(page)[1].source.replace("[1, 2, 4]", "[1, 2, 4.01]")
    status, out = nbval(page, tmp_path)
    assert status == 1 and "4.01" in out


def test_canary_broken_formula(page, tmp_path):
    cell = code(page)[0]
    cell.source = cell.source.replace("2 * math.log(2)", "3 * math.log(2)")
    status, out = nbval(page, tmp_path)
    assert status == 1 and "off by" in out


def test_canary_swapped_figure(page):
    first, second = (c.outputs[0].data for c in code(page)[1:3])
    first["image/png"] = second["image/png"]
    assert any("not the one that its data fingerprint" in f for f in notebooks.faults(page))
    # Swapping the text along with the picture is found by the digests kept at build time.
    first["text/plain"] = second["text/plain"]
    assert any("not the one that was built" in f for f in notebooks.faults(page))


def test_canary_stripped_notebook(page, tmp_path):
    for cell in code(page):
        cell.execution_count, cell.outputs = None, []
    assert nbval(page, tmp_path)[0] == 0, "nbval alone lets a stripped notebook pass"
    assert any("not executed" in f for f in notebooks.faults(page))


@pytest.mark.parametrize(
    "output, words",
    [
        (nbformat.v4.new_output("stream", name="stderr", text="warning"), "stderr"),
        (nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[]), "ValueError"),
    ],
)
def test_canary_bad_output(page, output, words):
    code(page)[0].outputs.append(output)
    assert any(words in f for f in notebooks.faults(page))


def test_canary_picture_without_alternative_text(page):
    del code(page)[1].metadata["mystnb"]
    assert any("alternative text" in f for f in notebooks.faults(page))


def test_canary_foreign_picture(page):
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    code(page)[1].outputs[0].data["image/png"] = base64.b64encode(pixel).decode()
    assert any("fingerprint" in f for f in notebooks.faults(page))


def test_canary_cell_too_long_or_wide(page):
    long, wide = copy.deepcopy(page), copy.deepcopy(page)
    code(long)[0].source += "\n" * 20 + "x = 1"
    code(wide)[0].source += "\nx = '" + "x" * 80 + "'"
    assert any("lines" in f for f in notebooks.faults(long))
    assert any("characters" in f for f in notebooks.faults(wide))


def test_canary_solution_name_used_later(book):
    nb = notebooks.read("canary-page")
    assert notebooks.leaks(nb) == []
    nb.cells.append(nbformat.v4.new_code_cell("show('x', half)"))
    assert any("'half'" in leak for leak in notebooks.leaks(nb))


def test_canary_stale_source(book):
    path = book / "src" / "canary-page.md"
    path.write_text(PAGE.replace("ax.plot([4, 2, 1])", "ax.plot([5, 2, 1])"), encoding="utf-8")
    try:
        assert f"canary-page: {notebooks.SOURCE_CHANGED}" in notebooks.check()
    finally:
        path.write_text(PAGE, encoding="utf-8")
    assert notebooks.check() == []


def test_two_builds_give_the_same_bytes(book):
    before = (book / "canary-page.ipynb").read_bytes()
    notebooks.build("canary-page")
    assert (book / "canary-page.ipynb").read_bytes() == before
