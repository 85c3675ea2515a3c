"""The figure style, the palette and the site's colours agree, and the colours can be told apart."""

import re
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from colorspacious import cspace_convert

from eotcourse.course import palette

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "eotcourse" / "course" / "eot.mplstyle"
HUES = ("softmax", "entmax", "sparsemax", "gradient")
NAMES = (*HUES, "ink", "grey")
SIGHT = (None, "deuteranomaly", "protanomaly", "tritanomaly")
THEMES = {"light": palette.LIGHT, "dark": palette.DARK}


@pytest.fixture(scope="module")
def rc():
    return mpl.rc_params_from_file(STYLE, use_default_template=False)


def rgb(colour):
    return np.array(mpl.colors.to_rgb(colour))


def distance(a, b, sight):
    """Distance of two colours in CAM02-UCS as seen with a complete deficiency of one cone."""
    seen = []
    for colour in (rgb(a), rgb(b)):
        if sight is not None:
            space = {"name": "sRGB1+CVD", "cvd_type": sight, "severity": 100}
            colour = np.clip(cspace_convert(colour, space, "sRGB1"), 0, 1)
        seen.append(cspace_convert(colour, "sRGB1", "CAM02-UCS"))
    return float(np.linalg.norm(seen[0] - seen[1]))


def contrast(a, b):
    """Contrast ratio of WCAG 2.2 from relative luminances."""
    lights = []
    for colour in (rgb(a), rgb(b)):
        linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(lights) / min(lights)


def css_colours(text):
    """The variables ``--eot-<name>`` of a style sheet as ``{theme: {name: colour}}``."""
    found = {"light": {}, "dark": {}}
    for selector, body in re.findall(r"([^{}]*)\{([^{}]*)\}", text):
        theme = "dark" if "dark" in selector else "light"
        found[theme].update(re.findall(r"--eot-([a-z]+)\s*:\s*(#[0-9a-fA-F]{6})", body))
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_both_themes_name_the_same_colours(theme):
    assert tuple(THEMES[theme]) == NAMES
    assert palette.PALETTE == palette.LIGHT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHT, ids=lambda sight: sight or "normal")
def test_hues_stay_apart_in_every_sight(theme, sight):
    colours = THEMES[theme]
    names = NAMES if theme == "light" else HUES
    worst = min(distance(colours[a], colours[b], sight) for a, b in combinations(names, 2))
    assert worst >= 15, f"{theme}: the closest pair is {worst:.1f} apart"


def test_the_distance_can_tell_a_bad_palette():
    assert distance("#009e73", "#e69f00", "deuteranomaly") < distance("#009e73", "#e69f00", None)
    assert distance("#a65628", "#4d7f2e", "protanomaly") < 15


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", NAMES)
def test_colours_stand_out_on_the_card(theme, name):
    assert contrast(THEMES[theme][name], palette.CARD[theme]) >= 3


def test_contrast_is_the_published_ratio():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_style_has_the_palette_and_its_dashes(rc):
    cycle = list(rc["axes.prop_cycle"])
    assert [mpl.colors.to_hex(entry["color"]) for entry in cycle] == list(palette.LIGHT.values())
    assert [entry["linestyle"] for entry in cycle] == list(palette.DASHES.values())
    for key in ("text.color", "axes.labelcolor", "axes.titlecolor"):
        assert mpl.colors.to_hex(rc[key]) == palette.LIGHT["ink"]
    for key in ("figure.facecolor", "axes.facecolor", "savefig.facecolor"):
        assert mpl.colors.to_hex(rc[key]) == palette.CARD["light"]


def test_dashes_and_markers_are_all_different():
    assert set(palette.DASHES) == set(NAMES)
    assert len(set(palette.DASHES.values())) == len(NAMES)
    assert len(set(palette.MARKERS.values())) == len(palette.MARKERS)


def test_style_has_the_size_of_the_text_column(rc):
    assert rc["figure.figsize"] == [6.9, 3.6]
    assert (rc["figure.dpi"], rc["savefig.dpi"]) == (100, 200)
    assert rc["figure.constrained_layout.use"] is True


def test_style_depends_on_no_font_of_the_machine(rc):
    assert rc["font.family"] == ["DejaVu Sans"]
    assert rc["mathtext.fontset"] == "stixsans"
    assert rc["svg.fonttype"] == "path"
    assert min(rc[key] for key in ("font.size", "xtick.labelsize", "legend.fontsize")) >= 9.5


def test_site_colours_are_the_palette():
    static = ROOT / "book" / "_static"
    assert css_colours((static / "palette.css").read_text()) == THEMES
    for sheet in static.glob("**/*.css"):
        for theme, colours in css_colours(sheet.read_text()).items():
            assert colours.items() <= THEMES[theme].items(), sheet.name


def test_drawings_of_the_site_use_the_palette():
    known = {*palette.LIGHT.values(), *palette.DARK.values(), *palette.CARD.values()}
    for drawing in (ROOT / "book" / "_static").glob("*.svg"):
        used = {c.lower() for c in re.findall(r"#[0-9a-fA-F]{6}\b", drawing.read_text())}
        assert used and used <= known, drawing.name


def test_a_style_sheet_with_another_colour_is_noticed():
    text = ':root { --eot-softmax: #000000; } html[data-theme="dark"] { --eot-ink: #ffffff }'
    assert css_colours(text) == {"light": {"softmax": "#000000"}, "dark": {"ink": "#ffffff"}}
