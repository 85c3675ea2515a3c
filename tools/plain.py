"""The pages' MyST prose as Markdown that every notebook editor shows.

Directives become headings, bold words or folded ``<details>``; cross-references become words, with
the numbers that the book prints; the course's TeX macros are written out.  What this module does
not know stops it: nothing of MyST may reach a reader as raw text.
"""

import functools
import pathlib
import posixpath
import re
from collections import Counter
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
STATEMENTS = "theorem|proposition|lemma|corollary|definition"

FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})(?:\{(?P<name>[\w:-]+)\})?(?P<title>.*)$")
OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")
TARGET = re.compile(r"^\([\w-]+\)=\n", re.M)
LABELLED = re.compile(
    rf"^(?:`{{3,}}|:{{3,}})\{{(?:prf:)?(?P<kind>{STATEMENTS}|exercise)\}}[ ]*(?P<title>.*)\n"
    r"(?::class:.*\n)?:label: (?P<label>\S+)"
    r"|^ *\$\$ *\((?P<equation>[\w-]+)\)"
    r"|^ +figure: *\{name: (?P<figure>[\w-]+)"
    r"|^\((?P<target>[\w-]+)\)=\n+#+ (?P<heading>.+)",
    re.M,
)
# In this order: what stands inside code or mathematics is neither a role nor the other's opening.
INLINE = re.compile(
    r"\{(?P<role>[\w:]+)\}`(?P<content>[^`]+)`"
    r"|(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|\$\$(?P<display>.+?)\$\$(?:[ ]*\((?P<label>[\w-]+)\))?"
    r"|(?<![\\$])\$(?P<math>(?:\\.|[^$\\])+?)\$",
    re.S,
)


class NoPlainForm(ValueError):
    """A page has something that cannot be shown outside the book; the message says what."""


class Item(NamedTuple):
    """Something that can be referred to: its page and the words that name it."""

    page: str
    name: str
    title: str = ""


@functools.cache
def macros():
    import yaml

    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return config["sphinx"]["config"]["mathsvg_macros"]


@functools.cache
def chapters():
    """Number of each page, such as 2.1, in the order of the book; None where it has none."""
    import yaml

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found, last = {}, 0
    for part in toc["parts"]:
        last += bool(part.get("numbered"))
        for place, entry in enumerate(part["chapters"], 1):
            page = entry["file"].removeprefix("book/")
            found[page] = f"{last}.{place}" if part.get("numbered") else None
    return found


@functools.cache
def authors_and_year(key):
    from pybtex.database import parse_file

    entry = parse_file(ROOT / "book" / "references.bib").entries[key]
    people = [
        " ".join(str(part) for part in (*p.rich_prelast_names, *p.rich_last_names))
        for p in entry.persons["author"]
    ]
    names = " and ".join(people) if len(people) < 3 else f"{people[0]} et al."
    return names, entry.fields["year"]


class Book:
    """All pages' sources together, which is what a cross-reference needs.

    Args:
        sources: ``{page: text of its source}``.
    """

    def __init__(self, sources):
        self.titles = {p: re.search(r"^# (.+)$", t, re.M)[1] for p, t in sources.items()}
        others = {p.stem: p for p in (ROOT / "book").glob("*.md")}
        self.others = {n: re.search(r"^# (.+)$", p.read_text(encoding="utf-8"), re.M)[1]
                       for n, p in others.items()}
        order = list(chapters())
        self.items, counts = {}, Counter()
        for page in sorted(sources, key=lambda p: order.index(p) if p in order else len(order)):
            for found in LABELLED.finditer(sources[page]):
                label = next(filter(None, found.group("label", "equation", "figure", "target")))
                self.items[label] = self.item(page, found, counts)

    def item(self, page, found, counts):
        if found["target"]:
            return Item(page, found["heading"])
        kind = found["kind"] or ("equation" if found["equation"] else "figure")
        counts[kind, page] += 1
        number = ".".join(filter(None, (chapters().get(page), str(counts[kind, page]))))
        name = {"equation": f"({number})", "figure": f"Fig. {number}"}.get(kind)
        return Item(page, name or f"{kind.capitalize()} {number}", found["title"] or "")

    def markdown(self, text, page, links=True):
        """One Markdown cell of a page; ``links`` says whether the other pages lie beside it."""
        return Cell(self, page, links).blocks(text.split("\n")).strip("\n")


def details(summary, body):
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def written_out(tex):
    """A formula without the course's macros."""
    for name, meaning in macros().items():
        # As an index a macro is one token; what it stands for needs braces.
        tex = re.sub(rf"(?<=[_^])\\{name}(?![A-Za-z])", lambda _: f"{{{meaning}}}", tex)
        tex = re.sub(rf"\\{name}(?![A-Za-z])", lambda _: meaning, tex)
    return tex


class Cell:
    def __init__(self, book, page, links):
        self.book, self.page, self.links = book, page, links

    def blocks(self, lines):
        out, prose, rest = [], [], iter(lines)
        for line in rest:
            opening = FENCE.match(line)
            if not opening:
                prose.append(line)
                continue
            out.append(self.prose("\n".join(prose)))
            prose, body = [], []
            for line in rest:
                if line.rstrip() == opening["fence"]:
                    break
                body.append(line)
            else:
                raise NoPlainForm(f"{self.page}: {opening[0]!r} is not closed")
            if opening["name"]:
                out.append(self.directive(opening["name"], opening["title"].strip(), body))
            else:
                out.append("\n".join([opening[0], *body, opening["fence"]]))
        out.append(self.prose("\n".join(prose)))
        return "\n\n".join(part.strip("\n") for part in out if part.strip())

    def directive(self, name, title, lines):
        options = {}
        while lines and (option := OPTION.match(lines[0])):
            options[option[1]] = option[2]
            lines = lines[1:]
        if name == "solution":
            return ""
        body, title = self.blocks(lines), self.prose(title)
        if name == "dropdown":
            return details(title, body)
        if name == "admonition":
            return f"**{title}**\n\n{body}"
        if name == "prf:proof":
            body += "\n\n□" if body.endswith("$$") else " □"
            folded = "dropdown" in options.get("class", "")
            return details("Proof", body) if folded else f"*Proof.* {body}"
        if name == "exercise":
            return f"### {self.item(options.get('label')).name}: {title}\n\n{body}"
        if re.fullmatch(f"prf:({STATEMENTS})", name):
            return f"**{self.item(options.get('label')).name}** ({title})\n\n{body}"
        raise NoPlainForm(f"{self.page}: no plain form for the directive {{{name}}}")

    def item(self, label):
        if label not in self.book.items:
            raise NoPlainForm(f"{self.page}: the label {label} is nowhere in the book")
        return self.book.items[label]

    def prose(self, text):
        return INLINE.sub(self.inline, TARGET.sub("", text))

    def inline(self, found):
        if found["role"]:
            return self.role(found["role"], found["content"])
        if found["math"]:
            return f"${written_out(found['math'])}$"
        if found["display"]:
            tex, tag = written_out(found["display"]), ""
            if found["label"]:
                indent = tex.rpartition("\n")[2]
                tag = rf"\tag{{{self.item(found['label']).name.strip('()')}}}" + f"\n{indent}"
            return f"$${tex}{tag}$$"
        return found[0]

    def role(self, role, content):
        explicit = re.fullmatch(r"(.*?)\s*<(.+)>", content, re.S)
        words, target = explicit.groups() if explicit else ("", content)
        if role in ("cite:t", "cite:p"):
            works = [authors_and_year(key.strip()) for key in content.split(",")]
            if role == "cite:p":
                return "(" + "; ".join(f"{names} {year}" for names, year in works) + ")"
            return ", ".join(f"{names} ({year})" for names, year in works)
        if role == "term":
            return words or target
        if role == "doc":
            page = posixpath.normpath(posixpath.join(posixpath.dirname(self.page), target))
            title = self.book.titles.get(page) or self.book.others.get(page)
            if not title:
                raise NoPlainForm(f"{self.page}: there is no page {page}")
            return self.link(words or title, page)
        if role in ("prf:ref", "eq", "ref", "numref"):
            item = self.item(target)
            return self.link(words or item.name, item.page)
        raise NoPlainForm(f"{self.page}: no plain form for the role {{{role}}}")

    def link(self, words, page):
        if not self.links or page == self.page or page not in self.book.titles:
            return words
        here = posixpath.dirname(self.page) or "."
        return f"[{words}]({posixpath.relpath(page, here)}.ipynb)"
