"""Bitbucket Cloud's client, against the demo's forge and against servers that answer nonsense."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from supervisor.core.forge_acts import Act, InlineComment
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken, read_token
from supervisor.reviews.core.posts import mark
from supervisor.reviews.demo import bitbucket_json
from supervisor.reviews.demo.bitbucket_json import uuid_of
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.stage import NAME, SCOPES, Stage, staged
from supervisor.reviews.forges import bitbucket_calls
from supervisor.reviews.forges.base import REVIEW_ID, ForgeError, RepositoryFacts
from supervisor.reviews.forges.bitbucket import Bitbucket

TOKEN = "ATCTT3" + "x" * 40
FACTS = RepositoryFacts(
    forge="bitbucket",
    full_name=NAME,
    external_id=0,
    installation_id=0,
    default_branch="main",
    clone_url="http://127.0.0.1/acme/shop.git",
    may_resolve=True,
)


def client_of(api: str, token: Callable[[], BitbucketToken], folder: Path) -> Bitbucket:
    return Bitbucket(
        api=api,
        token=token,
        repositories=(NAME,),
        account_file=folder / "account.json",
        now=time.time,
        monotonic=time.monotonic,
    )


@contextlib.asynccontextmanager
async def on_stage(folder: Path) -> AsyncIterator[tuple[Stage, DemoPull, Bitbucket]]:
    """The demo's forge with a pull request, and a client of it."""
    with staged(folder, "bitbucket") as stage:
        stage.forge.commit(NAME, "x", {"a.py": "1\n2\n3\n"}, "x", base="main")
        pull = stage.forge.open_pull(NAME, "x", title="X")
        client = client_of(
            stage.api, lambda: read_token(stage.token_file.read_text(), "the token"), folder
        )
        try:
            yield stage, pull, client
        finally:
            await client.close()


def act(operation: str = "post", **more: Any) -> Act:
    base = {"forge": "bitbucket", "repository": NAME, "number": 1}
    return Act(operation=operation, **base | more)  # type: ignore[arg-type]


async def test_hashes_are_whole_and_a_poll_asks_once_while_nothing_changes(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        (found,) = await client.open_pulls(FACTS)
        assert found.head_sha == pull.head_sha
        assert found.base_sha == stage.forge.sha(NAME, "main")
        count = len(stage.forge.calls)
        assert await client.open_pulls(FACTS) == [found]
        assert len(stage.forge.calls) == count + 2, "the list, and the base"
        assert await client.pull(FACTS, 1) == found
        stage.forge.close(NAME, 1)
        assert (await client.pull(FACTS, 1)).head_sha == pull.head_sha
        stage.forge.merge(NAME, stage.forge.open_pull(NAME, "x", title="Y").number)
        assert (await client.pull(FACTS, 2)).head_sha == pull.head_sha, "it adds nothing any more"


async def test_another_commit_with_the_same_short_hash_is_another_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve digits are found twice in seconds; here they are one, and there are few tries."""
    monkeypatch.setattr(bitbucket_json, "SHORT", 1)
    async with on_stage(tmp_path) as (stage, pull, client):
        first = pull.head_sha
        assert (await client.pull(FACTS, 1)).head_sha == first
        assert (await client.head_source(FACTS, 1)).sha == first
        assert [one.head_sha for one in await client.open_pulls(FACTS)] == [first]
        for number in range(1000):
            stage.forge.commit(NAME, "x", {"a.py": f"{number}\n"}, "Other")
            if stage.forge.sha(NAME, "x")[0] == first[0]:
                break
        second = stage.forge.pushed(NAME, 1)
        assert second[0] == first[0]
        assert (await client.pull(FACTS, 1)).head_sha == second
        assert (await client.head_source(FACTS, 1)).sha == second
        assert [one.head_sha for one in await client.open_pulls(FACTS)] == [second]
        # A base is told by its branch.
        assert (await client.pull(FACTS, 1)).base_sha == stage.forge.sha(NAME, "main")


async def test_a_head_that_moves_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):

        def moves() -> None:
            stage.forge.after.clear()
            stage.forge.push(NAME, 1, {"a.py": "9\n"}, "Meanwhile")

        stage.forge.after["GET", "/pullrequests/1"] = moves
        with pytest.raises(ForgeError, match="moved while it was read") as moved:
            await client.pull(FACTS, 1)
        assert moved.value.may_retry
        assert (await client.pull(FACTS, 1)).head_sha == pull.head_sha


async def test_a_comment_that_quotes_a_mark_is_not_what_was_said(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (_, pull, client):
        quoted = "You wrote `gatehouse:act:ab`:\n\n`gatehouse:act:cd`"
        for body, own in (
            (quoted, "`gatehouse:act:cd`"),
            ("Yes.\n\n`gatehouse:act:ab`", "`gatehouse:act:ab`"),
        ):
            await client.post_comment(FACTS, act("comment", body=body), own)
        assert [one["body"] for one in pull.issue_comments][1].startswith("Yes.")
        assert len(pull.issue_comments) == 2


async def test_who_may_write_goes_by_the_account_and_not_by_its_nickname(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        stage.forge.repositories[NAME].collaborators = {"ada": "write", "bob": "read"}
        assert await client.permission(FACTS, f"ada {uuid_of('ada')}") == "write"
        assert await client.permission(FACTS, f"renamed {uuid_of('ada')}") == "write"
        for other in (f"ada {uuid_of('mallory')}", f"bob {uuid_of('bob')}", "ada", "ghost"):
            assert await client.permission(FACTS, other) == "none"
        asked = [path for _, path in stage.forge.calls if "permissions" in path]
        assert len(asked) == 1, "one call tells of all, for a minute"


async def test_whose_an_access_token_is_is_learnt_and_kept(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        assert await client.own_login() == ""
        assert await client.own_names() == ("gatehouse",)
        stage.forge.comment(NAME, 1, author="ada", body=f"Mine.\n\n{mark('ab12', 'bitbucket')}")
        assert await client.own_reviews(FACTS, 1) == []
        made = act(head=pull.head_sha, body=f"All.\n\n{mark('ab12', 'bitbucket')}")
        posted = await client.post_review(FACTS, made)
        assert [one.id for one in await client.own_reviews(FACTS, 1)] == [posted.id]
        login = f"gatehouse {uuid_of('gatehouse')}"
        assert await client.own_login() == login
        again = client_of(stage.api, lambda: BitbucketToken(stage.token_file.read_text()), tmp_path)
        assert await again.own_login() == login
        await again.close()
        other = client_of(stage.api, lambda: BitbucketToken(TOKEN), tmp_path)
        assert await other.own_login() == "", "another token may be another's"
        await other.close()


async def test_an_api_token_says_whose_it_is(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        scopes = ("read:user:bitbucket", *SCOPES)
        value = stage.forge.bitbucket_token(NAME, scopes=scopes, email="bot@example.org")
        stage.token_file.write_text(f"bot@example.org:{value}\nexpires: 2031-01-02\n")
        assert await client.own_login() == f"bot {uuid_of('bot')}"
        assert (await client.own_names())[:3] == ("gatehouse", uuid_of("bot"), ANY)
        assert (await client.clone_token(FACTS)) == f"x-bitbucket-api-token-auth:{value}"
        assert client.notice() == ""
        stage.token_file.write_text(f"bot@example.org:{value}\nexpires: 2021-01-02\n")
        assert client.notice().startswith("Bitbucket's token expired on 2021-01-02")


async def test_a_token_that_was_replaced_counts_at_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        good = stage.token_file.read_text()
        stage.token_file.write_text(TOKEN)
        with pytest.raises(ForgeError, match="put a new token") as refused:
            await client.pull(FACTS, 1)
        assert refused.value.may_retry
        assert TOKEN not in str(refused.value)
        stage.token_file.write_text("")
        with pytest.raises(ForgeError, match="is empty") as unread:
            await client.pull(FACTS, 1)
        assert unread.value.may_retry
        stage.token_file.write_text(good)
        assert (await client.pull(FACTS, 1)).number == 1


async def test_an_edit_keeps_what_it_is_not_about(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (_, pull, client):
        pull.reviewers, pull.is_draft = [{"uuid": uuid_of("bob"), "type": "user"}], True
        pull.tasks.append({"id": 7, "state": "UNRESOLVED"})
        await client.update_pull(FACTS, act("update-pr", title="Other", body="New."))
        assert (pull.title, pull.body, pull.base_ref) == ("Other", "New.", "main")
        assert pull.is_draft
        assert [one["uuid"] for one in pull.reviewers] == [uuid_of("bob")]
        assert pull.tasks == [{"id": 7, "state": "UNRESOLVED"}]


async def test_threads_are_those_beside_the_code_and_are_resolved_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        repository = stage.forge.repositories[NAME]
        wanted = {"path": "a.py", "line": 2, "body": "No."}
        stage.forge.add_beside(repository, pull, "gatehouse", wanted)
        stage.forge.reply(NAME, 1, to=pull.comments[0]["id"], author="ada", body="Why?")
        stage.forge.comment(NAME, 1, author="ada", body="Hm")
        (thread,) = await client.threads(FACTS, 1)
        assert thread.comments == tuple(one["id"] for one in pull.comments)
        assert not thread.is_resolved
        for _ in range(2):
            await client.resolve(FACTS, thread.id)
        assert (await client.threads(FACTS, 1))[0].is_resolved
        first, answer = await client.comments(FACTS, 1)
        assert (first.line, first.in_reply_to, answer.in_reply_to) == (2, None, first.id)
        said = await client.comment(FACTS, 1, answer.id, is_inline=True)
        assert (said.author, said.in_reply_to) == (f"ada {uuid_of('ada')}", first.id)
        reply = act(
            "reply", body="Because.\n\n`gatehouse:act:ab`", targets=(f"review:{answer.id}",)
        )
        made = [await client.reply(FACTS, reply, "`gatehouse:act:ab`") for _ in range(2)]
        assert made[0] == made[1]
        await client.delete_comment(FACTS, 1, made[0].id)
        await client.delete_comment(FACTS, 1, made[0].id)


async def test_lists_are_whole_over_many_pages(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        repository = stage.forge.repositories[NAME]
        for number in range(230):
            wanted = {"path": "a.py", "line": 1, "body": str(number)}
            stage.forge.add_beside(repository, pull, "ada", wanted)
        found = await client.comments(FACTS, 1)
        assert [one.body for one in found] == [str(number) for number in range(230)]


async def test_a_list_that_has_no_end_is_not_told_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        for number in range(201):
            stage.forge.comment(NAME, 1, author="ada", body=str(number))
        monkeypatch.setattr(bitbucket_calls.BitbucketCalls.all, "__defaults__", (2,))
        with pytest.raises(ForgeError, match="more than 2 pages"):
            await client.comments(FACTS, 1)
        monkeypatch.setattr(bitbucket_calls.BitbucketCalls.all, "__defaults__", (3,))
        assert await client.comments(FACTS, 1) == []


async def test_a_finding_stands_once_whichever_run_posts_it(tmp_path: Path) -> None:
    """A run that died after its comments; the next one posts what it left, for another head."""
    async with on_stage(tmp_path) as (_, pull, client):
        comment = InlineComment(finding="ab" * 8, path="a.py", line=2, body="No.", severity="low")
        for run in ("a1", "b2"):
            body = f"All.\n\n{mark(run, 'bitbucket')}"
            made = act(head=pull.head_sha, body=body, comments=(comment,))
            await client.post_review(FACTS, made)
        assert len(pull.comments) == 1
        # A prompt of the repository may say the same, as its own.
        prompt = "Said.\n\n`gatehouse:prompt:p:c3`"
        await client.post_review(FACTS, act(body=prompt, title="p", comments=(comment,)))
        assert len(pull.comments) == 2
        ours, prompts = await client.comments(FACTS, 1)
        assert ours.review_id == pull.issue_comments[0]["id"]
        assert prompts.review_id is None, "who takes a run back leaves it"


async def test_a_pull_request_of_a_branch_is_opened_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        stage.forge.commit(NAME, "gatehouse/j-1", {"b.py": "1\n"}, "y", base="main")
        body = "Job.\n\n`gatehouse:job:j:ab:0`"
        wanted = act("open-pr", number=0, title="J", body=body, branch="gatehouse/j-1", base="main")
        first = await client.open_pull(FACTS, wanted)
        assert await client.open_pull(FACTS, wanted) == first
        (found,) = await client.pulls_of_branch(FACTS, "gatehouse/j-1")
        assert (found.number, found.author) == (first.id, await client.own_login())
        stage.forge.close(NAME, first.id)
        (found,) = await client.pulls_of_branch(FACTS, "gatehouse/j-1")
        assert not found.is_open
        assert found.closed_at is not None
        head = await client.branch_head(FACTS, "gatehouse/j-1")
        assert head == stage.forge.sha(NAME, "gatehouse/j-1")
        assert await client.branch_head(FACTS, "none") == ""
        with pytest.raises(ForgeError, match="no issues"):
            await client.own_issues(FACTS)


async def test_calls_beyond_the_limit_are_put_off_and_not_made(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        stage.forge.calls_left = 0
        with pytest.raises(ForgeError) as refused:
            await client.pull(FACTS, 1)
        assert (refused.value.status, refused.value.may_retry) == (429, True)
        assert refused.value.retry_at is not None
        assert refused.value.retry_at > time.time() + 50
        count = len(stage.forge.calls)
        with pytest.raises(ForgeError) as waits:
            await client.pull(FACTS, 1)
        assert waits.value.retry_at is not None
        assert len(stage.forge.calls) == count


# -- what answers nonsense ------------------------------------------------------------------------


class Server:
    """Answers each path as it is told; `seen` has what came in."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any, dict[str, str]]] = {}
        self.seen: list[tuple[str, str, str]] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = self.headers
                server.seen.append(
                    (self.path, headers["Authorization"] or "", headers["X-Review-Id"] or "")
                )
                status, body, more = server.answers.get(self.path, (404, {}, {}))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(data)

            def log_message(self, *facts: Any) -> None:
                """Log nothing."""

        self.served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.served.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.served.server_address[1]}"


@contextlib.contextmanager
def server() -> Iterator[Server]:
    found = Server()
    try:
        yield found
    finally:
        found.served.shutdown()
        found.served.server_close()


PULL = f"/2.0/repositories/{NAME}/pullrequests/1"
COMMENTS = f"{PULL}/comments?pagelen=100"


async def test_the_token_goes_nowhere_but_to_the_api(tmp_path: Path) -> None:
    with server() as api, server() as evil:
        client = client_of(f"{api.url}/2.0", lambda: BitbucketToken(TOKEN), tmp_path)
        api.answers[COMMENTS] = (200, {"values": [], "next": f"{evil.url}/2.0/x"}, {})
        with pytest.raises(ForgeError, match="documents"):
            await client.comments(FACTS, 1)
        api.answers[f"{PULL}/diff"] = (302, b"", {"Location": f"{evil.url}/2.0/diff"})
        with pytest.raises(ForgeError, match="documents"):
            await client.pull_diff(FACTS, 1)
        api.answers[f"{PULL}/diff"] = (302, b"", {"Location": "/2.0/there"})
        api.answers["/2.0/there"] = (200, b"diff", {})
        assert await client.pull_diff(FACTS, 1) == b"diff"
        clone = {"name": "https", "href": f"{evil.url}/acme/shop.git"}
        there = {"full_name": NAME, "links": {"clone": [clone]}}
        api.answers[f"/2.0/repositories/{NAME}"] = (200, there, {})
        found = await client.installed()
        assert (found.repositories, found.unread_names) == ((), {NAME})
        assert evil.seen == []
        assert {one[1] for one in api.seen} == {f"Bearer {TOKEN}"}
        await client.close()


async def test_each_call_says_what_it_is_for(tmp_path: Path) -> None:
    with server() as api:
        client = client_of(f"{api.url}/2.0", lambda: BitbucketToken(TOKEN), tmp_path)
        api.answers[COMMENTS] = (200, {"values": []}, {})
        await client.comments(FACTS, 1)
        REVIEW_ID.set("run-7")
        await client.comments(FACTS, 1)
        first, second = (one[2] for one in api.seen)
        assert (len(first), second) == (16, "run-7")
        await client.close()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000, b"[]", {"values": 3}, {"values": [{"id": "x"}]}, b"\xff\xfe"],
)
async def test_what_is_no_answer_says_so(tmp_path: Path, body: Any) -> None:
    with server() as api:
        client = client_of(f"{api.url}/2.0", lambda: BitbucketToken(TOKEN), tmp_path)
        api.answers[COMMENTS] = (200, body, {})
        with pytest.raises(ForgeError, match="documents"):
            await client.comments(FACTS, 1)
        await client.close()


async def test_answers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitbucket_calls, "MOST_BYTES", 1000)
    with server() as api:
        client = client_of(f"{api.url}/2.0", lambda: BitbucketToken(TOKEN), tmp_path)
        api.answers[f"{PULL}/diff"] = (200, b"x" * 2000, {})
        with pytest.raises(ForgeError, match="more than"):
            await client.pull_diff(FACTS, 1)
        words = {"error": {"message": f"no {TOKEN} " + "y" * 5000}}
        api.answers[PULL] = (400, words, {})
        with pytest.raises(ForgeError) as refused:
            await client.pull(FACTS, 1)
        assert len(str(refused.value)) < 600
        assert TOKEN not in str(refused.value)
        await client.close()


async def test_answers_that_turn_in_a_ring_have_an_end(tmp_path: Path) -> None:
    ring = [
        {"id": one, "parent": {"id": 3 - one}, "inline": {"path": "a", "to": 1}} for one in (1, 2)
    ]
    with server() as api:
        client = client_of(f"{api.url}/2.0", lambda: BitbucketToken(TOKEN), tmp_path)
        api.answers[COMMENTS] = (200, {"values": ring}, {})
        assert len(await client.comments(FACTS, 1)) == 2
        assert len(await client.threads(FACTS, 1)) >= 1
        await client.close()
