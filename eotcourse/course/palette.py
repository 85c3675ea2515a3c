"""The colours of the course, in one place.

Every figure, the matplotlib style and the site's style sheet take their colours from here. The
light set is for pictures (a white card in both themes of the site); the dark set is for parts of
a page that follow its theme. The four hues stay apart in normal, deuteranope, protanope and
tritanope sight; ``tests/test_style.py`` computes how far. A fifth series is ``ink`` or ``grey``.
Colour never stands alone: each name has its own dash and its own marker too.
"""

LIGHT = {
    "softmax": "#4f8ad6",
    "entmax": "#e4552f",
    "sparsemax": "#115442",
    "gradient": "#841386",
    "ink": "#1d2733",
    "grey": "#8792a1",
}

DARK = {
    "softmax": "#2f8cbd",
    "entmax": "#f1773f",
    "sparsemax": "#a2e7c2",
    "gradient": "#ffa3ef",
    "ink": "#e6e9ee",
    "grey": "#8792a1",
}

CARD = {"light": "#ffffff", "dark": "#14181e"}

DASHES = {
    "softmax": "-",
    "entmax": "--",
    "sparsemax": "-.",
    "gradient": ":",
    "ink": (0, (5, 1, 1, 1, 1, 1)),
    "grey": (0, (1, 1)),
}

MARKERS = {"softmax": "o", "entmax": "D", "sparsemax": "s", "gradient": "^"}

PALETTE = LIGHT
