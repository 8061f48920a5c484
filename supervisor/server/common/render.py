"""Jinja2 with the two protections that every page relies on, set once (law 6).

`autoescape` keeps what an agent wrote from being markup. `finalize` makes its deceptive
characters visible. Both apply to every `{{ value }}` of every template, so that no template can
forget either. What an agent may make long goes through one of the filters here: `folded` and
`folded_line` come with a button that unfolds them, `short` is for attributes and inside of
links, and `marked` is all of a text.
"""

import re
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from supervisor.core.text import folding
from supervisor.core.text.display import visible
from supervisor.settings import ROOT

TEMPLATES = ROOT / "web" / "templates"


def _shown(value: Any) -> Any:
    """Our own markup (includes, `tojson`) is `Markup` and stays; every other text is made
    visible, then escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def folded(value: Any) -> Markup:
    """A text in some lines; where it is long, its middle is a button that shows all of it."""
    return _folded(str(value), folding.CARD)


def folded_line(value: Any) -> Markup:
    """The same on one line, for lists."""
    return _folded(str(value), folding.LINE)


def marked(value: Any) -> Markup:
    """All of a text, with its long runs of blanks as marks."""
    return _whole(folding.marked(str(value)))


def _folded(text: str, room: folding.FoldSize) -> Markup:
    found = folding.fold(text, room)
    if not found.characters:
        return _whole(found.head)
    whole = _with_marks(folding.marked(text, one_line=room.one_line))
    return _FOLDED.format(_with_marks(found.head), found.says, _with_marks(found.tail), whole)


def _whole(shown: str) -> Markup:
    return escape(shown) if _ORDINARY.fullmatch(shown) else _TEXT.format(_with_marks(shown))


def _with_marks(shown: str) -> Markup:
    """Text as `folding` shows it, with its marks told apart from what an agent wrote."""
    pieces = folding.MARK.split(shown)
    return Markup().join(
        _MARK.format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


# Words that any place of a page lays out as they are.
_ORDINARY = re.compile(r"(?:[^\s⟨]{1,40}(?: (?=\S)|$))*")
_MARK = Markup('<span class="blanks">{}</span>')
_TEXT = Markup('<span class="text">{}</span>')
_FOLDED = Markup(
    '<span class="text" data-folded><span data-short>{}<button type="button" class="unfold"'
    " data-unfold>… {} …</button>{}</span><span data-whole hidden>{}</span></span>"
)
_templates = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {
    "folded": folded,
    "folded_line": folded_line,
    "marked": marked,
    "short": folding.line,
}


def render(template: str, **values: Any) -> str:
    """The HTML of a template of `web/templates`."""
    return _templates.get_template(template).render(**values)
