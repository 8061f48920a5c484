"""What an action was understood as: the commands of a line and how they were reached, the facts
of everything else."""

import pytest

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages
from supervisor.core.lab.explain import explain
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Policy
from tests.core.lab.test_explain import NOW, connect, file, git, packages, request
from tests.tables import each_row


def parts_of(
    command: str, cwd: str = ".", **lists: list[str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    found = explain(policy_from_data(lists), Exec(command=command, cwd=cwd), now=NOW)
    return [(part.text, part.answer, part.notes) for part in found.parts]


def test_the_commands_of_a_line_and_how_they_were_reached() -> None:
    assert parts_of("timeout 5 bash -c 'cd src; ls' | xargs rm", allow=["exec(ls)"]) == [
        ("timeout 5 bash -c 'cd src; ls'", "free", ("in a pipe",
         "needs no rule: what it runs is judged")),
        ("bash -c 'cd src; ls'", "open", ("in a pipe", "run by `timeout`", "runs another command")),
        ("cd src", "free", ("in a pipe", "run by `timeout`", "in the text that `bash` runs",
         "needs no rule: it stays inside of the workspace")),
        ("ls", "allow", ("in a pipe", "run by `timeout`", "in the text that `bash` runs",
         "in src or the workspace's root")),
        ("xargs rm", "open", ("in a pipe", "runs another command")),
        ("rm ...", "open", ("in a pipe", "run by `xargs`", "not known before it runs: `...`")),
    ]  # fmt: skip


@each_row(
    ("command", "part", "note"),
    [
        ("echo $(id)", "id", "in a command substitution"),
        ("cat <(id)", "id", "in a process substitution"),
        ("f() { id; }", "id", "in a function"),
        ("(id)", "id", "in a subshell"),
        ("for x in a; do id; done", "id", "in a loop"),
        ("if true; then id; fi", "id", "in an `if`"),
        ("eval 'id'", "id", "in the text of `eval`"),
        ("bash <<'EOF'\nid\nEOF", "id", "in a text that is fed to a program"),
        ("sh -c 'sh -c id'", "id", "in the text that `sh` runs, 2 times over"),
        ("find . -exec rm {} +", "rm {}", "run by `find`"),
        ("cd ..; ls", "ls", "in the workspace's root or outside of the workspace"),
        ("cd ..; ls", "cd ..", "needs a rule: that it stays inside of the workspace can't be told"),
        ("git log --output=x", "git log --output=x", "no wildcard covers `--output=x`"),
        ("ls $X", "ls $X", "not known before it runs: `$X`"),
    ],
)
def test_how_a_command_was_reached(command: str, part: str, note: str) -> None:
    assert note in next(notes for text, _, notes in parts_of(command) if text == part)


def test_what_no_rule_may_allow_is_said_where_it_stands() -> None:
    found = explain(Policy(), Exec(command="ls | sh; echo a > b"), now=NOW)
    by_text = {part.text: part.forced for part in found.parts}
    assert by_text == {
        "ls": (),
        "sh": ("no rule may allow input that `sh` would run as a program",),
        "echo a": (),
    }
    assert found.forced[0] == "no rule may allow a redirection to a file (`> b`)"
    assert found.basis == "forced"
    assert "a person is asked each time" in found.advice


def test_what_no_rule_may_allow_is_said_once() -> None:
    found = explain(Policy(), Exec(command="echo $(id) $(id)"), now=NOW)
    assert found.forced == ("no rule may allow a command substitution (`$(id)`)",)
    twice = explain(Policy(), Exec(command="env -S 'echo $(id)' -S 'echo $(id)' x"), now=NOW).parts[
        0
    ]
    assert twice.forced.count("no rule may allow a command substitution (`$(id)`)") == 1


def test_where_a_line_runs() -> None:
    assert explain(Policy(), Exec(command="ls"), now=NOW).facts == (("in", "the workspace's root"),)
    assert explain(Policy(), Exec(command="ls", cwd="a/b"), now=NOW).facts == (("in", "a/b"),)
    assert explain(Policy(), Exec(command="ls", cwd="/etc"), now=NOW).facts == (
        ("in", "/etc, not of the workspace"),
    )


def test_the_facts_of_a_request() -> None:
    found = explain(Policy(), request("GET", "BÜCHER.example.com", "/a/../b?q=1"), now=NOW)
    assert dict(found.facts) == {
        "host": "xn--bcher-kva.example.com (written as `BÜCHER.example.com`)",
        "below": "example.com",
        "port": "443",
        "scheme": "https",
        "method": "GET",
        "path": "/b (written as `/a/../b`; the query is left aside)",
    }
    assert found.parts[0].text == "GET https://xn--bcher-kva.example.com/b"


def test_the_facts_of_a_connection() -> None:
    action = Network(
        operation="connect",
        host="0x7f.1",
        port=8443,
        resolved=("64:ff9b::a00:1",),
        sni="x.example.com",
    )
    found = explain(Policy(), action, now=NOW)
    facts = dict(found.facts)
    assert facts["host"] == "127.0.0.1 (written as `0x7f.1`)"
    assert facts["address"] == "127.0.0.1 (loopback)"
    assert facts["resolves to"] == "64:ff9b::a00:1 (never, stands for 10.0.0.1)"
    assert facts["TLS names"] == "x.example.com"
    assert [(part.kind, part.text) for part in found.parts] == [
        ("connection", "127.0.0.1:8443"), ("address", "127.0.0.1"), ("address", "64:ff9b::a00:1"),
    ]  # fmt: skip
    assert found.parts[1].notes == ("loopback: only a rule that names it lets it be dialled",)
    assert found.parts[2].notes == ("never: it is never dialled",)
    assert explain(Policy(), connect("::1", 80), now=NOW).parts[0].text == "[::1]:80"
    ambiguous = explain(Policy(), request("GET", "a.example.com", "/a%2fb"), now=NOW)
    assert "ambiguous: an encoded slash" in dict(ambiguous.facts)["path"]


def test_a_name_that_resolves_into_a_private_network_needs_both_rules() -> None:
    policy = policy_from_data({"allow": ["network(a.example.com)", "network(10.0.0.0/8)"]})
    found = explain(policy, connect("a.example.com", 443, "10.0.0.1"), now=NOW)
    assert found.verdict.decision == "allow"
    assert {one.rule.text: (one.outcome, one.parts) for one in found.looked} == {
        "network(a.example.com)": ("decides", (0,)),
        "network(10.0.0.0/8)": ("decides", (1,)),
    }
    assert [part.answer for part in found.parts] == ["allow", "allow"]


def test_the_facts_of_a_file() -> None:
    action = FileChange(
        operation="symlink", path="./Src//A", link_target="b", mode=0o777, hazards=("symlink",)
    )
    found = explain(Policy(), action, now=NOW)
    assert dict(found.facts) == {
        "operation": "symlink",
        "link to": "b",
        "mode": "777",
        "hazards": "symlink",
    }
    assert found.parts[0].text == "Src/A"
    assert found.parts[0].notes == (
        "written as `./Src//A`",
        "deny and ask rules see it as `src/a` too",
    )
    odd = explain(Policy(), file("a\x1b"), now=NOW).parts[0]
    assert odd.forced == ("a name with control or invisible characters is never allowed by a rule",)
    unnamed = explain(
        Policy(), FileChange(operation="write", path="", path_b64="Yf8="), now=NOW
    ).parts[0]
    assert (unnamed.text, unnamed.notes) == ("a\udcff", ())
    assert unnamed.forced == ("a name that isn't UTF-8 is never allowed by a rule",)
    lifted = explain(policy_from_data({"allow": ["filesystem(.env)"]}), file(".env"), now=NOW)
    assert lifted.verdict.decision == "allow"
    assert "has the protected name `.env`" in lifted.parts[0].notes[0]


def test_the_facts_of_a_git_operation() -> None:
    found = explain(Policy(), git("push -f evil +a:b tag v1"), now=NOW)
    facts = dict(found.facts)
    assert facts["remote"] == "evil (not configured)"
    assert facts["known remotes"] == "origin"
    assert facts["options"] == "--force (only a rule that says so covers it)"
    assert [(part.text, part.notes) for part in found.parts] == [
        ("push evil a:b", ("moves `b` at the remote to what `a` is here", "forces")),
        ("push evil refs/tags/v1", ("a tag",)),
    ]
    assert explain(Policy(), git("push origin :c"), now=NOW).parts[0].notes == ("deletes",)
    plain = dict(explain(Policy(), git("log"), now=NOW).facts)
    assert plain == {"operation": "log"}


def test_the_facts_of_a_package_operation() -> None:
    found = explain(Policy(), packages("pip install -r r.txt Requests==1 --pre -q"), now=NOW)
    facts = dict(found.facts)
    assert (facts["manager"], facts["operation"], facts["other flags"]) == (
        "pip",
        "install",
        "--pre",
    )
    assert "-q" in facts["harmless flags"]
    assert [(part.kind, part.text) for part in found.parts] == [
        ("package", "pip install Requests==1"), ("package", "pip install -r r.txt"),
    ]  # fmt: skip
    unread = explain(Policy(), packages("npm install; id"), now=NOW)
    assert (unread.facts, [part.kind for part in unread.parts]) == ((), ["operation"])
    assert [part.kind for part in explain(Policy(), packages("brew install x"), now=NOW).parts] == [
        "operation"
    ]


@pytest.mark.parametrize(
    "action",
    [
        Git(operation="push", remote="origin", command="git push origin x"),
        Git(operation="push", remote="origin", refspecs=("-x",)),
        Packages(manager="npm", operation="install", command="npm install x"),
        Packages(manager="npm", operation="install", names=("$(id)",)),
        file("/etc/passwd"),
        FileChange(operation="rename", path="a"),
        connect("a b"),
    ],
)
def test_what_can_t_be_read_has_no_rules_to_match(action: Action) -> None:
    wide = policy_from_data(
        {"allow": ["git(*)", "packages(npm:*)", "filesystem(**)", "network(*.example.com)"]}
    )
    found = explain(wide, action, now=NOW)
    assert found.verdict.decision == "deny"
    assert found.basis == "forced"
    assert found.forced[0] == found.verdict.why
    assert {one.outcome for one in found.looked} == {"held"}
    assert not found.suggestions


def test_a_rule_for_another_host_of_the_same_owner_is_nearer_than_one_of_another_owner() -> None:
    found = explain(
        policy_from_data({"allow": ["network(other.net)", "network(b.example.com)"]}),
        connect("a.example.com"),
        now=NOW,
    )
    assert [one.rule.text for one in found.looked] == [
        "network(b.example.com)",
        "network(other.net)",
    ]
    assert found.looked[0].distance < found.looked[1].distance


def test_each_of_two_rules_about_a_program_says_by_which_word_it_misses() -> None:
    policy = policy_from_data({"allow": ["exec(git diff *)", "exec(git status *)"]})
    found = explain(policy, Exec(command="git log"), now=NOW)
    assert [one.why for one in found.looked] == [
        "says `diff`; here word 2 is `log`",
        "says `status`; here word 2 is `log`",
    ]
