"""An agent's branch that the operator took into the host's repository."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from supervisor.core.text.ref_names import HEADS, is_short

OURS = "gatehouse/"
MOST_NAMES = 50
# Names that git doesn't read as a branch: a file of its own like FETCH_HEAD, an object's id or the
# start of one, what `git describe` prints (gitrevisions(7)).
_OTHERS = re.compile(r"[A-Z_]+\Z|[0-9a-f]{4,64}\Z|.*-g[0-9a-f]{4,64}\Z", re.DOTALL)


class TakenBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was taken: `source` in the private copy, `branch` in the host's repository, at
    `commit`; `commits` of them are new there."""

    source: str
    branch: str
    commit: str
    commits: int


def names_for(source: str) -> Iterator[str]:
    """Yield the names that an agent's branch may get, in order: its own, then ours."""
    yield source
    yield f"{OURS}{source}"
    for number in range(2, MOST_NAMES):
        yield f"{OURS}{source}-{number}"


class NamesInUse:
    """The names in the host's repository that a new branch must not take over, in any letter case:
    those of its refs without their namespace, and everything below a remote's name."""

    def __init__(self, refs: Iterable[str], remotes: Iterable[str]) -> None:
        self._branches, self._others = set[str](), set[str]()
        for ref in (one.casefold() for one in refs):
            if ref.startswith(HEADS):
                self._branches.add(ref.removeprefix(HEADS))
            else:
                self._others |= {ref, ref.partition("/")[2], ref.split("/", 2)[-1]}
        self._folders = {
            name[:at] for name in self._branches for at, char in enumerate(name) if char == "/"
        }
        self._remotes = [one.casefold() for one in remotes]

    def may_have(self, name: str, *, is_there: bool) -> bool:
        """Return whether a branch may have this name; `is_there`: it has it already."""
        folded = name.casefold()
        if not is_short(name) or _OTHERS.match(name) or folded in self._others:
            return False
        if any(folded == one or folded.startswith(f"{one}/") for one in self._remotes):
            return False
        parents = {folded[:at] for at, char in enumerate(folded) if char == "/"}
        if is_there:
            return True
        return not ({folded, *parents} & self._branches or folded in self._folders)
