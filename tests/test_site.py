"""The built pages: complete, self-contained, and showing exactly what the notebooks store.

Read with the standard library only; `tests/test_browser.py` looks at the same pages in a browser.
"""

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
SITE = ROOT / "_build/html"
NOTEBOOKS = sorted(path for path in BOOK.rglob("*.ipynb") if not {"src", ".ipynb_checkpoints"} & set(path.parts))
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if not path.relative_to(SITE).parts[0].startswith("_")
)
MAX_KB = 250
VOID = set("area base br col embed hr img input link meta source track wbr".split())
RAW_TEX = re.compile(r"\\\(|\\\)|\\\[|\\\]|\$|\\[a-zA-Z]+|[_^]\{")
FAR = re.compile(r"^\s*(https?:)?//", re.I)
CSS_ADDRESS = re.compile(r"""(?:url\(|@import)\s*["']?\s*([^"')\s;]+)""")

built = pytest.mark.skipif(not SITE.exists(), reason="the book is not built: make book")
each_page = pytest.mark.parametrize("path", PAGES)


class Page(HTMLParser):
    """What the tests ask of one page."""

    def __init__(self, text):
        super().__init__()
        self.open = []  # (tag, classes) from the root to here
        self.anchors = set()
        self.links = []  # href of <a>
        self.fetched = []  # what the browser loads by itself
        self.images = []  # (file name, alt) inside the article
        self.styles = []
        self.scripts = []  # text of inline scripts
        self.prose = []  # article text outside code and formulas
        self.formulas = []  # tags inside each formula
        self.outputs = []  # text of each printed output
        self.output_images = []
        self.feed(text)
        self.close()

    def inside(self, tag=None, cls=None):
        return any((tag is None or t == tag) and (cls is None or cls in c) for t, c in self.open)

    def handle_starttag(self, tag, attrs):
        attrs = {name: value or "" for name, value in attrs}
        classes = set(attrs.get("class", "").split())
        self.anchors |= {attrs[name] for name in ("id", "name") if name in attrs}
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") != "canonical" and "href" in attrs:
            self.fetched.append(attrs["href"])
        self.fetched += [attrs[name] for name in ("src", "srcset", "poster", "data") if name in attrs]
        self.styles.append(attrs.get("style", ""))
        if self.inside("article"):
            if tag == "img":
                name = unquote(urlsplit(attrs["src"]).path).rpartition("/")[2]
                self.images.append((name, attrs.get("alt", "")))
                if self.inside(cls="cell_output"):
                    self.output_images.append(name)
            if "math" in classes and "notranslate" in classes:
                self.formulas.append([])
            elif self.inside(cls="math"):
                self.formulas[-1].append(tag)
            if tag == "pre" and self.inside(cls="cell_output"):
                self.outputs.append("")
        if tag not in VOID:
            self.open.append((tag, classes))

    def handle_endtag(self, tag):
        while self.open and tag not in VOID:
            if self.open.pop()[0] == tag:
                break

    def handle_data(self, data):
        if self.inside("script"):
            self.scripts.append(data)
        elif self.inside("style"):
            self.styles.append(data)
        elif self.inside("article"):
            if self.inside("pre"):
                if self.inside(cls="cell_output"):
                    self.outputs[-1] += data
            elif not self.inside("code") and not self.inside("math"):
                self.prose.append(data)


@cache
def page(path):
    return Page((SITE / path).read_text(encoding="utf-8"))


def far_addresses(found):
    in_css = [address for style in found.styles for address in CSS_ADDRESS.findall(style)]
    return [address for address in found.fetched + in_css if FAR.match(address)]


def bad_formulas(found):
    # A stretched arrow or brace is an svg within the formula's own.
    return [tags for tags in found.formulas if "svg" not in tags or tags.count("math") != 1]


def bad_images(found):
    return [
        (name, alt)
        for name, alt in found.images
        if len(alt) < 40 or name in alt or re.search(r"\.(png|svg|jpe?g)\b", alt)
    ]


def dead_links(path):
    dead = []
    for href in page(path).links:
        parts = urlsplit(href)
        if parts.scheme or parts.netloc:
            continue
        file = (SITE / path).parent / unquote(parts.path) if parts.path else SITE / path
        if file.is_dir():
            file /= "index.html"
        if not file.is_file():
            dead.append(href)
        elif parts.fragment and file.suffix == ".html":
            target = page(file.resolve().relative_to(SITE.resolve()).as_posix())
            if unquote(parts.fragment) not in target.anchors:
                dead.append(href)
    return dead


def test_the_course_has_one_title():
    def text(name):
        return (ROOT / name).read_text(encoding="utf-8")

    title = yaml.safe_load(text("_config.yml"))["title"]
    assert text("README.md").startswith(f"# {title}\n")
    assert text("book/index.md").startswith(f"# {title}\n")
    assert yaml.safe_load(text("CITATION.cff"))["title"] == title
    assert f"“From *{title}* (eotcourse)" in text("LICENSE-CONTENT.md")


@built
def test_every_page_of_the_contents_is_built():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    files = [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]
    assert {f"{file}.html" for file in files} <= set(PAGES)


@built
def test_pages_are_numbered_within_their_chapter():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    chapters = [part for part in toc["parts"] if part.get("numbered")]
    for k, part in enumerate(chapters, 1):
        assert part["caption"].startswith(f"Chapter {k}: ")
        for i, entry in enumerate(part["chapters"], 1):
            text = (SITE / f"{entry['file']}.html").read_text(encoding="utf-8")
            assert f'<h1><span class="section-number">{k}.{i}. </span>' in text
            made = re.findall(r'class="(?:caption-number|eqno)">\D*([\d.]+)', text)
            assert made and [n for n in made if not n.startswith(f"{k}.{i}.")] == []


@built
@each_page
def test_page_asks_nobody(path):
    found = page(path)
    assert not far_addresses(found)
    assert not [text for text in found.scripts if "thebe" in text.lower() or "MathJax" in text]


@built
def test_style_sheets_ask_nobody():
    for sheet in (SITE / "_static").rglob("*.css"):
        far = [a for a in CSS_ADDRESS.findall(sheet.read_text(encoding="utf-8")) if FAR.match(a)]
        assert not far, f"{sheet.name}: {far}"


@built
@each_page
def test_formulas_are_typeset(path):
    found = page(path)
    assert not bad_formulas(found)
    assert not RAW_TEX.findall(" ".join(found.prose))


@built
def test_there_are_formulas():
    assert sum(len(page(path).formulas) for path in PAGES) > 100


@built
@each_page
def test_pictures_have_words(path):
    assert not bad_images(page(path))


@built
@each_page
def test_links_lead_somewhere(path):
    assert not dead_links(path)


@built
def test_chinese_is_said_to_be_chinese():
    text = (SITE / "book/glossary.html").read_text(encoding="utf-8")
    marked = re.findall(r'<span lang="zh">[^<]*</span>', text)
    assert len(marked) >= 45
    assert not re.search(r"[\u4e00-\u9fff]", re.sub(r'<span lang="zh">[^<]*</span>', "", text))


@built
@each_page
def test_page_is_light(path):
    own = [SITE / path, *(SITE / "_static").glob("course.*")]
    size = sum(len(gzip.compress(file.read_bytes())) for file in own)
    assert size <= MAX_KB * 1000, f"{size / 1000:.0f} kB"


def stored_outputs(notebook):
    """Printed texts and names of pictures, in order, as the stored notebook has them."""
    texts, images = [], []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        if {"remove-cell", "remove-output"} & set(cell["metadata"].get("tags", [])):
            continue
        for output in cell["outputs"]:
            data = output.get("data", {})
            if output["output_type"] == "stream":
                texts.append("".join(output["text"]))
            elif "image/png" in data:
                picture = base64.b64decode("".join(data["image/png"]))
                images.append(hashlib.sha256(picture).hexdigest() + ".png")
            else:
                texts.append("".join(data["text/plain"]))
    return [text.rstrip("\n") for text in texts], images


@built
@pytest.mark.parametrize(
    "notebook", NOTEBOOKS, ids=lambda path: path.relative_to(BOOK).with_suffix("").as_posix()
)
def test_outputs_are_the_stored_ones(notebook):
    name = notebook.relative_to(ROOT)
    found = page(name.with_suffix(".html").as_posix())
    texts, images = stored_outputs(notebook)
    assert [text.rstrip("\n") for text in found.outputs] == texts
    assert found.output_images == images
    for image in images:
        published = (SITE / "_images" / image).read_bytes()
        assert hashlib.sha256(published).hexdigest() + ".png" == image
    assert (SITE / "_sources" / name).read_bytes() == notebook.read_bytes()


BAD_PAGE = r"""<article>
<img src="x/plot.png" alt="plot.png, a file name that is long enough to be taken for words">
<div class="math notranslate"><svg></svg></div> left over: \(x\)
<a href="gone.html">gone</a><script src="https://example.org/x.js"></script>
<p style="background: url(//example.org/x.png)"></p></article>"""


def test_checks_can_fail(tmp_path, monkeypatch):
    """Each check above refuses a page that has the mistake it looks for."""
    found = Page(BAD_PAGE)
    assert far_addresses(found) == ["https://example.org/x.js", "//example.org/x.png"]
    assert bad_formulas(found) == [["svg"]]
    assert RAW_TEX.search(" ".join(found.prose))
    for lost in ("costs $5", r"at \tau", "x_{ij}", "10^{-3}", r"\(x"):
        assert RAW_TEX.search(" ".join(Page(f"<article><p>{lost}</p></article>").prose))
        assert not RAW_TEX.search(" ".join(Page(f"<article><pre>{lost}</pre></article>").prose))
    assert len(bad_images(found)) == 1
    monkeypatch.setitem(globals(), "SITE", tmp_path)
    (tmp_path / "planted.html").write_text(BAD_PAGE + '<a href="#nowhere">nowhere</a>')
    assert dead_links("planted.html") == ["gone.html", "#nowhere"]


# A small book of its own, built with the course's extensions, that must fail where it is wrong.

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
MACROS = CONFIG["mathsvg_macros"]
GOOD = "\n\n".join(
    ["# Good", *(rf"Macro $\{name} x$." for name in MACROS), "$$\na &= b \\\\\n  &= c\n$$ (eq-a)", "{eq}`eq-a`"]
)


MISTAKES = [
    (r"$\frac{a}{$", "3: WARNING: TeX: Missing close brace"),
    (r"$\frac{a}$", "3: WARNING: TeX: Missing argument"),
    (r"$\undefinedmacro x$", r"3: WARNING: TeX: Undefined control sequence \undefinedmacro"),
    ("text\n\n$$\n\\left( x\n$$", "5: WARNING: TeX: "),
    (r"\begin{align*} a &= b } \end{align*}", "3: WARNING: TeX: Extra close brace"),
    ("| a |\n|---|\n| $\\nosuch$ |", "5: WARNING: TeX: Undefined control sequence \\nosuch"),
    ("```{prf:theorem} For $\\nosuch$\n:label: t\nText.\n```", "4: WARNING: TeX: Undefined"),
    (r"$\def\x{1}\x$", r"3: WARNING: TeX: Undefined control sequence \def"),
    ("## Heading with $x$", "3: WARNING: maths in a heading"),
    ("{prf:ref}`thm-missing`", "3: WARNING: prf:ref reference target not found"),
    ("{eq}`eq-missing`", "3: WARNING: equation not found: eq-missing"),
    ("{doc}`missing`", "3: WARNING: unknown document"),
]


def build(folder, **pages):
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(BOOK / '_ext')!r})\n"
        "extensions = ['myst_parser', 'sphinx_proof', 'mathsvg', 'book_fixes']\n"
        "myst_enable_extensions = ['amsmath', 'dollarmath']\n"
        "html_math_renderer = 'mathsvg'\n"
        f"mathsvg_macros = {MACROS!r}\n"
    )
    contents = "\n".join(["# Contents", "", "```{toctree}", *pages, "```", ""])
    for name, text in {"index": contents, **pages}.items():
        (folder / f"{name}.md").write_text(text)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html"]
    done = subprocess.run(
        [*command, str(folder), str(folder / "_build")], capture_output=True, text=True
    )
    return done.returncode, done.stderr


def test_canary_a_sound_page_builds(tmp_path):
    assert build(tmp_path, good=GOOD) == (0, "")
    found = Page((tmp_path / "_build/good.html").read_text())
    assert "#equation-eq-a" in found.links and "equation-eq-a" in found.anchors


def test_canary_each_mistake_fails(tmp_path):
    pages = {f"bad{i}": f"# Page\n\n{mistake}\n" for i, (mistake, _) in enumerate(MISTAKES)}
    for attempt in ("first", "second"):  # a failed build is not remembered as done
        code, said = build(tmp_path, **pages)
        assert code != 0, attempt
        for i, (mistake, words) in enumerate(MISTAKES):
            assert re.search(rf"bad{i}\.md:{re.escape(words)}", said), f"{attempt}: {mistake}: {said}"


def test_each_full_stop_stays_with_its_own_formula(tmp_path):
    # Both texts behind a link or a formula are the same full stop.
    text = "# Page\n\nSee [the list](index.md).\nThen $x$.\n"
    assert build(tmp_path, page=text) == (0, "")
    page = (tmp_path / "_build/page.html").read_text()
    inner = re.search(r"<p>See (.*?)</p>", page, re.S)[1]
    words = re.sub(r"<[^>]*>", "", re.sub(r"<(svg|math)\b.*?</\1>", "x", inner, flags=re.S))
    assert " ".join(words.split()) == "the list. Then xx."
