"""The supervisor's parts as the review service's routes see them."""

from typing import Protocol

from supervisor.errors import UserError
from supervisor.reviews.service import ReviewService
from supervisor.server.common.parts import Parts
from supervisor.server.operator.routes.operator_api import HasApp


class ReviewParts(Parts, Protocol):
    """`reviews` is None where the review service is off."""

    reviews: ReviewService | None


def review_parts(request: HasApp) -> ReviewParts:
    """Return the parts, for a handler."""
    parts: ReviewParts = request.app.state["parts"]
    return parts


def service_of(parts: ReviewParts) -> ReviewService:
    """Return the review service; `UserError` where it is off."""
    if parts.reviews is None:
        raise UserError("reviews are off", "start with `gatehouse up --reviews`")
    return parts.reviews
