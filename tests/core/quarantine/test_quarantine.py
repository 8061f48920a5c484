"""What a call of an agent in quarantine is answered with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.quarantine.quarantine import (
    CALLS,
    DENIED,
    LIFE_S,
    MOST_CALLS,
    GlobCall,
    GrepCall,
    ManifestFile,
    Quarantine,
    ReadCall,
    decide,
    glob_of,
)
from supervisor.core.quarantine.references import Reference, written
from tests.tables import each_row

KEY = bytes(32)
SID = "0b9a4f1e-7c1d-4e55-9a77-3f2f6f1f2b10"
SHOWN = ManifestFile("ab" * 32, 17)
SESSION = Quarantine(SID, KEY, 1_000.0, {"src/a.py": SHOWN})


def reference(path: str = "src/a.py", digest: str = SHOWN.digest, size: int = 17) -> str:
    return written(Reference(path, digest, size, 1_000, SID), KEY)


def test_a_reference_of_the_manifest_is_read() -> None:
    found = decide("Read", {"reference": reference(), "first_line": 2}, SESSION, 1_001)
    assert found.kind is None
    assert found.call == ReadCall(reference=reference(), first_line=2)
    assert found.reference is not None
    assert found.reference.path == "src/a.py"


@pytest.mark.parametrize("name", ["read", "READ", "Read"])
@pytest.mark.parametrize("argument", ["reference", "file_path", "filePath"])
def test_the_tools_of_the_agents_are_the_same(name: str, argument: str) -> None:
    found = decide(name, {argument: reference(), "limit": 5, "offset": 3}, SESSION, 1_001)
    assert found.call == ReadCall(reference=reference(), first_line=3)
    assert found.tool == "Read"


def test_grep_and_glob_see_the_manifest() -> None:
    found = decide("Grep", {"pattern": "a+", "-i": True, "path": "/etc"}, SESSION, 1_001)
    assert found.call == GrepCall(pattern="a+", ignore_case=True)
    assert found.reference is None
    found = decide("glob", {"pattern": "*.py"}, SESSION, 1_001)
    assert isinstance(found.call, GlobCall)
    assert glob_of(found.call) == "**/*.py"
    assert glob_of(GrepCall(pattern="a", glob="")) == "**"
    assert glob_of(GlobCall(pattern="/src/*.py")) == "src/*.py"


@each_row(
    ("tool", "args", "kind"),
    [
        ("Read", {}, "bad_arguments"),
        ("Read", {"reference": "src/a.py"}, "bad_reference"),
        ("Read", {"file_path": "/etc/passwd"}, "bad_reference"),
        ("Read", {"reference": reference("b.py")}, "bad_reference"),
        ("Read", {"reference": reference(digest="00" * 32)}, "bad_reference"),
        ("Read", {"reference": reference(size=18)}, "bad_reference"),
        ("Read", {"reference": reference(), "first_line": 0}, "bad_arguments"),
        ("Read", {"reference": reference(), "more": 1}, "bad_arguments"),
        ("Grep", {"pattern": ""}, "bad_arguments"),
        ("Grep", {"pattern": "a", "glob": "a**b"}, "bad_arguments"),
        ("Glob", {"pattern": 7}, "bad_arguments"),
        ("mcp__notes__wipe", {}, "denied_tool"),
        ("mcp__gatehouse__run_command", {}, "denied_tool"),
        ("\uff32ead", {"reference": reference()}, "denied_tool"),
        ("Read ", {"reference": reference()}, "denied_tool"),
        ("", {}, "denied_tool"),
        ("a" * 1000, {}, "denied_tool"),
    ],
)
def test_what_is_denied_and_what_goes_on_record(tool: str, args: dict, kind: str) -> None:  # type: ignore[type-arg]
    found = decide(tool, args, SESSION, 1_001)
    assert found.kind == kind
    assert found.call is None
    assert found.why
    assert len(found.why) < 600


def test_twenty_three_tools_are_denied_by_name_with_a_risk() -> None:
    assert len(DENIED) == 23
    assert not DENIED.keys() & CALLS.keys()
    for name, (risk, would) in DENIED.items():
        for spelled in (name, name.lower(), name.upper()):
            found = decide(spelled, {}, SESSION, 1_001)
            assert (found.tool, found.kind, found.risk) == (name, "denied_tool", risk)
            assert would in found.why
    assert decide("apply_patch", {}, SESSION, 1_001).tool == "ApplyPatch"
    assert decide("anything", {}, SESSION, 1_001).risk == "high"


@given(st.text(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_whatever_else_is_called_is_denied(tool: str, args: dict) -> None:  # type: ignore[type-arg]
    found = decide(tool, args, SESSION, 1_001)
    assert found.call is None or found.tool in CALLS


def test_a_hundred_calls_a_minute_slide() -> None:
    calls = tuple(1_000 + n * 0.5 for n in range(MOST_CALLS))
    busy = SESSION._replace(calls=calls)
    assert decide("Glob", {}, busy, 1_059.9).kind == "rate_limited"
    assert decide("Bash", {}, busy, 1_059.9).kind == "rate_limited"
    assert decide("Glob", {}, busy, 1_060.1).kind is None


def test_five_minutes_and_no_longer() -> None:
    assert decide("Glob", {}, SESSION, 1_000 + LIFE_S).kind is None
    late = decide("Read", {"reference": reference()}, SESSION, 1_000.1 + LIFE_S)
    assert (late.kind, late.call) == ("expired", None)
