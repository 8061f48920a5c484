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


def test_text_has_contrast() -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1 for text, in both schemes."""
    blocks = re.findall(
        r":root \{(.*?)\n *\}", (ROOT / "web/static/css/tokens.css").read_text(), re.DOTALL
    )
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", one)) for one in blocks[:2])
    grounds = ("ground", "surface", "raised", "sunken")
    code = ("key", "text", "number", "name", "type", "note")
    pairs = [
        *((text, ground) for text in ("text", "soft", "muted", "accent") for ground in grounds),
        *(("text", ground) for ground in ("hover", "selected")),
        *((tone, one) for tone in ("good", "bad", "warn", "info", "high")
          for one in ("ground", "surface", f"{tone}-ground")),
        *((kind, "surface") for kind in ("exec", "files", "network", "git", "packages", "review")),
        *((f"{one}-text", f"{one}{more}") for one in ("approve", "strong")
          for more in ("", "-hover")),
        *(("hue-text", f"hue-{number}") for number in range(1, 7)),
        *(("text", one) for one in ("add", "add-mark", "del", "del-mark")),
        *(("soft", one) for one in ("add-gutter", "del-gutter")),
        *((f"code-{one}", ground) for one in code for ground in ("surface", "add", "del")),
    ]  # fmt: skip
    weak = {
        (name, *pair): round(ratio, 2)
        for name, colours in (("light", light), ("dark", light | dark))
        for pair in pairs
        if (ratio := _contrast(*(colours[one] for one in pair))) < 4.5
    }
    assert weak == {}


def _contrast(first: str, second: str) -> float:
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
