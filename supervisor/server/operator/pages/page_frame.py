"""Shared by all pages: safely rendered templates, the frame with its banner, HTML answers.

Two protections are set once, for every `{{ value }}` of every template (law 6): `autoescape` keeps
an agent's text from being markup, and `finalize` makes its deceptive characters visible. Text that
an agent may make long goes through one of the filters here: `folded` and `folded_line` come with a
button that unfolds them, `short` is for attributes and links, and `marked` returns the whole text.
"""

import re
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response
from litestar.enums import MediaType
from litestar.params import URLEncodedBody
from markupsafe import Markup, escape

from supervisor.core.money import dollars
from supervisor.core.text import folding
from supervisor.core.text.display import visible
from supervisor.core.text.duration import format_duration
from supervisor.errors import ChangedError, GatehouseError
from supervisor.server.common.error_bodies import ErrorBody
from supervisor.server.common.views import clock_text, duration_text, size_text
from supervisor.server.operator.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.settings import ROOT

Form = URLEncodedBody[dict[str, str]]
TEMPLATES = ROOT / "web" / "templates"


def page(request: AnyRequest, template: str, name: str, **values: Any) -> Response[str]:
    """Return a whole page: the template with these values, in the frame of all pages. `name` is its
    entry in the frame."""
    return html(template, **frame(request, name), **values)


def frame(request: AnyRequest, name: str) -> dict[str, Any]:
    """Return the values of each page's frame."""
    parts = parts_of(request)
    return {
        "page": name,
        "csrf": caller(request).csrf,
        "now": parts.clock.now(),
        "pending_count": parts.queue.count_waiting(),
        "has_reviews": parts.reviews is not None,
        "banners": live_of(request).status(),
    }


def html(template: str, refused: GatehouseError | None = None, /, **values: Any) -> Response[str]:
    """Return an HTML answer: the template with these values. `refused`: the refusal that it shows.
    An answer to what wasn't shown is 409 on a page, too; htmx is told to show that (base.html), and
    only that."""
    status = 409 if isinstance(refused, ChangedError) else 200
    return Response(render(template, **values), media_type=MediaType.HTML, status_code=status)


def news(*names: str) -> dict[str, str]:
    """Return the header by which a page reads anew what shows this; programs don't mind it."""
    return {"HX-Trigger": ", ".join(f"gatehouse:{name}" for name in names)}


def ids_in(text: str) -> list[str]:
    """Parse ids of a form, comma-separated."""
    return [one for one in text.split(",") if one]


def marks_in(text: str) -> dict[str, str]:
    """Parse `id:fingerprint` pairs of a form, comma-separated."""
    return dict(one.split(":", 1) for one in text.split(",") if ":" in one)


def error_page(code: int, body: ErrorBody) -> str:
    """Return the page for a browser that is turned away, or whose page can't be made."""
    heading = {401: "Not signed in", 403: "Not let in", 404: "Not found"}.get(
        code, "That did not work"
    )
    return render(
        "message.html",
        title=heading,
        text=body.why,
        remedy=body.remedy,
        is_sign_in=code in (401, 403),
    )


def _shown(value: Any) -> Any:
    """Make a text visible, then escape it. Our own markup (includes, `tojson`) is `Markup` and
    stays."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def folded(value: Any) -> Markup:
    """Return a text in a few lines. The middle of a long one is a button that shows all of it."""
    return _folded(str(value), folding.CARD)


def folded_line(value: Any) -> Markup:
    """Return the same on one line, for lists."""
    return _folded(str(value), folding.LINE)


def marked(value: Any) -> Markup:
    """Return the whole text, with long runs of blanks as marks."""
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
    """Return text as `folding` shows it, with its marks distinguished from the agent's text."""
    pieces = folding.MARK.split(shown)
    return Markup().join(
        _MARK.format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


# Words that any place of a page can show unchanged.
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
    "clock": clock_text,
    "duration": format_duration,
    "size": size_text,
    "took": duration_text,
    "dollars": dollars,
}


def render(template: str, **values: Any) -> str:
    """Return the HTML of a template of `web/templates`."""
    return _templates.get_template(template).render(**values)
