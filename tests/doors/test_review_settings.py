"""The settings of reviews: a started program with other values than its defaults, beside a forge
and a model that are served over real HTTP."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from supervisor.reviews.demo.stage import NAME, Stage
from tests.doors.conftest import House, until
from tests.fakes.messages_server import MessagesServer, Step
from tests.fakes.paid_reader import HOST, KEY, look, written
from tests.fakes.reviewed import CHANGE, forge_with_people

pytestmark = [pytest.mark.timeout(300)]
# Not the agent's own choice: $4 and $20 for a million tokens.
MODEL = "claude-opus-5-5"
SCRIPT: list[Step] = [look(1, 8_000), written()]
# Runs a program where HOST is this machine.
WITH_HOST = """#!/bin/sh
exec unshare --user --map-root-user --mount sh -c '
  mount --bind {hosts} /etc/hosts && exec {without_root} "$@"' sh {program} "$@"
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with forge_with_people(tmp_path / "stage") as made:
        made.forge.loses_webhooks = True
        yield made


@pytest.fixture
def house(gatehouse: Path, root: Path, tmp_path: Path) -> Iterator[House]:
    """A house whose program knows the model's host."""
    hosts, program = tmp_path / "hosts", tmp_path / "gatehouse"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
    program.write_text(
        WITH_HOST.format(hosts=hosts, without_root=root / "scripts/without-root", program=gatehouse)
    )
    program.chmod(0o755)
    made = House(program, tmp_path)
    yield made
    made.end()


@pytest.fixture
def model(authority: trustme.CA) -> Iterator[MessagesServer]:
    """A model over TLS, which nobody but `authority` vouches for."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(tls)
    with MessagesServer(SCRIPT, api_key=KEY, follow="conversation", tls=tls) as made:
        yield made


def up(house: House, stage: Stage, **more: str) -> None:
    """A supervisor that reviews, which finds pull requests by asking alone: the forge's webhooks
    are lost."""
    own = {
        "GATEHOUSE_FORGE_PORT": "0",
        "GATEHOUSE_GITHUB_API": stage.api,
        "GATEHOUSE_GITHUB_APP_ID": stage.app_id,
        "GATEHOUSE_GITHUB_KEY_FILE": str(stage.key_file),
        "GATEHOUSE_GITHUB_SECRET_FILE": str(stage.secret_file),
        "GATEHOUSE_REVIEW_DEBOUNCE": "1s/3s",
        "GATEHOUSE_REVIEW_POLL": "1s",
    }
    house.up("--reviews", **own | more)


def opened(stage: Stage, branch: str = "feature") -> Any:
    stage.forge.commit(NAME, branch, CHANGE, "A change", base="main")
    return stage.forge.open_pull(NAME, branch, title="Count")


def summary(stage: Stage, pull: Any, word: str) -> str:
    """The summary of the check on a pull request's head, once it has the word."""

    def found() -> str:
        known = [
            one for one in stage.forge.repositories[NAME].checks if pull.head_sha == one["head_sha"]
        ]
        return next((text for one in known if word in (text := one["output"]["summary"])), "")

    return until(found, f"a check that says `{word}`")


@pytest.mark.many
def test_models_and_limits_are_those_that_are_set(
    house: House, stage: Stage, model: MessagesServer, upstream_ca: Path
) -> None:
    up(
        house,
        stage,
        ANTHROPIC_API_KEY=KEY,
        ANTHROPIC_BASE_URL=f"https://{HOST}:{model.port}",
        GATEHOUSE_UPSTREAM_CA=str(upstream_ca),
        GATEHOUSE_REVIEW_MODEL=MODEL,
        GATEHOUSE_REVIEW_CONCURRENCY="1",
        GATEHOUSE_REVIEW_COST="0.5usd",
        GATEHOUSE_PR_COST="0.6usd",
        GATEHOUSE_REPO_DAY_COST="4usd",
        GATEHOUSE_OWNER_MONTH_COST="30usd",
        GATEHOUSE_ALL_DAY_COST="20usd",
    )
    pull = opened(stage, "first")
    opened(stage, "second")
    reviews = house.until_told(lambda: ended(house, 2), "two reviews")
    assert {one["outcome"] for one in reviews} == {"found"}
    assert {name for name, _, _ in model.served} == {MODEL}
    sessions = [house.session(one["session_id"]) for one in reviews]
    assert {one["spend"]["limit"] for one in sessions} == {"$0.5000"}
    began, over = (
        max(one["created_at"] for one in sessions),
        min(one["ended_at"] for one in reviews),
    )
    assert over <= began, "one at a time"

    # Of the pull request's money there is less than a review may use, now.
    house.until_told(
        lambda: not any(one["reserved_microusd"] for one in caps(house)), "the books' end"
    )
    stage.forge.push(NAME, pull.number, {"shop/more.py": "x = 1\n"}, "More")
    (again,) = {
        one["session_id"] for one in house.until_told(lambda: ended(house, 3), "a third")
    } - {one["id"] for one in sessions}
    assert house.session(again)["spend"]["limit"].startswith("$0.42")
    house.until_told(
        lambda: not any(one["reserved_microusd"] for one in caps(house)), "the books' end"
    )
    assert {one["scope"]: one["limit_microusd"] for one in caps(house)} == {
        "pull": 600_000, "repository": 4_000_000, "owner": 30_000_000, "all": 20_000_000
    }  # fmt: skip


def caps(house: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = house.http("GET", "/api/usage?period=7d")[1]["caps"]
    return found


def ended(house: House, count: int) -> list[dict[str, Any]]:
    """The reviews, newest first, once so many are over."""
    found = [one for one in house.http("GET", "/api/reviews")[1] if one["ended_at"]]
    return found if len(found) == count else []


@pytest.mark.many
@pytest.mark.parametrize(
    ("setting", "whose"),
    [
        ("GATEHOUSE_PR_COST", "this pull request"),
        ("GATEHOUSE_REPO_DAY_COST", "this repository today"),
        ("GATEHOUSE_OWNER_MONTH_COST", "this month"),
        ("GATEHOUSE_ALL_DAY_COST", "reviews today"),
    ],
)
def test_without_money_nothing_starts(house: House, stage: Stage, setting: str, whose: str) -> None:
    up(house, stage, **{setting: "0usd"})
    pull = opened(stage)
    assert whose in summary(stage, pull, "no budget is left")
    assert house.sessions() == []
