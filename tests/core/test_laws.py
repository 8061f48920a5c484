"""The laws of the engine, searched by Hypothesis: what must hold for every policy and every action."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Exec, FileChange, Git, Network, Packages, Proposal, fingerprint
from supervisor.core.check import answer_line
from supervisor.core.git_refs import refs_of
from supervisor.core.hosts import canonical_host
from supervisor.core.packages import folded_spec
from supervisor.core.paths import canonical, fold
from supervisor.core.policy_text import entry_of, merge, parse_policy, parse_rule, policy_from_data
from supervisor.core.rules import Policy, Verdict, evaluate
from supervisor.core.shell import parse
from supervisor.core.suggest import Candidate, suggest
from supervisor.core.urls import normalise_path
from supervisor.core.verdicts import STRICTNESS
from supervisor.errors import PolicyError
from tests.fakes.naive_rules import naive_verdict
from tests.fakes.shell_scripts import insert, random_script

NOW = 1_790_000_000.0
EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")

# -- small worlds, in which rules and actions meet often ---------------------------------------------------------------------
SEGMENT = st.sampled_from(["a", "b", "src", "x.py", "y.md", "A", "café", "cafe\u0301"])
PATHS = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
GLOBS = st.lists(st.sampled_from(["a", "b", "src", "*", "**", "*.py", "?", "[ab]", "x*"]), min_size=1, max_size=4).map(
    "/".join
)
HOSTS = st.sampled_from(["a.example.com", "b.example.com", "x.a.example.com", "example.com", "other.example.net"])
HOST_PATTERNS = st.sampled_from(
    ["a.example.com", "*.example.com", "*.a.example.com", "example.com", "b.example.com:8443", "other.example.net",
     "GET https://a.example.com/a/**", "GET,POST https://*.example.com/*", "* https://b.example.com/a/b", "192.0.2.0/24"]
)  # fmt: skip
GIT_PATTERNS = st.sampled_from(
    ["main", "feature/*", "push origin feature/*", "push main", "push --force *", "push --delete *", "*", "push origin *",
     "fetch origin", "push origin HEAD:main", "push --mirror *", "push *"]
)  # fmt: skip
PACKAGE_PATTERNS = st.sampled_from(
    [
        "npm:zod",
        "npm install zod@1",
        "npm install *",
        "npm:*",
        "*",
        "pip:requests",
        "npm ci",
        "npm:@team/*",
        "* install zod",
    ]
)
EXEC_PATTERNS = st.sampled_from(
    ["git log *", "ls *", "*", "rm *", "git *", "pytest", "pytest *", "echo *", "cat *", "* --force *", "rm -rf *", "bash -c *", "xargs *", "find *",
     "timeout *", "sudo *", "cat src/*", "ls src", "git push *", "evil --now", "e* *", "sh -c 'evil --now'", "env *"]
)  # fmt: skip
COMMANDS = st.sampled_from(
    ["git log", "ls; rm x", "rm x", "rm -fr x", "git log $(id)", "pytest | ls", "ls &&", "'", "timeout 5 pytest -q", "sudo rm -rf /", "ls src",
     "bash -c 'ls; evil --now'", "find . -exec cat {} \\;", "ls | xargs rm", "cat src/$X", "git -C src push --force origin main", "ls\x00; evil --now",
     "cat <<E\n$(evil --now)\nE", "env A=1 evil --now", "ls > x", "cd src && ls", "cd / && ls", "echo a\nevil --now", "evil --now", "sh -c 'evil --now'"]
)  # fmt: skip
SCRIPTS = st.randoms(use_true_random=False).map(lambda random: script_text(random))
PATTERNS = {
    "filesystem": GLOBS,
    "network": HOST_PATTERNS,
    "git": GIT_PATTERNS,
    "packages": PACKAGE_PATTERNS,
    "exec": EXEC_PATTERNS,
}
RULES = st.sampled_from(sorted(PATTERNS)).flatmap(
    lambda category: PATTERNS[category].map(lambda pattern: f"{category}({pattern})")
)
LISTS = st.fixed_dictionaries({effect: st.lists(RULES, max_size=4) for effect in EFFECTS})
MODES = st.fixed_dictionaries(
    {
        "filesystem": st.sampled_from(EFFECTS),
        "network": st.sampled_from(EFFECTS),
        "git": st.sampled_from(EFFECTS),
        "packages": st.sampled_from(["ask", "deny"]),
        "exec": st.sampled_from(["ask", "deny"]),
    }
)
WORDS = st.lists(
    st.sampled_from(["push", "origin", "feature/x", "main", "-f", "+main", "HEAD:main", ":x", "--delete", "HEAD", "evil", "fetch", "--",
                     "tag", "v1", "--mirror", "-u", "refs/heads/main", "-c", "a=b", ";", "feature/*"]), max_size=6
)  # fmt: skip
PACKAGE_WORDS = st.lists(
    st.sampled_from(["install", "zod", "zod@1", "requests", "--registry=x", "-D", "@team/ui", "ci", "./x", "git+https://x", "-r",
                     "requirements.txt", "add", "--", ";", "npm:zod"]), max_size=5
)  # fmt: skip
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(FileChange, operation=st.sampled_from(["write", "delete", "rename", "mkdir"]), path=PATHS, to=st.none() | PATHS),
    st.builds(
        Network, operation=st.just("request"), host=HOSTS, port=st.sampled_from([80, 443, 8443]), scheme=st.just("https"),
        method=st.sampled_from(["GET", "POST", "get"]), path=st.sampled_from(["/", "/a", "/a/b", "/a/../b", "/a%2fb", "/a//b", "/A/b"]),
        resolved=st.sampled_from([(), ("93.184.216.34",), ("192.0.2.1",), ("10.0.0.1",)]),
    ),
    st.builds(Network, operation=st.just("connect"), host=HOSTS, port=st.sampled_from([80, 443, 8443])),
    WORDS.map(lambda words: Git(operation="", command=" ".join(["git", *words]))),
    st.tuples(st.sampled_from(["npm", "pip", "yarn"]), PACKAGE_WORDS).map(
        lambda both: Packages(manager="", operation="", command=" ".join([both[0], *both[1]]))
    ),
    (COMMANDS | SCRIPTS).map(lambda text: Exec(command=text)),
)  # fmt: skip


def script_text(random: Any) -> str:
    """A script of allowed commands, every other time with one that isn't."""
    script = random_script(random, depth=2)
    if random.random() < 0.5:
        insert(random, script)
    return script.render()


def policy_of(lists: dict[str, Any], modes: dict[str, str]) -> Policy | None:
    """The policy, None where it is refused (a public suffix, say)."""
    try:
        return policy_from_data({**lists, "modes": modes})
    except PolicyError:
        return None


def judge(policy: Policy, action: Action) -> Verdict:
    return evaluate(policy, action, now=NOW)


@given(LISTS, MODES, RULES, ACTIONS)
def test_adding_a_deny_rule_never_loosens(
    lists: dict[str, Any], modes: dict[str, str], rule: str, action: Action
) -> None:
    before = policy_of(lists, modes)
    after = policy_of({**lists, "deny": [*lists["deny"], rule]}, modes)
    assert before is not None
    assert after is not None
    assert STRICTNESS[judge(after, action).decision] >= STRICTNESS[judge(before, action).decision]


@given(LISTS, MODES, RULES, ACTIONS)
def test_adding_an_ask_rule_turns_no_deny_rule_and_no_ask_into_an_allow(
    lists: dict[str, Any], modes: dict[str, str], rule: str, action: Action
) -> None:
    before = policy_of(lists, modes)
    after = policy_of({**lists, "ask": [*lists["ask"], rule]}, modes)
    assert before is not None
    assert after is not None
    first, second = judge(before, action), judge(after, action)
    assert not (second.decision == "allow" and first.decision != "allow")
    assert not (first.decision == "deny" and first.rule and second.decision != "deny")


@given(LISTS, MODES, ACTIONS, st.randoms(use_true_random=False))
def test_the_order_of_rules_never_matters(
    lists: dict[str, Any], modes: dict[str, str], action: Action, random: Any
) -> None:
    shuffled = {effect: random.sample(rules, len(rules)) for effect, rules in lists.items()}
    one, two = policy_of(lists, modes), policy_of(shuffled, modes)
    assert one is not None
    assert two is not None
    assert judge(one, action) == judge(two, action)


@given(LISTS, LISTS, MODES, ACTIONS)
def test_merging_is_the_same_in_any_order(
    one: dict[str, Any], two: dict[str, Any], modes: dict[str, str], action: Action
) -> None:
    first, second = policy_of(one, modes), policy_of(two, {})
    assert first is not None
    assert second is not None
    assert judge(merge(first, second), action) == judge(merge(second, first), action)


@given(ACTIONS, MODES)
def test_a_bare_rule_never_allows_a_command_or_a_package(action: Action, modes: dict[str, str]) -> None:
    bare = [f"{category}({text})" for category in ("exec", "packages") for text in ("*", "**", "* *")]
    policy = policy_of({"allow": bare}, modes)
    assert policy is not None
    assert len(policy.warnings) == len(bare)
    if isinstance(action, Exec | Packages):
        assert judge(policy, action).decision != "allow"


@given(LISTS, MODES, ACTIONS)
def test_a_verdict_says_why_and_names_its_rules(lists: dict[str, Any], modes: dict[str, str], action: Action) -> None:
    policy = policy_of(lists, modes)
    assert policy is not None
    verdict = judge(policy, action)
    assert verdict.why
    assert "\n" not in verdict.why
    assert (verdict.rule is None) == (not verdict.rules)
    assert verdict.rule is None or verdict.rule in verdict.rules
    assert set(verdict.rules) <= {rule.text for rule in policy.rules}
    assert verdict.remedy or verdict.decision != "deny" or verdict.rule is None
    assert verdict.decision != "deny" or "could not be evaluated" not in verdict.why


@given(ACTIONS)
def test_every_suggestion_parses_matches_and_isn_t_bare(action: Action) -> None:
    found = suggest(action)
    assert len(found) <= 3
    assert [one.default for one in found] == [True, *[False] * (len(found) - 1)][: len(found)]
    for candidate in found:
        assert parse_rule(candidate.rule, "allow")
        policy = policy_from_data({"allow": [candidate.rule]})
        assert not policy.warnings
        assert (
            evaluate(policy, action, now=NOW, configured_remotes=frozenset({"origin", "evil", "main"})).decision
            == "allow"
        )


def reach(candidate: Candidate, of: Action, other: Action) -> bool:
    """Whether another action is within what the label of a candidate says."""
    match of, other:
        case FileChange(), FileChange():
            mine, its = canonical(of.path).text, canonical(other.path).text
            folder = mine.rpartition("/")[0]
            within = {
                "exact": its == mine,
                "narrow": its.rpartition("/")[0] == folder,
                "broad": f"{its}/".startswith(f"{folder}/"),
            }
            return within[candidate.label] and (
                other.to is None or candidate.label != "exact" or canonical(other.to).text == mine
            )
        case Network(), Network():
            mine, its = canonical_host(of.host), canonical_host(other.host)
            return its == mine or (candidate.label == "broad" and its.endswith("." + ".".join(mine.split(".")[-2:])))
        case Exec(), Exec():
            # Of an exact command only other spellings of the same words.
            listed = [
                [[word.text for word in c.words] for c in parse(action.command).commands if c.words[0].text != "cd"]
                for action in (of, other)
            ]
            words = 3 if candidate.rule.startswith("exec(git") else 1
            return (
                listed[0] == listed[1]
                if candidate.label == "exact"
                else all(c[: words - 1] == listed[0][0][: words - 1] for c in listed[1])
            )
        case (Git(), Git()) | (Packages(), Packages()):
            return True
    return False


@given(ACTIONS, ACTIONS)
def test_a_suggestion_is_no_wider_than_its_label_says(action: Action, other: Action) -> None:
    for candidate in suggest(action):
        policy = policy_from_data({"allow": [candidate.rule]})
        if judge(policy, other).rule == candidate.rule and judge(policy, other).decision == "allow":
            assert reach(candidate, action, other), (candidate, other)


# -- the second evaluator -----------------------------------------------------------------------------------------------------
# More rules than an index looks through one by one, in every shape that it tells apart: by folder, by ending, by a name inside.
PLAIN_PATHS = st.lists(
    st.sampled_from(["a", "b", "src", "x.py", "y.md", "ab", "SRC", "X.py", ".z", "b.tar.gz"]), min_size=1, max_size=5
).map("/".join)
NAIVE_GLOBS = st.lists(
    st.sampled_from(["a", "b", "src", "SRC", "x.py", ".z", "*", "**", "**", "*.py", "*.gz", "?", "[ab]", "[!a]*", "x*", "*b*", "s*c", "b.*.gz"]),
    min_size=1, max_size=5,
).map("/".join)  # fmt: skip
NAIVE_HOSTS = st.one_of(
    HOST_PATTERNS.filter(lambda text: text[-1] != "4"),
    st.builds(
        "{}{}{}".format, st.sampled_from(["", "*."]), st.sampled_from(["", "a.", "b.", "x.a."]), st.sampled_from(["example.com", "other.example.net"])
    ),
    st.builds("{} https://{}/{}".format, st.sampled_from(["GET", "POST", "*", "GET,POST"]), HOSTS, st.sampled_from(["**", "a/*", "a", "a/b", "*/b", "a/**/c"])),
    st.builds("{}:{}".format, HOSTS, st.sampled_from([443, 80, 8443])),
)  # fmt: skip
PATTERN_LISTS = {
    "filesystem": st.fixed_dictionaries({effect: st.lists(NAIVE_GLOBS, max_size=40) for effect in EFFECTS}),
    "network": st.fixed_dictionaries({effect: st.lists(NAIVE_HOSTS, max_size=30) for effect in EFFECTS}),
}


def as_rules(category: str, lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {effect: [f"{category}({one})" for one in patterns] for effect, patterns in lists.items()}


@given(PATTERN_LISTS["filesystem"], st.sampled_from(EFFECTS), PLAIN_PATHS)
def test_a_naive_evaluator_agrees_on_files(lists: dict[str, list[str]], mode: Effect, path: str) -> None:
    policy = policy_of(as_rules("filesystem", lists), {"filesystem": mode})
    assert policy is not None
    verdict = judge(policy, FileChange(operation="write", path=path))
    assert verdict.decision == naive_verdict("filesystem", lists, mode, path), verdict


@given(
    PATTERN_LISTS["network"], st.sampled_from(EFFECTS), HOSTS, st.sampled_from([80, 443, 8443]),
    st.sampled_from([(None, None), ("GET", "/a/b"), ("POST", "/a"), ("GET", "/"), ("POST", "/a/b/c")]),
)  # fmt: skip
def test_a_naive_evaluator_agrees_on_hosts(
    lists: dict[str, list[str]], mode: Effect, host: str, port: int, request: tuple[str | None, str | None]
) -> None:
    policy = policy_of(as_rules("network", lists), {"network": mode})
    assert policy is not None
    method, path = request
    if method is None:
        action = Network(operation="connect", host=host, port=port)
    else:
        action = Network(operation="request", host=host, port=port, scheme="https", method=method, path=path)
    verdict = judge(policy, action)
    assert verdict.decision == naive_verdict("network", lists, mode, (host, port, method, path)), verdict


# -- nothing raises -----------------------------------------------------------------------------------------------------------
ANY = st.text(max_size=30) | st.sampled_from(
    ["\x00", "..", "%2f", "[::1", "git~1", "\ud800", "xn--", "1.2.3.4.5", "a" * 300]
)
WILD_ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        FileChange,
        operation=st.sampled_from(["write", "rename", "symlink", "chmod"]),
        path=ANY,
        to=st.none() | ANY,
        path_b64=st.none() | ANY,
        link_target=st.none() | ANY,
        mode=st.none() | st.integers(),
        hazards=st.lists(ANY, max_size=2).map(tuple),
    ),
    st.builds(
        Network,
        operation=st.sampled_from(["connect", "request"]),
        host=ANY,
        port=st.integers(),
        scheme=st.sampled_from(["https", "tcp"]),
        method=st.none() | ANY,
        path=st.none() | ANY,
        sni=st.none() | ANY,
        host_header=st.none() | ANY,
        resolved=st.lists(ANY, max_size=2).map(tuple),
    ),
    st.builds(Git, operation=ANY, remote=st.none() | ANY, refspecs=st.lists(ANY, max_size=2).map(tuple), flags=st.lists(ANY, max_size=2).map(tuple)),
    ANY.map(lambda text: Git(operation="", command=f"git push {text}")),
    st.builds(Packages, manager=ANY, operation=ANY, names=st.lists(ANY, max_size=2).map(tuple), flags=st.lists(ANY, max_size=2).map(tuple)),
    ANY.map(lambda text: Packages(manager="", operation="", command=f"pip install {text}")),
    ANY.map(lambda text: Exec(command=text, cwd=text)),
    st.builds(Proposal, effect=st.sampled_from(EFFECTS), rule=ANY),
)  # fmt: skip
WIDE = policy_from_data(
    {
        "allow": ["filesystem(**)", "network(*.example.com)", "git(*)", "packages(npm:*)", "exec(ls *)"],
        "ask": ["filesystem(x/**/*.py)", "git(push --force *)"],
        "deny": ["network(*.evil.net)", "packages(npm:evil)", "filesystem(**/secret*)", "git(main)"],
    }
)


@given(WILD_ACTIONS)
def test_no_action_raises(action: Action) -> None:
    for policy in (WIDE, Policy()):
        verdict = judge(policy, action)
        assert verdict.decision in EFFECTS
        assert verdict.why
        assert "could not be evaluated" not in verdict.why, verdict
    suggest(action)


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
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
def test_no_rule_raises_anything_but_a_policy_error(category: str, pattern: str, effect: Effect) -> None:
    try:
        rule = parse_rule(f"{category}({pattern})", effect)
    except PolicyError:
        return
    again = policy_from_data({effect: [entry_of(rule)]}).rules[0]
    assert (again.text, again.id, again.pattern) == (rule.text, rule.id, rule.pattern)


# -- canonical forms ----------------------------------------------------------------------------------------------------------
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
    st.sampled_from(["a", "..", ".", "%2e", "%2E%2e", "%41", "%2f", "%25", "%252e", "%", "%c3%a9", "\u00e9", "b;c", "a b", "\\", "", "*", "%00", "?q=../x", "#f"]),
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
        st.sampled_from(["refs/heads/", "refs/tags/", "heads/", "feature/", "a", "+", ":", "HEAD", "/", ".", "-", "b"]),
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
        st.sampled_from(["a", "B", "-", "_", ".", "1", "==", "@", "[x]", " ", "~=", "*"]), min_size=1, max_size=6
    ).map("".join),
)
def test_a_canonical_package_is_its_own_canonical_form(manager: str, text: str) -> None:
    folded = folded_spec(manager, text)
    assert folded_spec(manager, folded) == folded


def effect_of(action: Action) -> Action:
    """What would take effect: `fingerprint` leaves out where a name led to, which is judged anew each time."""
    return replace(action, resolved=()) if isinstance(action, Network) else action


@given(ACTIONS | WILD_ACTIONS, ACTIONS | WILD_ACTIONS)
def test_unequal_actions_never_share_a_fingerprint(one: Action, two: Action) -> None:
    try:
        marks = (fingerprint(one), fingerprint(two))
    except (UnicodeEncodeError, OverflowError):  # lone surrogates and huge numbers never get past the wire
        return
    assert (marks[0] == marks[1]) == (effect_of(one) == effect_of(two))


@pytest.mark.parametrize("category", ["exec", "filesystem", "network", "git", "packages"])
def test_a_broken_judge_denies(category: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: an exception inside is a denial with a why, never an allow."""
    actions: dict[str, Action] = {
        "exec": Exec(command="ls"),
        "filesystem": FileChange(operation="write", path="a"),
        "network": Network(operation="connect", host="a.example.com", port=443),
        "git": Git(operation="push"),
        "packages": Packages(manager="npm", operation="install"),
    }
    policy = policy_from_data({"modes": {"filesystem": "allow"}})

    class Broken:
        def judge(self, *_: object) -> Verdict:
            raise RuntimeError

    policy._judges[category] = Broken()  # type: ignore[index]
    assert judge(policy, actions[category]).decision == "deny"
