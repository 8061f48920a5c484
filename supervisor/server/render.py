"""Jinja2 with the two protections that every page relies on, set once (law 6).

`autoescape` keeps what an agent wrote from being markup. `finalize` makes its deceptive characters visible. Both apply to
every `{{ value }}` of every template, so that no template can forget either.
"""

from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from supervisor.core.display import visible
from supervisor.settings import ROOT

TEMPLATES = ROOT / "web" / "templates"


def _shown(value: Any) -> Any:
    """Our own markup (includes, `tojson`) is `Markup` and stays; every other text is made visible, then escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_templates = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> str:
    """The HTML of a template of `web/templates`."""
    return _templates.get_template(template).render(**values)
