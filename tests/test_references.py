"""The bibliography: well-formed entries, keys that exist, nothing listed that nobody cites."""
import re
from pathlib import Path

import pytest
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parents[1]
BIB = ROOT / "book" / "references.bib"
REQUIRED = {
    "article": {"title", "year", "journal"},
    "inproceedings": {"title", "year", "booktitle"},
    "book": {"title", "year", "publisher"},
    "misc": {"title", "year", "eprint"},
}
CITE = re.compile(r"\{cite(?::[a-z]+)?\}`([^`]+)`")
DOI = re.compile(r"10\.\d{4,9}/\S+")
ARXIV = re.compile(r"\d{4}\.\d{4,5}")
KEY = re.compile(r"[a-z]+(?:1[5-9]|20)\d{2}[a-z]?")


def pages():
    """The MyST sources of the book: pages with code and pages without."""
    book = ROOT / "book"
    return sorted(book.glob("src/**/*.md")) + sorted(book.glob("*.md"))


def cited(text):
    """Keys cited in a MyST text."""
    return {key.strip() for group in CITE.findall(text) for key in group.split(",")}


@pytest.fixture(scope="module")
def entries():
    return parse_file(str(BIB)).entries


def test_entries_are_complete(entries):
    wrong = []
    for key, entry in entries.items():
        missing = REQUIRED[entry.type] - set(entry.fields)
        if missing or not entry.persons.get("author"):
            wrong.append((key, sorted(missing)))
        if "eprint" in entry.fields and not ARXIV.fullmatch(entry.fields["eprint"]):
            wrong.append((key, entry.fields["eprint"]))
        if "doi" in entry.fields and not DOI.fullmatch(entry.fields["doi"]):
            wrong.append((key, entry.fields["doi"]))
    assert not wrong


def test_keys_are_author_and_year(entries):
    assert [k for k, e in entries.items()
            if not KEY.fullmatch(k) or e.fields["year"] not in k] == []


def test_nothing_is_listed_twice(entries):
    raw = re.findall(r"^@\w+\{([^,\s]+),", BIB.read_text(encoding="utf-8"), re.M)
    assert len(raw) == len(entries) == len(set(raw))
    for field in ("doi", "eprint", "title"):
        values = [e.fields[field].lower() for e in entries.values() if field in e.fields]
        assert len(values) == len(set(values)), field


def test_cited_keys_exist(entries):
    wrong = {(p.name, key) for p in pages() for key in cited(p.read_text(encoding="utf-8"))
             if key not in entries}
    assert not wrong


def test_every_entry_is_cited(entries):
    used = set().union(*(cited(p.read_text(encoding="utf-8")) for p in pages()))
    assert sorted(set(entries) - used) == []


def test_the_reader_of_citations_sees_every_role():
    text = "{cite:t}`a2001` and {cite:p}`b2002, c2003` but not {ref}`d2004`; {cite}`e2005`"
    assert cited(text) == {"a2001", "b2002", "c2003", "e2005"}
