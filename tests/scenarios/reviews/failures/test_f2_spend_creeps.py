"""F2: spend creeps up. The day's limit holds, whatever each run costs, and it is said."""

from pathlib import Path

import pytest

from tests.fakes.paid_reader import books, look, paid, paid_server, settled, written

pytestmark = [pytest.mark.xdist_group("reviews-money"), pytest.mark.timeout(300)]
USD = 10**12


async def test_the_limit_of_the_day_holds(tmp_path: Path) -> None:
    with paid_server([look(1, 15_000), written()]) as model:
        async with paid(model, tmp_path, review_cost="1usd", repo_day_cost="0.6usd") as on:
            for number in range(1, 5):
                on.open_pull(branch=f"feature-{number}")
                receipt = await on.receipt("found", "held", "failed", number=number)
                await settled(on)
                if receipt.outcome == "held":
                    break
            assert receipt.reason == "no-budget-repository"
            used = await settled(on)
            assert used["repository"][0] == books(model) <= 6 * USD // 10
            told = [one["percent"] for one in on.running.audit("review_budget_used")]
            assert told == [50, 100], "what is left is too little for another run"
