"""Every exercise is complete, its key accepts the right answer and names each listed mistake."""

import re

import notebooks
import numpy as np
import pytest
import torch

from eotcourse.course import check, exercises

CHAPTERS = ("transport/", "one-sided/", "family/", "policy/", "geometry/", "kernel/")
HEAD = re.compile(r"^(`{3,}|:{3,})\{exercise\}[^\n]*\n:label: (?P<label>\S+)\n(?P<body>.*?)^\1\s*$", re.M | re.S)
LINE = re.compile(r"^\*Difficulty [123] of 3 · \d+ minutes · you can: .+\.\*$", re.M)


def written():
    for page in notebooks.pages():
        text = notebooks.source(page).read_text(encoding="utf-8")
        for found in HEAD.finditer(text):
            yield page, found["label"], found["body"]


EXERCISES = list(written())
LABELS = [label for _, label, _ in EXERCISES]


def key(label):
    return exercises._load(label)


def test_every_directive_was_found():
    texts = (notebooks.source(p).read_text(encoding="utf-8") for p in notebooks.pages())
    assert sum(t.count("{exercise}") for t in texts) == len(EXERCISES)
    assert len(set(LABELS)) == len(LABELS)


@pytest.mark.parametrize("page", [p for p in notebooks.pages() if p.startswith(CHAPTERS)])
def test_a_chapter_page_has_three_exercises(page):
    assert sum(p == page for p, _, _ in EXERCISES) >= 3


@pytest.mark.parametrize("page, label, body", EXERCISES, ids=LABELS)
def test_exercise_is_complete(page, label, body):
    slug = page.rpartition("/")[2]
    assert re.fullmatch(rf"ex-{slug}-\d+", label)
    assert LINE.search(body), "the line with difficulty, minutes and outcome"
    assert len(re.findall(r"\{dropdown\} Hint \d", body)) >= 2
    cells = notebooks.read(page).cells
    graded = [c.metadata["nbgrader"] for c in cells if notebooks.exercise_of(c) == label]
    assert [g["solution"] for g in graded] == [True, False], "one solution cell, then one test cell"
    assert graded[1]["points"] > 0
    source = notebooks.source(page).read_text(encoding="utf-8")
    assert f"{{solution}} {label}" in source, "a solution in words"


@pytest.mark.parametrize("label", LABELS)
def test_right_answer_passes(label, capsys):
    right, *_ = key(label)
    check(label, right)
    assert capsys.readouterr().out == f"{label}: correct\n"


@pytest.mark.parametrize("label", LABELS)
def test_listed_mistakes_are_named(label):
    for mistake, message in key(label)[1].values():
        with pytest.raises(exercises.NotYet) as raised:
            check(label, mistake)
        assert message in str(raised.value)


@pytest.mark.parametrize("label", LABELS)
def test_key_lists_two_mistakes_and_gives_nothing_away(label):
    right, wrong, probe, _ = key(label)
    assert len(wrong) >= 2
    if isinstance(right, (int, float)) and not isinstance(right, bool) and abs(right) > 9:
        assert not any(f"{right:g}" in message for _, message in wrong.values())


def test_an_unlisted_answer_is_refused_without_the_value():
    exercises.exercise("ex-canary-1", right=0.25, wrong={})
    with pytest.raises(exercises.NotYet) as raised:
        check("ex-canary-1", 0.75)
    assert "0.25" not in str(raised.value) and "0.5" not in str(raised.value)
    with pytest.raises(exercises.NotYet, match="Close"):
        check("ex-canary-1", 0.2501)
    with pytest.raises(exercises.NotYet, match="shape"):
        check("ex-canary-1", [0.25, 0.25])
    with pytest.raises(exercises.NotYet, match="type"):
        check("ex-canary-1", object())


def test_an_answer_that_raises_is_reported_with_its_error():
    exercises.exercise("ex-canary-2", right=lambda: 1.0, wrong={}, probe=lambda f: f())
    with pytest.raises(exercises.NotYet, match="ZeroDivisionError"):
        check("ex-canary-2", lambda: 1 / 0)


@pytest.mark.parametrize(
    "right, given",
    [
        ([0.25, 0.75], np.array([0.25, 0.75])),
        (np.array([0.25, 0.75]), (0.25, 0.75)),
        ((1.0, [1.0, 2.0]), (torch.tensor(1.0), np.array([1.0, 2.0]))),
        ("b", " B "),
    ],
)
def test_equal_answers_of_other_types_are_equal(right, given):
    assert exercises._same(given, right, 1e-9)
    assert not exercises._same("c" if isinstance(right, str) else 3.0, right, 1e-9)


def test_an_answer_cannot_change_what_it_is_compared_with():
    def overwrite(p, g, tau):
        g *= 0
        return g

    for _ in range(2):
        with pytest.raises(exercises.NotYet):
            check("ex-taste-3", overwrite)
    check("ex-taste-3", key("ex-taste-3")[0])


def _forgets(*args):
    args[0] + 1


@pytest.mark.parametrize(
    "label, answer, words",
    [
        ("ex-canary-3", None, "is None; did you forget `return`"),
        ("ex-canary-3", ..., "no answer yet"),
        ("ex-canary-3", (0.5, None), "returned None; did you forget `return`"),
        ("ex-canary-3", torch.eye(2).to_sparse(), "to_dense"),
        ("ex-canary-3", [torch.ones(1, requires_grad=True), 2.0], "differ|shape|type"),
        ("ex-canary-4", _forgets, "returned None; did you forget `return`"),
        ("ex-canary-5", _forgets, "returned None; did you forget `return`"),
        ("ex-canary-5", None, "is None; did you forget `return`"),
    ],
)
def test_a_misunderstanding_is_named(label, answer, words):
    exercises._EXERCISES.update({
        "ex-canary-3": (np.eye(2), {}, lambda answer: answer, 1e-9),
        "ex-canary-4": (lambda x: x + 1, {}, lambda f: (f(1.0), f(2.0)), 1e-9),
        # This one trips over the None before `check` sees it.
        "ex-canary-5": (lambda x: x + 1, {}, lambda f: f(1.0) * 2, 1e-9),
    })
    with pytest.raises(exercises.NotYet, match=words):
        check(label, answer)


def test_a_function_that_returns_none_where_it_should_is_told_what_else_is_wrong():
    def fill(box):
        box.append(1.0)

    def probe(f):
        box = []
        f(box)
        return box[0]

    exercises._EXERCISES["ex-canary-6"] = (fill, {}, probe, 1e-9)
    check("ex-canary-6", fill)
    with pytest.raises(exercises.NotYet, match="values differ"):
        check("ex-canary-6", lambda box: box.append(2.0))


def test_a_half_precision_answer_is_compared():
    assert exercises._same(torch.tensor([0.25, 0.5], dtype=torch.bfloat16), [0.25, 0.5], 1e-9)


@pytest.mark.parametrize("label", [1, None, torch.ones(2), ["ex-gibbs-1"]])
def test_a_label_that_is_no_string_is_told_the_order(label):
    with pytest.raises(TypeError, match='as in check\\("ex-gibbs-1", answer\\)'):
        check(label, 1.0)


def test_unknown_exercise_is_named():
    with pytest.raises(KeyError, match="ex-nothing-7"):
        check("ex-nothing-7", 1)
