"""`/metrics`: what a scraper reads of a service that works."""

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import CLEAN, Reviewed, reviewed, reviewed_by_model

pytestmark = pytest.mark.xdist_group("reviews-held")


async def scrape(on: Reviewed) -> dict[tuple[str, str], float]:
    """Read the figures as Prometheus does: by name and the value of the one label."""
    port = on.running.supervisor.port
    token = (on.running.parts.settings.data_dir / "operator.token").read_text()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/metrics")).status_code == 401
        answer = await client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.name.startswith("gatehouse_")
        assert family.documentation
        for sample in family.samples:
            found[sample.name, "".join(sample.labels.values())] = sample.value
    return found


async def test_figures_of_a_review_that_a_model_made(tmp_path: Path) -> None:
    async with reviewed_by_model(tmp_path, "github", [said(CLEAN)]) as on:
        before = await scrape(on)
        assert before["gatehouse_oldest_unhandled_seconds", ""] == 0
        assert before["gatehouse_holds", "all"] == 0
        pull = on.open_pull()
        await on.check(pull.head_sha, "success")
        after = await scrape(on)
        told = re.findall(r"^\| `(\w+)", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
        assert {name for name, _ in after} == {one for one in told if "gatehouse_" in one}
        assert after["gatehouse_runs_total", "clean"] == 1
        assert after["gatehouse_deliveries_total", "wanted"] == 1
        assert after["gatehouse_queue_depth", ""] == 0
        assert after["gatehouse_runs_under_way", ""] == 0
        session = on.running.parts.sessions.recent()[0]
        spent = on.running.parts.spending.summary(session).used["session"]
        assert spent.cost > 0
        cost = after["gatehouse_review_cost_dollars_total", ""]
        assert cost == pytest.approx(spent.cost / 10**12)
        kinds = [
            value for (name, _), value in after.items() if name.endswith("review_tokens_total")
        ]
        assert sum(kinds) == spent.tokens


async def test_figures_of_what_waits_is_held_or_was_not_taken(tmp_path: Path) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(* */*)]\n")
    async with reviewed(tmp_path, policy_file=policy) as on:
        on.forge.refuses[("POST", "/reviews")] = 403
        pull = on.open_pull()
        await on.check(pull.head_sha, "failure")
        on.service.hold("all", "", by="ada")
        held = on.open_pull({"a.py": "a = 1\n"}, branch="second")
        await on.check(held.head_sha, "neutral")
        on.running.parts.kill_switch.stop("by hand")
        found = await scrape(on)
        on.running.parts.kill_switch.resume()
        assert found["gatehouse_post_failures_total", ""] == 1
        assert found["gatehouse_holds", "all"] == 1
        assert found["gatehouse_holds", "repository"] == 0
        assert found["gatehouse_queue_depth", ""] == 1
        assert found["gatehouse_stopped", ""] == 1
