"""Notebooks to work in: nothing raw, nothing given away, nothing overwritten."""

import functools
import html
import os
import re
import subprocess
import sys

import mathsvg
import nbformat
import notebooks
import plain
import pytest
import torch
from test_canaries import PAGE

from eotcourse.course import exercises

SITE = notebooks.ROOT / "_build" / "html" / "book"
COPIES = ("student", "nbgrader")
MYST = {
    "fence": re.compile(r"^\s*[`:]{3,}\{", re.M),
    "option": re.compile(r"^:[\w-]+:", re.M),
    "role": re.compile(r"\{[\w:]+\}`"),
    "target": re.compile(r"^\([\w-]+\)=", re.M),
    "label of an equation": re.compile(r"\$\$ *\("),
}
SOLUTION_TEXT = re.compile(r"^```\{solution\}.*?^```$", re.M | re.S)
# One exercise for each kind of answer: function, number, tuple, list, and one with its own import.
ANSWERED = ["ex-gibbs-1", "ex-taste-1", "ex-taste-2", "ex-monge-2", "ex-masks-4"]


@functools.cache
def made(page):
    """A page in each edition, and its source."""
    nb = notebooks.read(page)
    return {name: make(nb, page) for name, make in notebooks.EDITIONS.items()} | {"source": nb}


each_page = pytest.mark.parametrize("page", notebooks.pages())


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def prose(nb):
    return "\n\n".join(c.source for c in nb.cells if c.cell_type == "markdown")


def formulas(nb):
    for found in plain.INLINE.finditer(prose(nb)):
        if tex := found["display"] or found["math"]:
            # The book's typesetter numbers nothing; editors do.
            tex = re.sub(r"\\tag\{[\d.]+\}", "", tex)
            yield {"tex": tex, "display": bool(found["display"])}


@each_page
@pytest.mark.parametrize("edition", COPIES)
def test_nothing_of_myst_is_left(page, edition):
    nb = made(page)[edition]
    assert [name for name, sign in MYST.items() if sign.search(prose(nb))] == []
    assert not any("mystnb" in c.metadata for c in nb.cells)
    nbformat.validate(nb)


def test_the_signs_of_myst_would_be_seen():
    text = "\n\n".join(prose(made(page)["page"]) for page in ("one-sided/gibbs", "errata"))
    assert all(sign.search(text) for sign in MYST.values())


@pytest.fixture(scope="module")
def typesetter():
    """MathJax as an editor has it: without the course's macros."""
    found = mathsvg.Typesetter({})
    yield found
    found.close()


@each_page
def test_every_formula_typesets_without_the_courses_macros(typesetter, page):
    asked = list(formulas(made(page)["student"]))
    told = typesetter.page(asked)["formulas"]
    assert asked and not [a["tex"] for a, t in zip(asked, told, strict=True) if "error" in t]


def test_a_macro_of_the_course_would_be_seen(typesetter):
    assert "error" in typesetter.page([{"tex": r"\KL(p)", "display": False}])["formulas"][0]


@pytest.mark.parametrize(
    "tex, meant",
    [(r"\KL(p)", r"\operatorname{KL}(p)"), (r"x_\one", r"x_{\mathbf{1}}"), (r"\onetwo", r"\onetwo"),
     (r"\argmax_p", r"\operatorname*{arg\,max}_p")],
)
def test_a_macro_is_written_out(tex, meant):
    assert plain.written_out(tex) == meant


@each_page
def test_no_solution_is_left_for_a_student(page):
    nb = made(page)["student"]
    text = "\n".join(c.source for c in nb.cells)
    assert "### BEGIN" not in text and "exercise(" not in text
    secret, public = set(), set()
    for cell in made(page)["source"].cells:
        if "exercise-check" in notebooks.tags(cell):
            continue
        found = [m[0] for m in notebooks.SOLUTION_BLOCK.finditer(cell.source)]
        found += notebooks.HIDDEN_TESTS.findall(cell.source) + SOLUTION_TEXT.findall(cell.source)
        for part in found:
            secret |= {plain.written_out(line) for line in part.splitlines()[1:-1] if len(line) > 8}
        rest = cell.source
        for part in found:
            rest = rest.replace(part, "")
        public |= {plain.written_out(line) for line in rest.splitlines()}
    assert secret or not SOLUTION_TEXT.search(notebooks.source(page).read_text(encoding="utf-8"))
    assert not (secret - public - {":class: dropdown"}) & set(text.splitlines())


@each_page
def test_a_student_finds_every_exercise_with_its_answer_cell_and_check(page):
    nb = made(page)["student"]
    labels = [notebooks.exercise_of(c) for c in made(page)["source"].cells if notebooks.is_solution(c)]
    stubs = [c for c in code(nb) if notebooks.ANSWER_HERE in c.source]
    checks = [c for c in code(nb) if "raises-exception" in notebooks.tags(c)]
    assert len(stubs) == len(checks) == len(labels)
    assert len(re.findall(r"^### Exercise", prose(nb), re.M)) == len(labels)
    hints = prose(made(page)["page"]).count("{dropdown}")
    assert prose(nb).count("<summary>Hint") == hints and prose(nb).count("</details>") >= hints
    for label, cell, check in zip(labels, stubs, checks):
        assert f'check("{label}", ' in check.source
        space = {"torch": None}
        exec(cell.source, space)
        with pytest.raises(exercises.NotYet, match="no answer yet|did you forget `return`"):
            exec(f"from eotcourse.course import check\n{check.source}", space)


@each_page
@pytest.mark.parametrize("edition", COPIES)
def test_notebooks_to_work_in_are_not_executed(page, edition):
    assert all(c.execution_count is None and c.outputs == [] for c in code(made(page)[edition]))


@each_page
def test_assignments_keep_markers_and_hidden_tests_and_travel_alone(page):
    nb, source = made(page)["nbgrader"], made(page)["source"]
    graded = {c.metadata["nbgrader"]["grade_id"]: c.source for c in source.cells if "nbgrader" in c.metadata}
    assert {c.metadata["nbgrader"]["grade_id"]: c.source for c in nb.cells if "nbgrader" in c.metadata} == graded
    assert not any("exercise-check" in notebooks.tags(c) for c in nb.cells)
    assert ".ipynb)" not in prose(nb) and not any('"../' in c.source for c in code(nb))


@each_page
def test_links_lead_to_notebooks(page):
    folder = notebooks.copy_of("student", page).parent
    targets = {os.path.normpath(notebooks.copy_of("student", p)) for p in notebooks.pages()}
    for link in re.findall(r"\]\(([^)]+\.ipynb)\)", prose(made(page)["student"])):
        assert os.path.normpath(folder / link) in targets, link


@pytest.mark.skipif(not SITE.exists(), reason="the book is not built: make book")
@pytest.mark.parametrize("page", [p for p in notebooks.pages() if p in plain.chapters()])
def test_numbers_are_those_of_the_book(page):
    text = (SITE / f"{page}.html").read_text(encoding="utf-8")
    printed = re.findall(r'class="caption-number">([^<]+?) ?</span>', text)
    printed += re.findall(r'class="eqno">(\([\d.]+\))', text)
    items = notebooks.all_sources(notebooks.SRC).items.values()
    ours = [i.name for i in items if i.page == page and re.search(r"\d\)?$", i.name) and " · " not in i.name]
    assert sorted(html.unescape(x) for x in printed) == sorted(ours)


@pytest.fixture
def float32_again():
    """The taste and the errata set another default, which no other test may meet."""
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("label", ANSWERED)
def test_a_right_answer_in_the_answer_cell_passes_its_check(label, capsys, float32_again):
    (page,) = [p for p in notebooks.pages() if f"{{exercise}} " in (text := notebooks.source(p).read_text(
        encoding="utf-8")) and f":label: {label}\n" in text]
    student = code(made(page)["student"])
    at = next(i for i, c in enumerate(student) if f'check("{label}", ' in c.source)
    answer = next(c.source for c in made(page)["page"].cells
                  if notebooks.is_solution(c) and notebooks.exercise_of(c) == label)
    imports = next(c.source for c in student if "import " in c.source)
    space = {}
    # What stands before an answer cell is run; here the imports are enough.
    for text in (imports, student[at - 1].source, answer, student[at].source):
        exec(text, space)
    assert capsys.readouterr().out.splitlines()[-1] == f"{label}: correct"


# ---------------------------------------------------------------- files


@pytest.fixture
def book(monkeypatch, tmp_path):
    for name, place in (("ROOT", ""), ("BOOK", "book"), ("SRC", "book/src"), ("CHECKS", "checks")):
        monkeypatch.setattr(notebooks, name, tmp_path / place)
    (tmp_path / "book/src").mkdir(parents=True)
    (tmp_path / "book/src/canary-page.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


def rewrite(book, old, new):
    path = book / "book/src/canary-page.md"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert new in path.read_text(encoding="utf-8")


def answer(path):
    nb = nbformat.read(path, 4)
    (cell,) = [c for c in nb.cells if notebooks.ANSWER_HERE in c.source or "BEGIN SOLUTION" in c.source]
    cell.source = "half = 1 / 2"
    nbformat.write(nb, path)
    return path.read_bytes()


@pytest.mark.parametrize("edition", COPIES)
def test_a_changed_notebook_is_kept(book, edition):
    path = notebooks.copy_of(edition, "canary-page")
    assert notebooks.write_edition(edition, "canary-page") == "written"
    assert notebooks.write_edition(edition, "canary-page") == "there already"
    mine = answer(path)
    assert notebooks.write_edition(edition, "canary-page") == "kept: you changed it"
    rewrite(book, "ax.plot([4, 2, 1])", "ax.plot([5, 2, 1])")
    assert "rename yours" in notebooks.write_edition(edition, "canary-page")
    assert path.read_bytes() == mine


def test_a_notebook_that_was_only_run_follows_its_page(book):
    path = notebooks.copy_of("student", "canary-page")
    notebooks.write_edition("student", "canary-page")
    nb = nbformat.read(path, 4)
    code(nb)[0].execution_count = 1
    code(nb)[0].outputs = [nbformat.v4.new_output("stream", name="stdout", text="entropy\n")]
    nbformat.write(nb, path)
    ran = path.read_bytes()
    assert notebooks.write_edition("student", "canary-page") == "there already"
    assert path.read_bytes() == ran
    rewrite(book, "ax.plot([4, 2, 1])", "ax.plot([5, 2, 1])")
    assert "written anew" in notebooks.write_edition("student", "canary-page")
    assert "[5, 2, 1]" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "not a notebook", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'])
def test_a_file_that_is_not_ours_is_kept(book, text):
    path = notebooks.copy_of("student", "canary-page")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert notebooks.write_edition("student", "canary-page").startswith("kept")
    assert path.read_text() == text


def test_an_answer_in_the_books_notebook_is_told_from_a_changed_source(book):
    target, source = notebooks.target("canary-page"), notebooks.source("canary-page")
    nbformat.write(notebooks.edition_page(notebooks.read("canary-page"), "canary-page"), target)
    assert not any("out of step" in fault for fault in notebooks.check())
    rewrite(book, "ax.plot([4, 2, 1])", "ax.plot([5, 2, 1])")
    for younger, words in ((source, "which was changed after it"), (target, "the notebook itself was changed")):
        for file in (source, target):
            os.utime(file, (100, 200 if file == younger else 100))
        (fault,) = [f for f in notebooks.check() if "out of step" in f]
        assert fault.startswith("canary-page: ") and words in fault
        said = "\n".join(notebooks.advice([fault]))
        assert f'"{sys.executable}" tools/notebooks.py build canary-page' in said
        assert ("copy what you changed to student/ first" in said) == (younger == target)


def test_another_python_is_told_which_one_to_use():
    # -S: none of the installed packages can be imported.
    run = subprocess.run(
        [sys.executable, "-S", notebooks.ROOT / "tools/notebooks.py", "check"],
        capture_output=True, text=True,
    )
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert "No module named" in run.stderr and ".venv" in run.stderr


@pytest.mark.parametrize(
    "text, words",
    [("```{margin}\nx\n```", "{margin}"), ("{abbr}`x`", "{abbr}"), ("```{prf:proof}\nx", "not closed")],
)
def test_what_has_no_plain_form_stops_the_tool(text, words):
    with pytest.raises(plain.NoPlainForm, match=re.escape(words)):
        notebooks.all_sources(notebooks.SRC).markdown(text, "taste")


def test_a_faulty_page_is_named_and_the_others_are_written(book, monkeypatch, capsys):
    faulty = PAGE.replace("# ", "# {doc}`nowhere` ", 1)
    (book / "book/src/another.md").write_text(faulty, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["notebooks.py", "student"])
    with pytest.raises(SystemExit, match="another: there is no page nowhere"):
        notebooks.main()
    assert not notebooks.copy_of("student", "another").exists()
    assert notebooks.copy_of("student", "canary-page").exists()
    assert "[1/2] student/another.ipynb: not written" in capsys.readouterr().out.replace("\\", "/")
