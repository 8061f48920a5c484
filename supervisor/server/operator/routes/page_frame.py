"""What all pages share: their frame with its banner, and answers in HTML."""

from typing import Any

from litestar import Response
from litestar.enums import MediaType
from litestar.params import URLEncodedBody

from supervisor.errors import ChangedError, GatehouseError
from supervisor.parts import Parts
from supervisor.server.common.error_bodies import ErrorBody
from supervisor.server.common.render import render
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, parts_of

Form = URLEncodedBody[dict[str, str]]


def page(request: AnyRequest, template: str, name: str, **values: Any) -> Response[str]:
    """A whole page: what the template makes of these values, in the frame that all pages have.
    `name` is its entry in the frame."""
    return html(template, **frame(request, name), **values)


def frame(request: AnyRequest, name: str) -> dict[str, Any]:
    """Return what the frame of each page is given."""
    parts = parts_of(request)
    return {
        "page": name,
        "csrf": caller(request).csrf,
        "now": parts.clock.now(),
        "pending_count": parts.queue.count_waiting(),
        "has_reviews": parts.reviews is not None,
        **banner(parts),
    }


def html(template: str, refused: GatehouseError | None = None, /, **values: Any) -> Response[str]:
    """An answer of HTML: what a template makes of these values. `refused`: what it tells of,
    since an answer to what wasn't shown is 409 on a page, too; htmx is told to show that
    (base.html), and only that."""
    status = 409 if isinstance(refused, ChangedError) else 200
    return Response(render(template, **values), media_type=MediaType.HTML, status_code=status)


def banner(parts: Parts) -> dict[str, Any]:
    """For `parts/banner.html`: what a person must see above all else."""
    return {
        "stopped": parts.kill_switch.reason(),
        "audit_failure": parts.audit.failure,
        "audit_broken": parts.audit.broken,
        "files_banner": parts.files_banner and parts.redactor.text(parts.files_banner),
        "policy_banner": parts.gate.rulings.policy_sets.banner,
    }


def error_page(code: int, body: ErrorBody) -> str:
    """Return what a browser is shown that is turned away, or whose page can't be made."""
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
