"""F3: a model turns in a circle, or never ends. Its last turn has no tools, and the review is
partial."""

from pathlib import Path

import pytest

from supervisor.core.forge_acts import Act
from tests.fakes.messages_server import Step
from tests.fakes.paid_reader import look, paid, paid_server, written

pytestmark = [pytest.mark.xdist_group("reviews-money"), pytest.mark.timeout(300)]
CIRCLE: list[Step] = [look(1), look(2), look(2), look(2), written(left_out=["shop/cart.py"])]
ENDLESS: list[Step] = [*(look(number) for number in range(18)), written()]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (CIRCLE, "it made the same calls three times in a row; not looked at: shop/cart.py"),
        pytest.param(
            ENDLESS,
            "it had used all of its turns; which files it left is not known",
            marks=pytest.mark.many,
        ),
    ],
)
async def test_the_last_turn_has_no_tools_and_the_review_is_partial(
    tmp_path: Path, script: list[Step], why: str
) -> None:
    with paid_server(script) as model:
        async with paid(model, tmp_path, review_cost="5usd") as on:
            pull = on.open_pull()
            (post,) = await on.posts()
            assert isinstance(post.action, Act)
            assert f"This review is partial: {why}." in post.action.body.replace("\\", "")
            choices = [body["tool_choice"]["type"] for body in model.conversations]
            assert choices == ["auto"] * (len(script) - 1) + ["none"]
            assert f'"partial":"{why}"' in (await on.receipt("found")).body
            check = await on.check(pull.head_sha, "neutral")
            assert why in check["output"]["summary"].replace("\\", "")
