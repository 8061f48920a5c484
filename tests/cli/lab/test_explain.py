"""`gatehouse policy explain`: what the words of the command line mean, and what a person gets to
read."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.cli import cli
from supervisor.cli.lab.explain import WIDTH, as_text, fields_of
from supervisor.core.actions import Action, Exec, FileChange, Proposal
from supervisor.core.lab.check import action_of
from supervisor.core.lab.explain import explain as explained
from supervisor.core.policy.git_refs import parse_command
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.errors import UserError
from tests.fakes.law_worlds import ACTIONS, WIDE, WILD_ACTIONS
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[3]
POLICY = (
    "version: 1\nallow: [exec(git log *), exec(ls *), exec(git status *)]\nask: [exec(sudo *)]\n"
)
NOW = 1_790_000_000.0

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`gatehouse policy explain WORDS`: exit code, standard output, standard error.
    `policy=None`: none is named."""
    usual = tmp_path / "usual.yaml"
    usual.write_text(POLICY)

    def call(*words: str, policy: str | None = str(usual)) -> tuple[int, str, str]:
        capsys.readouterr()
        named = [] if policy is None else ["--policy", policy]
        code = cli.main(["policy", "explain", "--data-dir", str(tmp_path / "data"), *named, *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


# -- what words mean ------------------------------------------------------------------------------

WORDS: list[tuple[list[str], dict[str, Any]]] = [
    (["exec", "git log | sh"], {"command": "git log | sh"}),
    (["exec", "grep", "a b", "x"], {"command": "grep 'a b' x"}),
    (
        ["network", "https://x.example.com/y?z"],
        {"method": "GET", "url": "https://x.example.com/y?z"},
    ),
    (
        ["network", "POST", "https://x.example.com/y"],
        {"method": "POST", "url": "https://x.example.com/y"},
    ),
    (
        ["network", "POST https://x.example.com/y"],
        {"method": "POST", "url": "https://x.example.com/y"},
    ),
    (["network", "x.example.com:443"], {"connect": "x.example.com:443"}),
    (["network", "[::1]:443"], {"connect": "[::1]:443"}),
    (["filesystem", "src/a.py"], {"operation": "write", "path": "src/a.py"}),
    (["filesystem", "delete"], {"operation": "write", "path": "delete"}),
    (["filesystem", "delete", "src/a.py"], {"operation": "delete", "path": "src/a.py"}),
    (["filesystem", "rename", "a", "b"], {"operation": "rename", "path": "a", "to": "b"}),
    (["filesystem", "symlink", "a", "b"], {"operation": "symlink", "path": "a", "to": "b"}),
    (["filesystem", "chmod", "755", "a"], {"operation": "chmod", "path": "a", "mode": "755"}),
    (["git", "git push origin x"], {"command": "git push origin x"}),
    (["git", "push origin x"], {"command": "git push origin x"}),
    (["git", "push", "origin", "x"], {"command": "git push origin x"}),
    (["git", "git", "push", "origin", "x"], {"command": "git push origin x"}),
    (["git", "/usr/bin/git push origin x"], {"command": "/usr/bin/git push origin x"}),
    (["git", "gitx"], {"command": "git gitx"}),
    (["packages", "npm install x"], {"command": "npm install x"}),
    (["packages", "npm", "install", "x"], {"command": "npm install x"}),
]


@each_row(
    ("words", "fields"), WORDS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_words_are_a_line_of_policy_check(words: list[str], fields: dict[str, Any]) -> None:
    found = fields_of(words)
    assert found == {"category": words[0], **fields}
    action_of(found)


BAD: list[tuple[list[str], str]] = [
    (["exex", "ls"], "`exex` is not a category; did you mean `exec`?"),
    (["git log"], "`git log` is not a category; did you mean `git`?"),
    (["x\x1b[2J", "ls"], "`x\\u{1b}[2J` is not a category; known are"),
    (["exec", "ls \udcff"],
     "`ls \\u{dcff}` is not UTF-8 text; give a line as for `policy check`, where `path_b64`"),
    (["exec"], "exec: what should be explained isn't said; write exec 'git log | head'"),
    (["packages", " "], "packages: what should be explained isn't said"),
    (["network", "GET", "https://x", "y"], "network: 3 words; write network https://"),
    (["network", "GET", "x:443"], "network: `x:443` is not a URL"),
    (["network", "G;T", "https://x"], "network: `G;T` is not a method"),
    (["network", "example.com"], "`connect` names no port; write network https://"),
    (["network", "ftp://x"], "`url` is neither http nor https"),
    (["network", "https://"], "`url` has no valid host"),
    (["filesystem", "delte", "x"],
     "filesystem: `delte` is not an operation; did you mean `delete`?"),
    (["filesystem", "delete", "x", "y"],
     "filesystem: delete takes 1 path; write filesystem delete PATH"),
    (["filesystem", "rename", "x"],
     "filesystem: rename takes 2 words; write filesystem rename OLD NEW"),
    (["filesystem", "chmod", "9", "x"], "`mode` is `9`, neither a number nor octal digits"),
    (["{"], "the line is not JSON"),
    ([" {}"], "the line has no `category`"),
    (['{"category": "exec"}'], "the line has no `command`; write exec 'git log | head'"),
    (['{"category": "exec", "comand": "ls"}'],
     "unknown key `comand` for exec; did you mean `command`?"),
    (['{"category": "exec", "command": "ls", "policy": {"alow": []}}'],
     "the line's own policy: unknown key `alow`"),
    (['{"category": "exec", "command": "ls", "workspace": 3}'], "`workspace` is not text"),
    (['{"category": "git", "command": "git push", "remotes": "x"}'],
     "`remotes` is not a list of texts"),
    (['{"category": "git", "command": "git push", "remotes": [3]}'],
     "`remotes` is not a list of texts"),
    (['{"category": ["\\ud800"]}'], "the line is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), BAD, ids=lambda value: ascii(value)[:60])
def test_anything_else_is_one_clear_line(run: Run, words: list[str], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert err.startswith(f"gatehouse: {message}")
    assert err.count("\n") == 1
    assert err.isascii()


@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(["exec", "network", "git", "filesystem", "{", "-x", "rename"]),
        min_size=1,
        max_size=4,
    )
)
def test_no_words_raise_anything_else(words: list[str]) -> None:
    if words == ["-"]:
        return
    try:
        fields = fields_of(words)
    except UserError:
        return
    assert isinstance(fields, dict)


def test_a_line_on_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def given_text(text: bytes) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return run("-")

    code, out, _ = given_text(
        b'{"category":"exec","command":"git log"}\n{"category":"exec","command":"id"}\n'
    )
    assert (code, out.splitlines()[0]) == (0, "allow: exec git log")
    assert "standard input is not JSON" in given_text(b"")[2]
    assert "standard input is not a JSON object" in given_text(b"[]")[2]
    assert "standard input is longer than 1000000 bytes" in given_text(b" " * 1_000_002)[2]


# -- which policy, which workspace ----------------------------------------------------------------


def test_without_a_policy_it_is_what_a_session_would_start_with(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("allow: [exec(make mine)]\n")
    monkeypatch.setenv("GATEHOUSE_POLICY", str(file))
    assert run("exec", "make mine", policy=None)[1].startswith("allow: exec make mine\n")
    file.unlink()
    code, _, err = run("exec", "ls", policy=None)
    assert code == 1
    assert "give a policy with --policy" in err


def test_a_line_s_own_policy_goes_before(run: Run) -> None:
    line = {"category": "exec", "command": "git log", "policy": {"deny": ["exec(git *)"]}}
    assert run(json.dumps(line), policy="/nowhere.yaml")[1].startswith("deny: exec git log\n")
    line = {
        "category": "git",
        "command": "git push upstream x",
        "policy": {"allow": ["git(x)"]},
        "remotes": ["upstream"],
    }
    assert run(json.dumps(line), policy=None)[1].startswith("allow: git push upstream x\n")


def test_a_bad_policy_is_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("allow:\n  - exec(git log\n")
    code, _, err = run("exec", "ls", policy=str(file))
    assert (code, err.count("\n")) == (1, 1)
    assert "bad.yaml:2:" in err


def test_links_of_the_workspace_are_seen_as_policy_check_sees_them(
    run: Run, tmp_path: Path
) -> None:
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "out").symlink_to("/etc")
    policy = tmp_path / "p.yaml"
    policy.write_text("allow: ['filesystem(**)']\n")
    words = ["--workspace", str(workspace), "filesystem", "out/passwd"]
    text = run(*words, policy=str(policy))[1]
    assert text.startswith("allow: filesystem write out/passwd\n")
    assert (
        "  in this workspace it is deny: `out/passwd` leaves the workspace by a symbolic link\n"
        in text
    )
    found = json.loads(run("--json", *words, policy=str(policy))[1])
    assert found["on_disk"]["verdict"] == "deny"
    inside = json.loads(run("--json", *words[:-1], "a", policy=str(policy))[1])
    assert (inside["verdict"], inside["on_disk"]) == ("allow", None)


def test_a_relative_workspace_is_one_of_this_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("--workspace", "project", "exec", f"cd {tmp_path}/project/src && ls")
    assert "needs no rule: it stays inside" in run(*words)[1]


# -- what a person reads --------------------------------------------------------------------------


def text_of(action: Action, **lists: Any) -> str:
    return as_text(explained(policy_from_data(lists, "p.yaml"), action, now=NOW))


def test_the_verdict_comes_first_then_what_was_understood_then_rules() -> None:
    text = text_of(
        Exec(command="git log | sh"),
        allow=[{"rule": "exec(git log *)", "why": "reads"}, "exec(git status)", "exec(git log)",
        "exec(make)", "network(x.example.com)"],
    )  # fmt: skip
    assert text.splitlines() == [
        "ask: exec git log | sh",
        "  no rule may allow input that `sh` would run as a program; exec asks",
        "  no allow rule lifts this",
        "",
        "understood as",
        "  in         the workspace's root",
        "  command 1  allow    git log",
        "                      by exec(git log *); by exec(git log); in a pipe",
        "  command 2  no rule  sh",
        "                      no rule may allow input that `sh` would run as a program; in a pipe",
        "",
        "no rule matches (of 4 exec rules)",
        "",
        "rules that would match, but",
        "  allow  exec(git log *)",
        (
            "           held: command 1: covers `git log`; but no rule may allow input that `sh`"
            " would run as a"
        ),
        "           program",
        "  allow  exec(git log)",
        (
            "           held: command 1: covers `git log`; but no rule may allow input that `sh`"
            " would run as a"
        ),
        "           program",
        "",
        "other rules",
        "  allow  exec(git status)                is about another program, `git`",
        "  allow  exec(make)                      is about another program, `make`",
        "",
        "not looked at: 1 network",
        "",
        "to change it",
        (
            "  a person is asked each time; written without what is named above, it is judged by"
            " the rules alone"
        ),
    ]


def test_an_allowed_action_shows_the_rules_that_did_it() -> None:
    allow = [{"rule": "exec(git log *)", "why": "reads"}, "exec(git status)", "exec(make)"]
    text = text_of(Exec(command="git log"), allow=allow, deny=["exec(git push *)"])
    assert text.splitlines()[-8:] == [
        "rules that match (1 of 4 exec rules)",
        "  allow  exec(git log *)                 covers `git log`",
        "         p.yaml - reads",
        "",
        "further off, but related",
        "  deny exec(git push *)",
        "",
        "2 exec rules further off (all with --json)",
    ]


def test_what_to_write_where_it_is_denied() -> None:
    assert "to have it allowed, add to `allow` one of\n  - git(x)\n" in text_of(
        parse_command("git push origin x"), modes={"git": "deny"}
    )
    denied = text_of(FileChange(operation="write", path=".git/config"))
    assert denied.endswith(
        "to change it\n  ask for the git operation instead; `.git` itself is never changed from the"
        " sandbox"
    )


def test_an_action_is_named_with_its_category_once() -> None:
    assert text_of(parse_command("git push origin x")).startswith("ask: git push origin x\n")
    assert text_of(Exec(command="git push")).startswith("ask: exec git push\n")


def test_what_to_write() -> None:
    text = text_of(Exec(command="ls; npm run build && id"), allow=["exec(ls)"])
    assert text.endswith(
        "to be asked less, add to `allow` one for each of these\n"
        "  for command 2: npm run build\n"
        "  - exec(npm run build)\n"
        "      this command with these arguments only\n"
        "  - exec(npm run build *)\n"
        "      this command with any further arguments\n"
        "  for command 3: id\n"
        "  - exec(id)\n"
        "      this command with these arguments only"
    )
    assert "to be asked less, add to `allow` one of\n  - filesystem(src/*)\n" in text_of(
        FileChange(operation="write", path="src/a")
    )


def test_near_misses_are_bounded_and_far_ones_counted() -> None:
    near = [f"exec(make all x{number})" for number in range(12)]
    related = [f"exec(make t{number})" for number in range(12)]
    far = [f"exec(other{number})" for number in range(50)]
    text = text_of(Exec(command="make all"), allow=[*near, *related, *far])
    assert "rules that come near\n" in text
    assert "  and 4 more (all with --json)\n" in text
    assert "further off, but related\n  exec(make t0), exec(make t1)," in text
    assert "exec(make t7), and 4 more\n" in text
    assert "50 exec rules further off (all with --json)" in text
    assert "other1" not in text


def test_rules_that_miss_for_one_reason_are_told_once() -> None:
    allow = [f"exec(git {verb} *)" for verb in ("log", "status", "diff")]
    text = text_of(Exec(command="./git log"), allow=allow)
    assert text.count("isn't the system's `git`") == 1
    assert "(and 2 more alike)" in " ".join(text.split())


def test_many_matching_rules_and_parts_are_bounded() -> None:
    allow = [f"exec(echo {number} *)" for number in range(40)]
    text = text_of(Exec(command="; ".join(f"echo {number}" for number in range(40))), allow=allow)
    assert text.endswith("\n  and 20 more (all with --json)")
    assert "\n  and 10 more\n" in text


def test_a_policy_without_rules_of_the_category() -> None:
    text = text_of(Exec(command="ls"), allow=["git(x)"])
    assert "no rule matches (of 0 exec rules)\n\nnot looked at: 1 git\n" in text


@pytest.mark.parametrize(
    ("action", "lists", "line"),
    [
        (
            Exec(command="ls"),
            {"deny": ["exec(ls)"]},
            "  decided by 1 rule; where none matches, the mode of exec is ask",
        ),
        (Exec(command="cd src"), {}, "  nothing in it needs a rule"),
        (
            FileChange(operation="write", path=".env"),
            {},
            "  only a rule that spells it out lifts this",
        ),
    ],
)
def test_the_line_about_what_made_the_verdict(
    action: Action, lists: dict[str, Any], line: str
) -> None:
    assert line in text_of(action, **lists).splitlines()


def test_what_has_no_rules_at_all() -> None:
    assert (
        "  no policy is in force\n"
        in as_text(explained(DENY_ALL, Exec(command="ls"), now=NOW)) + "\n"
    )
    proposal = Proposal(effect="allow", rule="exec(ls)")
    assert as_text(explained(Policy(), proposal, now=NOW)).splitlines() == [
        "ask: sandbox allow exec(ls)",
        "  a change of the policy is always asked",
    ]


def test_an_explanation_that_is_incomplete_says_so() -> None:
    found = replace(
        explained(Policy(), Exec(command="ls"), now=NOW), trouble="report this as a bug"
    )
    assert "  report this as a bug" in as_text(found).splitlines()


@given(ACTIONS | WILD_ACTIONS)
def test_the_text_is_safe_and_narrow_for_any_action(action: Action) -> None:
    text = as_text(explained(WIDE, action, now=NOW), {"verdict": "deny", "why": "x\x1b\u202e"})
    for line in text.split("\n"):
        assert len(line) <= WIDTH
        assert line.isprintable()
        assert line == line.rstrip()


def test_what_an_agent_wrote_is_escaped(run: Run) -> None:
    code, out, _ = run("exec", "ls \x1b[2J\u202e; su\u200bdo\nid")
    assert code == 0
    assert "\x1b" not in out
    assert "\\u{202e}" in out
    assert all(line.isprintable() for line in out.splitlines())


def test_json_is_one_object_with_everything(run: Run) -> None:
    code, out, _ = run("--json", "exec", "git log; id")
    assert (code, out.count("\n")) == (0, 1)
    found = json.loads(out)
    assert (found["verdict"], found["basis"], found["on_disk"]) == ("ask", "mode", None)
    assert [part["answer"] for part in found["parts"]] == ["allow", "open"]
    assert [(one["rule"], one["outcome"]) for one in found["looked_at"]] == [
        ("exec(git log *)", "partly"), ("exec(sudo *)", "missed"), ("exec(ls *)", "missed"),
        ("exec(git status *)", "missed"),
    ]  # fmt: skip


SHIPPED = sorted(path for path in (ROOT / "policy").rglob("*.yaml") if path.name != "prices.yaml")


@pytest.mark.parametrize("policy", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_that_is_shipped_can_be_asked(run: Run, policy: Path) -> None:
    for words in (["exec", "git log | sh"], ["network", "https://x.example.org/"], ["filesystem",
    ".env"], ["git", "push -f origin main"], ["packages", "npm install x"]):  # fmt: skip
        code, out, err = run(*words, policy=str(policy))
        assert (code, err) == (0, "")
        assert out.split(":")[0] in ("ask", "deny", "allow")
