"""The words of the book as MyST reads them: text, formulas and code, without directives around them."""

import re

from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

EXTENSIONS = {"amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "html_image"}
PARSER = create_md_parser(MdParserConfig(enable_extensions=EXTENSIONS), RendererHTML)
DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
OPTIONS = re.compile(r"\A(---\n[\s\S]*?\n---\n|(:[\w-]+:.*\n?)*)")
# The body of these is no prose, and the argument of those is a name.
NO_TEXT = {"code-cell", "toctree", "bibliography", "claim-ledger", "raw"}
NO_TITLE = {"solution", "code-block", "literalinclude"}
KINDS = {
    "text": "text", "code_inline": "code", "code_block": "code", "fence": "code", "colon_fence": "code",
    "math_inline": "math", "math_inline_double": "math", "math_block": "math", "math_block_label": "math",
    "amsmath": "math", "myst_role": "role", "myst_line_comment": "comment", "heading_open": "break",
}


def pieces(markdown):
    """Yield (kind, content) in order: "text", "math", "code", "role", "comment" or "break".

    Directives are entered, because their titles and bodies are prose too.  A "break" stands before
    each heading and each exercise.
    """
    for token in PARSER.parse(markdown):
        directive = DIRECTIVE.match(token.info) if "fence" in token.type else None
        if directive and directive[1] not in NO_TEXT:
            name, title = directive.groups()
            body = OPTIONS.sub("", token.content)
            if name == "exercise":
                yield "break", ""
            if name == "math":
                yield "math", body
                continue
            if name not in NO_TITLE:
                yield from pieces(title)
            yield from pieces(body)
        elif not directive:
            for part in token.children or [token]:
                if part.type in KINDS:
                    yield KINDS[part.type], part.content
