"""Tie every numbered statement of the book to its check, and show the ties.

Under each statement goes a line with its status, tolerance, number of instances and mutants; the
directive ``claim-ledger`` lists all claims with the source of their checks.  The build warns, and
so fails, on a statement or numbered equation without a check, on a check without a statement, and
on a statement called proved that no proof follows.
"""

import functools
import pathlib
import re
import sys
from itertools import groupby

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.nodes import proof_node

logger = logging.getLogger(__name__)
LEDGER = "book/claims"
BOOK = pathlib.Path(__file__).resolve().parents[1]


@functools.cache
def claims():
    sys.path.insert(0, str(BOOK.parent / "tests"))
    try:
        from claims import load
    finally:
        sys.path.pop(0)
    return load()


def of(label):
    return [c for c in claims() if c.id == label]


def statements(doctree):
    return doctree.findall(lambda n: isinstance(n, nodes.Element) and "realtype" in n)


def followed_by_proof(node):
    """Whether a proof stands after the statement, before the next one and in the same section."""
    for sibling in node.parent.children[node.parent.index(node) + 1 :]:
        if isinstance(sibling, proof_node):
            return True
        if isinstance(sibling, nodes.Element) and "realtype" in sibling:
            return False
    return False


def ledger_of(env):
    if not hasattr(env, "claims_ledger"):
        env.claims_ledger = {}
    return env.claims_ledger


def collect(app, doctree):
    found = ledger_of(app.env)
    for node in statements(doctree):
        found[node["label"]] = {
            "docname": app.env.docname,
            "cited": "cited" in node["classes"],
            "proof": followed_by_proof(node),
        }


def purge(app, env, docname):
    found = ledger_of(env)
    for label in [k for k, v in found.items() if v["docname"] == docname]:
        del found[label]


def loose_ends(found, equations, every):
    """Every tie that is missing between statements, numbered equations and checks.

    Yields (sentence, document or None); `found` is what `collect` gathered, `equations` maps the
    label of a numbered equation to its document, `every` lists all claims.
    """
    covered = {label for c in every for label in c.covers}
    for label, at in found.items():
        ties = [c for c in every if c.id == label]
        if at["cited"] and ties:
            yield f"{label} is called cited and has a check", at["docname"]
        if not at["cited"] and not ties:
            yield f"{label} has no check in tests/claims", at["docname"]
        if not at["proof"] and any(c.status == "proved" for c in ties):
            yield f"{label} is called proved and no proof follows it", at["docname"]
    for c in every:
        if c.id not in found:
            yield f"the check {c.name} has no statement in the book", None
        elif found[c.id]["docname"] != f"book/{c.page}":
            yield f"the check of {c.id} stands in the file of {c.page}", found[c.id]["docname"]
    for label, docname in equations.items():
        if label not in covered:
            yield f"equation {label} is numbered and no check covers it", docname
    for label in covered - set(equations):
        yield f"a check covers {label}, which is no numbered equation", None


def check_consistency(app, env):
    equations = {label: at[0] for label, at in env.get_domain("math").equations.items()}
    for sentence, docname in loose_ends(ledger_of(env), equations, claims()):
        logger.warning(sentence, location=docname)


def bounds(ties):
    """The tolerances in words. One of 1 or more counts standard errors of a sampled mean."""
    exact = sorted(c.tol for c in ties if c.tol < 1)
    sampled = [c.tol for c in ties if c.tol >= 1]
    words = [f"to {exact[-1]:g}"] if exact else []
    if exact and exact[0] < exact[-1]:
        words[0] += f" (tightest part {exact[0]:g})"
    if sampled:
        words.append(f"within {max(sampled):g} standard errors")
    return " and ".join(words)


def verdict(ties):
    instances = sum(c.instances for c in ties)
    mutants = len({m for c in ties for m in c.mutants})
    parts = f" in {len(ties)} parts" if len(ties) > 1 else ""
    proved = "proved · " if any(c.status == "proved" for c in ties) else ""
    return f"{proved}checked {bounds(ties)} on {instances:,} instances{parts} · {mutants} mutants caught"


def add_badges(app, doctree, docname):
    for node in statements(doctree):
        badge = nodes.paragraph(classes=["claim-badge"])
        if "cited" in node["classes"]:
            badge += nodes.Text("cited, not checked here")
        elif ties := of(node["label"]):
            badge += nodes.Text(verdict(ties) + " · ")
            uri = app.builder.get_relative_uri(docname, LEDGER) + f"#claim-{node['label']}"
            badge += nodes.reference("", "the check", refuri=uri, internal=True)
        node += badge


def listing(entry):
    """One check: its name and size, what it computes, what it catches, and its source, folded."""
    size = f"{entry.instances:,} instances · {bounds([entry])}"
    name = nodes.strong("", f"{entry.part} · " if entry.part else "")
    return nodes.container(
        "",
        nodes.paragraph("", "", name, nodes.Text(size), classes=["claim-check-name"]),
        nodes.paragraph("", entry.says),
        nodes.paragraph("", "Mutants caught: " + "; ".join(entry.mutants) + "."),
        nodes.raw("", "<details class='claim-source'><summary>Source</summary>", format="html"),
        nodes.literal_block(entry.source, entry.source, language="python"),
        nodes.raw("", "</details>", format="html"),
        classes=["claim-check"],
    )


def page_title(page):
    source = BOOK / "src" / f"{page}.md"
    found = re.search(r"^# (.+)$", source.read_text(encoding="utf-8"), re.M) if source.exists() else None
    return found[1] if found else page


class ClaimLedger(SphinxDirective):
    """All claims, page by page, with what each computes, its mutants and its source."""

    def run(self):
        # A page that is not in the book comes last; the consistency check reports it.
        order = {name: i for i, name in enumerate(self.config.external_site_map)}
        every = sorted(claims(), key=lambda c: order.get(f"book/{c.page}", len(order)))
        for path in {c.check.__code__.co_filename for c in every}:
            self.env.note_dependency(path)
        pages = {c.page for c in every}
        total = (
            f"{len({c.id for c in every})} statements on {len(pages)} pages have {len(every)} checks "
            f"with {sum(c.instances for c in every):,} instances; "
            f"{sum(len(c.mutants) for c in every)} mutants are caught."
        )
        out = [nodes.paragraph("", total)]
        for page, entries in groupby(every, key=lambda c: c.page):
            section = nodes.section(ids=[f"ledger-{page.replace('/', '-')}"])
            title = addnodes.pending_xref(
                "", nodes.inline("", page_title(page)), refdomain="std", reftype="doc",
                reftarget=f"/book/{page}", refexplicit=True, refdoc=self.env.docname, refwarn=True,
            )
            section += nodes.title("", "", title)
            for label, ties in groupby(entries, key=lambda c: c.id):
                ties = list(ties)
                entry = nodes.container(ids=[f"claim-{label}"], classes=["claim-entry"])
                link = addnodes.pending_xref(
                    "", nodes.inline("", label), refdomain="prf", reftype="ref",
                    reftarget=label, refexplicit=False, refdoc=self.env.docname, refwarn=True,
                )
                entry += nodes.paragraph(
                    "", "", nodes.strong("", "", link), nodes.Text(" · " + verdict(ties))
                )
                entry += [listing(tie) for tie in ties]
                section += entry
            out.append(section)
        return out


def setup(app):
    app.add_directive("claim-ledger", ClaimLedger)
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", purge)
    app.connect("env-check-consistency", check_consistency)
    app.connect("doctree-resolved", add_badges)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
