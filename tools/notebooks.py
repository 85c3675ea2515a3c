"""Text sources <-> executed notebooks.

    python tools/notebooks.py build [page ...]   book/src/X.md -> book/X.ipynb, executed
    python tools/notebooks.py check              every notebook is in step with its source and sound

A page is written once, in MyST, with its exercises, their solutions, tests and answer keys.  From it
come the notebook that the book shows (edition "page") and the answer keys that
`eotcourse.course.check` reads.  Two builds of the same source give the same bytes.
"""

import argparse
import ast
import base64
import builtins
import hashlib
import os
import pathlib
import re
import struct
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
SRC = BOOK / "src"
CHECKS = ROOT / "eotcourse" / "course" / "checks"

# One thread and no hash seed make a stored output repeatable; kernels inherit both.
KERNEL_ENV = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
MAX_LINES, MAX_WIDTH = 15, 72

SOLUTION_MARK = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.M)
HIDDEN_TESTS = re.compile(
    r"^[ \t]*### BEGIN HIDDEN TESTS\n.*?^[ \t]*### END HIDDEN TESTS[ \t]*\n?", re.M | re.S
)


def pages():
    return sorted(p.relative_to(SRC).with_suffix("").as_posix() for p in SRC.rglob("*.md"))


def source(page):
    return SRC / f"{page}.md"


def target(page):
    return BOOK / f"{page}.ipynb"


def checks_module(page):
    return CHECKS / f"{page.rpartition('/')[2].replace('-', '_')}.py"


def read(page):
    import jupytext

    return jupytext.read(source(page))


def tags(cell):
    return cell.metadata.get("tags", [])


def is_solution(cell):
    return cell.metadata.get("nbgrader", {}).get("solution", False)


def exercise_of(cell):
    """The exercise a graded cell belongs to: its grade_id without the suffix of its test cell."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-check")


def box(meta):
    """The box under the title: what you will be able to do, what you need, how long it takes."""
    lines = ["```{admonition} On this page", ":class: tip page-box", "", "**You will be able to**", ""]
    lines += [f"- {outcome}" for outcome in meta["outcomes"]]
    minutes = f"{meta['read']} minutes to read, {meta['run']} to run"
    lines += ["", f"**You need** {', '.join(meta['needs'])}.", "", f"**Time** {minutes}.", "```"]
    return "\n".join(lines)


def edition_page(nb, page):
    """What the book shows: solutions folded, no markers, no hidden tests, no answer keys."""
    import nbformat

    cells = []
    for cell in nb.cells:
        if "exercise-check" in tags(cell):
            continue
        cell = nbformat.from_dict(cell)
        if cell.cell_type == "code":
            cell.source = SOLUTION_MARK.sub("", HIDDEN_TESTS.sub("", cell.source)).strip("\n")
        if is_solution(cell):
            cell.metadata["tags"] = [*tags(cell), "hide-input"]
            cell.metadata["mystnb"] = {
                "code_prompt_show": "Show the solution",
                "code_prompt_hide": "Hide the solution",
            }
        cells.append(cell)
    title, newline, rest = cells[0].source.partition("\n")
    if not title.startswith("# "):
        raise SystemExit(f"{source(page)}: the first cell must start with the title")
    cells[0].source = f"{title}\n\n{box(nb.metadata['eotcourse'])}\n{newline}{rest}".rstrip("\n")
    out = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    for i, cell in enumerate(out.cells):
        cell["id"] = f"{page.rpartition('/')[2][:20]}-{i:03d}"
    return out


EDITIONS = {"page": edition_page}


def answer_keys(nb, page):
    """The text of the generated module with the page's answer keys, or None without exercises."""
    keys = [c.source.strip("\n") for c in nb.cells if "exercise-check" in tags(c)]
    if not keys:
        return None
    head = f'"""Answer keys of the page {page}, generated from its source: edit them there."""\n\n'
    head += "import math  # noqa: F401\n\nimport numpy as np  # noqa: F401\nimport torch  # noqa: F401\n\n"
    return head + "from eotcourse.course.exercises import exercise\n\n" + "\n\n".join(keys) + "\n"


def _names(code, context):
    tree = ast.parse(code)
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
    if context is ast.Store:
        found |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        arguments = [n for n in ast.walk(tree) if isinstance(n, ast.arg)]
        found |= {a.arg for a in arguments}
    return found


def leaks(nb):
    """Names that a solution defines and a cell outside its exercise uses."""
    owner, faults = {}, []
    for cell in nb.cells:
        if cell.cell_type != "code" or "exercise-check" in tags(cell):
            continue
        stored = _names(cell.source, ast.Store)
        used = _names(cell.source, ast.Load) - stored - set(dir(builtins))
        mine = exercise_of(cell)
        for name in sorted(used):
            if owner.get(name) and owner[name] != mine:
                faults.append(f"{name!r} is defined by the solution of {owner[name]} and used elsewhere")
        for name in stored:
            owner[name] = mine if is_solution(cell) else None
    return faults


def png_digest(png):
    """The data fingerprint's digest that `publish` wrote into a picture, or None."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"tEXt" and body.startswith(b"Description\0"):
            return body.partition(b"\0")[2].decode()
        at += 12 + length
    return None


def figures(cell):
    """What is kept in a cell's metadata about the pictures it drew."""
    found = []
    for output in cell.get("outputs", []):
        if "image/png" in output.get("data", {}):
            png = base64.b64decode(output["data"]["image/png"])
            text = output["data"].get("text/plain", "")
            found.append({"png": hashlib.sha256(png).hexdigest(), "data": hashlib.sha256(text.encode()).hexdigest()})
    return found


def faults(nb):
    """Everything about an executed notebook that nbval would let pass."""
    found = []
    code = [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]
    if [c.execution_count for c in code] != list(range(1, len(code) + 1)):
        found.append("not executed from top to bottom")
    for c in code:
        where = f"cell {c.get('id')}"
        lines = c.source.splitlines()
        if len(lines) > MAX_LINES:
            found.append(f"{where}: {len(lines)} lines, more than {MAX_LINES}")
        if max(map(len, lines)) > MAX_WIDTH:
            found.append(f"{where}: a line of more than {MAX_WIDTH} characters")
        if c.source.rstrip().endswith(";"):
            found.append(f"{where}: ends with ';', which a re-run ignores")
        for o in c.outputs:
            if o.output_type == "error":
                found.append(f"{where}: stored error {o.get('ename')}")
            if o.get("name") == "stderr":
                found.append(f"{where}: writes to stderr")
            data = o.get("data", {})
            if {"image/png", "image/svg+xml", "image/jpeg"} & set(data):
                alt = c.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
                if len(alt) < 40:
                    found.append(f"{where}: picture without alternative text")
                digest = png_digest(base64.b64decode(data.get("image/png", "")))
                if digest != hashlib.sha256(data.get("text/plain", "").encode()).hexdigest():
                    found.append(f"{where}: the picture is not the one that its data fingerprint describes")
        if c.metadata.get("eotcourse", {}).get("figures", []) != figures(c):
            found.append(f"{where}: the picture is not the one that was built")
    return found


def _comparable(nb):
    cells = []
    for c in nb.cells:
        meta = {k: v for k, v in c.metadata.items() if k != "eotcourse"}
        cells.append((c.cell_type, c.id, c.source, meta))
    return cells


def build(page):
    """Execute one page and write its notebook and its answer keys."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    start, nb = time.monotonic(), read(page)
    keys = answer_keys(nb, page)
    if keys:
        checks_module(page).write_text(keys, encoding="utf-8")
    if leaking := leaks(nb):
        raise SystemExit(f"{page}: " + "; ".join(leaking))
    out = EDITIONS["page"](nb, page)
    target(page).parent.mkdir(parents=True, exist_ok=True)
    os.environ.pop("MPLBACKEND", None)
    os.environ.update(KERNEL_ENV)
    client = NotebookClient(
        out,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        # Where the kernel happens to flush must not split the stored text in two.
        coalesce_streams=True,
        # ipykernel warns on the terminal about local TCP; the warning is no reader's business.
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(target(page).parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise SystemExit(f"{page}: {error}") from None
    out.metadata = nbformat.from_dict(METADATA)
    for cell in out.cells:
        if cell.cell_type == "code" and (drawn := figures(cell)):
            cell.metadata["eotcourse"] = {"figures": drawn}
    if found := faults(out):
        raise SystemExit(f"{page}:\n  " + "\n  ".join(found))
    nbformat.validate(out)
    nbformat.write(out, target(page))
    print(f"{page}: {len(out.cells)} cells, {time.monotonic() - start:.1f} s", flush=True)


def check():
    """Every way in which sources, notebooks and answer keys are out of step, as sentences."""
    import nbformat

    found = []
    for page in pages():
        nb = read(page)
        found += [f"{page}: {leak}" for leak in leaks(nb)]
        if not target(page).exists():
            found.append(f"{page}: not built")
            continue
        built = nbformat.read(target(page), 4)
        if _comparable(built) != _comparable(EDITIONS["page"](nb, page)):
            found.append(f"{page}: the notebook is out of step with its source")
        found += [f"{page}: {fault}" for fault in faults(built)]
        keys, module = answer_keys(nb, page), checks_module(page)
        if keys and (not module.exists() or module.read_text(encoding="utf-8") != keys):
            found.append(f"{page}: the answer keys are out of step with the source")
    kept = {target(p) for p in pages()}
    built = (p for p in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    found += [f"{p.relative_to(ROOT)}: no source" for p in sorted(built) if p not in kept]
    modules = {checks_module(p) for p in pages() if answer_keys(read(p), p)}
    stray = set(CHECKS.glob("*.py")) - modules - {CHECKS / "__init__.py"}
    found += [f"{p.relative_to(ROOT)}: no exercises in any source" for p in sorted(stray)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("pages", nargs="*")
    commands.add_parser("check")
    args = parser.parse_args()
    if args.command == "check":
        if found := check():
            raise SystemExit("\n".join(found) + "\nrun: python tools/notebooks.py build [page ...]")
        print(f"{len(pages())} notebooks are in step with their sources")
        return
    wanted = args.pages or pages()
    if unknown := sorted(set(wanted) - set(pages())):
        raise SystemExit(f"no such page: {', '.join(unknown)}; there are {', '.join(pages())}")
    for i, page in enumerate(wanted, 1):
        print(f"[{i}/{len(wanted)}] {page} ...", flush=True)
        build(page)


if __name__ == "__main__":
    main()
