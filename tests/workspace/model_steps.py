"""What can happen to a workspace, as values, and scripts of it that Hypothesis makes up.

A script is made of scenes: steps that belong together, such as a change, the card of it,
somebody in the way, and an answer. Steps that are drawn one by one would hardly ever meet each
other on one path.
"""

from typing import Literal, NamedTuple

from hypothesis import strategies as st

from tests.workspace.model_tree import Op

PATHS = ("free/a", "free/n/b", "b", "d", "d/c", "d/e", "d/e/f", "closed/x", "\udcff-odd", "ü")
FIRST = {"free/a": 0o644, "b": 0o755, "d/c": 0o600, "d/e/f": 0o644, "closed/x": 0o644, "ü": 0o640}


class Look(NamedTuple):
    """The supervisor compares one side."""

    where: Literal["host", "copy"]


class Answer(NamedTuple):
    """The person answers one request, or all at once; `number` chooses it, and the hunks."""

    how: Literal["approve", "deny", "part", "part-drop", "merge", "give", "approve-all", "deny-all"]
    number: int


class Api(NamedTuple):
    """The agent asks through its API."""

    kind: Literal["write", "edit", "delete", "move"]
    path: str
    other: str
    number: int


class TakeBack(NamedTuple):
    """The person takes back all, one, or what came after a moment."""

    what: Literal["all", "one", "after"]
    number: int
    merge: bool


class Restart(NamedTuple):
    """The supervisor ends in good order, and starts anew."""


class Race(NamedTuple):
    """The person does something during a step, at the so-many-eth fault point of an effect."""

    point: int
    op: Op
    during: "System"


class Crash(NamedTuple):
    """It is killed during a step, before the so-many-eth system call; both sides go on until it
    starts anew."""

    point: int
    during: "System"
    meanwhile: tuple[Op, ...]


type System = Look | Answer | Api | TakeBack
type Step = Op | System | Restart | Race | Crash
type Script = list[Step]

_paths = st.sampled_from(PATHS)
_texts = st.sampled_from(
    [path for path in PATHS if path.isprintable()]
)  # the API's JSON has no other names
_kinds = st.sampled_from([
    "line", "line", "whole", "append", "save", "delete", "move", "swap", "turn", "chmod", "link",
    "hard", "mkdir", "copy",
    "sly",
])  # fmt: skip
_contents = st.sampled_from(["line", "save", "append"])
_numbers = st.integers(0, 11)
PERSON = st.builds(Op, st.just("person"), _kinds, _paths, _paths, _numbers)
AGENT = st.builds(
    Op, st.just("agent"), st.one_of(_kinds, _kinds, st.just("fifo")), _paths, _paths, _numbers
)
HOWS = st.sampled_from([
    "approve", "approve-all", "deny", "part", "part-drop", "merge", "give", "approve-all",
    "deny-all",
])  # fmt: skip
ANSWER = st.builds(Answer, HOWS, _numbers)
APIS = st.builds(
    Api, st.sampled_from(["write", "edit", "delete", "move"]), _texts, _texts, _numbers
)
TAKES_BACK = st.builds(TakeBack, st.sampled_from(["all", "one", "after"]), _numbers, st.booleans())
SYSTEM: st.SearchStrategy[System] = st.one_of(
    st.builds(Look, st.sampled_from(["copy", "host"])), ANSWER, APIS, TAKES_BACK
)
RACE = st.builds(Race, st.integers(0, 12), PERSON, SYSTEM)
SINGLE: st.SearchStrategy[Step] = st.one_of(PERSON, AGENT, SYSTEM, RACE)
COMPARE = Look("copy")


@st.composite
def collision(draw: st.DrawFn) -> list[Step]:
    """The person changes a file in the middle of an effect on it, before or after the instant
    that counts."""
    path, other = draw(st.sampled_from(sorted(FIRST))), draw(_paths)
    person = Op("person", draw(st.one_of(_contents, _kinds)), path, other, draw(_numbers))
    before: list[Step] = [Op("agent", draw(_contents), path, other, draw(_numbers))]
    during: System = COMPARE
    if not path.startswith("free/"):  # nobody is asked about these
        before.append(COMPARE)
        during = Answer("approve-all", 0)
    return [*before, Race(draw(st.integers(2, 7)), person, during)]


@st.composite
def scene(draw: st.DrawFn) -> list[Step]:
    """Some steps that belong together: something is asked, the person may be in the way, it is
    answered."""
    path = draw(_paths)
    here = draw(st.sampled_from([path, path, path, draw(_paths)]))
    agent = Op("agent", draw(_kinds), path, draw(_paths), draw(_numbers))
    person = Op("person", draw(_kinds), here, draw(_paths), draw(_numbers))
    answer = draw(ANSWER)
    approve = Answer("approve-all", 0)
    match draw(st.integers(0, 11)):
        case 0:  # the plain course
            return [agent, COMPARE, approve]
        case 1:  # both change it
            return [*draw(st.permutations([agent, person])), COMPARE, answer]
        case 2:  # the person changes it while the card waits
            return [agent, COMPARE, person, approve]
        case 3 | 9 | 10:  # or in the middle of the effect
            return draw(collision())
        case 4:  # several at once, one of them in the way
            agents = draw(st.lists(AGENT, min_size=2, max_size=4))
            return [*agents, COMPARE, Race(draw(st.integers(0, 30)), person, approve)]
        case 5:  # through the API
            api = draw(APIS)
            return [api, draw(st.sampled_from([person, COMPARE])), approve]
        case 6:  # applied, changed since perhaps, and taken back
            some: list[Step] = draw(st.sampled_from([[], [person]]))
            return [agent, COMPARE, approve, *some, draw(TAKES_BACK)]
        case 7:  # changed in the middle of the undo
            *before, race = draw(collision())
            assert isinstance(race, Race)
            return [*before, race.during, race._replace(during=draw(TAKES_BACK))]
        case _:
            return [draw(SINGLE)]


@st.composite
def rough_scene(draw: st.DrawFn) -> list[Step]:
    """The same, and its last step is cut short by a kill; or the supervisor ends in good order."""
    *before, last = draw(scene())
    if isinstance(last, Op | Restart | Crash):
        return [*before, last, Restart()]
    during = last.during if isinstance(last, Race) else last
    meanwhile = draw(st.lists(st.one_of(PERSON, AGENT), max_size=1))
    return [*before, Crash(draw(st.integers(0, 100)), during, tuple(meanwhile))]


def flat(scenes: list[list[Step]]) -> Script:
    return [step for one in scenes for step in one]


QUIET = st.lists(scene(), min_size=3, max_size=10).map(flat)
ROUGH = st.lists(st.one_of(scene(), rough_scene()), min_size=2, max_size=8).map(flat)
