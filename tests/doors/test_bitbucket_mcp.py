"""`gatehouse bitbucket-mcp` with the protocol's official client, and the same tools on the agent's
`/mcp`, against a forge that speaks Bitbucket's API."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from supervisor.reviews.demo.stage import NAME, Stage, staged
from tests.doors.conftest import Door, Started
from tests.fakes.reviewed import CHANGE

pytestmark = [pytest.mark.xdist_group("bitbucket-doors"), pytest.mark.timeout(300)]
TOOLS = {
    *("bb_current_repo", "bb_list_pull_requests", "bb_get_pull_request"),
    *("bb_get_pull_request_diff", "bb_comment_pull_request", "bb_upsert_inline_comment"),
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage", "bitbucket") as found:
        yield found


def clone(door: Door, stage: Stage) -> Path:
    """A folder that is a clone by its remote."""
    url = f"{stage.forge.url}/{NAME}.git"
    subprocess.run(["git", "init", "-q"], cwd=door.workspace, check=True)
    subprocess.run(["git", "remote", "add", "origin", url], cwd=door.workspace, check=True)
    return door.workspace


def environment(door: Door, stage: Stage, port: int) -> dict[str, str]:
    words = ("bitbucket", "setup", "--token-file", str(stage.token_file), "--repos", NAME)
    env = {"GATEHOUSE_BITBUCKET_API": stage.api, "GATEHOUSE_FORGE_PORT": str(port)}
    done = door.run(*words, "--url", "", **env)
    assert done.returncode == 0, done
    return env


@contextlib.asynccontextmanager
async def client(door: Door, env: dict[str, str], folder: Path) -> AsyncIterator[Client]:
    """The official client with the verb as its server, as an agent's settings start it."""
    given = {"GATEHOUSE_DATA": str(door.data), "PATH": os.environ["PATH"]} | env
    server = StdioServerParameters(
        command=str(door.program), args=["bitbucket-mcp"], env=given, cwd=folder
    )
    async with Client(server) as found:
        yield found


async def call(found: Client, name: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
    result = await found.call_tool(name, arguments)
    assert result.structured_content is not None
    return result.structured_content, bool(result.is_error)


def opened(stage: Stage) -> Any:
    stage.forge.commit(NAME, "feature", CHANGE, "A change", base="main")
    return stage.forge.open_pull(NAME, "feature", title="Count \x1b[31m all")


async def test_reads_need_no_supervisor_and_writes_say_that_they_do(
    door: Door, stage: Stage, free_tcp_port: int
) -> None:
    unknown = door.run("bitbucket-mcp")
    assert unknown.returncode == 1
    assert "run `gatehouse bitbucket setup`" in unknown.stderr
    env, pull, folder = environment(door, stage, free_tcp_port), opened(stage), clone(door, stage)
    async with client(door, env, folder) as found:
        listed = {one.name: one for one in (await found.list_tools()).tools}
        assert listed.keys() == TOOLS
        assert listed["bb_get_pull_request"].input_schema["required"] == ["number"]
        assert await call(found, "bb_current_repo") == ({"repository": NAME}, False)
        (one,) = (await call(found, "bb_list_pull_requests"))[0]["pull_requests"]
        assert (one["number"], one["head_ref"]) == (pull.number, "feature")
        assert "\x1b" not in json.dumps(one, ensure_ascii=False)
        got, _ = await call(found, "bb_get_pull_request", number=pull.number)
        assert len(got["head_sha"]) == 40
        diff, _ = await call(found, "bb_get_pull_request_diff", number=pull.number, start=5)
        assert diff["of_chars"] == len(diff["diff"]) + 5
        assert "@@" in diff["diff"]
        refused, is_error = await call(
            found, "bb_comment_pull_request", number=pull.number, body="Hello"
        )
        assert is_error
        assert refused["remedy"] == "start `gatehouse up --reviews`"
        for wrong in (
            {"number": 1, "repository": "acme/other"},
            {"number": 0},
            {"number": 1, "approve": True},
        ):
            assert (await call(found, "bb_get_pull_request", **wrong))[1], wrong
    # Each call says what it is for.
    ids = [
        one
        for (_, path), one in zip(stage.forge.calls, stage.forge.review_ids, strict=True)
        if path.startswith("/2.0/")
    ]
    assert len(ids) >= 5
    assert all(ids)
    token = stage.token_file.read_text().strip()
    assert token not in json.dumps([got, diff, refused])


def up(door: Door, env: dict[str, str]) -> Started:
    return door.up("--reviews", GATEHOUSE_REVIEW_POLL="1h", **env)


def comments(pull: Any) -> list[tuple[str, int]]:
    """What stands beside the code: first line of each text, and its line."""
    return [(one["body"].splitlines()[0], one["line"]) for one in pull.comments]


async def approving(door: Door, title: str, verb: str = "approve", *more: str) -> None:
    waiting = await asyncio.to_thread(door.until_waiting, title)
    await asyncio.to_thread(door.ok, verb, waiting, *more)


async def test_comments_are_asks_in_the_inbox_and_a_finding_has_one(
    door: Door, stage: Stage, free_tcp_port: int
) -> None:
    env, pull, folder = environment(door, stage, free_tcp_port), opened(stage), clone(door, stage)
    title = f"comment on bitbucket:{NAME}#{pull.number}"
    up(door, env)
    # A rule for the service's own comments covers none of an agent's.
    door.ok("rules", "add", "allow", f"review(comment bitbucket:{NAME} --links)")
    async with client(door, env, folder) as found:

        async def asked(name: str, verb: str = "approve", *more: str, **arguments: Any) -> Any:
            calling = asyncio.create_task(call(found, name, number=pull.number, **arguments))
            await approving(door, title, verb, *more)
            return await calling

        said, is_error = await asked(
            "bb_comment_pull_request", body="Looks *good*, @ada. [x](https://evil.example)"
        )
        assert not is_error, said
        assert said["outcome"]["ok"]
        (comment,) = pull.issue_comments
        assert "Looks *good*" in comment["body"]
        assert "An agent wrote this" in comment["body"]
        assert "](https://evil.example)" not in comment["body"]
        refused, is_error = await asked(
            "bb_comment_pull_request", "deny", "--reason", "not now", body="Again"
        )
        assert is_error
        assert "not now" in refused["why"]
        assert len(pull.issue_comments) == 1
        # The same finding in other words, and at another line after more code above it.
        finding = {
            "path": "shop/cart.py",
            "quote": "return len(items)",
            "kind": "bug",
            "title": "Counts wrongly",
        }
        line = CHANGE["shop/cart.py"].splitlines().index("    return len(items)") + 1
        for body, at in (("This counts wrongly.", line), ("It should count *once*.", line - 1)):
            said, is_error = await asked("bb_upsert_inline_comment", body=body, line=at, **finding)
            assert not is_error, said
        assert comments(pull) == [("It should count *once*.", line)]
        # Its card shows the words and the place; without them there is nothing to post.
        calling = asyncio.create_task(
            call(found, "bb_upsert_inline_comment", number=1, line=line, body="Mm.", **finding)
        )
        waiting = await asyncio.to_thread(door.until_waiting, title)
        shown = await asyncio.to_thread(door.ok, "show", waiting)
        assert "Mm." in shown
        assert "shop/cart.py" in shown
        await asyncio.to_thread(door.ok, "deny", waiting)
        assert (await calling)[1]
        other = finding | {"quote": "def count(items):", "title": "Badly named"}
        await asked("bb_upsert_inline_comment", body="Name it size.", line=line - 1, **other)
        assert len(comments(pull)) == 2
        # What a review said about a finding stays, whatever an agent says about it.
        ours = pull.comments[-1]
        ours["body"] = ours["body"].replace("`gatehouse:at:-:0:", "`gatehouse:at:abc1:")
        await asked("bb_upsert_inline_comment", body="All is fine.", line=line - 1, **other)
        assert len(comments(pull)) == 3
        assert "Name it size." in ours["body"]
    # Nothing here approves or merges.
    assert not pull.verdicts
    assert pull.is_open


# Calls a tool of `/mcp` and prints what came.
AGENT = r"""
call() { curl -s "$GATEHOUSE_URL/mcp" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H "Content-Type: application/json" -H "Accept: application/json, text/event-stream" -d "$1"; }
tool() { printf '\n%s> ' "$1"; call '{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
  "params": {"name": "mcp__bitbucket__'"$1"'", "arguments": '"$2"'}}'; echo; }
env | grep -c ATCT
tool bb_current_repo '{}'
tool bb_get_pull_request '{"number": 1}'
tool bb_comment_pull_request '{"number": 1, "body": "From inside."}'
echo over
"""


async def test_a_session_has_the_same_tools_and_no_token(
    door: Door, stage: Stage, free_tcp_port: int
) -> None:
    env, pull, folder = environment(door, stage, free_tcp_port), opened(stage), clone(door, stage)
    up(door, env)
    door.ok("rules", "add", "allow", "exec(mcp__bitbucket__bb_current_repo *)")
    run = door.start("run", "--workspace", str(folder), "--", "bash", "-c", AGENT)
    await approving(door, 'mcp__bitbucket__bb_get_pull_request {"number":1}')
    await approving(door, f"comment on bitbucket:{NAME}#1")
    printed = await asyncio.to_thread(run.until_printed, "over")
    said = {
        line.partition("> ")[0]: json.loads(line.partition("> ")[2])["result"]
        for line in printed.splitlines()
        if line.startswith("bb_")
    }
    assert not any(one["isError"] for one in said.values()), printed
    assert NAME in json.dumps(said["bb_current_repo"])
    assert "feature" in json.dumps(said["bb_get_pull_request"])
    assert "From inside." in pull.issue_comments[0]["body"]
    assert stage.token_file.read_text().strip() not in printed
    assert "0" in printed.splitlines()
