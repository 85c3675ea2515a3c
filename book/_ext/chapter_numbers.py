"""Number pages within their chapter: the second page of chapter 1 is 1.2.

Sphinx counts the pages of all chapters in one row, which puts a second row of numbers beside the
chapters' own.  With ``numfig_secnum_depth`` 2, statements, equations, figures and exercises carry
their page's number: the first theorem of page 2.2 is Theorem 2.2.1.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.environment.collectors.toctree import TocTreeCollector


def number_within_chapters(app, env):
    contents = env.get_doctree(env.config.root_doc)
    numbered = [tree for tree in contents.findall(addnodes.toctree) if tree["numbered"]]
    for chapter, tree in enumerate(numbered, 1):
        for page, (_, docname) in enumerate(tree["entries"], 1):
            number = (chapter, page)
            env.toc_secnumbers[docname][""] = number
            env.titles[docname]["secnumber"] = number
            next(env.tocs[docname].findall(nodes.reference))["secnumber"] = number
    TocTreeCollector().assign_figure_numbers(env)
    # Pages outside the chapters share no row of numbers: each begins with its Fig. 1.
    for docname, kinds in env.toc_fignumbers.items():
        if docname not in env.toc_secnumbers:
            for kind, numbers in kinds.items():
                kinds[kind] = {id: (i,) for i, id in enumerate(numbers, 1)}
    return {*env.toc_secnumbers, *env.toc_fignumbers}


def setup(app):
    # After Sphinx's own count, which knows no chapters.
    app.connect("env-get-updated", number_within_chapters, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
