"""F9: the model's provider limits us. The review is held until the limit is reset, its check is
neutral, and it comes back by itself."""

from pathlib import Path

import pytest
from sqlalchemy import text

from supervisor.reviews.demo.state import Tongue
from tests.fakes.messages_server import Failure, Step
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import CLEAN, reviewed_by_model

pytestmark = pytest.mark.xdist_group("reviews-held")


@pytest.mark.parametrize(
    ("limit", "words", "wait_s"),
    [
        (
            Failure(429, "rate_limit_error", headers=(("retry-after", "900"),)),
            "the model's provider limits the rate (429); tried again at",
            900,
        ),
        (
            Failure(403, "permission_error"),
            "the model's provider refuses the account (403); tried again at",
            3600,
        ),
    ],
)
async def test_a_limit_holds_the_review_until_it_is_reset(
    tmp_path: Path, forge: Tongue, limit: Failure, words: str, wait_s: float
) -> None:
    async with reviewed_by_model(tmp_path, forge, [limit, said(CLEAN)]) as on:
        real, later_s = on.running.parts.clock.now, [0.0]
        pull = on.open_pull()
        receipt = await on.receipt("held")
        assert receipt.reason.startswith(words)
        check = await on.check(pull.head_sha, "neutral")
        assert "The review waits" in on.words(check)
        with on.service.engine.connect() as connection:
            due_at = connection.execute(text("select due_at from slots")).scalar_one()
        assert due_at == pytest.approx(real() + wait_s, abs=30)
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        later_s[0] = wait_s + 5
        await on.receipt("clean")
        await on.check(pull.head_sha, "success")
        assert "failed" not in [one.outcome for one in on.receipts()], "it was never red"
        with on.service.engine.connect() as connection:
            rows = connection.execute(text("select outcome from runs order by wanted_at"))
            assert list(rows.scalars()) == ["held", "clean"]


@pytest.mark.many
async def test_a_provider_that_is_down_is_tried_again(tmp_path: Path, forge: Tongue) -> None:
    """Six calls of one reader, and then the next attempt."""
    script: list[Step] = [Failure(529, "overloaded_error", headers=(("retry-after", "0.01"),))] * 6
    async with reviewed_by_model(tmp_path, forge, [*script, said(CLEAN)]) as on:
        real, later_s = on.running.parts.clock.now, [0.0]
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        pull = on.open_pull()

        def first_attempt() -> bool | None:
            with on.service.engine.connect() as connection:
                query = text("select reason from runs where attempt = 1 and ended_at is not null")
                return connection.execute(query).scalar() is not None or None

        await on.running.until_soon(first_attempt, "the first attempt")
        later_s[0] = 40.0
        await on.receipt("clean")
        await on.check(pull.head_sha, "success")
