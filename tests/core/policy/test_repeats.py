"""What counts as the same wish in other words, and how long a denial stands."""

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import (
    Action,
    BudgetRaise,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
)
from supervisor.core.policy.repeats import BACK_OFF_S, DenialCount, likeness, remedy, standing
from tests.tables import each_row


def connect(host: str, port: int = 443) -> Network:
    return Network(operation="connect", host=host, port=port)


def request(path: str, method: str = "GET") -> Network:
    return Network(
        operation="request",
        host="api.example.org",
        port=443,
        scheme="https",
        method=method,
        path=path,
    )


def push(*flags: str, **more: bool) -> Git:
    return Git(operation="push", remote="origin", refspecs=("a",), flags=flags, **more)


ALIKE: dict[str, tuple[Action, Action]] = {
    "another spelling of the host": (connect("API.example.org."), connect("api.example.org")),
    "the other port of the web": (connect("api.example.org", 80), connect("api.example.org")),
    "what isn't a host": (connect("a b"), connect("a b", 80)),
    "another query": (request("/search?q=1"), request("/search?q=2")),
    "no query": (request("/search?q=1"), request("/search")),
    "the path in other letters": (request("/a/../b"), request("/%62")),
    "another body": (
        request("/up", "POST"),
        msgspec.structs.replace(request("/up", "POST"), body_hash="ab"),
    ),
    "a space more": (Exec(command="npm  publish "), Exec(command="npm publish")),
    "quotes": (Exec(command="npm 'publish'"), Exec(command="npm publish")),
    "more time": (Exec(command="npm publish", timeout_s=5), Exec(command="npm publish")),
    "spaces in what can't be told apart": (
        Exec(command="echo  $(date)"),
        Exec(command="echo $(date)"),
    ),
    "options in another order": (push("--tags", "--atomic"), push("--atomic", "--tags")),
    "packages in another order": (
        Packages(manager="npm", operation="install", names=("a", "b")),
        Packages(manager="npm", operation="install", names=("b", "a"), command="npm  i b a"),
    ),
    "a rule with other words around it": (
        Proposal(effect="allow", rule="exec(npm test)", why="please"),
        Proposal(effect="allow", rule=" exec( npm test )", why="really"),
    ),
}
OTHER: dict[str, tuple[Action, Action]] = {
    "another host": (connect("a.example.org"), connect("b.example.org")),
    "a port of its own": (connect("10.0.0.1", 5432), connect("10.0.0.1", 6379)),
    "another method": (request("/x"), request("/x", "DELETE")),
    "another path": (request("/x"), request("/y")),
    "a connection and a request": (connect("api.example.org"), request("/")),
    "another argument": (Exec(command="npm publish a"), Exec(command="npm publish b")),
    "one word or two": (Exec(command="rm 'a b'"), Exec(command="rm a b")),
    "where a command ends": (Exec(command="a b; c"), Exec(command="a; b c")),
    "an expansion or its letters": (Exec(command="echo $HOME"), Exec(command="echo '$HOME'")),
    "another folder": (Exec(command="make", cwd="a"), Exec(command="make")),
    "a forced push": (push(), push(force=True)),
    "a push that deletes": (push(delete=True), push(force=True)),
    "another package": (Packages(manager="npm", operation="install", names=("a",)),
    Packages(manager="npm", operation="install", names=("b",))),
    "another rule": (Proposal(effect="allow", rule="exec(a)"), Proposal(effect="deny",
    rule="exec(a)")),
}  # fmt: skip


@each_row("pair", ALIKE.values(), ids=ALIKE)
def test_the_same_wish_in_other_words(pair: tuple[Action, Action]) -> None:
    one, other = map(likeness, pair)
    assert one == other is not None


@each_row("pair", OTHER.values(), ids=OTHER)
def test_another_wish(pair: tuple[Action, Action]) -> None:
    one, other = map(likeness, pair)
    assert one != other


def test_files_and_money_are_like_nothing() -> None:
    assert likeness(FileChange(operation="write", path="a")) is None
    assert likeness(BudgetRaise(scope="session", of="s", kind="cost", limit=1, by=1)) is None


def test_a_denial_stands_longer_each_time() -> None:
    first, second, third = BACK_OFF_S
    assert standing([]) == DenialCount(0, -math.inf)
    assert standing([100]) == DenialCount(1, 100 + first)
    assert standing([100, 100 + first]) == DenialCount(2, 100 + first + second)
    assert standing([100, 1000, 2000]) == DenialCount(3, 2000 + third)
    assert standing([4000, 100, 1000, 2000]) == DenialCount(4, math.inf)
    assert standing([100, 1000, 2000, 4000, 9999999]) == DenialCount(4, math.inf)


def test_what_is_denied_at_once_is_denied_once() -> None:
    assert standing([100, 100, 101, 100 + BACK_OFF_S[0] - 1]) == DenialCount(1, 100 + BACK_OFF_S[0])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9), st.floats(0, 1e6))
def test_one_denial_more_never_ends_it_sooner(times: list[float], more: float) -> None:
    """As they come: each later than those before."""
    assert standing([*times, max(times) + more]).until >= standing(times).until


def test_what_may_be_done_about_it() -> None:
    assert (
        remedy(1_000_000_060, 1_000_000_000)
        == "ask again after 01:47:40 UTC (in 1m 00s), or do without it"
    )
    assert "it may be asked again" in remedy(1000, 1000)
    assert "isn't asked again in this session" in remedy(math.inf, 1000)
