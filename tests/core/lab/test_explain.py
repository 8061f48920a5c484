"""What `explain` says of each rule, of the verdict and of what would change it: what a person
needs to know."""

import json
from typing import Any

import pytest

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, Proposal
from supervisor.core.lab.explain import Looked, as_data, explain
from supervisor.core.policy.category import NEAR
from supervisor.core.policy.git_refs import parse_command
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import Rule
from tests.fakes.law_worlds import EFFECTS
from tests.tables import each_row

NOW = 1_790_000_000.0

ARGUMENTS: dict[str, Any] = {"now": NOW, "session_id": "s1", "uses": {}}


# -- what is said of a rule -----------------------------------------------------------------------


def told(
    action: Action,
    rule: str | dict[str, Any],
    effect: str = "allow",
    others: dict[str, list[str]] | None = None,
) -> Looked:
    """What is said of one rule, among others."""
    lists = {
        one: [*(others or {}).get(one, []), *([rule] if one == effect else [])] for one in EFFECTS
    }
    text = rule if isinstance(rule, str) else rule["rule"]
    found = explain(policy_from_data(lists), action, **ARGUMENTS)
    return next(one for one in found.looked if one.rule.text == text and one.rule.effect == effect)


def file(path: str, to: str | None = None, **fields: Any) -> FileChange:
    return FileChange(operation="rename" if to else "write", path=path, to=to, **fields)


def request(
    method: str, host: str, path: str = "/", port: int = 443, scheme: Any = "https"
) -> Network:
    return Network(
        operation="request", host=host, port=port, scheme=scheme, method=method, path=path
    )


def connect(host: str, port: int = 443, *resolved: str) -> Network:
    return Network(operation="connect", host=host, port=port, resolved=resolved)


def git(words: str) -> Git:
    return Git(operation="", command=f"git {words}")


def packages(command: str) -> Packages:
    return Packages(manager="", operation="", command=command)


MISSES = [
    # exec: which word, and why a wildcard doesn't reach it
    (Exec(command="git stash"), "exec(git status *)", "says `status`; here word 2 is `stash`"),
    (Exec(command="git status -s"), "exec(git status)",
     "ends before `-s`; `exec(git status *)` would cover more"),
    (Exec(command="git"), "exec(git status *)", "goes on with `status`; the command ends before"),
    (Exec(command="git log --output=x"), "exec(git log *)",
     "no wildcard covers `--output=x`: only a rule that spells"),
    (Exec(command="git log --output=x y"), "exec(git log * y)", "no wildcard covers `--output=x`"),
    (Exec(command="find . -delete"), "exec(find *)", "no wildcard covers `-delete`"),
    (Exec(command="git log $X"), "exec(git log *)", "no wildcard covers `$X`"),
    (Exec(command="ls x$Y z"), "exec(ls * z)", "what it becomes isn't known before it runs"),
    (Exec(command="rm ../x"), "exec(rm {workspace})", "no wildcard covers `../x`"),
    (Exec(command="find / -execdir rm x +"), "exec(rm {workspace})", "`x` may lie outside"),
    (Exec(command="./git log"), "exec(git log *)", "`./git` isn't the system's `git`"),
    (Exec(command="$X log"), "exec(git log *)", "the name of the command holds an expansion"),
    (Exec(command="ls"), "exec(git log *)", "is about another program, `git`"),
    (Exec(command="$X --version"), "exec(* --version)",
     "the name of the command holds an expansion"),
    (Exec(command="ls aa"), "exec(ls b*)", "says `b*`; here word 2 is `aa`"),
    (Exec(command="python"), "exec(python *)", "would run what it reads: no wildcard covers that"),
    (Exec(command="timeout 5 ls"), "exec(timeout *)", "`timeout` needs no rule here"),
    (Exec(command="cd $X; ./run"), "exec(./run)", "where `./run` lies can't be told"),
    (Exec(command=""), "exec(ls)", "no command is found"),
    # filesystem: which name, and how deep
    (file("tests/a.py"), "filesystem(src/*)",
     "is about what is below `src`; here the folder is `tests`"),
    (file("src/a.md"), "filesystem(src/*.py)", "is about `*.py`; here the name is `a.md`"),
    (file("src/x/a.py"), "filesystem(src/*)",
     "`*` stays in one folder, and `src/x/` is one more: `src/**` would cover"),
    (file("src/x/a.py"), "filesystem(src/x)",
     "names `src/x` itself, not what is below it: `src/x/**` would be that"),
    (file("src"), "filesystem(src/*)", "is about what lies deeper than `src`"),
    (file("src/a.md"), "filesystem(src/**/*.py)",
     "is about `*.py` at any depth below `src`, which `a.md` isn't"),
    (file("SRC/a.py"), "filesystem(src/a.py)", "only the spelling differs"),
    # network: which part
    (request("GET", "api.example.com"), "network(example.com)",
     "not the names below it (`*.example.com` would be)"),
    (request("GET", "example.com"), "network(*.example.com)",
     "covers the names below `example.com`, not `example.com`"),
    (request("GET", "evil.net"), "network(*.example.com)",
     "is about the names below `example.com`; here the host is"),
    (request("GET", "a.example.com", port=8443), "network(a.example.com)",
     "it means 80 and 443; here the port is 8443"),
    (request("GET", "a.example.com"), "network(a.example.com:8443)",
     "names the host, but port 8443"),
    (request("POST", "a.example.com"), "network(GET https://a.example.com/**)",
     "but GET; here the method is POST"),
    (request("get", "a.example.com"), "network(GET https://a.example.com/**)",
     "(methods are compared exactly)"),
    (request("GET", "a.example.com", "/b"), "network(GET https://a.example.com/a/*)",
     "`/a/*` doesn't cover the path `/b`"),
    (request("GET", "a.example.com", "/a//b"), "network(GET https://a.example.com/**)",
     "with empty segments (`//`)"),
    (request("GET", "a.example.com", "/", 443, "http"), "network(GET https://a.example.com:443/**)",
     "here the scheme is http"),
    (request("GET", "a.example.com", "/", 80, "http"), "network(GET https://a.example.com/**)",
     "but port 443"),
    (request("GET", "192.0.2.1"), "network(198.51.100.0/24)",
     "is about the addresses of `198.51.100.0/24`"),
    (request("GET", "a.example.com"), "network(192.0.2.0/24)",
     "only what is written as an address"),
    # git: which word, which option
    (git("push origin main"), "git(push origin feature/*)",
     "is about `feature/*`; here it is `main`"),
    (git("push origin main"), "git(feature/*)", "is about `feature/*`; here it is `main`"),
    (git("push -f origin main"), "git(push origin main)",
     "doesn't say `--force`, and only a rule that does covers it"),
    (git("push -f origin main"), "git(*)", "doesn't say `--force`"),
    (git("push -f origin main"), "git(main)", "is about plain pushes to the branch `main`"),
    (git("push origin main"), "git(push --force origin main)",
     "is only about `--force`, which isn't there"),
    (git("push origin main"), "git(fetch origin main)",
     "is about `fetch`; here the operation is `push`"),
    (git("push origin main"), "git(push upstream main)",
     "is about `upstream`; here it is `origin`"),
    (git("push origin HEAD"), "git(push origin *)",
     "which doesn't say what it moves: no wildcard covers it"),
    (git("push origin a:b"), "git(push origin *)", "a mapping: no wildcard reaches into one"),
    (git("push origin tag v1"), "git(push origin *)", "of another namespace"),
    (git("push origin tag v1"), "git(*)",
     "a wildcard alone covers plain pushes and fetches of branches only"),
    (git("fetch origin"), "git(push origin main)",
     "is about `push origin main`; this is `fetch origin`"),
    (git("push 'a"), "git(push a)", "only deny rules are asked"),
    # packages: which part
    (packages("npm install zod"), "packages(pip:zod)", "is about `pip`; here the manager is `npm`"),
    (packages("npm install zod"), "packages(npm uninstall zod)",
     "is about `uninstall`; here the operation is `install`"),
    (packages("npm install zod"), "packages(npm:left-pad)",
     "is about `left-pad`; here it is `zod`"),
    (packages("npm install zod@2"), "packages(npm install zod@1)",
     "only the version differs; `npm:zod` means every"),
    (packages("npm install zod"), "packages(npm install)",
     "names no package, so it is about `npm install` without"),
    (packages("npm ci"), "packages(npm:zod)", "is about the package `zod`; here none is named"),
    (packages("pip install -r a.txt"), "packages(pip:requests)",
     "is about a package; this is a file of requirements"),
    (packages("npm install zod"), "packages(npm install -D zod)",
     "is only about `-D`, which isn't there"),
    (packages("npm install; id"), "packages(npm:zod)",
     "the command can't be read, so only deny rules are asked"),
]  # fmt: skip


@each_row(
    ("action", "rule", "why"), MISSES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_why_an_allow_rule_misses(action: Action, rule: str, why: str) -> None:
    one = told(action, rule)
    assert (one.outcome, one.parts) == ("missed", ())
    assert why in one.why


STRICT_MISSES = [
    (Exec(command="ls"), "exec(sudo *)", "is about another program, `sudo`"),
    (Exec(command="ls push"), "exec(g*t push)", "is about another program, `g*t`"),
    (Exec(command="git push origin x"), "exec(git push --force *)",
     "says `--force`, which isn't among its words"),
    (Exec(command="git push $X"), "exec(git push --force *)",
     "an expansion may make it so: then no rule may allow it"),
    (Exec(command="git x push"), "exec(git push x)", "has these words in other places"),
    (file("src/a.md"), "filesystem(**/*.pem)",
     "is about `*.pem` at any depth, which `src/a.md` isn't"),
    (request("GET", "a.example.com"), "network(*:25)",
     "is about every host, but port 25; here the port is 443"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)",
     "is about requests; this only opens a connection"),
    (git("push origin x"), "git(push --force *)", "is only about `--force`, which isn't there"),
    (git("push origin x"), "git(main)", "is about the branch `main`"),
    (git("push origin x"), "git(push origin main)",
     "is about `origin main`; this is `push origin x`"),
    (git("fetch origin"), "git(push origin main)", "here the operation is `fetch`"),
    (git("push 'a"), "git(fetch b)", "nothing that the text may hold is what it is about"),
    (packages("npm install zod"), "packages(npm install -D *)",
     "is only about `-D`, which isn't there"),
]  # fmt: skip


@each_row("effect", ["ask", "deny"])
@each_row(
    ("action", "rule", "why"),
    STRICT_MISSES,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_a_deny_or_ask_rule_misses(action: Action, rule: str, why: str, effect: str) -> None:
    one = told(action, rule, effect)
    if effect == "ask" and isinstance(action, Git) and "'" in str(action.command):
        why = "only deny rules are asked"
    assert one.outcome == "missed"
    assert why in one.why


HITS = [
    (Exec(command="git log -3"), "exec(git log *)", "allow", "covers `git log -3`"),
    (Exec(command="sudo id"), "exec(sudo *)", "deny", "is about `sudo id`"),
    (Exec(command="ls"), "exec(*)", "deny", "is about every command"),
    (file("src/a.py"), "filesystem(src/*)", "allow", "`src/*` covers `src/a.py`"),
    (file("src/a.py"), "filesystem(src/a.py)", "allow", "names `src/a.py`"),
    (request("GET", "A.Example.com."), "network(a.example.com)", "allow", "names `a.example.com`"),
    (request("GET", "a.example.com", "/x"), "network(GET https://*.example.com/*)", "allow",
     "`*.example.com` covers `a.example.com`, and `/*` covers the path"),
    (connect("192.0.2.7"), "network(192.0.2.0/24)", "allow", "`192.0.2.0/24` holds `192.0.2.7`"),
    (connect("a.example.com", 443, "192.0.2.7"), "network(192.0.2.0/24)", "deny",
     "`a.example.com` resolves into `192.0.2.0/24`"),
    (connect("a.example.com", 25), "network(*:25)", "deny", "every host, `a.example.com` too"),
    (connect("a.example.com"), "network(* https://*.example.com/**)", "deny",
     "denies every request to this host, so no connection is opened"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)", "allow",
     "the connection is opened, and each request in it is judged"),
    (git("push origin feature/x"), "git(feature/*)", "allow",
     "`feature/*` covers `push origin feature/x`"),
    (git("push origin x; git push origin main"), "git(push origin main)", "deny",
     "the text may hold `push origin main`"),
    (git("push origin a..b main; x"), "git(push main)", "deny",
     "the text may hold `push origin main`"),
    (packages("npm install zod@1"), "packages(npm:zod)", "allow",
     "`npm:zod` covers `npm install zod@1`"),
    (packages("npm install x; npm install evil"), "packages(npm:evil)", "deny",
     "the text may hold `npm install evil`"),
    (packages("npm install -- -x evil; x"), "packages(npm:evil)", "deny",
     "the text may hold `npm install evil`"),
]  # fmt: skip


@each_row(("action", "rule", "effect", "why"), HITS)
def test_how_a_rule_matches(action: Action, rule: str, effect: str, why: str) -> None:
    one = told(action, rule, effect)
    assert (one.outcome, one.distance) == ("decides", 0)
    assert why in one.why


OTHERS: list[tuple[Action, str | dict[str, Any], dict[str, list[str]], str, str]] = [
    (Exec(command="ls; id"), "exec(ls)", {}, "partly",
     "command 1: covers `ls`; another command has no rule"),
    (Exec(command="git log"), "exec(git log)", {"deny": ["exec(git *)"]}, "overruled",
     "but deny exec(git *) is stricter"),
    (Exec(command="ls $(id)"), "exec(ls *)", {}, "held",
     "but no rule may allow a command substitution"),
    (Exec(command="ls"), "exec(*)", {}, "never", "a bare allow rule allows nothing"),
    (Exec(command="ls"), {"rule": "exec(ls)", "expires": "2020-01-01"}, {}, "inactive",
     "expired 2020-01-01 00:00 UTC; it would match"),
    (Exec(command="id"), {"rule": "exec(ls)", "expires": "2020-01-01"}, {}, "inactive",
     "besides, is about another program"),
    (Exec(command="ls"), {"rule": "exec(ls)", "session": "s2"}, {}, "inactive",
     "only for the session `s2`; it would match"),
    (Exec(command="ls"), {"rule": "exec(ls)", "uses": 0}, {}, "inactive",
     "used up: 0 of 0 uses; it would match"),
    (Exec(command="git push x"), {"rule": "exec(git *)", "except": ["exec(git pull)",
     "exec(git push *)"]}, {}, "excepted", "its exception `git push *` takes this out"),
    (Exec(command="git log; git diff"), {"rule": "exec(git *)", "except": ["exec(git log)",
     "exec(git diff)"]}, {}, "excepted", "command 1: fits, but its exception `git log`"),
    (Exec(command="git log; git diff"), {"rule": "exec(git *)", "except": ["exec(git log)"]}, {},
     "partly", "command 2: covers `git diff`; another command has no rule"),
    (Exec(command="git -C src log"), "exec(git log)", {"allow": ["exec(git -C src log)"]}, "spare",
     "another rule that does is asked first"),
    (file("a/.env"), "filesystem(**)", {}, "held", "no wildcard covers the protected name `.env`"),
    (file(".git/config"), "filesystem(.git/*)", {}, "held",
     "no wildcard covers the protected name `.git/**`"),
    (file("a", hazards=("symlink",)), "filesystem(a)", {}, "held",
     "names `a`; but symlink is never allowed by a rule"),
    (file("a", "b"), "filesystem(a)", {}, "partly", "path 1: names `a`; another path has no rule"),
    (file("a"), {"rule": "filesystem(*)", "except": ["filesystem(a)"]}, {}, "excepted",
     "its exception `a` takes this out"),
    (file("../a"), "filesystem(**)", {}, "held", "no rule is asked: the action can't be read"),
    (request("GET", "a.example.com", "/a%2fb"), "network(a.example.com)", {}, "held",
     "an ambiguous path (an encoded slash) is never allowed"),
    (connect("a.example.com", 443, "10.0.0.1"), "network(a.example.com)", {}, "held",
     "`10.0.0.1`, which is a private address that no rule names"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)",
     {"allow": ["network(a.example.com)"]}, "spare", "this connection has other rules"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)",
     {"deny": ["network(* https://a.example.com/**)"]}, "spare", "this connection has other rules"),
    (connect("a.example.com"), {"rule": "network(*.example.com)",
     "except": ["network(a.example.com)"]}, {}, "excepted", "`a.example.com` takes this out"),
    (git("push evil main"), "git(push evil main)", {}, "held",
     "`evil` is not a remote that is configured"),
    (git("push origin"), "git(push origin)", {"ask": ["git(main)"]}, "held",
     "which branches this pushes isn't said"),
    (git("push origin a b"), "git(a)", {}, "partly",
     "ref 1: `a` covers `push origin a`; another ref has no rule"),
    (git("push origin a"), {"rule": "git(*)", "except": ["git(push origin a)"]}, {}, "excepted",
     "its exception `push origin a`"),
    (git("push -f origin x"), {"rule": "git(push --force origin *)",
     "except": ["git(push origin x)"]}, {}, "excepted", "its exception `push origin x`"),
    (packages("npm install Zod"), {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]}, {},
     "excepted", "its exception `npm:zod`"),
    (packages("npm install zod --registry=x"), "packages(npm:zod)", {}, "held",
     "`--registry=x` could change where code comes from"),
    (packages("npm install zod"), "packages(*)", {}, "never", "a bare allow rule allows nothing"),
    (packages("npm install zod"), {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]}, {},
     "excepted", "its exception `npm:zod`"),
]  # fmt: skip


@each_row(("action", "rule", "others", "outcome", "why"), OTHERS)
def test_what_stops_a_rule(
    action: Action, rule: str | dict[str, Any], others: dict[str, list[str]], outcome: str, why: str
) -> None:
    one = told(action, rule, others=others)
    assert one.outcome == outcome
    assert why in one.why


def test_an_exception_of_a_strict_rule_is_narrow() -> None:
    """It is compared as an allow rule would be, so what it doesn't spell stays denied."""
    forced = told(git("push -f origin x"), {"rule": "git(push *)", "except": ["git(x)"]}, "deny")
    cased = told(
        packages("npm install Zod"),
        {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]},
        "deny",
    )
    assert (forced.outcome, cased.outcome) == ("decides", "decides")


def test_a_deny_rule_with_an_excepted_request_leaves_the_connection_to_the_others() -> None:
    request = "network(GET https://a.example.com/a/**)"
    one = told(
        connect("a.example.com"), {"rule": "network(*.example.com)", "except": [request]}, "deny"
    )
    assert one.outcome == "excepted"


def test_exceptions_that_only_together_take_a_line_out() -> None:
    one = told(
        Exec(command="ls; id"), {"rule": "exec(*)", "except": ["exec(ls)", "exec(id)"]}, "deny"
    )
    assert (one.outcome, one.why) == (
        "excepted",
        "command 1: fits, but its exception `ls` takes this out",
    )


def test_uses_that_nobody_counts() -> None:
    policy = policy_from_data({"allow": [{"rule": "exec(ls)", "uses": 3}]})
    one = explain(policy, Exec(command="ls"), now=NOW).looked[0]
    assert (one.outcome, one.why) == (
        "inactive",
        "for 3 uses, which nobody counts here; it would match",
    )


def test_an_allow_rule_that_comes_near_is_told_of_what_still_lacks_one() -> None:
    policy = policy_from_data(
        {"allow": ["exec(npm run build)", "exec(npm run test)", "exec(cargo build)"]}
    )
    found = explain(policy, Exec(command="npm run build && cargo fetch"), now=NOW)
    by_rule = {one.rule.text: one for one in found.looked}
    assert by_rule["exec(cargo build)"].why == "command 2: says `build`; here word 2 is `fetch`"
    twice = explain(policy, Exec(command="cargo fetch; cargo fetch"), now=NOW).looked
    assert "command 1: says `build`" in next(
        one.why for one in twice if one.rule.text == "exec(cargo build)"
    )
    assert by_rule["exec(cargo build)"].distance <= NEAR < by_rule["exec(npm run test)"].distance


# -- what made the verdict, and what would change it ----------------------------------------------


def test_the_basis_of_a_verdict() -> None:
    ls = Exec(command="ls")
    assert explain(policy_from_data({"allow": ["exec(ls)"]}), ls, now=NOW).basis == "rules"
    denied = explain(policy_from_data({"modes": {"exec": "deny"}}), ls, now=NOW)
    assert (denied.basis, denied.mode, denied.verdict.decision) == ("mode", "deny", "deny")
    assert explain(Policy(), Exec(command="cd src"), now=NOW).basis == "free"
    assert (
        explain(policy_from_data({"modes": {"git": "allow"}}), git("fetch origin"), now=NOW).basis
        == "mode"
    )
    assert explain(DENY_ALL, ls, now=NOW).basis == "nothing"
    proposal = explain(
        policy_from_data({"allow": ["exec(ls)"]}),
        Proposal(effect="allow", rule="exec(ls)"),
        now=NOW,
    )
    assert (proposal.basis, proposal.looked, proposal.others) == ("always", (), (("exec", 1),))


def offered(action: Action, **lists: Any) -> list[tuple[int, str]]:
    found = explain(policy_from_data(lists), action, now=NOW)
    return [(one.part, one.rule) for one in found.suggestions]


def test_rules_that_would_be_enough_are_offered_part_by_part() -> None:
    assert offered(Exec(command="ls && npm run build && git log"), allow=["exec(ls)"]) == [
        (1, "exec(npm run build)"), (1, "exec(npm run build *)"), (2, "exec(git log)"), (2,
         "exec(git log *)"),
    ]  # fmt: skip
    assert offered(Exec(command="bash -c 'ls; id'")) == [(0, "exec(bash -c 'ls; id')")]
    assert offered(file("a/x", "b/y"))[0::3] == [(0, "filesystem(a/*)"), (1, "filesystem(b/*)")]
    assert offered(git("push origin a b")) == [
        (0, "git(a)"), (0, "git(push origin a)"), (1, "git(b)"), (1, "git(push origin b)"),
    ]  # fmt: skip
    assert offered(git("push -f origin a b"))[0] == (0, "git(push --force origin a)")
    assert offered(packages("npm install a b@1 -D"))[1:3] == [
        (0, "packages(npm:a)"),
        (1, "packages(npm install b@1)"),
    ]
    assert offered(packages("pip install -r a.txt b"))[-1] == (1, "packages(pip install -r a.txt)")
    assert offered(connect("a.example.com", 443, "10.0.0.1"))[-1] == (1, "network(10.0.0.1)")
    assert offered(file(".env")) == [(0, "filesystem(.env)")]


def test_nothing_is_offered_that_would_not_be_enough() -> None:
    for command in (
        "ls $(id)",
        "ls | sh",
        "cd /tmp && ls",
        "rm $X && ls",
        "; ".join(f"run{i}" for i in range(11)),
        "",
    ):
        assert offered(Exec(command=command)) == []
    assert offered(Exec(command="ls"), allow=["exec(ls)"]) == []
    assert offered(Exec(command="ls"), ask=["exec(ls)"]) == []
    assert offered(connect("169.254.169.254")) == []
    # A rule that spells it out would lift this, but the git broker is the way.
    denied = explain(Policy(), file("a", ".git/config"), now=NOW)
    assert (denied.suggestions, denied.advice) == ((), denied.verdict.remedy)
    # Rules that would do alone, but not here.
    assert offered(parse_command("git push evil x")) == []
    assert offered(parse_command("git push origin"), ask=["git(main)"]) == []


@pytest.mark.parametrize(
    ("action", "lists", "advice"),
    [
        (Exec(command="ls"), {"allow": ["exec(ls)"]}, ""),
        (Exec(command="ls"), {"deny": ["exec(ls)"]},
         "no allow rule lifts it: take the rule out, or name this in its `except` (deny exec(ls)"),
        (Exec(command="ls"), {"ask": ["exec(ls)"]},
         "it asks every time, and no allow rule changes that"),
        (Exec(command="cd /tmp"), {}, "an allow rule for every part that has none"),
        (file("../x"), {}, "name a path relative to the workspace's root"),
        (file("src/x"), {}, ""),
    ],
)  # fmt: skip
def test_advice_where_an_allow_rule_isn_t_enough(
    action: Action, lists: dict[str, Any], advice: str
) -> None:
    found = explain(policy_from_data(lists), action, now=NOW)
    assert found.advice.startswith(advice)
    assert bool(found.advice) == bool(advice)


def test_advice_names_the_place_of_the_rule() -> None:
    rule = Rule(
        effect="deny",
        category="exec",
        pattern="ls",
        text="exec(ls)",
        id="x",
        source="p.yaml",
        line=7,
    )
    assert (
        "(deny exec(ls), p.yaml:7)" in explain(Policy([rule]), Exec(command="ls"), now=NOW).advice
    )


def test_the_keys_of_the_data_are_stable() -> None:
    data = as_data(
        explain(
            policy_from_data({"allow": ["exec(ls)", "git(x)"]}), Exec(command="ls; id"), now=NOW
        )
    )
    assert list(data) == [
        "category", "action", "verdict", "why", "remedy", "rule", "rules", "sticky", "basis",
        "mode", "forced", "understood", "parts",
        "parts_left_out", "looked_at", "not_looked_at", "suggestions", "advice", "trouble",
    ]  # fmt: skip
    assert list(data["parts"][0]) == ["kind", "text", "answer", "rules", "forced", "notes"]
    assert list(data["looked_at"][0]) == [
        "rule", "effect", "id", "rule_why", "source", "line", "outcome", "why", "parts", "distance",
    ]  # fmt: skip
    assert list(data["suggestions"][0]) == ["part", "rule", "label", "explains"]
    assert data["not_looked_at"] == {"git": 1}
    assert json.loads(json.dumps(data)) == data


def test_a_get_with_a_body_is_told_which_rules_cover_one() -> None:
    read = Network(
        operation="request",
        host="a.example.com",
        port=443,
        scheme="https",
        method="GET",
        path="/a/b",
        has_body=True,
    )
    rule = "network(GET https://a.example.com/a/**)"
    found = told(read, rule)
    assert (found.outcome, found.distance) == ("missed", 1)
    assert (
        found.why
        == "names the host, but no list of methods covers a GET with a body; `*` or the host alone"
        " does"
    )
    seen = explain(policy_from_data({"allow": [rule]}), read, **ARGUMENTS)
    assert ("method", "GET with a body") in seen.facts
    assert (seen.verdict.decision, seen.basis) == ("deny", "forced")
    assert "network(* https://a.example.com/a/**)" in [one.rule for one in seen.suggestions]
