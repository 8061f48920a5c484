"""Policy, prices and credentials are in force as they are saved; what can't be used is a banner
on every page until it is mended."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.settings import ROOT, Settings
from tests.fakes.supervised import Supervised, settings_in, supervised
from tests.fakes.waiting import PATIENCE_S
from tests.scenarios.test_record_banners import asked, shown

SECRET, OTHER = "s3cret-value-0123456789", "another-value-0123456789"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "workspace").mkdir()
    prices = tmp_path / "prices.yaml"
    prices.write_bytes((ROOT / "policy/prices.yaml").read_bytes())
    return settings_in(tmp_path, "version: 1\nallow: [exec(echo *)]\n", prices_file=prices)


def save(path: Path, text: str, mode: int = 0o600) -> None:
    """As most editors do: a new file in the place of the old one."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.02)


def values(running: Supervised) -> set[str]:
    return {one.secret for one in running.parts.named_secrets.credentials}


def told_to_egress(running: Supervised, session_id: str) -> set[str]:
    return {one.secret for one in running.parts.network._sessions[session_id].credentials}


async def test_a_policy_that_is_saved_while_nothing_is_asked_is_on_the_pages(
    settings: Settings,
) -> None:
    async with supervised(settings) as running:
        session = await running.start(settings.data_dir.parent / "workspace", "sleep", "300")
        settings.policy_file.write_text("version: 1\nallow: 7\n")
        await shown(running, "the last good policy stays in force")
        assert asked(running, session.id) == "used"
        save(settings.policy_file, "version: 1\ndeny: [exec(echo *)]\n")
        await shown(running, "the last good policy stays in force", is_there=False)
        assert asked(running, session.id) == "denied"


async def test_prices_that_are_saved_count_for_the_next_call(settings: Settings) -> None:
    good = settings.prices_file.read_text()
    async with supervised(settings) as running:
        before = running.parts.spending._table
        save(settings.prices_file, "version: 1\nmodels: 3\n")
        await shown(running, "Prices and credentials:")
        assert running.parts.spending._table is before
        save(settings.prices_file, good + "\n# mended\n")
        await shown(running, "Prices and credentials:", is_there=False)
        assert running.parts.spending._table is not before
        assert [one["kind"] for one in running.audit("file_rejected")] == ["prices"]
        assert [one["kind"] for one in running.audit("file_loaded")] == ["prices"]


async def test_credentials_that_are_saved_reach_egress_and_the_next_session(
    settings: Settings,
) -> None:
    secret, file = settings.secrets_dir / "it", settings.data_dir / "credentials.yaml"
    binding = (
        "version: 1\ncredentials:\n  it: {hosts: api.example.org, header: authorization, variable:"
        " IT}\n"
    )
    async with supervised(settings) as running:
        workspace = settings.data_dir.parent / "workspace"
        session = await running.start(workspace, "sleep", "300")
        await running.until(lambda: running.parts.sessions.get(session.id).started_at)
        save(file, binding)
        await shown(running, f"the credential `it`: {secret}")  # its value is missing
        settings.secrets_dir.mkdir()
        save(secret, SECRET)
        await shown(running, "Prices and credentials:", is_there=False)
        await eventually(lambda: values(running) == {SECRET})
        placeholders = dict(running.parts.named_secrets.variables)
        assert told_to_egress(running, session.id) == {SECRET}
        _, printed = await running.run(workspace, "sh", "-c", "echo $IT")
        assert placeholders["IT"] in printed
        save(secret, OTHER)
        await eventually(lambda: told_to_egress(running, session.id) == {OTHER})
        assert (
            running.parts.named_secrets.variables == placeholders
        )  # what running sandboxes have stays good
        save(secret, OTHER, 0o644)
        await shown(running, "others can read it")
        assert values(running) == {OTHER}
        save(secret, OTHER)
        await shown(running, "others can read it", is_there=False)
        save(file, "version: 1\ncredentials: {}\n")
        await eventually(lambda: told_to_egress(running, session.id) == set())
        record = settings.audit_log.read_text()
        assert SECRET not in record
        assert OTHER not in record
