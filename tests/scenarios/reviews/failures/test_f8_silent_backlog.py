"""F8: webhooks come in and nothing comes of them. The page, the metric and `doctor` say so."""

import asyncio
from pathlib import Path

import httpx
import pytest

from supervisor.reviews.app import review_checks
from supervisor.reviews.demo.state import Tongue
from supervisor.sandbox.check_result import CheckResult
from tests.fakes.clock import FakeClock
from tests.fakes.reviewed import Reviewed, forge_with_people, reviewing_at

pytestmark = pytest.mark.xdist_group("reviews-held")


async def doctor(on: Reviewed, later_s: float) -> CheckResult:
    settings = on.running.parts.settings
    clock = FakeClock(on.running.parts.clock.now() + later_s)
    found = [one async for one in review_checks.findings(settings, clock)]
    return next(one for one in found if one.name == "reviews database")


async def get(on: Reviewed, path: str) -> str:
    supervisor = on.running.supervisor
    token = (on.running.parts.settings.data_dir / "operator.token").read_text()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{supervisor.port}") as client:
        answer = await client.get(path, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        return answer.text


async def test_a_webhook_that_nobody_handles_is_seen_after_five_minutes(
    tmp_path: Path, forge: Tongue
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with reviewing_at(stage, tmp_path) as on:

            async def stuck() -> None:
                """What a deadlock would be."""

            on.service.reconcile.handle_all = stuck  # type: ignore[method-assign]
            on.open_pull()
            await asyncio.to_thread(on.forge.until_sent)
            assert {one.status for one in on.forge.sent} == {202}
            real = on.running.parts.clock.now
            for later_s, is_seen in ((250.0, False), (301.0, True)):
                on.running.parts.clock.now = lambda s=later_s: real() + s  # type: ignore[misc]
                page, metrics = await get(on, "/reviews"), await get(on, "/metrics")
                on.running.parts.clock.now = real  # type: ignore[method-assign]
                assert ("1 webhooks wait, the oldest for 5m" in page) is is_seen
                (line,) = [
                    one
                    for one in metrics.splitlines()
                    if one.startswith("gatehouse_oldest_unhandled_seconds ")
                ]
                assert later_s <= float(line.split()[1]) < later_s + 30
                finding = await doctor(on, later_s)
                assert finding.ok is not is_seen
            assert "the oldest webhook for 5m" in finding.detail
            assert finding.needed, "so that doctor exits with 1"
