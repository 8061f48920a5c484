"""Policy text: what is read, and that every mistake is named with file, line and a remedy."""

import pytest

from supervisor.core.policy.policy_text import (
    check_pattern,
    entry_of,
    merge,
    parse_policy,
    parse_rule,
    policy_from_data,
)
from supervisor.errors import PolicyError
from tests.tables import each_row

FULL = """\
version: 1
modes: {exec: ask, network: deny}
allow:
  - exec(git status)
  - rule: network(*.packages.example.org)
    why: the team's package index
    expires: 2027-01-31
    except: [network(upload.packages.example.org), other.packages.example.org]
    match: [files.packages.example.org]
    not_match: [packages.example.org.evil.net]
    added_by: anna
    added_at: 1790000000.5
    id: abc
ask:
  - git(push main)
deny:
  - {rule: network(*.datadoghq.com), why: no telemetry}
  - network
"""


def test_a_whole_file() -> None:
    policy = parse_policy(FULL, "p.yaml")
    status, index, main, dog, everything = policy.rules
    assert (status.effect, status.category, status.pattern, status.line) == (
        "allow",
        "exec",
        "git status",
        4,
    )
    assert (index.why, index.id, index.added_by, index.added_at) == (
        "the team's package index",
        "abc",
        "anna",
        1790000000.5,
    )
    assert index.exceptions == ("upload.packages.example.org", "other.packages.example.org")
    assert index.expires_at == 1801353600.0
    assert (index.line, main.line, dog.line) == (5, 15, 17)
    assert everything.text == "network(*)"
    assert policy.mode_of("network") == "deny"
    assert policy.mode_of("git") == "ask"
    assert policy.of("network", "allow") == (index,)


@pytest.mark.parametrize(
    "text", ["", "version: 1\n", "allow:\n", "allow: []\ndeny:\n", "# nothing\n", "--- \n"]
)
def test_a_policy_without_rules(text: str) -> None:
    assert parse_policy(text, "p").rules == ()


@each_row(
    ("text", "where", "what"),
    [
        ("alow: []", "1", "did you mean `allow`"),
        ("version: 2", "1", "version"),
        ("version: 1\nmodes: {netwrk: ask}", "2", "did you mean `network`"),
        ("modes: {network: alow}", "1", "did you mean `allow`"),
        ("modes: {exec: allow}", "1", "can't have the mode `allow`"),
        ("modes: {packages: allow}", "1", "can't have the mode `allow`"),
        ("modes: [ask]", "1", "not a mapping"),
        ("allow: exec(ls)", "1", "not a list"),
        ("- exec(ls)", "1", "mapping"),
        ("allow:\n  - exec(ls)\n  - netwrk(a.example.org)", "3", "did you mean `network`"),
        ("deny:\n  - '*.datadoghq.com'", "2", "did you mean `network(*.datadoghq.com)`"),
        ("deny:\n  - git push --force", "2", "`git(pattern)`"),
        ("deny:\n  - rm -rf *", "2", "did you mean `exec(rm -rf *)`"),
        ("allow:\n  - Bash(npm run test)", "2", "write `exec(...)`"),
        ("allow:\n  - sandbox(x)", "2", "unknown category"),
        ("allow:\n  - exec(ls", "2", "doesn't parse"),
        ("allow:\n  - exec()", "2", "empty pattern"),
        ("allow:\n  - exec(ls) extra", "2", "doesn't parse"),
        ("allow:\n  - 17", "2", "no category"),
        ("allow:\n  - [exec(ls)]", "2", "neither a rule nor a mapping"),
        ("allow:\n  - {why: x}", "2", "without a `rule`"),
        ("allow:\n  - {rule: exec(ls), becuse: x}", "2", "unknown key `becuse`"),
        ("allow:\n  - {rule: exec(ls), expires: soon}", "2", "neither a date"),
        ("allow:\n  - {rule: exec(ls), uses: many}", "2", "not a number"),
        ("deny:\n  - {rule: exec(ls), uses: 3}", "2", "use `expires`"),
        ("allow:\n  - {rule: exec(ls), why: [x]}", "2", "not text"),
        ("allow:\n  - {rule: exec(ls), except: exec(ls)}", "2", "not a list"),
        ("allow:\n  - {rule: exec(ls), except: [[x]]}", "2", "not text"),
        ("allow:\n  - {rule: exec(ls *), except: [git(x)]}", "2", "another category"),
        ("allow:\n  - network(*.com)", "2", "public suffix"),
        ("allow:\n  - network(*.co.uk)", "2", "public suffix"),
        ("allow:\n  - network(*.github.io)", "2", "public suffix"),
        ("allow:\n  - network(*)", "2", "every host"),
        ("allow:\n  - network", "2", "every host"),
        ("allow:\n  - network(* https://*/x)", "2", "every host"),
        ("allow:\n  - network(0.0.0.0/0)", "2", "every host"),
        ("allow:\n  - network(a_b.example.com)", "2", "not a valid host name"),
        ("allow:\n  - network(.example.com)", "2", "network(*.example.com)"),
        ("allow:\n  - network(a*.example.com)", "2", "wildcard inside"),
        ("allow:\n  - network(GTE https://a.example.com/**)", "2", ""),
        ("allow:\n  - network(G@T https://a.example.com/**)", "2", "neither a host nor a URL"),
        ("allow:\n  - network(GET https://a.example.com)", "2", "names no path"),
        ("allow:\n  - network(GET https://a.example.com/x?y=1)", "2", "names a query"),
        ("allow:\n  - network(GET https://a.example.com/a/../b)", "2", "dot or empty segments"),
        ("allow:\n  - network(GET https://a.example.com/a%2fb)", "2", "encoded slash"),
        ("allow:\n  - network(GET ftp://a.example.com/**)", "2", "unknown scheme"),
        ("allow:\n  - network(a.example.com:99999)", "2", "not a port"),
        ("allow:\n  - network(10.0.0.0/99)", "2", "not an address"),
        ("allow:\n  - filesystem(/etc/**)", "2", "not below the workspace"),
        ("allow:\n  - filesystem(src/)", "2", "ends in a slash"),
        ("deny:\n  - filesystem(**.env)", "2", "did you mean `**/*.env`"),
        ("allow:\n  - git(git push)", "2", "names git twice"),
        ("allow:\n  - git(push origin a b)", "2", "more than one ref"),
        ("allow:\n  - git(push; id)", "2", "a shell would act on"),
        ("allow:\n  - packages(apt install x)", "2", "unknown package manager"),
        ("allow:\n  - packages(npm instal2 x)", "2", "unknown operation"),
        ("allow:\n  - packages(npm install a b)", "2", "more than one package"),
        ("allow:\n  - packages(npm)", "2", "names no operation"),
        (
            "allow:\n  - {rule: filesystem(src/*), match: [src/a/b]}",
            "2",
            "doesn't match its `match` example `src/a/b`",
        ),
        (
            "allow:\n  - {rule: filesystem(src/*), not_match: [src/a]}",
            "2",
            "matches its `not_match` example `src/a`",
        ),
        ("allow:\n  - {rule: exec(git log *), match: [git logout]}", "2", "doesn't match"),
        (
            "deny:\n  - {rule: 'git(push main)', not_match: ['git push origin HEAD:main']}",
            "2",
            "matches",
        ),
        (
            "allow:\n  - {rule: network(a.example.com), match: ['u@a.example.com']}",
            "",
            "names a user",
        ),
        ("protected: [x]", "1", "not a mapping"),
        ("protected: {aks: [x]}", "1", "did you mean `ask`"),
        ("protected: {ask: [[x]]}", "1", "not a name"),
        ("protected: {ask: [{name: x, y: z}]}", "1", "unknown key"),
        ("protected: {ask: [../x]}", "1", "holds `..`"),
        ("unprotected: [.git/**]", "1", "can't be unprotected"),
        ("unprotected: [.vscod/**]", "1", "did you mean `.vscode/**`"),
        ("allow: [\n", "", ""),
        ("allow:\n\t- x", "2", ""),
        ("allow: &a [*a]", "1", "alias"),
        ("allow: []\nallow: []", "2", "stands here twice"),
        ("{[a]: b}", "1", "not text"),
        ("a: " * 30, "1", ""),
        ("\x00", "", ""),
    ],
)
def test_a_mistake_is_named_with_its_line_and_a_remedy(text: str, where: str, what: str) -> None:
    if what == "" and "GTE" in text:
        parse_policy(text, "p.yaml")  # methods that nobody registered are methods too
        return
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, "p.yaml")
    assert str(refused.value).startswith(
        f"p.yaml:{where}:" if where and what else "p.yaml" if "user" not in what else "the example"
    )
    assert what in str(refused.value)
    assert refused.value.remedy
    assert not refused.value.message.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "exec(ls\u200b)",
        "exec(ls\u202e)",
        "filesystem(a\x07)",
        "git(main\n)",
        "exec(" + "a" * 5000 + ")",
        "network(\ud800)",
    ],
)
def test_a_rule_with_something_hidden_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "exec",
        "exec(*)",
        "exec(**)",
        "exec(* *)",
        "packages",
        "packages(*)",
        "packages(* * *)",
        "packages(*:*)",
    ],
)
def test_a_bare_rule_is_kept_with_a_warning(text: str) -> None:
    policy = parse_policy(f"allow:\n  - {text}\n", "p.yaml")
    assert len(policy.rules) == 1
    assert len(policy.warnings) == 1
    assert policy.warnings[0].startswith("p.yaml:2: ")
    assert "allows nothing" in policy.warnings[0]
    assert parse_policy(f"deny:\n  - {text}\n", "p.yaml").warnings == ()


def test_a_rule_for_metadata_is_kept_with_a_warning() -> None:
    assert "never matches" in parse_policy("allow: ['network(169.254.169.254)']", "p").warnings[0]


def test_values_stay_text() -> None:
    policy = parse_policy("allow:\n  - {rule: exec(ls), why: no, id: 007}\n", "p")
    assert (policy.rules[0].why, policy.rules[0].id) == ("no", "007")


def test_an_id_is_the_same_for_the_same_rule() -> None:
    one, two = parse_rule("exec(ls)", "allow"), parse_rule("exec(ls)", "allow")
    assert one.id == two.id
    assert one.id != parse_rule("exec(ls)", "deny").id


@pytest.mark.parametrize(
    "entry",
    [
        "exec(git status)",
        {"rule": "exec(git status)", "why": "x", "id": "abc"},
        {
            "rule": "network(a.example.com)",
            "expires": "2027-01-31T00:00:00+00:00",
            "except": ["a.example.com:80"],
        },
        {
            "rule": "network(a.example.com)",
            "expires": "session",
            "match": ["a.example.com"],
            "not_match": ["b.example.com"],
        },
        {
            "rule": "network(a.example.com)",
            "uses": 3,
            "session": "s",
            "added_by": "me",
            "added_at": 5.0,
        },
    ],
)
def test_a_rule_is_written_as_it_was_read(entry: object) -> None:
    rule = policy_from_data({"allow": [entry]}).rules[0]
    assert entry_of(rule) == entry
    assert policy_from_data({"allow": [entry_of(rule)]}).rules[0] == rule


@pytest.mark.parametrize(
    ("rule", "example"),
    [
        ("git(feature/*)", "feature/x"),
        ("git(push feature/*)", "push feature/x"),
        ("git(push origin feature/*)", "push origin feature/x"),
        ("packages(npm:left-pad)", "npm:left-pad"),
        ("packages(npm:@scope/*)", "npm:@scope/x"),
        ("packages(cargo:serde)", "cargo:serde"),
        ("packages(npm install left-pad@1)", "npm install left-pad@1"),
    ],
)
def test_an_example_may_be_written_as_a_rule_names_its_subject(rule: str, example: str) -> None:
    assert policy_from_data({"allow": [{"rule": rule, "match": [example]}]}).rules
    with pytest.raises(PolicyError, match="matches its `not_match` example"):
        policy_from_data({"allow": [{"rule": rule, "not_match": [example]}]})


def test_an_error_names_its_place_once() -> None:
    text = "allow:\n  - {rule: exec(git *), except: [network(a.example.com)]}"
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "p.yaml")
    assert str(error.value).count("p.yaml:2") == 1


def test_added_at_may_be_a_date() -> None:
    assert (
        policy_from_data({"allow": [{"rule": "exec(ls)", "added_at": "2027-01-31"}]})
        .rules[0]
        .added_at
        == 1801353600.0
    )


def test_nothing_can_be_said_of_proposals() -> None:
    with pytest.raises(PolicyError):
        check_pattern("sandbox", "x", "allow")


def test_how_long_connections_are_held() -> None:
    assert parse_policy("version: 1\n", "p").hold_s is None
    two, three = parse_policy("hold: 2m\n", "p"), parse_policy("hold: 3m\n", "q")
    assert (two.hold_s, merge(three, two).hold_s, merge(two, parse_policy("", "r")).hold_s) == (
        120,
        120,
        120,
    )
    for bad in ("soon", "0", "2h", "[1]"):
        with pytest.raises(PolicyError, match=r"p:2: .*hold"):
            parse_policy(f"version: 1\nhold: {bad}\n", "p")
