"""What holds for any input at all: nothing raises, and a canonical form is its own canonical
form."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Git
from supervisor.core.lab.check import answer_line
from supervisor.core.packages.package_commands import folded_spec
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.git_refs import refs_of
from supervisor.core.policy.policy_text import entry_of, parse_policy, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.suggest import suggest
from supervisor.core.text.hosts import canonical_host
from supervisor.core.text.paths import canonical, fold
from supervisor.core.text.urls import normalise_path
from supervisor.errors import PolicyError
from tests.fakes.law_worlds import ANY, EFFECTS, HOSTS, PATHS, WIDE, WILD_ACTIONS

NOW = 1_790_000_000.0

# -- nothing raises -------------------------------------------------------------------------------


@given(WILD_ACTIONS)
def test_no_action_raises(action: Action) -> None:
    for policy in (WIDE, Policy()):
        verdict = evaluate(policy, action, now=NOW)
        assert verdict.decision in EFFECTS
        assert verdict.why
        assert "could not be evaluated" not in verdict.why, verdict
    suggest(action)


@given(
    st.binary(max_size=80)
    | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_no_line_raises(line: bytes) -> None:
    assert answer_line(line, WIDE, None, NOW)["verdict"] == "deny"


JSON_SCALARS = st.none() | st.booleans() | st.integers() | ANY


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "id",
                "category",
                "operation",
                "path",
                "command",
                "url",
                "connect",
                "method",
                "policy",
                "names",
                "resolved",
                "x",
            ]
        ),
        JSON_SCALARS
        | st.lists(JSON_SCALARS | st.lists(JSON_SCALARS, max_size=2), max_size=2)
        | st.dictionaries(ANY, JSON_SCALARS, max_size=2)
        | st.sampled_from(["exec", "filesystem", "network", "git", "packages", "write"]),
        max_size=6,
    )
)
def test_no_fields_raise(fields: dict[str, Any]) -> None:
    answer = answer_line(json.dumps(fields).encode(), WIDE, None, NOW)
    assert answer["verdict"] in EFFECTS
    assert "could not be judged" not in answer["why"], answer


@given(st.text(max_size=200))
def test_no_policy_text_raises_anything_but_a_policy_error(text: str) -> None:
    said = "x.yaml"
    try:
        parse_policy(text, "x.yaml")
    except PolicyError as error:
        said = str(error)
    assert said.startswith("x.yaml")


@given(
    st.sampled_from(["exec", "filesystem", "network", "git", "packages"]),
    st.text(max_size=30),
    st.sampled_from(EFFECTS),
)
def test_no_rule_raises_anything_but_a_policy_error(
    category: str, pattern: str, effect: Effect
) -> None:
    try:
        rule = parse_rule(f"{category}({pattern})", effect)
    except PolicyError:
        return
    again = policy_from_data({effect: [entry_of(rule)]}).rules[0]
    assert (again.text, again.id, again.pattern) == (rule.text, rule.id, rule.pattern)


# -- canonical forms ------------------------------------------------------------------------------
@given(ANY | HOSTS | st.ip_addresses().map(str))
def test_a_canonical_host_is_its_own_canonical_form(text: str) -> None:
    try:
        host = canonical_host(text)
    except ValueError:
        return
    assert canonical_host(host) == host
    assert host.isascii()
    assert host == host.lower()


@given(ANY | PATHS)
def test_a_canonical_path_is_its_own_canonical_form_and_stays_inside(text: str) -> None:
    try:
        path = canonical(text)
    except ValueError:
        return
    assert canonical(path.text) == path
    segments = path.text.split("/")
    assert ".." not in segments
    assert "" not in segments
    assert fold(fold(path.text)) == fold(path.text)


TARGETS = st.lists(
    st.sampled_from(["a", "..", ".", "%2e", "%2E%2e", "%41", "%2f", "%25", "%252e", "%", "%c3%a9",
    "\u00e9", "b;c", "a b", "\\", "", "*", "%00", "?q=../x", "#f"]),
    max_size=6,
).map(lambda parts: "/" + "/".join(parts))  # fmt: skip


@given(TARGETS | ANY)
def test_a_normalised_path_is_its_own_normal_form_and_has_no_dots_left(target: str) -> None:
    path = normalise_path(target)
    assert path.text.startswith("/")
    assert not {".", ".."} & set(path.text.split("/"))
    # What is ambiguous never matches an allow rule; of the rest, nothing is decoded twice.
    if not path.ambiguous:
        again = normalise_path(path.text)
        assert again.text == path.text


@given(
    st.lists(
        st.sampled_from(
            [
                "refs/heads/",
                "refs/tags/",
                "heads/",
                "feature/",
                "a",
                "+",
                ":",
                "HEAD",
                "/",
                ".",
                "-",
                "b",
            ]
        ),
        min_size=1,
        max_size=5,
    ).map("".join)
)
def test_a_canonical_ref_is_its_own_canonical_form(spec: str) -> None:
    action = Git(operation="push", remote="origin", refspecs=(spec,))
    try:
        (ref,) = refs_of(action)
    except ValueError:
        return
    if ref.kind == "branch":
        (again,) = refs_of(replace(action, refspecs=(f"refs/heads/{ref.name}",)))
        assert (again.kind, again.name) == ("branch", ref.name)


@given(
    st.sampled_from(["npm", "pip", "cargo", "gem", "go", "poetry", "uv", "yarn"]),
    st.lists(
        st.sampled_from(["a", "B", "-", "_", ".", "1", "==", "@", "[x]", " ", "~=", "*"]),
        min_size=1,
        max_size=6,
    ).map("".join),
)
def test_a_canonical_package_is_its_own_canonical_form(manager: str, text: str) -> None:
    folded = folded_spec(manager, text)
    assert folded_spec(manager, folded) == folded
