"""The tracks of the landing page promise the minutes that their pages need."""

import posixpath
import re
from pathlib import Path

import pytest
import torch
import yaml

from eotcourse import softmax

BOOK = Path(__file__).parents[1] / "book"
INDEX = (BOOK / "index.md").read_text(encoding="utf-8")
PAGES = sorted(p.relative_to(BOOK / "src").with_suffix("").as_posix() for p in BOOK.glob("src/**/*.md"))
BACK_MATTER = {"errata"}


def source(page):
    return (BOOK / "src" / f"{page}.md").read_text(encoding="utf-8")


def front(page):
    return yaml.safe_load(source(page).split("---\n")[1])["eotcourse"]


def needed(page):
    """The pages that a page's front matter names under `needs`."""
    names = re.findall(r"\{doc\}`([^`]+)`", " ".join(front(page)["needs"]))
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), name)) for name in names}


def minutes(page):
    """Minutes to read a page (its front matter) and to do its exercises (their headers)."""
    text = source(page)
    read = front(page)["read"]
    return read, sum(map(int, re.findall(r"^\*Difficulty [123] of 3 · (\d+) minutes", text, re.M)))


def track(title):
    """Text of a track and its rows as (pages, minutes promised)."""
    text = re.search(rf"^### {title}$(.*?)(?=^##|\Z)", INDEX, re.M | re.S)[1]
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and "{doc}" in line:
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            numbers = [int(cell) for cell in cells[1:] if cell.isdigit()]
            rows.append((re.findall(r"\{doc\}`([^`]+)`", line), numbers))
    return text, rows


def need(pages, columns):
    return [sum(column) for column in zip(*map(minutes, pages), strict=True)][:columns]


@pytest.mark.parametrize("title", ["One sitting", "One weekend", "One term"])
def test_every_row_sums_its_pages(title):
    _, rows = track(title)
    assert len(rows) >= 3
    for pages, promised in rows:
        assert promised == need(pages, len(promised)), pages


@pytest.mark.parametrize("title", ["One sitting", "One weekend", "One term"])
def test_needed_pages_come_first_or_are_named_as_left_out(title):
    text, rows = track(title)
    listed = [page for pages, _ in rows for page in pages]
    left_out = {
        page for line in re.findall(r"^Left out: .*$", text, re.M)
        for page in re.findall(r"\{doc\}`([^`]+)`", line)
    }
    assert not left_out & set(listed)
    for i, page in enumerate(listed):
        assert needed(page) <= left_out.union(listed[:i]), page
    assert left_out <= set().union(*map(needed, listed))


def test_no_page_needs_a_later_one():
    toc = yaml.safe_load((BOOK.parent / "_toc.yml").read_text())
    order = [c["file"].removeprefix("book/") for part in toc["parts"] for c in part["chapters"]]
    pages = [page for page in order if page in PAGES]
    assert sum(len(needed(page)) for page in pages) > 20
    for page in pages:
        for other in needed(page):
            assert order.index(other) < order.index(page), (page, other)


def test_the_sitting_takes_about_an_hour():
    text, rows = track("One sitting")
    total = sum(promised[0] for _, promised in rows)
    assert f": {total} minutes." in text
    assert 50 <= total <= 75


def test_the_weekend_takes_the_hours_it_says():
    text, rows = track("One weekend")
    total = sum(sum(promised) for _, promised in rows)
    assert f"about {round(total / 60)} hours" in text
    assert 6.5 <= total / 60 <= 9.5


@pytest.mark.parametrize("title, later", [("One weekend", ("family/", "policy/", "geometry/", "kernel/")), ("One term", ())])
def test_no_page_is_left_out(title, later):
    listed = [page for pages, _ in track(title)[1] for page in pages]
    wanted = {page for page in PAGES if not page.startswith(later)}
    assert sorted(listed) == sorted(wanted - BACK_MATTER)


def test_the_term_has_fourteen_weeks():
    text, _ = track("One term")
    weeks = [int(n) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.M) for n in row.split(",")]
    assert weeks == list(range(1, 15))


def test_the_opening_numbers_are_the_softmax():
    first = INDEX.split("\n\n")[1]
    p = softmax(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64), 2.0)
    for weight in p.tolist():
        assert f"{weight:.3f}" in first
