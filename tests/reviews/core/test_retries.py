"""What a model's provider says of another try."""

import pytest

from supervisor.reviews.core.retries import LIMIT_S, LONGEST_S, REFUSAL_S, provider_trouble
from tests.tables import each_row

NOW = 1_790_000_000.0


@each_row(
    ("status", "headers", "until"),
    [
        (429, {"retry-after": "90"}, NOW + 90),
        (429, {"retry-after": "Mon, 21 Sep 2026 15:06:40 GMT"}, 1_790_003_200.0),
        (429, {"retry-after": "soon"}, NOW + LIMIT_S),
        (429, {"retry-after": "9999999"}, NOW + LONGEST_S),
        (429, {"anthropic-ratelimit-requests-reset": "2026-09-21T15:06:40Z"}, 1_790_003_200.0),
        (429, {"anthropic-ratelimit-unified-reset": "1790000500"}, NOW + 500),
        (429, {"anthropic-ratelimit-unified-reset": "1780000500"}, NOW + LIMIT_S),
        (429, {"anthropic-ratelimit-unified-reset": "tomorrow"}, NOW + LIMIT_S),
        (429, {}, NOW + LIMIT_S),
        (403, {}, NOW + REFUSAL_S),
        (402, {"retry-after": "120"}, NOW + 120),
    ],
)
def test_a_limit_holds_until_it_is_reset(
    status: int, headers: dict[str, str], until: float
) -> None:
    found = provider_trouble(status, headers, NOW)
    assert found is not None
    assert found.until == until
    assert f"({status})" in found.why
    assert "tried again at 2026-" in found.why


@pytest.mark.parametrize("status", [408, 500, 502, 529])
def test_trouble_that_passes_is_tried_again(status: int) -> None:
    found = provider_trouble(status, {"retry-after": "9"}, NOW)
    assert found is not None
    assert found.until is None


@pytest.mark.parametrize("status", [200, 400, 401, 404])
def test_what_another_try_can_not_mend(status: int) -> None:
    assert provider_trouble(status, {}, NOW) is None
