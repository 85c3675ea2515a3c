"""A statement without its check, and every other loose end, stops the build."""

import pathlib
import subprocess
import sys

import claims_ledger
import pytest
from claims import Claim
from claims_ledger import loose_ends

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
