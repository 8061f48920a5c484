"""Jobs of updates: what they may change, and what they changed."""

import json

import pytest

from supervisor.core.actions import Packages, PlannedPackage
from supervisor.core.jobs import Job, Updated, Updates
from supervisor.core.packages.updates import (
    FILES,
    MOST_SAID,
    lock_of,
    parse_updates,
    too_young,
    update_lines,
    updated,
    updates_title,
    updating,
)
from supervisor.errors import UserError

DAY_S = 86_400.0


def npm_lock(**versions: str) -> str:
    return json.dumps(
        {"packages": {f"node_modules/{name}": {"version": one} for name, one in versions.items()}}
    )


@pytest.mark.parametrize(
    ("text", "managers", "names"),
    [
        ("all", (), ()),
        ("npm", ("npm",), ()),
        ("npm,pip", ("npm", "pip"), ()),
        ("npm:left-pad, react", ("npm",), ("left-pad", "react")),
    ],
)
def test_which_are_updated(text: str, managers: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert parse_updates(text, 1.0) == Updates(managers=managers, names=names, min_age_s=1.0)


@pytest.mark.parametrize("text", ["", "gem", "all:left-pad", "npm,pip:six"])
def test_what_names_no_updates_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_updates(text, 1.0)


def test_the_scope_is_the_files_of_its_managers_and_what_is_given() -> None:
    job = Job(prompt="x", scope=("src/**",))
    assert updating(job) is job
    job = Job(prompt="x", scope=("src/**",), updates=Updates(managers=("npm",)))
    assert updating(job).scope == ("**/package.json", "**/package-lock.json", "src/**")
    assert updating(updating(job)) == updating(job)
    many = tuple(f"src/{at}/**" for at in range(49))
    with pytest.raises(UserError):
        updating(Job(prompt="x", scope=many, updates=Updates(managers=("npm",))))
    every = updating(Job(prompt="x", updates=Updates()))
    assert len(every.scope) == len({file for files in FILES.values() for file in files})


@pytest.mark.parametrize(
    ("path", "lock"),
    [
        ("package-lock.json", "package-lock.json"),
        ("web/uv.lock", "uv.lock"),
        ("pnpm-lock.yaml", "pnpm-lock.yaml"),
        ("go.mod", "go.mod"),
        ("requirements-dev.txt", "requirements.txt"),
        ("package.json", ""),
        ("pyproject.toml", "requirements.txt"),
        ("not-requirements.txt", ""),
    ],
)
def test_files_that_lock_versions(path: str, lock: str) -> None:
    assert lock_of(path) == lock


def test_changed_versions_come_from_the_lock_files() -> None:
    plan = (
        PlannedPackage(name="pad", version="1.1.0", published_at=5.0, link="https://x.test/pad"),
        PlannedPackage(name="pad", version="9.9.9"),
    )
    files = {
        "package-lock.json": (npm_lock(pad="1.0.0", gone="1.0.0"), npm_lock(pad="1.1.0", new="2")),
        "requirements.txt": ("six==1.16.0\n", "six==1.17.0\n"),
        "web/package-lock.json": ("", "{"),
    }
    assert updated(files, [Packages(manager="npm", operation="update", plan=plan)]) == (
        Updated(name="new", after="2"),
        Updated(
            name="pad", before="1.0.0", after="1.1.0", published_at=5.0, link="https://x.test/pad"
        ),
        Updated(name="gone", before="1.0.0"),
        Updated(name="six", before="1.16.0", after="1.17.0"),
        Updated(name="web/package-lock.json"),
    )


def test_the_same_version_from_another_file_is_no_update_and_is_said() -> None:
    texts = [
        json.dumps({"packages": {"node_modules/a": {"version": "1", "integrity": one}}})
        for one in ("x", "y", "")
    ]
    (found,) = updated({"package-lock.json": (texts[0], texts[1])}, [])
    assert found == Updated(name="a", before="1", after="1")
    assert updates_title([found]) == "Update dependencies"
    assert update_lines([found], 0.0) == ["a: 1 comes from another file or place than before"]
    assert updated({"package-lock.json": (texts[0], texts[0])}, []) == ()
    # A hash that is new says nothing of the file.
    assert updated({"package-lock.json": (texts[2], texts[0])}, []) == ()


def test_a_hash_of_go_that_changed_is_said_and_others_are_not() -> None:
    """go.sum has more versions than are used."""
    files = {
        "go.mod": ("require x.test/a v1.0.0\n", "require x.test/a v1.1.0\n"),
        "go.sum": (
            f"x.test/a v1.0.0 h1:{'a' * 43}=\n",
            f"x.test/a v1.0.0 h1:{'b' * 43}=\nx.test/a v1.1.0 h1:{'c' * 43}=\n",
        ),
    }
    assert updated(files, []) == (
        Updated(name="x.test/a", before="v1.0.0", after="v1.1.0"),
        Updated(name="x.test/a", before="v1.0.0", after="v1.0.0"),
    )


def test_a_commit_s_title_and_its_lines() -> None:
    pad = Updated(name="pad", before="1.0.0", after="1.1.0", published_at=0.0, link="https://x.t/p")
    assert updates_title([pad, Updated(name="new", after="1")]) == "Update pad from 1.0.0 to 1.1.0"
    long = [Updated(name=f"pad-{at}", before="1.0.0", after="1.1.0") for at in range(4)]
    assert updates_title(long) == "Update 4 packages"
    assert len(updates_title([Updated(name="a" * 99, before="1", after="2")])) == 72
    assert updates_title([]) == "Update dependencies"
    assert update_lines([pad], DAY_S) == ["pad: 1.0.0 -> 1.1.0, 1 day old, https://x.t/p"]
    assert update_lines([Updated(name="a", after="1"), Updated(name="b", before="1")], 0.0) == [
        "a: new -> 1",
        "b: 1 -> removed",
    ]
    assert update_lines([Updated(name="a/uv.lock")], 0.0) == [
        "a/uv.lock: can't be read, so what it locks isn't listed"
    ]
    assert update_lines([pad] * (MOST_SAID + 2), 1500 * DAY_S)[-2:] == [
        "pad: 1.0.0 -> 1.1.0, 1,500 days old, https://x.t/p",
        "and 2 more",
    ]


def test_young_releases_wait_unless_they_are_locked_already() -> None:
    plan = [
        PlannedPackage(name="young", version="2", published_at=9 * DAY_S),
        PlannedPackage(name="locked", version="2", published_at=9 * DAY_S),
        PlannedPackage(name="old", version="2", published_at=1 * DAY_S),
        PlannedPackage(name="unknown", version="2"),
    ]
    wanted = Updates(min_age_s=3 * DAY_S)
    assert too_young(plan, [("locked", "2")], wanted, 10 * DAY_S) == ["young 2"]
