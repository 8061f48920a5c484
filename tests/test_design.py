"""Holds docs/design.md to the page: the components that it names exist, and pages use no other
sheet's names."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHEET = (ROOT / "web/static/css/page.css").read_text()
MACROS = set(re.findall(r"{% macro (\w+)\(", (ROOT / "web/templates/components.html").read_text()))
COMPONENTS = (ROOT / "docs/design.md").read_text().partition("<!-- components")[2]
COMPONENTS = COMPONENTS.partition("<!-- end")[0]


def test_every_component_of_the_page_on_design_exists() -> None:
    named = re.findall(r"`([.\w-]+)`", COMPONENTS.partition("-->")[2])
    assert len(named) > 30
    for name in named:
        if name.startswith("."):
            for part in name[1:].split("."):
                assert re.search(rf"\.{part}(?![\w-])", SHEET), f"page.css has no {name}"
        elif name != "details":
            assert name in MACROS, f"components.html has no {name}"


def test_every_picture_is_made_by_make_pictures() -> None:
    source = (ROOT / "tests/browser/pictures.py").read_text()
    made = set(re.findall(r'^    "(\w+)": _', source, re.MULTILINE))
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for one in documents
        for name in re.findall(r"\]\((?:docs/)?(\w+)\.png\)", one.read_text())
    }
    assert named == made == {one.stem for one in (ROOT / "docs").glob("*.png")}


def test_every_macro_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", COMPONENTS))
    assert MACROS - told <= {"icon", "sums"}, "docs/design.md says what each is for"


def test_colours_and_sizes_are_tokens() -> None:
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\))", re.sub(r"mask-image[^;]*;", "", SHEET)) == []
    tokens = set(re.findall(r"(--[\w-]+):", (ROOT / "web/static/css/tokens.css").read_text()))
    assert set(re.findall(r"var\((--[\w-]+)\)", SHEET)) <= tokens
    icons = set(re.findall(r'id="i-([\w-]+)"', (ROOT / "web/templates/icons.html").read_text()))
    texts = [one.read_text() for one in (ROOT / "web/templates").rglob("*.html")]
    used = {name for text in texts for name in re.findall(r'icon\("([\w-]+)"', text)}
    assert used <= icons
