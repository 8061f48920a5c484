"""An index of rules never hands out too little: with hundreds of rules every verdict is the one
of each rule alone."""

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from supervisor.core.actions import Action, Effect, Exec, FileChange, Network
from supervisor.core.packages.package_commands import parse_command as package
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.git_refs import parse_command as git
from supervisor.core.policy.network_patterns import parse, spellings, target_of
from supervisor.core.policy.network_rules import NetworkJudge
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.text.prefixes import MAX_PREFIX_CHARS, Prefixes
from supervisor.core.text.urls import normalise_path
from supervisor.errors import PolicyError
from tests.fakes.ruled import NOW, ruled
from tests.tables import each_row

LONG = "a" * (MAX_PREFIX_CHARS + 5)


def test_everything_that_could_match_is_handed_out_once() -> None:
    assert Prefixes[str]([]).starting(["anything"]) == []
    index = Prefixes(
        (prefix, f"<{prefix}>") for prefix in ("xyz", "ab", "", "abcd", LONG, "a", "abc", "b")
    )
    assert set(index.starting(["abcde"])) == {"<>", "<a>", "<ab>", "<abc>", "<abcd>"}
    assert set(index.starting(["a"])) == {"<>", "<a>"}
    assert index.starting(["zzz"]) == ["<>"]
    # Two texts that start alike: none twice.
    assert sorted(index.starting(["abx", "aby"])) == ["<>", "<a>", "<ab>"]
    # A long beginning is cut, so it is handed out for more than it matches, never for less.
    assert f"<{LONG}>" in index.starting([LONG])
    assert f"<{LONG}>" in index.starting(["a" * MAX_PREFIX_CHARS])


@given(st.lists(st.text("ab", max_size=6)), st.lists(st.text("abc", max_size=8), max_size=4))
def test_it_hands_out_what_a_comparison_one_by_one_finds(
    prefixes: list[str], texts: list[str]
) -> None:
    found = Prefixes((prefix, number) for number, prefix in enumerate(prefixes)).starting(texts)
    assert sorted(found) == [
        number
        for number, prefix in enumerate(prefixes)
        if not prefix or any(text.startswith(prefix) for text in texts)
    ]


def request(path: str) -> Network:
    return Network(
        operation="request", host="a.example.com", port=443, scheme="https", method="GET", path=path
    )


FEW_OF_EACH = {
    "exec": ["git log *", "git log -3", "git lo*", "git * -3", "git push --force *", "git -*",
    "git *", "g*t log *", "git", "git 'log' x"],
    "filesystem": ["src/*", "src/*.py", "src/a*", "src/**/x/**", "src/b?", "src/[ab]*", "src/**",
    "**/x", "src/**/*.py", "src/aa/*.py"],
    "network": [
        f"{methods} https://{host}/{path}"
        for methods in ("GET", "*")
        for host in ("a.example.com", "*.example.com")
        for path in ("a/**", "a/b", "*/b", "**", "a*/b", "ae*", "stra\u00dfe/**", "\ufb01le/**",
        "a\u030a/*")
    ] + ["a.example.com"],  # whole, beside its paths
    "git": ["main", "feature/*", "push origin feature/*", "push origin *", "push --force *", "push",
    "fetch origin", "push origin a:b", "*", "tag v*"],
    "packages": ["npm:zod", "npm:z*", "npm install zod@4", "npm install *", "npm:@team/*",
    "pip:requests", "npm ci", "* install zod", "npm install -D zod"],
}  # fmt: skip
ACTIONS: dict[str, list[Action]] = {
    "exec": [Exec(command=text) for text in (
        "git log -3", "git log", "git lop", "git", "git push -f x", "git -c a=b log", 'git "$X" -3',
        "git log x", "git status", "/x/git log -3")],
    "filesystem": [FileChange(operation="write", path=path) for path in (
        "src/a.py", "src/b1", "src/y/x/z.py", "src/aa/b.py", "x", "a/x", "SRC/A.PY", "src/c/d",
        "other/a.py", "src/x")],
    "network": [request(path) for path in (
        "/a/b", "/a/c", "/x/b", "/ab/b", "/A/b", "/x/..;/a/b", "//a/b", "/", "/a%CC%8A/x",
        "/%C3%85/x", "/AE%CC%81", "/STRASSE/x", "/stra%C3%9Fe/x",
        "/file/x", "/%EF%AC%81LE/x", "/x//%2e%2e/A/b", "/ae%252f")],
    "git": [git(f"git {text}") for text in (
        "push origin main", "push origin feature/a", "push -f origin x", "push", "fetch origin",
        "push origin a:b", "tag v1", "push origin :main")],
    "packages": [package(text) for text in (
        "npm install zod", "npm install zod@4", "npm install ZOD", "npm install @team/a", "npm ci",
        "npm install -D zod", "pip install requests", "cargo add zod")],
}  # fmt: skip


@each_row("effect", ["allow", "ask", "deny"])
@each_row("category", FEW_OF_EACH)
def test_a_crowd_of_rules_answers_as_each_rule_alone(category: str, effect: str) -> None:
    filler = {
        "exec": [f"git other{n} *" for n in range(40)] + [f"git *x{n}" for n in range(10)],
        "filesystem": [f"src/other{n}*.py" for n in range(40)]
        + [f"src/other{n}/**/y" for n in range(40)],
        "network": [
            f"GET https://{host}/other{n}/**"
            for n in range(40)
            for host in ("a.example.com", "*.example.com")
        ],
        "git": [f"push origin other{n}" for n in range(40)] + [f"other{n}/*" for n in range(40)],
        "packages": [f"npm:other{n}" for n in range(40)]
        + [f"npm install other{n}*" for n in range(40)],
    }[category]
    crowd = [f"{category}({pattern})" for pattern in filler]
    rules = [f"{category}({pattern})" for pattern in FEW_OF_EACH[category]]
    if effect == "allow":
        rules = [rule for rule in rules if rule != f"{category}(*)"]
    # One policy for all: its index is built by the first question, and asked by the others.
    policy = policy_from_data({effect: [*crowd, *rules]})
    for action in ACTIONS[category]:
        alone = {rule for rule in rules if rule in ruled(action, **{effect: [rule]}).rules}
        together = evaluate(policy, action, now=NOW)
        named = set(together.rules) & set(rules)
        if together.decision == effect:
            assert named == alone, (action, named ^ alone)
        else:
            assert not alone or together.decision != "allow", (action, alone, together)


@pytest.mark.parametrize("effect", ["allow", "ask", "deny"])
def test_of_a_thousand_rules_for_paths_of_one_host_few_are_compared(effect: Effect) -> None:
    """Each is compared with every spelling of a path: all of them would take milliseconds."""
    policy = policy_from_data(
        {effect: [f"network(* https://a.example.com/org{n}/repo/**)" for n in range(1000)]}
    )
    judge = NetworkJudge(policy.of("network", effect))
    for path in ("/org77/repo/x", "/ORG77/repo/x", "/org77/./repo/..%2fx"):
        target = target_of(request(path))
        found = judge._index.about(target, target.path)
        assert len(found) <= 20
        assert found or (effect == "allow" and path != "/org77/repo/x")


# What composition and case make of letters: some become others, several, or one with their
# neighbour.
LETTERS = "aAeEfFiIkKsS\u0301\u030a\u0130\u00df\u017f\u212a\ufb01\u2167\uff0a"


@given(
    st.text(LETTERS + "/*?[]", min_size=1, max_size=8),
    st.text(LETTERS + "/.%;2fe\\", max_size=12),
    st.booleans(),
)
def test_what_is_covered_broadly_starts_with_the_letters_that_the_index_goes_by(
    glob: str, path: str, is_its_own: bool
) -> None:
    try:
        pattern = parse(f"* https://a.example.com/{glob}")
    except PolicyError:
        reject()
    found = normalise_path("/" + (glob.upper() if is_its_own else path))
    target = target_of(request("/"))._replace(path=found)
    if pattern.matches(target, broad=True):
        assert any(letters.startswith(pattern.broad_start) for _, letters in spellings(found))
