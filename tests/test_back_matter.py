"""The errata page lists all rows and says of each what it must; the glossary is complete."""
import pathlib
import re

import pytest

BOOK = pathlib.Path(__file__).resolve().parents[1] / "book"
ERRATA = (BOOK / "src" / "errata.md").read_text(encoding="utf-8")
GLOSSARY = (BOOK / "glossary.md").read_text(encoding="utf-8")
IDS = [f"e{i:02d}" for i in range(1, 45)]
KINDS = {"wrong", "hypothesis", "imprecise", "overclaim", "credit"}
BACKWARD = [f"e{i}" for i in range(26, 33)]
GEOMETRY = [f"e{i}" for i in range(33, 39)]
HISTORY = "e01"


def blocks():
    """Text of each erratum, by label."""
    parts = re.split(r"^\((e\d\d)\)=$", ERRATA, flags=re.M)[1:]
    return {label: re.split(r"^## ", text, flags=re.M)[0]
            for label, text in zip(parts[::2], parts[1::2])}


def test_all_rows_are_there_in_order():
    assert list(blocks()) == IDS
    assert re.findall(r"^### (E\d\d) · ", ERRATA, re.M) == [i.upper() for i in IDS]


def test_the_index_lists_every_row_with_a_kind():
    rows = re.findall(r"^\| \{ref\}`(e\d\d)` \| (\w+) \| ([\d, ]+) \|$", ERRATA, re.M)
    assert [label for label, _, _ in rows] == IDS
    assert {kind for _, kind, _ in rows} == KINDS
    chapters = {label: chapter for label, _, chapter in rows}
    assert {chapters[label] for label in BACKWARD} == {"4"}
    assert {chapters[label] for label in GEOMETRY} == {"5"}


@pytest.mark.parametrize("label", IDS)
def test_a_row_has_claim_correction_and_number(label):
    text = blocks()[label]
    assert "**Claim.**" in text and "**Right.**" in text
    computes = "{code-cell}" in text and re.search(r"\b(show|holds|fails)\(", text)
    assert computes or label == HISTORY


def statements(folder="*"):
    """Labels of the statements on the pages of a chapter."""
    pages = (page.read_text(encoding="utf-8") for page in (BOOK / "src").glob(f"{folder}/*.md"))
    return {label for page in pages for label in re.findall(r"^:label: ([a-z][\w-]+)$", page, re.M)}


@pytest.mark.parametrize("label", IDS)
def test_a_row_refers_to_statements_that_exist(label):
    assert set(re.findall(r"\{prf:ref\}`([\w-]+)`", blocks()[label])) <= statements()


@pytest.mark.parametrize("label", BACKWARD + GEOMETRY)
def test_a_row_on_gradients_refers_to_its_chapter(label):
    own = statements("policy" if label in BACKWARD else "geometry")
    assert own & set(re.findall(r"\{prf:ref\}`([\w-]+)`", blocks()[label]))


def test_glossary_terms_are_sorted_unique_and_bilingual():
    body = GLOSSARY.split("```{glossary}\n")[1].split("```")[0]
    entries = [entry.split("\n", 1) for entry in body.strip().split("\n\n")]
    terms = [term for term, _ in entries]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == len(set(terms)) >= 45
    chinese = re.compile(r"^  [^。]*[\u4e00-\u9fff][^。]*。\S")
    assert [term for term, text in entries if not chinese.match(text)] == []
    assert [term for term, text in entries if "\n" in text.strip()] == []
