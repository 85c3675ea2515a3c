"""A statement without its check, and every other loose end, stops the build."""

import dataclasses
import pathlib
import re
import subprocess
import sys

import claims_ledger
import notebooks
import pytest
from claims import Claim, load
from claims_ledger import listing, loose_ends, page_title, verdict

EXT = pathlib.Path(claims_ledger.__file__).parent


def claim(id="thm-a", status="proved", covers=("eq-a",), page="one-sided/a"):
    return Claim(id, "", "", status, 1e-12, 1, {}, {}, covers, page, lambda impl: None)


def statement(docname="book/one-sided/a", cited=False, proof=True):
    return {"docname": docname, "cited": cited, "proof": proof}


FOUND, EQUATIONS = {"thm-a": statement()}, {"eq-a": "book/one-sided/a"}


def test_nothing_is_loose_where_all_is_tied():
    assert list(loose_ends(FOUND, EQUATIONS, [claim()])) == []
    cited = {**FOUND, "thm-b": statement(cited=True)}
    assert list(loose_ends(cited, EQUATIONS, [claim()])) == []


@pytest.mark.parametrize(
    "found, equations, every, words",
    [
        ({**FOUND, "thm-unmapped": statement()}, EQUATIONS, [claim()], "thm-unmapped has no check"),
        ({}, EQUATIONS, [claim()], "has no statement in the book"),
        ({"thm-a": statement(proof=False)}, EQUATIONS, [claim()], "no proof follows"),
        ({"thm-a": statement(cited=True)}, EQUATIONS, [claim()], "called cited and has a check"),
        ({"thm-a": statement("book/other")}, EQUATIONS, [claim()], "stands in the file of"),
        (FOUND, {**EQUATIONS, "eq-b": "x"}, [claim()], "eq-b is numbered and no check covers it"),
        (FOUND, {}, [claim()], "eq-a, which is no numbered equation"),
    ],
)
def test_a_loose_end_is_named(found, equations, every, words):
    (sentence, _), = loose_ends(found, equations, every)
    assert words in sentence


def test_the_badge_names_the_loosest_and_the_tightest_tolerance():
    one, other = claim(), claim(status="checked")
    assert verdict([one]) == "proved · checked to 1e-12 on 1 instances · 0 mutants caught"
    other = dataclasses.replace(other, tol=1e-5)
    assert "checked to 1e-05 (tightest part 1e-12) on 2 instances in 2 parts" in verdict([one, other])
    drawn = dataclasses.replace(other, tol=5.0)
    assert "checked to 1e-12 and within 5 standard errors on 2" in verdict([one, drawn])


def test_the_ledger_groups_each_check_under_the_title_of_its_page():
    for entry in load():
        group = listing(entry)
        assert "claim-check" in group["classes"]
        text = group.astext()
        assert all(words in text for words in (entry.part, entry.says, entry.source, *entry.mutants))
        title = page_title(entry.page)
        assert title != entry.page and "/" not in title


def test_canary_unmapped_theorem_stops_the_build(tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXT)!r})\n"
        "extensions = ['myst_parser', 'sphinx_proof', 'claims_ledger']\n"
    )
    (tmp_path / "index.md").write_text(
        "# Canary\n\n```{prf:theorem} Nobody checks this\n:label: thm-unmapped\n\nText.\n```\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(tmp_path), str(tmp_path / "out")],
        capture_output=True, text=True,
    )
    assert done.returncode != 0
    assert "thm-unmapped has no check in tests/claims" in done.stderr


STATEMENT = re.compile(r"^(`{3,}|:{3,})\{prf:(?!proof).*\n:label: (\S+)\n((?:.*\n)*?)\1$", re.M)


def part_faults(text, every):
    """Where the checks of a page's statements are not the parts that the page lists, as sentences.

    A statement lists its parts as (a), (b), ..., and a check says in its own `part` which of them it
    looks at: "(a, c) cold and hot".  Where a check could go without a letter going, and where a
    statement has no letters and several checks, the line `% parts:` in the statement names them all.
    """
    found = []
    for _, label, body in STATEMENT.findall(text):
        letters = re.findall(r"^\(([a-z])\) ", body, re.M)
        noted = re.findall(r"^% parts: (.*)$", body, re.M)
        parts = [c.part for c in every if c.id == label]
        looked_at = [re.findall(r"[a-z]", re.sub(r"\).*|^[^(].*", "", part)) for part in parts]
        if not parts:
            continue  # the build says so
        if letters != [chr(ord("a") + i) for i in range(len(letters))]:
            found.append(f"{label}: its parts are lettered {', '.join(letters)}")
        if (checked := sorted({x for part in looked_at for x in part})) != letters:
            found.append(f"{label}: the checks look at {checked}, the statement has {letters}")
        for part, mine in zip(parts, looked_at, strict=True) if letters else ():
            if not mine:
                found.append(f"{label}: {part!r} does not say at which of the parts it looks")
        spare = [
            part for i, part in enumerate(parts)
            if {x for j, mine in enumerate(looked_at) if j != i for x in mine} == set(letters)
        ]
        listed = "; ".join(parts)
        if (len(parts) > 1 and spare or noted) and noted != [listed]:
            found.append(f"{label}: the statement needs the line\n% parts: {listed}")
        if len(parts) == 1 and not letters and parts != [""]:
            found.append(f"{label}: the only check has the part {parts[0]!r}")
    return found


@pytest.mark.parametrize("page", notebooks.pages())
def test_the_checks_are_the_parts_of_the_statements(page):
    found = part_faults(notebooks.source(page).read_text(encoding="utf-8"), load())
    assert not found, "\n".join(found)


def test_canary_every_deleted_check_is_found():
    """Whichever check of a statement with several is deleted, its page no longer agrees."""
    every, tried = load(), 0
    for page in notebooks.pages():
        text = notebooks.source(page).read_text(encoding="utf-8")
        mine = [c for c in every if c.page == page]
        for gone in mine:
            if sum(c.id == gone.id for c in mine) > 1:
                tried += 1
                assert part_faults(text, [c for c in mine if c is not gone]), gone.name
    assert tried > 100


@pytest.mark.parametrize("body, parts, words", [
    ("(a) One.\n\n(b) Two.\n", ["(a) one"], "the statement has ['a', 'b']"),
    ("(a) One.\n\n(c) Two.\n", ["(a) one", "(c) two"], "are lettered a, c"),
    ("(a) One.\n", ["(a) one", "(b) two"], "look at ['a', 'b']"),
    ("(a) One.\n\n(b) Two.\n", ["(a) one", "(b) two", "three"], "'three' does not say"),
    ("(a) One.\n\n(b) Two.\n", ["(a) one", "(a, b) two"], "% parts: (a) one; (a, b) two"),
    ("One and two.\n", ["one", "two"], "% parts: one; two"),
    ("One.\n% parts: one; two\n", ["one"], "% parts: one"),
    ("One.\n", ["one"], "the only check has the part"),
])
def test_canary_parts_that_disagree_are_named(body, parts, words):
    text = f"```{{prf:theorem}} Name\n:label: thm-a\n\n{body}```\n"
    every = [Claim("thm-a", part, "", "checked", 1, 1, {}, {}, (), "p", None) for part in parts]
    assert any(words in fault for fault in part_faults(text, every))
