"""A pull request from its webhook to the review that stands on it, over real HTTP, git and
sandboxes, with a recorded model."""

from pathlib import Path

from tests.fakes.reviewed import reviewed


async def test_a_pull_request_is_reviewed_and_a_person_lets_it_be_posted(tmp_path: Path) -> None:
    async with reviewed(tmp_path) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        assert pull.reviews == [], "nobody has answered yet"
        (comment,) = request.action.comments  # type: ignore[union-attr]
        assert (comment.path, comment.line) == ("shop/cart.py", 5)
        on.running.approve(request)
        outcome = await on.running.done(request)
        (review,) = pull.reviews
        assert review["id"] == outcome["id"]
        assert review["state"] == "COMMENTED"
        assert pull.comments[0]["line"] == 5
        receipt = await on.receipt("found")
        assert on.service.receipts.is_signed(receipt)
        check = await on.check(pull.head_sha, "neutral")
        assert "1 low" in check["output"]["summary"]
