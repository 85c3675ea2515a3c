"""The tracks of the landing page promise the minutes that their pages need."""

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


def minutes(page):
    """Minutes to read a page (its front matter) and to do its exercises (their headers)."""
    text = (BOOK / "src" / f"{page}.md").read_text(encoding="utf-8")
    read = yaml.safe_load(text.split("---\n")[1])["eotcourse"]["read"]
    return read, sum(map(int, re.findall(r"^\*Difficulty [123] of 3 · (\d+) minutes", text, re.M)))


def track(title):
    """Text of a track and its rows as (pages, minutes promised)."""
    text = re.search(rf"^### {title}$(.*?)(?=^##|\Z)", INDEX, re.M | re.S)[1]
    rows = []
    for line in text.splitlines():
        if "{doc}" in line:
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


@pytest.mark.parametrize("title, later", [("One weekend", ("family/",)), ("One term", ())])
def test_no_page_is_left_out(title, later):
    listed = [page for pages, _ in track(title)[1] for page in pages]
    wanted = {page for page in PAGES if not page.startswith(later)}
    assert sorted(listed) == sorted(wanted - BACK_MATTER)


def test_the_term_has_twelve_weeks():
    text, _ = track("One term")
    weeks = [int(n) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.M) for n in row.split(",")]
    assert weeks == list(range(1, 13))


def test_the_opening_numbers_are_the_softmax():
    first = INDEX.split("\n\n")[1]
    p = softmax(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64), 2.0)
    for weight in p.tolist():
        assert f"{weight:.3f}" in first
