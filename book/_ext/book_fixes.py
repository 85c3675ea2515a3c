"""Repairs of the Jupyter Book 1.x stack that configuration cannot make.

* sphinx-exercise registers its nodes under ``singlehtml``; Sphinx then no longer falls back to the
  ``html`` visitors for anybody else's nodes, and that builder stops at the first hidden cell.
* sphinx-thebe adds its inline script to every page, even when no page offers a live kernel.
* Sphinx remembers the pages of a build that failed on warnings as done, so that the next run of
  the same command would pass without having looked at them.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import ENV_PICKLE_FILENAME


def complete_singlehtml(app) -> None:
    handlers = app.registry.translation_handlers
    if "singlehtml" in handlers:
        handlers["singlehtml"] = {**handlers.get("html", {}), **handlers["singlehtml"]}


def drop_thebe(app, pagename, templatename, context, doctree) -> None:
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
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", forget_failed_build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
