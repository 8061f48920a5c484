"""`gatehouse policy replay` over the log of a real supervisor, and over what a log may hold
otherwise."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.cli import cli
from supervisor.core.actions import Action, Exec, FileChange, fingerprint
from supervisor.core.approvals import Request
from supervisor.core.lab.past import read_history
from supervisor.records.audit_check import verify
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Answer, make_repository, settings_in, supervised

BASE = "version: 1\nallow: [exec(true), 'filesystem(docs/**)']\ndeny: [exec(rm *)]\n"
BY = "operator (browser)"
# A request that a person approves and whose address no rule names, and one that egress refuses by
# itself.
CONNECTS = "curl -s http://host.test/; curl -s -H 'Host: other.test' http://host.test/"

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`gatehouse policy replay --against POLICY ...`: exit code, standard output, standard
    error."""

    def call(policy: str, *words: str) -> tuple[int, str, str]:
        file = tmp_path / "other.yaml"
        file.write_text(policy)
        data = str(tmp_path / "no-data")
        capsys.readouterr()
        code = cli.main(["policy", "replay", "--data-dir", data, "--against", str(file), *words])
        shown = capsys.readouterr()
        return (
            code,
            shown.out.replace(str(tmp_path), "TMP"),
            shown.err.replace(str(tmp_path), "TMP"),
        )

    return call


class Log:
    """An audit log, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[dict[str, Any]] = []

    def add(self, event: str, **fields: Any) -> None:
        self._lines.append(
            {"seq": len(self._lines) + 1, "at": 1_800_000_000.0, "event": event} | fields
        )
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self._lines))

    def judged(self, action: Action | str, verdict: str, **fields: Any) -> None:
        made = Exec(command=action) if isinstance(action, str) else action
        facts = {"session": "s", "action": msgspec.to_builtins(made),
        "fingerprint": fingerprint(made), "why": "recorded", "rule": None}  # fmt: skip
        self.add("verdict_given", **(facts | {"verdict": verdict} | fields))

    def asked(self, command: str, answer: str | None, request: str) -> None:
        made = Exec(command=command)
        self.add("request_asked", session="s", action=msgspec.to_builtins(made),
        fingerprint=fingerprint(made), verdict="ask", rule=None, why="no rule matches; exec asks",
        request=request)  # fmt: skip
        if answer is not None:
            self.add(
                "request_answered",
                session="s",
                request=request,
                answer=answer,
                by=BY,
                reason="",
                rule=None,
            )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "audit.log")


async def record(folder: Path) -> Path:
    """A real session, supervised and answered; the log that it left."""
    settings = settings_in(folder, BASE)
    workspace = make_repository(folder / "project")
    calls = [
        ("/v1/exec", {"command": command, "reason": "to see"})
        for command in (
            "true",
            "rm -rf /tmp/nothing",
            "echo yes",
            "echo no",
            "echo yes",
            "echo hunter 'sk-0123456789abcdefghijk'",
        )
    ]
    calls.append(("/v1/exec", {"command": CONNECTS, "reason": ""}))
    calls.append(("/v1/files/write", {"path": "docs/a.md", "content": "# a\n", "reason": ""}))
    calls.append(("/v1/files/write", {"path": ".envrc", "content": "x\n", "reason": ""}))

    def answer(request: Request) -> Answer | None:
        title = getattr(request.action, "command", "") or getattr(request.action, "path", "")
        return "denied" if title in ("echo no", ".envrc") else "approved"

    async with supervised(settings, names={"host.test": ("127.0.0.1",)}) as running:
        with running.answering(answer):
            await running.run(workspace, *agent_command(*calls))
    async with supervised(settings) as running:  # the same log goes on
        await running.run(
            workspace, *agent_command(("/v1/exec", {"command": "true", "reason": ""}))
        )
    return settings.data_dir / "audit.log"


@pytest.mark.timeout(180)
async def test_a_real_log(tmp_path: Path, run: Run) -> None:
    log = await record(tmp_path)
    verify(log)
    history = read_history(log.read_bytes().splitlines(keepends=True), "log")
    assert {past.workspace for past in history} == {str(tmp_path / "project")}
    by_command = {past.action.command: past for past in history if isinstance(past.action, Exec)}
    assert [by_command[text].persons_answer for text in ("echo yes", "echo no", "true")] == [
        "approved",
        "denied",
        None,
    ]
    assert by_command["true"].rule == "exec(true)"
    assert [past.is_redacted for past in history].count(True) == 1

    # Under the policy that it was made by, nothing changes.
    code, out, _ = run(BASE, "--json", "--fail-if-wider", str(log))
    same = json.loads(out)
    assert (code, same["wider"], same["tighter"], same["changes"]) == (0, 0, 0, [])
    assert same["not_decided"] == {"not_by_policy": 1, "redacted": 1}
    assert same["judged"] == len(history) == same["same"] + 2
    assert same["answers"] == {
        "approved": {"allow": 0, "ask": 4, "deny": 0},
        "denied": {"allow": 0, "ask": 2, "deny": 0},
    }

    code, out, err = run("allow: ['exec(echo *)']", "--fail-if-wider", str(log))
    assert code == 2
    places = [
        out.index(text) for text in ("echo no", "echo yes", "rm -rf", "tighter:", "docs/a.md")
    ]
    assert places == sorted(places)
    assert "ALLOWS WHAT WAS DENIED: a person approved 0, denied 1" in out
    assert "wider than what was recorded: 4 judgements, first `echo no` (ask (" in err


def test_text(run: Run, log: Log) -> None:
    log.asked("make deploy", "denied", "r1")
    log.asked("make test", "approved", "r2")
    log.judged("make test", "ask", request="r3")
    log.judged("git status", "allow", rule="exec(git status)", why="allowed by exec(git status)")
    log.judged("git log", "allow", rule="exec(git log)")
    log.judged("ls", "ask")
    log.judged("ls", "deny", why="everything is stopped: lunch")
    log.judged("curl [redacted]", "ask", fingerprint="another")
    policy = "allow: ['exec(make *)']\ndeny:\n  - {rule: 'exec(git *)', why: not here}\n"
    assert run(policy, str(log.path)) == (0, """\
8 judgements under TMP/other.yaml: 1 same, 3 wider, 2 tighter, 2 not decided anew
  1 not decided anew: Gatehouse itself refused, whatever a policy says
  1 not decided anew: a secret was cut out of the record
of 1 that a person approved: 1 allowed, 0 asked, 0 denied
of 1 that a person denied: 1 allowed, 0 asked, 0 denied

wider:
  1x exec make deploy
      ask (no rule matches; exec asks) -> allow (exec(make *))
      ALLOWS WHAT WAS DENIED: a person approved 0, denied 1
  2x exec make test
      ask (no rule matches; exec asks) -> allow (exec(make *))
      a person approved 1, denied 0

tighter:
  1x exec git log
      allow (exec(git log)) -> deny (exec(git *))
  1x exec git status
      allow (exec(git status)) -> deny (exec(git *))
""", "")  # fmt: skip


def test_json(run: Run, log: Log) -> None:
    log.asked("make deploy", "denied", "r1")
    code, out, err = run("allow: ['exec(make *)']", "--json", str(log.path))
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "against": "TMP/other.yaml", "judged": 1, "same": 0, "wider": 1, "tighter": 0,
        "not_decided": {"not_by_policy": 0, "redacted": 0},
        "answers": {"approved": {"allow": 0, "ask": 0, "deny": 0}, "denied": {"allow": 1, "ask": 0,
        "deny": 0}},
        "changes": [{
            "kind": "wider", "category": "exec", "action": "make deploy", "count": 1, "sessions": 1,
            "before": {"verdict": "ask", "rule": None, "why": "no rule matches; exec asks"},
            "after": {"verdict": "allow", "rule": "exec(make *)", "why": "allowed by exec(make *)"},
            "approved": 0, "denied": 1, "contradicts": "allows what was denied",
        }],
    }  # fmt: skip


def test_the_gate_of_a_team(run: Run, log: Log) -> None:
    log.judged("make x", "ask")
    log.judged("make y", "allow")
    wider, tighter, same = (
        "allow: ['exec(make *)']",
        "deny: ['exec(make *)']",
        "allow: [exec(make y)]",
    )
    for words in ([], ["--json"]):
        assert run(wider, *words, str(log.path))[0] == 0
        code, out, err = run(wider, "--fail-if-wider", *words, str(log.path))
        assert code == 2
        assert "make x" in out
        assert (
            err == "gatehouse: wider than what was recorded: 1 judgement, first `make x` (ask"
            " (recorded) -> allow (exec(make *))); narrow the rules that are named above, or"
            " leave --fail-if-wider out\n"
        )
        assert run(tighter, "--fail-if-wider", *words, str(log.path))[0] == 0
        assert run(same, "--fail-if-wider", *words, str(log.path))[0] == 0


def test_an_empty_log_changes_nothing(run: Run, log: Log) -> None:
    log.path.write_text("")
    assert run(BASE, "--fail-if-wider", str(log.path))[:2] == (0,
    "0 judgements under TMP/other.yaml: 0 same, 0 wider, 0 tighter, 0 not decided anew\n")  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("policy", "log_text", "says"),
    [
        ("allow: [exce(make)]", "", r"TMP/other.yaml:1: unknown category `exce`"),
        ("nonsense: [", "", r"TMP/other.yaml:"),
        (BASE, "not a log\n", r"TMP/audit.log:1: not a record of the audit log"),
        (
            BASE,
            '{"at": 1, "event": "verdict_given"}\n',
            r"TMP/audit.log:1: not a record of the audit log",
        ),
        (BASE, None, r"TMP/audit.log: there is no audit log"),
    ],
)
def test_bad_files_are_one_line_and_exit_1(
    run: Run, log: Log, policy: str, log_text: str | None, says: str
) -> None:
    if log_text is not None:
        log.path.write_text(log_text)
    code, out, err = run(policy, "--fail-if-wider", str(log.path))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert says in err


def test_a_policy_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            [
                "policy",
                "replay",
                "--against",
                str(tmp_path / "none.yaml"),
                str(tmp_path / "none.log"),
            ]
        )
        == 1
    )
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_is_no_log(run: Run, tmp_path: Path) -> None:
    assert run(BASE, str(tmp_path))[0] == 1


def test_without_a_name_it_is_this_installations_log(run: Run, tmp_path: Path, log: Log) -> None:
    code, _, err = run(BASE)
    assert (code, "TMP/no-data/audit.log: there is no audit log" in err) == (1, True)
    log.judged("true", "ask")
    (tmp_path / "no-data").mkdir()
    log.path.rename(tmp_path / "no-data" / "audit.log")
    assert "1 wider" in run(BASE)[1]


def test_what_an_agent_wrote_acts_on_no_terminal(run: Run, log: Log) -> None:
    log.judged("echo \x1b[2J\u202e\n0x exec nothing", "allow", why="\x1b]0;x\x07")
    log.judged(FileChange(operation="write", path="a\x9bb\r"), "allow")
    for words in ([], ["--json"]):
        _, out, _ = run("{}", *words, str(log.path))
        assert all(char == "\n" or (char.isprintable() and char.isascii()) for char in out), out
    _, out, _ = run("{}", str(log.path))
    assert "\n0x" not in out


def test_a_long_action_is_cut_in_text_and_whole_in_json(run: Run, log: Log) -> None:
    log.judged("echo " + "x" * 5000, "allow")
    text, data = run("{}", str(log.path))[1], run("{}", "--json", str(log.path))[1]
    assert "(5005 characters)" in text
    assert len(text) < 1000
    assert len(json.loads(data)["changes"][0]["action"]) == 5005


def test_ten_thousand_records_and_the_same_text_each_time(run: Run, log: Log) -> None:
    lines = []
    for number in range(10_000):
        made = Exec(command=f"make {number % 700}")
        lines.append(json.dumps({"at": 1.0, "event": "verdict_given", "session": f"s{number % 9}",
        "action": msgspec.to_builtins(made), "verdict": "ask", "rule": None,
        "why": "w"}))  # fmt: skip
    log.path.write_text("\n".join(lines) + "\n")
    first = run("allow: ['exec(make 1*)']", str(log.path))
    assert first == run("allow: ['exec(make 1*)']", str(log.path))
    assert first[1].startswith("10000 judgements")


def test_a_pipe_can_not_be_read_twice(run: Run) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    try:
        code, _, err = run(BASE, f"/dev/fd/{reading}")
    finally:
        os.close(reading)
    assert (code, "can't be read twice; give a file" in err) == (1, True)
