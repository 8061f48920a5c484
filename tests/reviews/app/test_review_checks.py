"""`gatehouse doctor` over a review service that lacks something."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from supervisor.reviews.app import review_checks
from supervisor.reviews.store import queries
from supervisor.store.engine import open_database
from tests.fakes.reviewed import forge_with_people, settings_of
from tests.fakes.supervised import settings_in


async def checks(folder: Path, **changes: Any) -> dict[str, tuple[bool, str]]:
    """By name: whether it is well, and what is said of it; with a forge that answers."""
    with forge_with_people(folder / "stage") as stage:
        if isinstance(secret := changes.pop("secret", None), bytes):
            stage.secret_file.write_bytes(secret)
        stage.forge.is_down = changes.pop("is_down", False)
        settings = settings_of(stage, folder, **changes)
        settings.data_dir.mkdir(exist_ok=True)
        return {one.name: (one.ok, one.detail) async for one in review_checks.findings(settings)}


async def test_all_is_well(tmp_path: Path) -> None:
    found = await checks(tmp_path)
    assert found.keys() == {
        "webhook secret of GitHub",
        "GitHub App",
        "reviews database",
        "clones",
        "receipts key",
    }
    assert all(ok for ok, _ in found.values()), found
    assert found["GitHub App"][1].startswith("gatehouse[bot] at http://127.0.0.1:")


@pytest.mark.parametrize(
    ("changes", "name", "says"),
    [
        ({"github_app_id": "9"}, "GitHub App", "does not take it"),
        ({"is_down": True}, "GitHub App", "does not take it"),
        ({"github_key_file": Path("/nonexistent")}, "GitHub App", "GATEHOUSE_GITHUB_KEY_FILE"),
        ({"github_key_file": Path(__file__)}, "GitHub App", "no private key"),
        ({"secret": b"short"}, "GitHub App", "less than 8 characters"),
        ({"secret": b"nine chars"}, "webhook secret of GitHub", "10 characters"),
    ],
)
async def test_what_the_app_lacks(
    tmp_path: Path, changes: dict[str, Any], name: str, says: str
) -> None:
    ok, detail = (await checks(tmp_path, **changes))[name]
    assert not ok
    assert says in detail


async def test_a_database_that_is_none_or_of_another_version(tmp_path: Path) -> None:
    file = tmp_path / "data" / "reviews.db"
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 100)
    ok, detail = (await checks(tmp_path))["reviews database"]
    assert not ok
    assert "not a database" in detail


async def test_a_good_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "data" / "reviews.db"
    file.parent.mkdir()
    open_database(file, Path(queries.__file__).parent / "migrations").dispose()
    before = file.read_bytes()
    assert (await checks(tmp_path))["reviews database"] == (True, "0 webhooks and 0 reviews wait")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("key", "mode", "says"),
    [(b"x" * 31, 0o600, "no Ed25519 key"), (b"x" * 32, 0o640, "can be read by others")],
)
async def test_the_key_of_receipts(tmp_path: Path, key: bytes, mode: int, says: str) -> None:
    file = tmp_path / "data" / "receipts.key"
    file.parent.mkdir()
    file.write_bytes(key)
    file.chmod(mode)
    ok, detail = (await checks(tmp_path))["receipts key"]
    assert not ok
    assert says in detail


async def test_clones_and_what_they_take_of_the_disk(tmp_path: Path) -> None:
    clones = settings_in(tmp_path).clones_dir
    clones.mkdir(parents=True)
    (clones / "a").write_bytes(b"x" * 250_000_000)
    (clones / "b").hardlink_to(clones / "a")
    try:
        ok, detail = (await checks(tmp_path))["clones"]
    finally:
        shutil.rmtree(clones)
    assert ok
    assert ": 0.3 GB, " in detail or ": 0.2 GB, " in detail, "a file with two names counts once"


async def test_clones_that_can_not_be_written(tmp_path: Path) -> None:
    found = review_checks._clones(Path("/proc/clones"))
    assert not found.ok
