"""The names that an agent's branch may get in the host's repository."""

from itertools import islice

from supervisor.core.git.taken_branch import MOST_NAMES, names_for


def test_its_own_name_comes_first_and_they_end() -> None:
    assert list(islice(names_for("fix"), 4)) == [
        "fix",
        "gatehouse/fix",
        "gatehouse/fix-2",
        "gatehouse/fix-3",
    ]
    names = list(names_for("fix"))
    assert len(names) == len(set(names)) == MOST_NAMES
