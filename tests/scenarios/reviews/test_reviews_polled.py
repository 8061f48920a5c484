"""What a poll and a webhook make of forges that answer in part, and of pull requests of whoever may
not write."""

import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.reviews.demo import bitbucket_json, rest
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.forges.base import ForgeError
from supervisor.reviews.store import queries
from tests.fakes.reviewed import CHANGE, NAME, Reviewed, reviewed
from tests.scenarios.reviews.test_reviews_mentions import policy, reacted, said

pytestmark = pytest.mark.xdist_group("reviews-more")
FACTS = {
    "external_id": 9, "installation_id": 5, "default_branch": "main",
    "clone_url": "https://forge.test/other/one.git", "may_resolve": False, "removed_at": None,
}  # fmt: skip
FORK = "mallory/shop"


def of_fork(on: Reviewed) -> Any:
    on.forge.add_repository(FORK, {}, parent=NAME)
    on.forge.commit(FORK, "evil", CHANGE, "Hi", base="main")
    return on.forge.open_pull(NAME, "evil", title="Hi", author="mallory", head_repository=FORK)


def run_of(on: Reviewed, number: int = 1) -> queries.ReviewRun:
    with on.service.engine.connect() as connection:
        repository = queries.repository(connection, on.forge.tongue, NAME)
        assert repository is not None
        pull = queries.pull_numbered(connection, repository.id, number)
        assert pull is not None
        return queries.runs_of(connection, pull.id)[-1]


@pytest.mark.many
async def test_one_repository_or_pull_request_that_fails_keeps_no_other_waiting(
    tmp_path: Path, forge: Tongue, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {name: {"README.md": "# A\n"} for name in ("acme/a-first", "acme/z-last")}
    async with reviewed(tmp_path, forge, others=others) as on:
        on.forge.loses_webhooks = True
        on.forge.refuses["GET", "/acme/a-first/pull"] = 403
        on.forge.refuses["GET", "/app/hook/deliveries"] = 500
        on.open_pull()
        on.open_pull(branch="second")
        on.open_pull(branch="third")
        place: tuple[Any, str] = {
            "github": (rest, "pull_json"),
            "bitbucket": (bitbucket_json, "pull"),
        }[forge]
        real = getattr(*place)

        def pull_json(state: Any, repository: Any, pull: Any) -> Any:
            found = real(state, repository, pull)
            if pull.number == 1:
                found["head"] = found["source"] = None
            if pull.number == 2:
                found["user"] = found["author"] = None
            return found

        monkeypatch.setattr(*place, pull_json)
        await on.service.reconcile.poll()
        await on.receipt("found", number=3)
        # Nobody is its author any more: nobody may vouch for it.
        await on.receipt("found", number=2)
        assert run_of(on, 2).trust == "base"
        assert on.receipts(1) == []


@pytest.mark.many
@pytest.mark.only_on("github", "Bitbucket has no installations")
async def test_of_an_installation_that_cannot_be_read_all_stays(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        on.forge.loses_webhooks = True
        on.forge.lost_installations = [5]
        with on.service.engine.begin() as connection:
            queries.add_repository(
                connection,
                forge="github",
                full_name="other/one",
                session_id="standing-of-other",
                **FACTS,
            )
        on.open_pull()
        await on.service.reconcile.poll()
        await on.receipt("found")
        with on.service.engine.connect() as connection:
            left = queries.repository(connection, "github", "other/one")
        assert left is not None
        assert left.removed_at is None

        on.forge.refuses["GET", "/app/installations"] = 500
        with pytest.raises(ForgeError):
            await on.service.reconcile.poll()


async def test_who_may_not_write_or_cannot_be_asked_about_is_read_at_the_base(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        on.forge.refuses["GET", "/collaborators/"] = on.forge.refuses["GET", "/permissions"] = 500
        other = on.open_pull(branch="another")
        await on.receipt("found", number=other.number)
        assert run_of(on, other.number).trust == "base"
        session = on.running.parts.sessions.get(run_of(on, other.number).session_id)
        assert "--read-only" in session.command

        on.forge.refuses.clear()
        more = CHANGE | {"b.py": "b = 1\n"}
        pull = on.open_pull(more, author="dependabot[bot]")
        await on.receipt("found", number=pull.number)
        found = run_of(on, pull.number)
        assert (found.trust, found.config_revision) == ("base", on.forge.sha(NAME, "main"))
        check = await on.check(pull.head_sha, "neutral")
        assert "once a rule or a person allows it" in on.words(check)


@pytest.mark.many
@pytest.mark.only_on("github", "Bitbucket has no labels")
async def test_a_label_counts_by_who_set_it(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = of_fork(on)
        assert (await on.receipt("held")).reason == "waits-for-writer"
        on.forge.label(NAME, pull.number, "gatehouse:review", by="bob")
        await said(on, pull, "nothing of ours")
        await on.service.reconcile.poll()
        assert [one.reason for one in on.receipts()] == ["waits-for-writer"]
        on.forge.label(NAME, pull.number, "gatehouse:review", by="ada")
        await on.receipt("found")
        assert run_of(on).trust == "base"


async def test_what_was_called_off_stays_so_until_a_push_or_a_word(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.running.until_soon(lambda: on.service.runs._running or None, "a reader")
        await said(on, pull, "@gatehouse stop")
        assert (await on.receipt("skipped")).reason == "called-off"
        await on.service.reconcile.poll()
        on.forge.label(NAME, pull.number, "bug", by="ada")
        await said(on, pull, "a comment for everybody")
        await on.service.reconcile.poll()
        with on.service.engine.connect() as connection:
            assert queries.slot(connection, 1).wanted_sha == ""
        assert [one.reason for one in on.receipts()] == ["called-off"]
        await reacted(on, await said(on, pull, "@gatehouse review"), "eyes")
        await on.receipt("found")


async def test_a_stranger_who_comments_all_the_time_costs_one_look_up(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:

        def looked_up() -> int:
            return sum(path.endswith("/bob/permission") for _, path in tuple(on.forge.calls))

        pull = on.open_pull()
        await on.receipt("found")
        await said(on, pull, "@gatehouse why", author="bob")
        began, before = time.monotonic(), looked_up()
        for number in range(20):
            on.forge.comment(NAME, pull.number, author="bob", body=f"@gatehouse why {number}")
            on.forge.comment(NAME, pull.number, author="bob", body=f"something {number}")
        await said(on, pull, "@gatehouse review", author="bob")
        # Once a minute, and this may take some on a busy machine.
        assert looked_up() - before <= (time.monotonic() - began) // 60
