"""What an install would do, and what must not be overlooked of it."""

from supervisor.core.actions import PlannedPackage
from supervisor.core.packages.install_plan import (
    near_popular,
    planned,
    what_is_unknown,
    with_facts,
)
from supervisor.core.packages.lock_files import Locked, Locks
from supervisor.core.packages.registry_answers import RegistryFacts
from tests.tables import each_row

NOW = 1_000_000_000.0
DAY = 86_400.0


def locks(*packages: Locked) -> Locks:
    return {(one.name, one.version): one for one in packages}


def test_added_changed_and_removed() -> None:
    before = locks(
        Locked("same", "1"),
        Locked("up", "1"),
        Locked("gone", "1"),
        Locked("two", "1"),
        Locked("two", "2"),
    )
    after = locks(
        Locked("same", "1"),
        Locked("up", "2", licence="MIT", has_scripts=False),
        Locked("up", "3"),
        Locked("new", "1"),
        Locked("two", "3"),
    )
    assert planned(before, after) == (
        PlannedPackage(name="new", version="1"),
        PlannedPackage(name="two", version="3"),
        PlannedPackage(name="up", version="2", before="1", licence="MIT", has_scripts=False),
        PlannedPackage(name="up", version="3"),
        PlannedPackage(name="gone", version="", before="1"),
        PlannedPackage(name="two", version="", before="1"),
        PlannedPackage(name="two", version="", before="2"),
    )


def test_another_file_of_the_same_version_comes_anew() -> None:
    before = locks(Locked("a", "1", integrity="sha512-a"), Locked("b", "1", "https://x.test/b"))
    after = locks(Locked("a", "1", integrity="sha512-b"), Locked("b", "1", "https://y.test/b"))
    assert [one.name for one in planned(before, after)] == ["a", "b"]


def notes(kind: str, name: str, said: RegistryFacts | None) -> tuple[str, ...]:
    plan = (PlannedPackage(name=name, version="1"),)
    (found,) = with_facts(kind, plan, {(name, "1"): said} if said else {}, now=NOW)
    return found.notes


def test_notes() -> None:
    assert notes("npm", "loadsh", RegistryFacts(NOW - 2 * DAY, 1, "MIT", True, "yanked")) == (
        "one edit from the popular `lodash`",
        "released 2 days ago",
        "has install scripts",
        "yanked",
    )
    assert notes("npm", "quite-another", RegistryFacts(NOW - DAY)) == ("released a day ago",)
    assert notes("npm", "quite-another", RegistryFacts(NOW - 8 * DAY)) == ()
    assert notes("npm", "quite-another", RegistryFacts(NOW + DAY)) == ("released 0 days ago",)
    assert notes("npm", "quite-another", None) == ()


def test_what_goes_has_no_notes_and_the_registry_s_word_counts() -> None:
    plan = (
        PlannedPackage(name="loadsh", version="", before="1"),
        PlannedPackage(name="xyz", version="1", has_scripts=True, licence="MIT"),
    )
    gone, come = with_facts(
        "npm", plan, {("xyz", "1"): RegistryFacts(has_scripts=False, size=3)}, now=NOW
    )
    assert gone == plan[0]
    assert (come.has_scripts, come.licence, come.size, come.notes) == (False, "MIT", 3, ())


@each_row(
    ("kind", "name", "near"),
    [
        ("npm", "lodash", ""),
        ("npm", "lodahs", "lodash"),
        ("npm", "lodashh", "lodash"),
        ("npm", "lodas", "lodash"),
        ("npm", "l0dash", "lodash"),
        ("pypi", "Reqests", "requests"),
        ("pypi", "typing.extensions", ""),
        ("npm", "nothing-near-at-all", ""),
        ("npm", "ws1", ""),
        ("crates", "serdee", ""),
    ],
)
def test_names_one_edit_from_a_popular_one(kind: str, name: str, near: str) -> None:
    assert near_popular(kind, name) == near


def test_what_is_unknown_is_said() -> None:
    known = PlannedPackage(
        name="a", version="1", published_at=1.0, licence="MIT", size=1, has_scripts=False
    )
    assert what_is_unknown("npm", [known]) == ()
    assert what_is_unknown("crates", [known, PlannedPackage(name="b", version="1")]) == (
        "age of 1 of 2 packages",
        "licence of 1 of 2 packages",
        "size of 1 of 2 packages",
        "install scripts of 1 of 2 packages",
        "which names are popular among crates",
    )
    assert what_is_unknown("crates", [PlannedPackage(name="b", version="", before="1")]) == ()
