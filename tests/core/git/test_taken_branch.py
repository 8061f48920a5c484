"""The names that an agent's branch may get in the host's repository."""

from itertools import islice

from supervisor.core.git.taken_branch import MOST_NAMES, NamesInUse, names_for
from tests.tables import each_row


def test_its_own_name_comes_first_and_they_end() -> None:
    assert list(islice(names_for("fix"), 4)) == [
        "fix",
        "gatehouse/fix",
        "gatehouse/fix-2",
        "gatehouse/fix-3",
    ]
    names = list(names_for("fix"))
    assert len(names) == len(set(names)) == MOST_NAMES


@each_row(
    ("name", "may"),
    [
        *[("fix", True), ("feature/x", True), ("gatehouse/origin/main", True)],
        # Another's, in whatever case, or in a file's place.
        *[
            ("main", False),
            ("Main", False),
            ("work", False),
            ("work/a/b", False),
            ("main/x", False),
        ],
        # A tag, a remote's branch or the remote itself, now or once it is fetched.
        *[("v1", False), ("V1", False), ("origin/main", False), ("origin/new", False)],
        *[("origin", False), ("Origin/x", False), ("up/stream/x", False), ("notes/x", False)],
        # What git reads as something else.
        *[("HEAD", False), ("FETCH_HEAD", False), ("deadbeef", False), ("v1-3-gdeadbeef", False)],
        *[("refs/heads/main", False), ("tags/v1", False), ("a..b", False), ("cafe", False)],
        ("coffee", True),
    ],
)
def test_a_new_branch_takes_over_no_name(name: str, may: bool) -> None:
    refs = ["refs/heads/main", "refs/heads/work/a", "refs/tags/v1", "refs/remotes/origin/main"]
    names = NamesInUse([*refs, "refs/heads/feature/y/z", "refs/notes/x"], ["origin", "up/stream"])
    assert names.may_have(name, is_there=False) is may
    assert not names.may_have("feature/y", is_there=False)
    assert names.may_have("work/a", is_there=True)
    assert not names.may_have("origin/x", is_there=True)
