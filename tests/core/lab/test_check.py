"""`policy check`, line by line: what is answered, and that nothing is skipped."""

import json
from typing import Any

import pytest

from supervisor.core.lab.check import OnDisk, answer, answer_line
from supervisor.core.policy.policy_text import policy_from_data
from tests.tables import each_row

POLICY = policy_from_data(
    {
        "allow": ["exec(git log *)", "filesystem(src/**)", "network(127.0.0.1:3700)"],
        "deny": [{"rule": "git(main)", "why": "no"}],
    }
)


def ask(fields: Any, **arguments: Any) -> dict[str, Any]:
    line = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return answer_line(
        line, arguments.pop("policy", POLICY), arguments.pop("workspace", None), 0.0, **arguments
    )


def test_the_answer_is_the_one_of_the_contract() -> None:
    found = ask({"id": "1", "category": "exec", "command": "git log -3", "cwd": "."})
    assert found == {
        "id": "1",
        "verdict": "allow",
        "rule": "exec(git log *)",
        "why": "allowed by exec(git log *)",
    }
    assert list(found) == ["id", "verdict", "rule", "why"]
    assert json.loads(answer(b'{"category": "git", "command": "git push origin main"}', POLICY,
    None, 0.0)) == {
        "id": None, "verdict": "deny", "rule": "git(main)", "why": "denied by git(main): no",
    }  # fmt: skip


@pytest.mark.parametrize("given", ["x", 7, None, 1.5, [1], {"a": 1}])
def test_the_id_comes_back_as_it_was(given: object) -> None:
    assert (
        ask({"id": given, "category": "filesystem", "operation": "write", "path": "src/a"})["id"]
        == given
    )


@each_row(
    ("line", "why"),
    [
        (b"", "not JSON"), (b"{", "not JSON"), (b"\xff", "not JSON"), (b"[]", "not a JSON object"),
        (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, "nested too deeply"),
         (b"3", "not a JSON object"),
        (b"{}", "no `category`"), (b'{"category": 3}', "unknown category"),
        (b'{"category": "sandbox"}', "unknown category"),
        (b'{"category": []}', "unknown category"), (b'{"category": "exec"}', "no `command`"),
        (b'{"category": "exec", "command": 3}', "not text"),
        (b'{"category": "exec", "comand": "ls"}', "did you mean `command`"),
        (b'{"category": "filesystem", "operation": "writ", "path": "a"}', "unknown operation"),
        (b'{"category": "filesystem", "operation": "chmod", "path": "a", "mode": "rwx"}', "`mode`"),
        (b'{"category": "network", "method": "GET"}', "either `url` or `connect`"),
        (b'{"category": "network", "connect": "a.example.com"}', "no port"),
        (b'{"category": "network", "connect": "a:b:443"}', "no valid host"),
        (b'{"category": "network", "url": "a", "method": "GET"}', "not an absolute URL"),
        (b'{"category": "network", "connect": "a.example.com:443", "resolved": "x"}',
         "list of texts"),
        (b'{"category": "git", "command": "git push", "operation": "push"}',
         "either `command` or `operation`"),
        (b'{"category": "git", "operation": "push", "force": "yes"}', "true or false"),
        (b'{"category": "packages", "command": "npm i", "names": []}',
         "either `command` or `names`"),
        (b'{"category": "packages", "operation": "install"}', "no `manager`"),
        (b'{"category": "exec", "command": "ls", "policy": []}', "mapping"),
        (b'{"category": "exec", "command": "ls", "policy": {"allow": ["x"]}}', "names no category"),
        (b'{"category": "exec", "command": "ls", "policy": {"modes": {"exec": "allow"}}}',
         "can't have the mode"),
        (b'{"category": "exec", "command": "ls", "workspace": 3}', "not text"),
    ],
)  # fmt: skip
def test_a_line_that_isn_t_understood_is_denied(line: bytes, why: str) -> None:
    found = ask(line)
    assert found["verdict"] == "deny"
    assert why in found["why"]
    assert found["rule"] is None


def test_without_any_policy_everything_is_denied() -> None:
    assert ask({"category": "exec", "command": "ls"}, policy=None)["verdict"] == "deny"


def test_a_line_brings_its_own_policy_and_workspace() -> None:
    line = {"category": "filesystem", "operation": "write", "path": "src/a"}
    assert ask(line)["verdict"] == "allow"
    assert ask({**line, "policy": {}})["verdict"] == "ask"
    assert (
        ask({**line, "policy": {"modes": {"filesystem": "deny"}}}, policy=None)["verdict"] == "deny"
    )
    inside = {"category": "exec", "command": "cd /w/src && git log", "workspace": "/w"}
    assert ask(inside)["verdict"] == "allow"
    assert ask({**inside, "workspace": "/other"})["verdict"] == "ask"
    assert (
        ask({"category": "exec", "command": "cd /w/src && git log"}, workspace="/w")["verdict"]
        == "allow"
    )


def test_names_that_are_not_utf_8() -> None:
    assert (
        ask({"category": "filesystem", "operation": "write", "path_b64": "c3JjL/8="})["verdict"]
        == "ask"
    )
    assert (
        ask({"category": "filesystem", "operation": "write", "path_b64": "c3JjL2E="})["verdict"]
        == "allow"
    )


def test_the_usual_ports_of_ours_are_never_reached() -> None:
    assert ask({"category": "network", "connect": "127.0.0.1:3700"})["verdict"] == "deny"


def test_remotes_may_be_said() -> None:
    line = {"category": "git", "command": "git push up x", "policy": {"allow": ["git(push up x)"]}}
    assert ask(line)["verdict"] == "deny"
    assert ask({**line, "remotes": ["up"]})["verdict"] == "allow"


def test_a_look_at_the_disk_only_makes_it_stricter() -> None:
    seen = []

    def look(workspace: str, path: str) -> OnDisk:
        seen.append((workspace, path))
        return OnDisk("a link leads out of the workspace" if path == "src/out" else None)

    move = {"category": "filesystem", "operation": "rename", "path": "src/a", "to": "src/out"}
    assert ask(move, look=look, workspace="/w") == {
        "id": None,
        "verdict": "deny",
        "rule": None,
        "why": "a link leads out of the workspace",
    }
    assert seen == [("/w", "src/a"), ("/w", "src/out")]
    assert ask({**move, "to": "src/b"}, look=look)["verdict"] == "allow"


@each_row(
    ("fields", "verdict"),
    [
        ({"path": "src/a.py"}, "allow"),
        ({"path": "src/via/x"}, "deny"),
        ({"path_b64": "c3JjL3ZpYS94"}, "deny"),
        ({"path": "src/repository/config"}, "deny"),
        ({"path": "src/link"}, "ask"),
        ({"path": "src/other/x"}, "ask"),
        ({"operation": "rename", "path": "src/a.py", "to": "src/via/x"}, "deny"),
        ({"operation": "rename", "path": "src/a.py", "to_b64": "c3JjL3ZpYS94"}, "deny"),
        ({"operation": "rename", "path": "src/a.py", "to_b64": "c3JjL2IucHk="}, "allow"),
        ({"operation": "rename", "path": "src/a.py", "to_b64": "c3JjL/8="}, "ask"),
    ],
)
def test_a_path_through_links_is_judged_by_what_it_is_too(
    fields: dict[str, str], verdict: str
) -> None:
    real = {"src/via/x": "secret/x", "src/repository/config": ".git/config", "src/other/x": "lib/x"}
    policy = {"allow": ["filesystem(src/**)"], "deny": ["filesystem(secret/**)"]}
    line = {"category": "filesystem", "operation": "write", "policy": policy, **fields}
    found = ask(line, look=lambda _, path: OnDisk(path=real.get(path), is_link=path == "src/link"))
    assert found["verdict"] == verdict


def test_a_bug_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("supervisor.core.lab.check.evaluate", broken)
    found = ask({"id": 1, "category": "exec", "command": "ls"})
    assert (found["id"], found["verdict"]) == (1, "deny")


def test_many_lines_with_policies_of_their_own() -> None:
    for number in range(600):
        line = {
            "category": "network",
            "connect": f"h{number}.example.com:443",
            "policy": {"allow": [f"network(h{number % 300}.example.com)"]},
        }
        assert ask(line)["verdict"] == ("allow" if number < 300 else "ask")


@pytest.mark.parametrize(
    ("command", "cwd", "verdict"),
    [
        ("git log", ".", "allow"),
        ("cd src && git log", ".", "allow"),
        ("cd out && git log", ".", "ask"),
        ("cd src && cd ../out/deep && git log", ".", "ask"),
        ("git log", "out", "ask"),
        ("cd .. && git log", "src", "allow"),
        ("cd out && rm x", ".", "deny"),
    ],
)
def test_a_command_runs_in_no_folder_that_a_link_leads_to(
    command: str, cwd: str, verdict: str
) -> None:
    line = {"category": "exec", "command": command, "cwd": cwd, "workspace": "/w"}
    policy = {"allow": ["exec(git log *)"], "deny": ["exec(rm *)"]}
    found = ask(
        {**line, "policy": policy},
        look=lambda _, path: OnDisk("a link leads out" if path.startswith("out") else None),
    )
    assert found["verdict"] == verdict
