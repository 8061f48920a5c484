"""A folder in the place of something else as one action: what it is made of, what it is called,
and how it is judged."""

import stat

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import FileChange, content_hash, decode, encode, fingerprint, title
from supervisor.core.files.change_tree import ChangeSet, Waiting
from supervisor.core.files.changes import Known, Seen, Want, is_content, link_token, names_of
from supervisor.core.files.swaps import going, made_by, named_bytes, single_changes, strays, whole
from supervisor.core.lab.explain import explain
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.suggest import suggest

A, B = content_hash(b"a"), content_hash(b"b")
TO_FILE = whole(
    "d/p",
    Want("swap", "dir", A, 0o644),
    [("d/p/x", Want("delete", B)), ("d/p/s", Want("delete", "dir")), ("d/p/s/y", Want("delete", B,
     hazards=("conflict",)))],
)  # fmt: skip
TO_FOLDER = whole(
    "d/p",
    Want("swap", A, "dir", 0o755),
    [("d/p/s/y", Want("write", None, B, 0o755, hazards=("new-executable",))), ("d/p/s",
     Want("mkdir", None, "dir", 0o700))],
)  # fmt: skip
TO_LINK = whole(
    "p", Want("swap", "dir", link_token("q"), link_target="q", hazards=("symlink",)), []
)


def test_what_goes_from_within_and_then_what_comes_from_outside() -> None:
    assert [(one.operation, one.path) for one in TO_FILE.steps] == [
        ("delete", "d/p/x"), ("delete", "d/p/s/y"), ("delete", "d/p/s"),
    ]  # fmt: skip
    assert [(one.operation, one.path) for one in TO_FOLDER.steps] == [
        ("mkdir", "d/p/s"),
        ("write", "d/p/s/y"),
    ]
    both = whole(
        "p", Want("swap", "dir", A), [("p/b", Want("write", None, A)), ("p/a", Want("delete", B))]
    )
    assert [one.path for one in both.steps] == ["p/a", "p/b"]


def test_the_whole_has_the_hazards_of_each_step() -> None:
    assert TO_FILE.hazards == ("conflict",)
    assert TO_LINK.hazards == ("symlink",)


def test_taken_apart_it_is_itself_and_one_change_for_each_step() -> None:
    first, *steps = single_changes(TO_FOLDER)
    assert first == TO_FOLDER
    assert steps == [
        FileChange(operation="mkdir", path="d/p/s", after="dir", mode=0o700),
        FileChange(
            operation="write", path="d/p/s/y", after=B, mode=0o755, hazards=("new-executable",)
        ),
    ]
    plain = FileChange(operation="write", path="a")
    assert single_changes(plain) == [plain]
    assert names_of(TO_FOLDER) == ("d/p", "d/p/s", "d/p/s/y")


def test_what_naming_a_path_takes() -> None:
    assert named_bytes("a/é") == 4
    assert named_bytes("a", "t\udcff") == 3
    shown = decode(encode(whole("p", Want("swap", "dir", A), [("p/\udcff", Want("delete", B))])))
    assert isinstance(shown, FileChange)
    assert named_bytes("p/\udcff") == len(shown.steps[0].path) + len(shown.steps[0].path_b64 or "")


def test_names_of_any_bytes() -> None:
    odd = whole("p", Want("swap", "dir", A), [("p/\udcff", Want("delete", B))])
    assert odd.steps[0].path_b64
    assert names_of(odd) == ("p", "p/\udcff")
    assert decode(encode(odd)) == odd


def test_what_goes_names_what_the_person_changed() -> None:
    seen = Seen("file", 0o644, (1, 2, 2, 1, stat.S_IFREG | 0o644), A)
    assert going(Known("file", 0o644, A, None, seen.signature, seen.signature), seen) == Want(
        "delete", A
    )
    assert going(Known("file", 0o644, B, None, (1, 1, 1, 1, 1), seen.signature), seen).hazards == (
        "conflict",
    )


def test_what_no_step_speaks_of_is_found() -> None:
    assert strays(TO_FILE, ["d/p/x", "d/p/s", "d/p/s/y"]) == []
    assert strays(TO_FILE, ["d/p/z", "d/p/x", "d/p/a"]) == ["d/p/a", "d/p/z"]


def test_the_outcome_is_the_same_whatever_was_there() -> None:
    other = whole("d/p", Want("swap", "dir", A, 0o644), [("d/p/x", Want("delete", A)), ("d/p/s",
    Want("delete", "dir")),
                                                       ("d/p/s/y", Want("delete", A))])  # fmt: skip
    assert made_by(other) == made_by(TO_FILE)
    assert fingerprint(other) != fingerprint(TO_FILE)
    assert made_by(TO_FOLDER) != made_by(TO_FILE)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (TO_FILE, "swap d/p: the folder with 3 paths in it for a file"),
        (TO_FOLDER, "swap d/p: the file for a folder with 2 paths in it"),
        (TO_LINK, "swap p: the folder with 0 paths in it for a link -> q"),
        (
            whole("p", Want("swap", link_token("q"), "dir"), [("p/a", Want("write", None, A))]),
            "swap p: the link for a folder with 1 path in it",
        ),
    ],
)
def test_titles(action: FileChange, text: str) -> None:
    assert title(action) == text


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["p/a", "p/b", "p/c"]),
        st.builds(
            Want,
            st.sampled_from(["write", "delete", "symlink"]),
            st.sampled_from([None, A]),
            st.sampled_from([None, A, B]),
            st.sampled_from([None, 0o644]),
            st.sampled_from([None, "q"]),
            st.sampled_from([(), ("conflict",)]),
        ),
    ),
    max_size=3,
)


@given(_STEPS, _STEPS)
def test_unequal_swaps_never_share_a_fingerprint(
    one: list[tuple[str, Want]], other: list[tuple[str, Want]]
) -> None:
    first, second = (whole("p", Want("swap", "dir", A), steps) for steps in (one, other))
    assert (fingerprint(first) == fingerprint(second)) == (first == second)
    assert decode(encode(first)) == first


LATER = ("steps", "to_b64", "folders", "repositories")


def test_an_action_without_steps_has_the_fingerprint_that_it_always_had() -> None:
    """Requests that waited before there were swaps are answered by it."""
    action = FileChange(operation="write", path="a", before=A, after=B, mode=0o644)
    fields = [getattr(action, name) for name in action.__struct_fields__ if name not in LATER]
    assert fingerprint(action) == content_hash(msgspec.msgpack.encode(["filesystem", *fields]))


def _judged(action: FileChange, **policy: object) -> tuple[str, str]:
    verdict = evaluate(policy_from_data(policy), action, now=0.0)
    return verdict.decision, verdict.why


def _to_file(*below: str) -> FileChange:
    return whole(
        "d/p", Want("swap", "dir", A, 0o644), [(name, Want("delete", B)) for name in below]
    )


def test_it_is_judged_as_the_strictest_of_all_its_paths() -> None:
    plain = _to_file("d/p/x", "d/p/s/y")
    assert _judged(plain, allow=["filesystem(d/**)"])[0] == "allow"
    assert _judged(plain, allow=["filesystem(d/p)"])[0] == "ask"
    assert _judged(plain, allow=["filesystem(d/p)", "filesystem(d/p/*)"])[0] == "ask"
    assert _judged(plain, allow=["filesystem(d/**)"], ask=["filesystem(d/p/s/y)"])[0] == "ask"
    assert _judged(plain, allow=["filesystem(d/**)"], deny=["filesystem(**/y)"]) == (
        "deny",
        "denied by filesystem(**/y)",
    )


@pytest.mark.parametrize(
    ("name", "decision"), [(".git/config", "deny"), (".envrc", "ask"), ("s/.github/x", "ask")]
)
def test_protected_names_in_the_folder_count(name: str, decision: str) -> None:
    found, why = _judged(_to_file("d/p/x", f"d/p/{name}"), allow=["filesystem(d/**)"])
    assert found == decision
    assert "protected name" in why


def test_hazards_links_and_odd_names_in_the_folder_count() -> None:
    allow = ["filesystem(d/**)"]

    def with_step(**fields: object) -> FileChange:
        wanted = Want(**({"operation": "write", "before": None, "after": B} | fields))  # type: ignore[arg-type]
        return msgspec.structs.replace(
            whole("d/p", Want("swap", A, "dir"), [("d/p/x", wanted)]), hazards=()
        )

    assert _judged(with_step(), allow=allow)[0] == "allow"
    assert _judged(with_step(hazards=("conflict",)), allow=allow)[0] == "ask"
    assert _judged(with_step(operation="symlink", link_target="y"), allow=allow)[0] == "ask"
    assert (
        _judged(with_step(operation="symlink", link_target="../../../out"), allow=allow)[0]
        == "deny"
    )
    assert _judged(with_step(mode=0o4755), allow=allow)[0] == "ask"
    assert _judged(_to_file("d/p/\udcff"), allow=allow)[0] == "ask"
    outside = msgspec.structs.replace(
        TO_FILE, steps=(msgspec.structs.replace(TO_FILE.steps[0], path="../x"),)
    )
    assert _judged(outside, allow=allow)[0] == "deny"


def test_always_offers_what_covers_all_of_it() -> None:
    assert [one.rule for one in suggest(_to_file("d/p/x"))] == [
        "filesystem(d/p/**)",
        "filesystem(d/**)",
    ]


def test_why_names_the_paths_that_decide() -> None:
    policy = policy_from_data({"allow": ["filesystem(d/**)"], "deny": ["filesystem(d/p/s/y)"]})
    found = explain(policy, _to_file("d/p/x", "d/p/s/y"), now=0.0)
    assert found.verdict.decision == "deny"
    assert [part.text for part in found.parts] == ["d/p", "d/p/x", "d/p/s/y"]
    many = explain(policy, _to_file(*(f"d/p/{number}" for number in range(30))), now=0.0)
    assert many.parts_left_out == 11


def test_it_needs_a_look_of_its_own() -> None:
    action = _to_file("d/p/x")
    one = Waiting("id", fingerprint(action), 0.0, action, False)
    assert ChangeSet([one], {}).notes == {"id": (title(action),)}


def test_which_states_have_a_content() -> None:
    assert is_content(A)
    assert not any(map(is_content, ("dir", "fifo", link_token("x"))))
