"""No formula of the book has lost a dollar sign: nothing in its text looks like TeX."""

import re

import notebooks
import pytest
from prose import pieces

TEX = re.compile(r"\$|\\[a-zA-Z]+|[_^]\{")
WITHOUT_CODE = sorted(notebooks.BOOK.glob("*.md"))


def left_over(markdown):
    """What looks like TeX in the text of some Markdown, with its surroundings."""
    texts = [text for kind, text in pieces(markdown) if kind == "text"]
    return [text[max(m.start() - 30, 0) : m.end() + 30] for text in texts for m in TEX.finditer(text)]


def markdown_of(nb):
    """The Markdown of a page: its cells, the captions of its figures, and its box."""
    texts = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    texts += [cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "") for cell in nb.cells]
    return texts + [notebooks.box(nb.metadata["eotcourse"])]


@pytest.mark.parametrize("page", notebooks.pages())
def test_no_tex_is_left_in_the_text(page):
    nb = notebooks.read(page)
    assert [found for text in markdown_of(nb) for found in left_over(text)] == []
    # An alternative text is read out as it stands.
    alts = [cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "") for cell in nb.cells]
    assert [alt for alt in alts if TEX.search(alt)] == []


@pytest.mark.parametrize("path", WITHOUT_CODE, ids=lambda path: path.stem)
def test_no_tex_is_left_in_a_page_without_code(path):
    assert left_over(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", ["taste", "one-sided/gibbs"])
def test_canary_each_missing_dollar_is_found(page):
    planted, missed = 0, []
    for text in markdown_of(notebooks.read(page)):
        for m in re.finditer(r"\$", text):
            planted += 1
            if not left_over(text[: m.start()] + text[m.end() :]):
                missed.append(text[max(m.start() - 40, 0) : m.end() + 40])
    assert planted > 50 and missed == []


@pytest.mark.parametrize("text", [r"a \alpha b", "x_{10}", "10^{-3}", "```{solution} ex\n\nCosts $5.\n```"])
def test_canary_tex_in_the_text_is_found(text):
    assert left_over(text)
