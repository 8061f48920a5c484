"""The client of GitHub by itself: what it asks for, with what token, and what it makes of what goes
wrong."""

import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from supervisor.core.forge_acts import Act, InlineComment
from supervisor.reviews.cli.app_create import manifest
from supervisor.reviews.demo.forge import PERMISSIONS, DemoPull
from supervisor.reviews.demo.github_json import user_json
from supervisor.reviews.demo.stage import NAME, Stage, staged
from supervisor.reviews.forges.base import FailedDelivery, ForgeError, RepositoryFacts
from supervisor.reviews.forges.github import GitHub

FACTS = RepositoryFacts(
    full_name=NAME,
    external_id=1,
    installation_id=77,
    default_branch="main",
    clone_url="",
    may_resolve=True,
)
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


# -- against the forge on loopback ----------------------------------------------------------------


@contextlib.asynccontextmanager
async def on_stage(folder: Path) -> AsyncIterator[tuple[Stage, DemoPull, GitHub]]:
    """The demo's forge with a pull request, and a client of it."""
    with staged(folder) as stage:
        stage.forge.permissions["contents"] = "write"
        stage.forge.commit(NAME, "x", {"a.py": "1\n2\n3\n"}, "x", base="main")
        pull = stage.forge.open_pull(NAME, "x", title="X")
        key = serialization.load_pem_private_key(stage.key_file.read_bytes(), None)
        client = GitHub(
            api=stage.api,
            app_id=stage.app_id,
            private_key=cast("rsa.RSAPrivateKey", key),
            now=time.time,
        )
        try:
            yield stage, pull, client
        finally:
            await client.close()


def act(operation: str = "post", **more: Any) -> Act:
    base = {"forge": "github", "repository": NAME, "number": 1}
    return Act(operation=operation, **base | more)  # type: ignore[arg-type]


PULLS, WRITES = {"pull_requests": "read"}, {"pull_requests": "write"}


async def test_each_act_has_a_token_for_one_repository_and_what_it_needs(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        stage.forge.add_repository("acme/other", {"a": "b\n"})
        stage.forge.commit(NAME, "y", {"b.py": "1\n"}, "y", base="main")
        comment = InlineComment(finding="f", path="a.py", line=2, body="No.", severity="low")
        review = act(head=pull.head_sha, body="All.", comments=(comment,), verdict="approve")
        posted = await client.post_review(FACTS, review)
        beside = pull.comments[0]["id"]
        said = stage.forge.comment(NAME, 1, author="ada", body="Hi")["id"]
        thread = (await client.threads(FACTS, 1))[0].id
        check = act("check", head=pull.head_sha, title="Review", conclusion="neutral")
        calls: list[tuple[Callable[[], Awaitable[Any]], list[dict[str, str]]]] = [
            (lambda: client.pull(FACTS, 1), [PULLS]),
            (lambda: client.open_pulls(FACTS), [PULLS]),
            (lambda: client.permission(FACTS, "ada"), [{"metadata": "read"}]),
            (lambda: client.clone_token(FACTS), [{"contents": "read"}]),
            (lambda: client.own_reviews(FACTS, 1), [PULLS]),
            (lambda: client.edit_review(FACTS, 1, posted.id, "Other."), [WRITES]),
            (lambda: client.dismiss(FACTS, 1, posted.id, "Old."), [WRITES]),
            (lambda: client.comments(FACTS, 1), [PULLS]),
            (lambda: client.threads(FACTS, 1), [PULLS]),
            (lambda: client.comment(FACTS, 1, said, is_inline=False), [PULLS]),
            (lambda: client.comment(FACTS, 1, beside, is_inline=True), [PULLS]),
            (lambda: client.post_comment(FACTS, act(body="Hm"), "<!-- x -->"), [PULLS, WRITES]),
            (
                lambda: client.reply(FACTS, act(body="Hm", targets=(str(beside),)), "<!-- x -->"),
                [PULLS, PULLS, WRITES],
            ),
            (lambda: client.resolve(FACTS, thread), [WRITES | {"contents": "write"}]),
            (
                lambda: client.react(FACTS, act(body="eyes", targets=(str(said),))),
                [WRITES | {"issues": "write"}],
            ),
            (
                lambda: client.react(FACTS, act(body="eyes", targets=(f"review:{beside}",))),
                [WRITES],
            ),
            (lambda: client.delete_comment(FACTS, 1, beside), [WRITES]),
            (lambda: client.delete_comment(FACTS, 1, beside), [WRITES]),
            (
                lambda: client.set_check(FACTS, pull.head_sha, check, "one"),
                [{"checks": "write"}],
            ),
            (
                lambda: client.open_pull(FACTS, act("open-pr", title="Y", branch="y", base="main")),
                [WRITES],
            ),
        ]
        for call, wanted in calls:
            known = set(stage.forge.tokens)
            await call()
            minted = [one for key, one in stage.forge.tokens.items() if key not in known]
            assert [one.permissions for one in minted] == wanted
            assert all(one.repositories == {NAME} for one in minted)


async def test_what_is_read_is_whole_over_many_pages(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        repository = stage.forge.repositories[NAME]
        review = stage.forge.add_review(
            repository, pull, "gatehouse[bot]", "", "COMMENTED", pull.head_sha
        )
        for number in range(230):
            wanted = {"path": "a.py", "line": 1, "body": str(number)}
            stage.forge.add_beside(repository, pull, "gatehouse[bot]", wanted, review)
        found = await client.comments(FACTS, 1)
        assert [one.body for one in found] == [str(number) for number in range(230)]
        threads = await client.threads(FACTS, 1)
        assert [one.comments for one in threads] == [(one.id,) for one in found]


async def test_comments_say_where_they_stand_and_whose_they_are(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, pull, client):
        comments = tuple(
            InlineComment(finding="f", path="a.py", line=line, body=f"L{line}", severity="low")
            for line in (1, 3)
        )
        posted = await client.post_review(
            FACTS, act(head=pull.head_sha, body="All.", comments=comments)
        )
        first = pull.head_sha
        top = pull.comments[0]["id"]
        stage.forge.reply(NAME, 1, to=top, author="ada", body="Why?")
        stage.forge.push(NAME, 1, {"a.py": "0\n1\nother\n4\n"}, "more")
        kept, outdated, reply = await client.comments(FACTS, 1)
        assert (kept.line, kept.original_line, kept.commit) == (2, 1, first)
        assert (outdated.line, outdated.original_line) == (None, 3)
        assert (kept.author, kept.is_bot, kept.review_id) == ("gatehouse[bot]", True, posted.id)
        assert (reply.author, reply.is_bot, reply.in_reply_to) == ("ada", False, top)
        threads = await client.threads(FACTS, 1)
        assert [one.is_outdated for one in threads] == [False, True]
        assert threads[0].comments == (kept.id, reply.id)
        said = await client.comment(FACTS, 1, reply.id, is_inline=True)
        assert (said.number, said.in_reply_to, said.author) == (1, top, "ada")


async def test_a_comment_is_of_a_pull_request_or_of_an_issue(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        issue = stage.forge.open_issue(NAME, "Slow")
        on_pull = stage.forge.comment(NAME, 1, author="renovate[bot]", body="Hi")
        on_issue = stage.forge.comment(NAME, issue.number, author="ada", body="Hi")
        found = await client.comment(FACTS, None, on_pull["id"], is_inline=False)
        assert (found.number, found.is_bot, found.body) == (1, True, "Hi")
        # Of an issue a token for pull requests learns nothing.
        with pytest.raises(ForgeError) as failed:
            await client.comment(FACTS, None, on_issue["id"], is_inline=False)
        assert (failed.value.status, failed.value.may_retry) == (403, False)


async def test_an_installation_says_whether_threads_may_be_resolved(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, _, client):
        assert [one.may_resolve for one in (await client.installed()).repositories] == [True]
        stage.forge.permissions["contents"] = "read"
        assert [one.may_resolve for one in (await client.installed()).repositories] == [False]
        with pytest.raises(ForgeError, match="not granted to this installation"):
            await client.resolve(FACTS, "PRRT_1")


def test_an_app_that_is_made_may_do_what_the_demos_may() -> None:
    made = manifest("https://reviews.example", "http://127.0.0.1:1/")
    assert made["default_permissions"] == PERMISSIONS


# -- against a server that answers what a test says -----------------------------------------------

type Answered = tuple[int, dict[str, str], bytes]
JSON = {"Content-Type": "application/json; charset=utf-8"}


class Scripted:
    """A server on loopback: `answer` says what it answers; tokens it gives by itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Callable[[str, str], Answered | None] = lambda *_: (200, JSON, b"{}")
        self.url = ""


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    told = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            told.asked.append((self.command, self.path, headers, body))
            found: Answered | None = (201, JSON, b'{"token": "t"}')
            if not self.path.endswith("/access_tokens"):
                found = told.answer(self.command, self.path)
            if found is None:
                self.connection.close()
                return
            self.send_response(found[0])
            for name, value in found[1].items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found[2])))
            self.end_headers()
            self.wfile.write(found[2])

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield told
        server.shutdown()


@contextlib.asynccontextmanager
async def client_of(told: Scripted, base: str = "") -> AsyncIterator[GitHub]:
    client = GitHub(api=told.url + base, app_id="42", private_key=KEY, now=lambda: 1000.0)
    try:
        yield client
    finally:
        await client.close()


async def test_the_app_proves_itself_for_ten_minutes_at_most(scripted: Scripted) -> None:
    scripted.answer = lambda *_: (200, JSON, b'{"slug": "gatehouse"}')
    before = int(time.time())
    async with client_of(scripted) as client:
        assert await client.own_login() == "gatehouse[bot]"
        assert await client.own_login() == "gatehouse[bot]"
    ((_, path, headers, _),) = scripted.asked
    scheme, _, token = headers["authorization"].partition(" ")
    assert (path, scheme.lower(), jwt.get_unverified_header(token)["alg"]) == (
        "/app",
        "bearer",
        "RS256",
    )
    claims = jwt.decode(token, KEY.public_key(), ["RS256"])
    assert claims["iss"] == "42"
    assert before - 61 <= claims["iat"] <= time.time() - 59
    assert time.time() < claims["exp"] <= claims["iat"] + 600
    assert headers["x-github-api-version"] == "2022-11-28"


@pytest.mark.parametrize(
    ("status", "headers", "may_retry", "retry_at"),
    [
        (403, {}, False, None),
        (403, {"Retry-After": "60"}, True, 1060.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2000"}, True, 2000.0),
        (403, {"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "2000"}, False, None),
        (429, {"Retry-After": "60"}, True, 1060.0),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, True, None),
        (429, {}, True, None),
        (401, {}, False, None),
        (404, {}, False, None),
        (422, {}, False, None),
        (500, {}, True, None),
        (502, {}, True, None),
        (503, {"Retry-After": "9"}, True, None),
    ],
)
async def test_what_goes_wrong_says_whether_and_when_to_try_again(
    scripted: Scripted,
    status: int,
    headers: dict[str, str],
    may_retry: bool,
    retry_at: float | None,
) -> None:
    scripted.answer = lambda *_: (status, JSON | headers, b'{"message": "no"}')
    async with client_of(scripted) as client:
        with pytest.raises(ForgeError) as failed:
            await client.pull(FACTS, 1)
    found = failed.value
    assert (found.status, found.may_retry, found.retry_at) == (status, may_retry, retry_at)


async def test_a_secondary_limit_without_a_header_is_a_limit(scripted: Scripted) -> None:
    said = b'{"message": "You have exceeded a secondary rate limit. Please wait."}'
    scripted.answer = lambda *_: (403, JSON, said)
    async with client_of(scripted) as client:
        with pytest.raises(ForgeError) as failed:
            await client.post_comment(FACTS, act(body="x"), "m")
    assert failed.value.may_retry


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, JSON, b"{"), "isn't what GitHub documents"),
        ((200, JSON, b"\xff\xfe"), "isn't what GitHub documents"),
        ((200, {"Content-Type": "application/json; charset=nonsense"}, b"{}"), "isn't what"),
        ((200, JSON, b"[]"), "isn't what GitHub documents"),
        ((200, JSON, b'{"number": "x"}'), "isn't what GitHub documents"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "isn't what GitHub documents"),
        ((204, {}, b""), "isn't what GitHub documents"),
        (None, "can't be reached"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_that_may_pass(
    scripted: Scripted, answer: Answered | None, words: str
) -> None:
    scripted.answer = lambda *_: answer
    async with client_of(scripted) as client:
        for call in (lambda: client.pull(FACTS, 1), lambda: client.threads(FACTS, 1)):
            with pytest.raises(ForgeError) as failed:
                await call()
            assert failed.value.may_retry
            assert words in str(failed.value)


async def test_a_list_that_is_none_is_an_error(scripted: Scripted) -> None:
    async with client_of(scripted) as client:
        for call in (lambda: client.comments(FACTS, 1), client.installed):
            with pytest.raises(ForgeError, match="isn't what GitHub documents"):
                await call()


async def test_nobody_is_sent_elsewhere_with_a_token(scripted: Scripted) -> None:
    scripted.answer = lambda *_: (301, JSON | {"Location": f"{scripted.url}/elsewhere"}, b"{}")
    async with client_of(scripted) as client:
        with pytest.raises(ForgeError) as failed:
            await client.pull(FACTS, 1)
    assert (failed.value.status, failed.value.may_retry) == (301, False)
    assert [path for _, path, _, _ in scripted.asked if "elsewhere" in path] == []


async def test_a_forge_that_is_not_there_may_come_back() -> None:
    told = Scripted()
    told.url = "http://127.0.0.1:1"
    async with client_of(told) as client:
        with pytest.raises(ForgeError, match="can't be reached") as failed:
            await client.own_login()
    assert (failed.value.status, failed.value.may_retry) == (0, True)


@pytest.mark.parametrize(
    ("base", "rest", "graphql"),
    [
        ("", "/repos/acme/shop/pulls/1", "/graphql"),
        ("/api/v3", "/api/v3/repos/acme/shop/pulls/1", "/api/graphql"),
        ("/api/v3/", "/api/v3/repos/acme/shop/pulls/1", "/api/graphql"),
    ],
)
async def test_an_enterprise_server_has_graphql_beside_rest(
    scripted: Scripted, base: str, rest: str, graphql: str
) -> None:
    page = {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}}
    data = {"data": {"repository": {"pullRequest": {"reviewThreads": page}}}}
    scripted.answer = lambda *_: (200, JSON, json.dumps(data).encode())
    async with client_of(scripted, base) as client:
        with contextlib.suppress(ForgeError):
            await client.pull(FACTS, 1)
        assert await client.threads(FACTS, 1) == []
    paths = [path for _, path, _, _ in scripted.asked]
    token = rest.replace("repos/acme/shop/pulls/1", "app/installations/77/access_tokens")
    assert paths == [token, rest, token, graphql]


@pytest.mark.parametrize(
    ("errors", "status", "may_retry"),
    [
        ([{"type": "FORBIDDEN", "message": "Resource not accessible"}], 403, False),
        ([{"type": "NOT_FOUND", "message": "no node"}], 404, False),
        ([{"type": "RATE_LIMITED", "message": "API rate limit"}], 429, True),
        ([{"message": "Parse error"}], 422, False),
    ],
)
async def test_what_graphql_refuses_with_status_200_is_an_error(
    scripted: Scripted, errors: list[Any], status: int, may_retry: bool
) -> None:
    said = json.dumps({"data": None, "errors": errors}).encode()
    scripted.answer = lambda *_: (200, JSON, said)
    async with client_of(scripted) as client:
        with pytest.raises(ForgeError) as failed:
            await client.resolve(FACTS, "PRRT_1")
    assert (failed.value.status, failed.value.may_retry) == (status, may_retry)


async def test_a_delivery_that_was_taken_the_second_time_is_none_that_failed(
    scripted: Scripted,
) -> None:
    lines = [
        {"id": 3, "guid": "a", "event": "pull_request", "status_code": 202},
        {"id": 2, "guid": "b", "event": "pull_request", "status_code": 502},
        {"id": 1, "guid": "a", "event": "pull_request", "status_code": 0},
    ]
    scripted.answer = lambda *_: (200, JSON, json.dumps(lines).encode())
    async with client_of(scripted) as client:
        found = await client.failed_deliveries()
    assert found == [FailedDelivery(id=2, guid="b", event="pull_request")]


async def test_a_comment_of_somebody_who_is_gone_is_nobodys(scripted: Scripted) -> None:
    one = {"id": 1, "user": None, "body": None, "html_url": "https://github.com/a/b/issues/7#i-1"}
    scripted.answer = lambda *_: (200, JSON, json.dumps(one).encode())
    async with client_of(scripted) as client:
        found = await client.comment(FACTS, None, 1, is_inline=False)
    assert (found.author, found.is_bot, found.number) == ("ghost", False, None)
    assert user_json("renovate[bot]")["type"] == "Bot"
    repository = {"full_name": FACTS.full_name}
    end = {"ref": "x", "sha": "a" * 40, "repo": repository}
    pull = {"number": 7, "title": "X", "user": None, "state": "open", "head": end, "base": end}
    scripted.answer = lambda *_: (200, JSON, json.dumps([pull]).encode())
    async with client_of(scripted) as client:
        (opened,) = await client.open_pulls(FACTS)
    assert opened.author == "ghost"


async def test_an_error_that_says_our_credentials_back_is_told_without_them(
    scripted: Scripted,
) -> None:
    token = f"ghs_123456_eyJhbGciOiJSUzI1NiJ9.{'aB3_' * 20}.{'x-Y9' * 20}"
    said = {"message": f"Bad `Authorization: Basic eDp5` or token {token}"}
    scripted.answer = lambda *_: (422, JSON, json.dumps(said).encode())
    async with client_of(scripted) as client:
        with pytest.raises(ForgeError) as failed:
            await client.pull(FACTS, 1)
    assert str(failed.value).startswith("GET /repos/acme/shop/pulls/1: 422, Bad `Authorization: ")
    assert token not in str(failed.value)
    assert "eDp5" not in str(failed.value)
