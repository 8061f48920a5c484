"""F1: a run runs away. Egress refuses what its money doesn't cover: what it has by then is a
partial review, and without one the run fails and says why."""

from pathlib import Path

import pytest

from supervisor.core.forge_acts import Act
from tests.fakes.messages_server import calls, tool_use
from tests.fakes.paid_reader import REVIEW, books, look, paid, paid_server, written
from tests.fakes.reviewed import CHANGE

pytestmark = [pytest.mark.xdist_group("reviews-money"), pytest.mark.timeout(300)]
USD = 10**12


@pytest.mark.many
async def test_without_money_for_its_first_call_it_fails_and_says_why(tmp_path: Path) -> None:
    with paid_server([written()]) as model:
        async with paid(model, tmp_path, review_cost="0.05usd") as on:
            pull = on.open_pull()
            receipt = await on.receipt("failed")
            assert "the budget of this session is $0.05" in receipt.reason
            assert model.served == []
            await on.check(pull.head_sha, "failure")
            assert len(on.running.audit("budget_refused")) == 1
            assert not [one for one in on.running.requests() if one.category == "budget"]


async def test_refused_in_the_middle_it_posts_what_it_has(tmp_path: Path) -> None:
    """It reads a thing that makes its next call dearer than its money: the last answer is tried
    without it."""
    big = {f"shop/big{n}.py": "".join(f"x{n}_{i} = {i}\n" for i in range(3000)) for n in range(8)}
    reads = calls(*(tool_use("read_file", {"path": name}) for name in big))
    with paid_server([look(1), reads, written()]) as model:
        async with paid(model, tmp_path, review_cost="1usd") as on:
            pull = on.open_pull({**CHANGE, **big})
            (post,) = await on.posts()
            assert isinstance(post.action, Act)
            assert "This review is partial" in post.action.body
            assert (await on.receipt("found")).outcome == "found"
            await on.check(pull.head_sha, "neutral")
            assert books(model) <= USD
            assert on.running.audit("budget_refused")
            assert len(post.action.comments) == len(REVIEW["findings"])
