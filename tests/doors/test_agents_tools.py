"""The tools that an agent has at /mcp, as a program in a sandbox calls them on a real workspace,
each answered by the person's own commands."""

import json
from typing import Any

import pytest

from tests.doors.conftest import House, until

pytestmark = [pytest.mark.timeout(300)]

# Calls each tool that a person puts into a folder of orders, and prints what came, a line each.
AGENT = """
call() { curl -s "$GATEHOUSE_URL/mcp" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H "Content-Type: application/json" -H "Accept: application/json, text/event-stream" -d "$1"; }
tool() { printf '\\n%s> ' "$1"; call '{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
  "params": {"name": "'"$1"'", "arguments": '"$2"'}}'; echo; }
printf 'tools> '
call '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
tool run_command '{"command": "echo it-ran > ran.txt; echo it-said"}'
tool write_file '{"path": "new.txt", "content": "one two\\n"}'
tool edit_file '{"path": "new.txt", "old": "two", "new": "three"}'
tool move_file '{"path": "new.txt", "to": "moved.txt"}'
tool delete_file '{"path": "moved.txt"}'
git add README.md; git checkout -q -b work
git -c user.name=A -c user.email=a@b.example commit -q --allow-empty -m empty
tool run_git '{"command": "git push origin work"}'
tool run_package_manager '{"command": "frobnicate install x"}'
tool propose_rule '{"effect": "allow", "rule": "filesystem(docs/**)", "why": "much to write"}'
tool session_facts '{}'
tool host_changes '{}'
tool list_requests '{"limit": 50}'
id=$(curl -s "$GATEHOUSE_URL/v1/requests?limit=1" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  | grep -o '"id":"[0-9a-f]*"' | head -1 | cut -d'"' -f4)
tool wait_for_request '{"request_id": "'"$id"'", "wait_s": 1}'
tool report_review '{"model": "m", "summary": "s", "verdict": "no", "findings": []}'
tool no_such_tool '{}'
echo 'all> {"result": {"content": [{"text": "done"}]}}'
"""


def said(printed: str) -> dict[str, Any]:
    """What each tool gave: name to its result."""
    found = {}
    for line in printed.splitlines():
        name, is_one, text = line.partition("> ")
        if is_one:
            found[name] = json.loads(text)
    return found


def test_every_tool_works_on_a_real_workspace(house: House) -> None:
    house.up()
    run = house.start("run", "--workspace", str(house.workspace), "--", "bash", "-c", AGENT)
    told = []

    def answered() -> bool:
        for one in house.requests():
            verb = "deny" if one["category"] == "packages" else "approve"
            done = house.run(verb, one["id"])
            told.append((one["title"], done.returncode, done.stdout + done.stderr))
        return "all> " in run.printed or run.process.poll() is not None

    until(answered, "the agent's last call")
    found = said(run.until_printed("all> "))
    tools = {one["name"] for one in found["tools"]["result"]["tools"]}
    assert tools == found.keys() - {"tools", "no_such_tool", "all"}
    text = {name: json.dumps(one) for name, one in found.items()}
    failed = {name for name, one in found.items() if one.get("result", {}).get("isError")}
    assert failed <= {"run_package_manager", "report_review", "no_such_tool"}, (text, told)
    assert "it-said" in text["run_command"]
    assert (house.workspace / "ran.txt").read_text() == "it-ran\n"
    assert not (house.workspace / "moved.txt").exists()
    assert not (house.workspace / "new.txt").exists()
    assert "work" in house.git("ls-remote", "origin")
    assert "filesystem(docs/**)" in house.ok("rules", "list")
    assert "frobnicate" in text["run_package_manager"]
    assert "write new.txt" in text["list_requests"]
    assert house.sessions()[0]["id"] in text["session_facts"]


def test_a_push_is_shown_by_http(house: House) -> None:
    house.up()
    script = AGENT.partition("printf 'tools")[0] + (
        "git checkout -q -b work; git -c user.name=A -c user.email=a@b.example commit -q"
        " --allow-empty -m 'Not much'; tool run_git '{\"command\": \"git push origin work\"}'"
    )
    house.start("run", "--workspace", str(house.workspace), "--", "bash", "-c", script)
    (push,) = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "git"], "it"
    )
    status, card = house.http("GET", f"/api/requests/{push['id']}/push")
    assert (status, "Not much" in json.dumps(card)) == (200, True)
    house.ok("deny", push["id"], "--reason", "not today")
    assert "work" not in house.git("ls-remote", "origin")
