"""A session's home: one for the agent and for the commands that it asks for, kept with the copy, in
which no command meets what an agent planted."""

import os
from pathlib import Path

import pytest

from supervisor.sandbox.session_home import FILES, FOLDERS
from tests.doors.conftest import House
from tests.tables import share

pytestmark = [pytest.mark.timeout(300)]

# `granted COMMAND`: have a command run by the exec broker, and print what it said.
GRANTED = """
granted() { curl -s "$GATEHOUSE_URL/mcp" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H "Content-Type: application/json" -H "Accept: application/json, text/event-stream" \
  -d "$(python3 -c '
import json, sys
call = {"name": "run_command", "arguments": {"command": sys.argv[1]}}
print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}))' "$1")" |
  python3 -c '
import json, sys
print(json.load(sys.stdin)["result"]["content"][0]["text"])'; }
"""


def run(house: House, script: str, *words: str) -> str:
    """What a supervised script prints; the session is stopped then."""
    given = ("run", "--workspace", str(house.workspace), *words, "--", "bash", "-c")
    started = house.start(*given, f'cd; {GRANTED}{script}\necho THE-""END')
    said = started.until_printed("THE-END")
    house.stop(house.sessions()[0]["id"])
    started.ended()
    return said


def home_of(house: House) -> Path:
    return house.data / "sessions" / house.sessions()[0]["id"] / "home"


@pytest.mark.parametrize("copy", share(["copy", "overlay"], "copy"))
def test_agent_and_commands_share_a_home_that_is_kept_with_the_copy(
    house: House, copy: str
) -> None:
    house.up()
    script = (
        'echo "empty: $(find . -mindepth 1 -size +0 -type f)"; echo one > note; mkdir -p a/b;'
        " granted 'cat ~/note; echo two >> ~/note; echo three > ~/a/b/c'; cat note a/b/c"
    )
    said = run(house, script, f"--copy={copy}")
    assert "empty: \n" in said
    assert "one\ntwo\nthree\n" in said, said
    first = house.sessions()[0]["id"]
    kept = home_of(house)
    assert (kept / "note").read_text() == "one\ntwo\n"
    again = house.start("resume", first, "--", "sh", "-c", "cat ~/note ~/a/b/c; echo THE-''END")
    assert "one\ntwo\nthree\n" in again.until_printed("THE-END")
    house.stop(house.sessions()[0]["id"])
    again.ended()
    assert not kept.exists()
    assert (home_of(house) / "note").exists()


@pytest.mark.many
def test_another_session_and_the_person_have_other_homes(house: House) -> None:
    house.up()
    own = house.folder / ".bashrc"
    own.write_text("echo of the person\n")
    run(house, "echo mine > note; echo planted >> .bashrc")
    said = run(house, "cat note; cat .bashrc; ls -a | tr '\\n' ' '")
    assert "mine" not in said
    assert "planted" not in said
    assert own.read_text() == "echo of the person\n"


def test_no_command_meets_what_an_agent_planted(house: House) -> None:
    """Every name that is ours, as a file, in a folder, by another file in its place, as a link."""
    house.up()
    script = (
        f"for one in {' '.join(FILES)}; do echo PLANTED > $one; ln -sf /tmp/x $one; mv note $one;"
        " rm -f $one; done 2>/dev/null;"
        f" for one in {' '.join(FOLDERS)}; do mkdir -p $one/git $one/pip;"
        " echo PLANTED > $one/config;"
        " echo PLANTED > $one/git/config; echo PLANTED > $one/pip/pip.conf;"
        " mv $one $one.away; rm -rf $one; ln -s /tmp $one; done 2>/dev/null;"
        " git config --global alias.status '!echo PLANTED'; npm config set color always;"
        " echo own: $(git config --global alias.status) $(cat .npmrc);"
        " mkdir -p .local/bin; printf '#!/bin/sh\\necho PLANTED' > .local/bin/git;"
        " chmod +x .local/bin/git; cp .local/bin/git .local/bin/mine;"
        " granted 'grep -r PLANTED ~ --exclude-dir={.local,.npm};"
        " find ~ -type l ! -path ~/.cargo/registry; git status;"
        " bash -lc true; bash -ic true; git config --global --list; mine'"
    )
    said = run(house, script)
    assert "own: !echo PLANTED" in said
    assert "color=always" in said
    # The one that is planted is `mine`, whose name is no system's.
    out = "On branch main\\nnothing to commit, working tree clean\\nPLANTED\\n"
    assert f'"stdout":"{out}"' in said, said
    assert not [one for one in home_of(house).rglob("*") if one.is_symlink()]


def test_a_command_changes_nothing_that_starts_with_others(house: House) -> None:
    house.up()
    script = (
        "granted 'for one in .bashrc .npmrc .config/git/config .config/pip/pip.conf"
        " .cargo/config.toml .ssh/config; do echo x 2>&1 >> ~/$one; done;"
        " rm -f ~/.bashrc; mv ~/.config ~/away; echo fine > ~/.config/other; cat ~/.config/other'"
    )
    said = run(house, script)
    assert said.count("Read-only file system") == 6, said
    assert "fine" in said
    assert said.count("Device or resource busy") == 2
    assert not (home_of(house) / ".config/other").exists()


def test_a_home_of_links_writes_nowhere_on_the_host(house: House) -> None:
    """What an agent left under our names, as an older version lets it, is put aside."""
    house.up()
    outside = house.folder / "outside"
    outside.mkdir()
    first = house.ended("true")
    home = home_of(house)
    for name, target in ((".config", outside), (".npmrc", outside / "npmrc"), (".claude", "/etc")):
        one = home / name
        one.rmdir() if one.is_dir() else one.unlink()
        one.symlink_to(target)
    script = f"{GRANTED}granted 'echo x > ~/.config/a; echo x > ~/.npmrc; ls -a ~'; echo THE-''END"
    again = house.start("resume", first, "--", "bash", "-c", script)
    again.until_printed("THE-END")
    house.stop(house.sessions()[0]["id"])
    again.ended()
    assert list(outside.iterdir()) == []
    assert {one.name.split(".")[1] for one in home_of(house).iterdir() if one.is_symlink()} == {
        "config",
        "npmrc",
        "claude",
    }


def test_a_home_that_an_agent_closed_is_opened_again(house: House) -> None:
    house.up()
    first = house.ended("chmod 0 ~")
    assert home_of(house).stat().st_mode & 0o777 == 0
    again = house.start("resume", first, "--", "sh", "-c", "stat -c %a ~; echo THE-''END")
    assert "\n700\n" in again.until_printed("THE-END")
    house.stop(house.sessions()[0]["id"])
    assert again.ended() == 0


def test_kept_conversations_that_an_agent_closed_are_opened_and_forgotten_once_it_ended(
    house: House,
) -> None:
    program = house.folder / "programs/claude"
    program.parent.mkdir()
    place = "~/.claude/projects/-workspace-merged"
    program.write_text(
        f'#!/bin/sh\nstat -c "mode %a" {place}; chmod 0 {place}; echo BE""GUN; sleep 600\n'
    )
    program.chmod(0o755)
    house.up(ANTHROPIC_API_KEY="sk-ant-of-a-test")
    for _ in range(2):
        path = f"{program.parent}:{os.environ['PATH']}"
        started = house.start("claude", "--workspace", str(house.workspace), PATH=path)
        assert "mode 700\n" in started.until_printed("BEGUN")
        refused = house.run("agents", "forget", "claude")
        assert (refused.returncode, "of Claude Code runs" in refused.stderr) == (1, True), refused
        house.ok("agents", "forget", "codex")
        house.stop(house.sessions()[0]["id"])
        started.ended()
    assert "in 1 workspace" in house.ok("agents", "forget")


def test_what_plans_and_reads_sees_nothing_of_the_home(house: House) -> None:
    """A push is packed by git in the copy (law 12): no alias, no program, no configuration of the
    agent's home is there."""
    house.up()
    script = (
        "mkdir -p .local/bin; printf '#!/bin/sh\\ntouch ~/RAN' > .local/bin/git;"
        " chmod +x .local/bin/git; cd /workspace/merged; git checkout -q -b work;"
        " git -c user.name=A -c user.email=a@b.example commit -q --allow-empty -m empty;"
        " git config --global core.fsmonitor 'touch /home/agent/RAN';"
        ' curl -s "$GATEHOUSE_URL/v1/git" -H "Authorization: Bearer $GATEHOUSE_TOKEN"'
        " -H 'Content-Type: application/json' -d '{\"command\": \"git push origin work\"}'"
    )
    house.start("run", "--workspace", str(house.workspace), "--", "bash", "-c", script)
    (push,) = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "git"], "the push"
    )
    house.ok("approve", push["id"])
    house.until_told(lambda: "work" in house.git("ls-remote", "origin"), "what was pushed")
    assert not (home_of(house) / "RAN").exists()
    house.stop(house.sessions()[0]["id"])


@pytest.mark.many
def test_a_file_larger_than_any_bound_ends_with_a_clear_word(house: House) -> None:
    house.up()
    said = run(house, "truncate -s 100G big")
    assert "File size limit exceeded" in said, said
    assert (home_of(house) / "big").stat().st_size == 0


@pytest.mark.many
def test_sessions_of_a_workspace_share_what_installs_fetched_where_it_is_said(
    house: House,
) -> None:
    house.up(GATEHOUSE_SHARE_CACHES="yes")
    said = run(house, "touch .packages/x; ls -a .packages")
    assert "Read-only file system" in said
    (shared,) = (house.data / "caches").iterdir()
    (shared / "crates" / "kept").write_text("")
    assert "kept" in run(house, "ls .packages/crates .cargo/registry/")
