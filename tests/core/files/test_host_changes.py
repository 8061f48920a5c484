"""From the host to the copy: the three-way comparison as a table, and that the two directions
never answer for one another."""

import stat

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import content_hash
from supervisor.core.files.changes import ANY_MODE, Kind, Known, Seen, Want, agree, link_token, want
from supervisor.core.files.host_changes import AGREED, CONFLICT, NEVER, NOTHING, Incoming, incoming
from tests.tables import each_row

A, B, C = (content_hash(text) for text in (b"a", b"b", b"c"))
_TYPES: dict[Kind, int] = {
    "dir": stat.S_IFDIR,
    "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
    "device": stat.S_IFCHR,
}


def file(digest: str, at: int = 1, mode: int = 0o644) -> Seen:
    return Seen("file", mode, (1, at, at, 1, stat.S_IFREG | mode), digest)


def link(target: str, at: int = 1) -> Seen:
    return Seen("symlink", 0o777, (len(target), at, at, 2, stat.S_IFLNK), target=target)


def other(kind: Kind, mode: int = 0o755) -> Seen:
    return Seen(kind, mode, (0, 1, 1, 3, _TYPES[kind] | mode))


def known(seen: Seen, host: Seen | None = None) -> Known:
    """Both sides agreed on `seen`."""
    return Known(
        seen.kind, seen.mode, seen.digest, seen.target, (host or seen).signature, seen.signature
    )


def bring(*steps: Want) -> Incoming:
    return Incoming("bring", steps)


ON_A = known(file(A))
FOLDER = other("dir")
TABLE = {
    "nothing anywhere": (None, None, None, NOTHING),
    "unchanged": (ON_A, file(A), file(A), NOTHING),
    "a folder that both have": (known(FOLDER), FOLDER, FOLDER, NOTHING),
    "a folder's mode by the person": (
        known(FOLDER),
        FOLDER,
        other("dir", 0o700),
        bring(Want("chmod", "dir", "dir", 0o700)),
    ),
    "a folder's mode by the agent": (known(FOLDER), other("dir", 0o700), FOLDER, NOTHING),
    "a folder's mode by both": (known(FOLDER), other("dir", 0o700), other("dir", 0o770), CONFLICT),
    "a folder's mode by both to the same": (
        known(FOLDER),
        other("dir", 0o700),
        other("dir", 0o700),
        AGREED,
    ),
    "a folder's mode by the person where the agent made it anew": (
        known(FOLDER),
        msgspec.structs.replace(other("dir", 0o775), is_anew=True),
        other("dir", 0o770),
        bring(Want("chmod", "dir", "dir", 0o770)),
    ),
    "a folder that each side made": (None, FOLDER, other("dir", 0o700), AGREED),
    "a folder on the way to a file": (Known("dir", ANY_MODE), FOLDER, other("dir", 0o700), AGREED),
    "a folder that nobody looked at on the host": (Known("dir", 0o755), FOLDER, FOLDER, AGREED),
    "a folder in place of a file, as both have it": (ON_A, FOLDER, FOLDER, AGREED),
    "a link that both have": (known(link("x")), link("x"), link("x"), NOTHING),
    "touched by the person, so the agreement is written anew": (ON_A, file(A), file(A, 2), AGREED),
    "deleted by both": (ON_A, None, None, AGREED),
    "new by both and the same": (None, file(A), file(A), AGREED),
    "changed by both to the same": (ON_A, file(B, 2), file(B, 3), AGREED),
    "changed by the person": (ON_A, file(A), file(B, 2), bring(Want("write", A, B, 0o644))),
    "touched by the agent, changed by the person": (
        ON_A,
        file(A, 2),
        file(B, 2),
        bring(Want("write", A, B, 0o644)),
    ),
    "permissions by the person": (
        ON_A,
        file(A),
        file(A, 2, 0o600),
        bring(Want("chmod", A, A, 0o600)),
    ),
    "a set-id bit of the host's stays there": (
        ON_A,
        file(A),
        file(B, 2, 0o4755),
        bring(Want("write", A, B, 0o755)),
    ),
    "deleted by the person": (ON_A, file(A), None, bring(Want("delete", A))),
    "new by the person": (None, None, file(B), bring(Want("write", None, B, 0o644))),
    "a new folder of the person's": (None, None, FOLDER, bring(Want("mkdir", None, "dir", 0o755))),
    "a new link of the person's": (
        None,
        None,
        link("x"),
        bring(Want("symlink", None, link_token("x"), link_target="x")),
    ),
    "a folder in place of a file: the file goes first": (
        ON_A,
        file(A),
        FOLDER,
        bring(Want("delete", A), Want("mkdir", None, "dir", 0o755)),
    ),
    "a file in place of a folder: the folder goes first": (
        known(FOLDER),
        FOLDER,
        file(A),
        bring(Want("delete", "dir"), Want("write", None, A, 0o644)),
    ),
    "changed by the agent": (ON_A, file(B, 2), file(A), NOTHING),
    "new by the agent": (None, file(B), None, NOTHING),
    "deleted by the agent": (ON_A, None, file(A), NOTHING),
    "unknown content, touched by the person, the agent's mode": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        file(A, 2, 0o600),
        file(A, 2),
        NOTHING,
    ),
    "changed by both": (ON_A, file(B, 2), file(C, 2), CONFLICT),
    "new by both": (None, file(A), file(B), CONFLICT),
    "deleted by the agent, changed by the person": (ON_A, None, file(B, 2), CONFLICT),
    "changed by the agent, deleted by the person": (ON_A, file(B, 2), None, CONFLICT),
    "a fifo of the host's": (ON_A, file(A), other("fifo"), NEVER),
    "a new socket of the host's": (None, None, other("socket"), NEVER),
}


@each_row("name", TABLE)
def test_what_the_host_asks_of_the_copy(name: str) -> None:
    agreed, mine, host, expected = TABLE[name]
    assert incoming(agreed, mine, host) == expected


SEEN = st.one_of(
    st.none(),
    st.builds(
        file, st.sampled_from([A, B, C]), st.integers(1, 3), st.sampled_from([0o644, 0o755, 0o4755])
    ),
    st.builds(link, st.sampled_from(["x", "y"]), st.integers(1, 2)),
    st.builds(other, st.sampled_from(list(_TYPES)), st.sampled_from([0o755, 0o700])),
)
KNOWN = st.one_of(
    st.none(),
    st.builds(
        known, SEEN.filter(lambda one: one is not None), SEEN.filter(lambda one: one is not None)
    ),
)


@given(KNOWN, SEEN, SEEN)
def test_never_do_both_directions_ask_for_something(
    agreed: Known | None, mine: Seen | None, host: Seen | None
) -> None:
    found = incoming(agreed, mine, host)
    if found.steps:
        assert want(agreed, mine, host) is None
    assert bool(found.steps) == (found.verdict == "bring")


@given(KNOWN, SEEN, SEEN)
def test_what_is_brought_is_what_the_host_has(
    agreed: Known | None, mine: Seen | None, host: Seen | None
) -> None:
    steps = incoming(agreed, mine, host).steps
    if not steps:
        return
    assert [step.before for step in steps] == [mine.token if mine else None, None][: len(steps)]
    assert steps[-1].after == (host.token if host else None)
    assert not (mine is not None and agree(agreed, mine, host))
    assert not any(step.hazards for step in steps), (
        "nothing leaves the sandbox, so there is nobody to warn"
    )
