"""Repairs of the Jupyter Book 1.x stack that configuration cannot make.

* sphinx-exercise registers its nodes under ``singlehtml``; Sphinx then no longer falls back to the
  ``html`` visitors for anybody else's nodes, and that builder stops at the first hidden cell.
* sphinx-thebe adds its scripts to every page, even when no page offers a live kernel.
* sphinx-proof sets a proof as an admonition without a title, which the script that folds
  admonitions cannot bear, and repeats fixed ids; here a proof ends with a mark, and one with the
  class ``dropdown`` becomes a plain ``<details>``.
* The pages are English, and a screen reader must be told where they are not.
* Sphinx remembers the pages of a build that failed on warnings as done, so that the next run of
  the same command would pass without having looked at them.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import ENV_PICKLE_FILENAME

REPEATED_IDS = {"proof-content", "exercise-content", "solution-content"}
PROOF_END = '<{0} class="proof-end" aria-hidden="true">□</{0}>'


CHINESE = re.compile(r"([\u4e00-\u9fff][\u3000-\u9fff\uff00-\uffef]*)")


def complete_singlehtml(app) -> None:
    handlers = app.registry.translation_handlers
    if "singlehtml" in handlers:
        handlers["singlehtml"] = {**handlers.get("html", {}), **handlers["singlehtml"]}


def set_proofs(app, doctree, docname) -> None:
    if app.builder.format != "html":
        return
    for section in doctree.findall(nodes.section):
        section["ids"] = [i for i in section["ids"] if i not in REPEATED_IDS]
    for proof in list(doctree.findall(nodes.admonition)):
        if "proof" not in proof["classes"] or isinstance(proof[0], nodes.title):
            continue
        proof["ids"] = []
        folded = "dropdown" in proof["classes"]
        opening = proof[0]
        word = opening[0] if len(opening) else None
        if isinstance(word, nodes.Text) and word.startswith("Proof. "):
            opening[0] = nodes.Text(word[len("Proof. ") :])
            if not folded:
                opening.insert(0, nodes.emphasis("", "Proof. "))
        in_text = isinstance(proof[-1], nodes.paragraph)
        mark = PROOF_END.format("span" if in_text else "div")
        (proof[-1] if in_text else proof).append(nodes.raw("", mark, format="html"))
        if folded:
            proof.insert(0, nodes.raw("", "<summary>Proof</summary>", format="html"))
            proof.insert(0, nodes.raw("", '<details class="proof">', format="html"))
            proof += nodes.raw("", "</details>", format="html")
            proof.parent.replace(proof, proof.children)


def mark_chinese(app, doctree, docname) -> None:
    if app.builder.format != "html":
        return
    for text in list(doctree.findall(nodes.Text)):
        english, *rest = CHINESE.split(text)
        if not rest or isinstance(text.parent, (nodes.raw, nodes.literal_block)):
            continue
        pieces = [nodes.Text(english)]
        for chinese, english in zip(rest[::2], rest[1::2], strict=True):
            pieces += [
                nodes.raw("", '<span lang="zh">', format="html"),
                nodes.Text(chinese),
                nodes.raw("", "</span>", format="html"),
                nodes.Text(english),
            ]
        text.parent.replace(text, pieces)


def drop_thebe_nodes(app, doctree, docname) -> None:
    for node in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in node.astext() or "kernelName =" in node.astext():
            node.parent.remove(node)


def drop_thebe_scripts(app, pagename, templatename, context, doctree) -> None:
    def is_thebe(script) -> bool:
        body = getattr(script, "attributes", {}).get("body") or ""
        return "thebe" in f"{getattr(script, 'filename', script)} {body}".lower()

    scripts = context.get("script_files", [])
    scripts[:] = [script for script in scripts if not is_thebe(script)]


def forget_failed_build(app, exception) -> None:
    if app._warncount and (app.warningiserror or app.keep_going):
        (Path(app.doctreedir) / ENV_PICKLE_FILENAME).unlink(missing_ok=True)


def setup(app):
    app.connect("builder-inited", complete_singlehtml)
    app.connect("doctree-resolved", set_proofs)
    app.connect("doctree-resolved", mark_chinese)
    app.connect("doctree-resolved", drop_thebe_nodes, priority=900)
    app.connect("html-page-context", drop_thebe_scripts, priority=900)
    app.connect("build-finished", forget_failed_build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
