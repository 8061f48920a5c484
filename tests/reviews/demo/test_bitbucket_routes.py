"""The demo forge's second tongue, by plain HTTP: what Bitbucket Cloud's documentation says of its
REST API 2.0 and its webhooks, and what it refuses."""

import base64
import hashlib
import hmac
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from supervisor.reviews.demo.bitbucket_json import account, uuid_of
from supervisor.reviews.demo.stage import NAME, SCOPES, Stage, staged

CHANGE = {"shop/cart.py": "def total(items):\n    return sum(items)\n"}
HERE = f"/repositories/{NAME}"


class Said(NamedTuple):
    """An answer: its status, its JSON or text, and its headers."""

    status: int
    body: Any
    headers: Any


class Api:
    """Calls with one token."""

    def __init__(self, stage: Stage, token: str = "", user: str = "") -> None:
        self.stage = stage
        value = token or stage.token_file.read_text()
        basic = base64.b64encode(f"{user}:{value}".encode()).decode()
        self.authorization = f"Basic {basic}" if user else f"Bearer {value}"

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Said:
        url = path if path.startswith("http") else self.stage.api + path
        data = None if body is None else json.dumps(body).encode()
        given = {"Authorization": self.authorization, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, given | headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return read(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            return read(error.code, error.read(), error.headers)

    def get(self, path: str) -> Any:
        said = self("GET", path)
        assert said.status == 200, said
        return said.body


def read(status: int, data: bytes, headers: Any) -> Said:
    try:
        return Said(status, json.loads(data), headers)
    except ValueError:
        return Said(status, data.decode(), headers)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage", "bitbucket") as found:
        found.forge.commit(NAME, "x", CHANGE, "A change", base="main")
        yield found


@pytest.fixture
def api(stage: Stage) -> Api:
    return Api(stage)


def opened(stage: Stage, **more: Any) -> str:
    pull = stage.forge.open_pull(NAME, "x", title="X", body="Why <b>", **more)
    return f"{HERE}/pullrequests/{pull.number}"


def test_a_pull_request_has_short_commits_and_its_ends(stage: Stage, api: Api) -> None:
    found = api.get(opened(stage))
    head = stage.forge.sha(NAME, "x")
    assert found["source"]["commit"]["hash"] == head[:12]
    assert found["source"]["repository"]["full_name"] == NAME
    assert (found["state"], found["draft"], found["description"]) == ("OPEN", False, "Why <b>")
    assert found["summary"]["html"] == "<p>Why &lt;b&gt;</p>"
    assert found["author"]["uuid"] == uuid_of("ada")
    assert api.get(f"{HERE}/commit/{head[:12]}")["hash"] == head
    assert [one["hash"] for one in api.get(f"{HERE}/pullrequests/1/commits")["values"]] == [head]
    assert api.get(f"{HERE}/refs/branches/x")["target"]["hash"] == head
    assert api("GET", f"{HERE}/refs/branches/none").status == 404
    assert api.get(HERE)["mainbranch"]["name"] == "main"
    stage.forge.merge(NAME, 1)
    assert api.get(f"{HERE}/pullrequests")["values"] == []
    (merged,) = api.get(f"{HERE}/pullrequests?state=OPEN&state=MERGED")["values"]
    assert merged["state"] == "MERGED"


def test_the_diff_is_elsewhere(stage: Stage, api: Api) -> None:
    at = opened(stage)
    assert api.get(f"{at}/diff").startswith("diff --git a/shop/cart.py")
    (file,) = api.get(f"{at}/diffstat")["values"]
    assert (file["new"]["path"], file["lines_added"] > 0) == ("shop/cart.py", True)


def test_lists_come_in_pages(stage: Stage, api: Api) -> None:
    at = f"{opened(stage)}/comments"
    for number in range(23):
        assert api("POST", at, {"content": {"raw": f"{number}"}}).status == 201
    found, url = [], f"{at}?pagelen=10"
    while url:
        page = api.get(url)
        found += [one["content"]["raw"] for one in page["values"]]
        url = page.get("next", "")
    assert found == [str(number) for number in range(23)]
    assert page["size"] == 23
    assert api("GET", f"{at}?pagelen=101").status == 400
    newest = api.get(f"{at}?pagelen=1&sort=-created_on")["values"]
    assert newest[0]["content"]["raw"] == "22"


def test_comments_stand_beside_the_code_and_have_answers(stage: Stage, api: Api) -> None:
    at = f"{opened(stage)}/comments"
    place = {"path": "shop/cart.py", "to": 2}
    said = api("POST", at, {"content": {"raw": "No <img> `gatehouse:1`"}, "inline": place})
    assert said.status == 201
    one = said.body
    assert one["content"]["html"] == "<p>No &lt;img&gt; <code>gatehouse:1</code></p>"
    assert (one["inline"]["to"], one["inline"]["from"], one["inline"]["outdated"]) == (
        2,
        None,
        False,
    )
    head = stage.forge.sha(NAME, "x")
    assert f":{head[:12]}.." in one["links"]["code"]["href"]
    assert one["user"]["type"] == "app_user"
    answer = stage.forge.reply(NAME, 1, to=one["id"], author="bob", body="Yes")
    assert api.get(f"{at}/{answer['id']}")["parent"] == {"id": one["id"]}
    assert api("PUT", f"{at}/{answer['id']}", {"content": {"raw": "Ha"}}).status == 403
    assert (
        api("PUT", f"{at}/{one['id']}", {"content": {"raw": "Ha"}}).body["content"]["raw"] == "Ha"
    )
    assert api("POST", f"{at}/{answer['id']}/resolve").status == 403
    assert api("POST", f"{at}/{one['id']}/resolve").body["type"] == "comment_resolution"
    assert api("POST", f"{at}/{one['id']}/resolve").status == 409
    assert api.get(f"{at}/{one['id']}")["resolution"]["user"]["type"] == "app_user"
    assert api("DELETE", f"{at}/{one['id']}/resolve").status == 204
    assert api("DELETE", f"{at}/{one['id']}").status == 204
    gone, kept = api.get(at)["values"]
    assert (gone["deleted"], gone["content"]["raw"], kept["deleted"]) == (True, "", False)
    said = api("POST", at, {"content": {"raw": "All in all"}, "parent": {"id": 1}})
    assert said.status == 404
    general = api("POST", at, {"content": {"raw": "All in all"}}).body
    assert "inline" not in general
    assert api("DELETE", f"{at}/{general['id']}").status == 204
    assert api("GET", f"{at}/{general['id']}").status == 404


def test_a_comment_whose_lines_changed_is_outdated_and_keeps_its_line(
    stage: Stage, api: Api
) -> None:
    at = f"{opened(stage)}/comments"
    place = {"path": "shop/cart.py", "to": 2}
    made = api("POST", at, {"content": {"raw": "No"}, "inline": place}).body
    stage.forge.push(NAME, 1, {"shop/cart.py": "def total(items):\n    return 1\n"}, "Less")
    found = api.get(f"{at}/{made['id']}")["inline"]
    assert (found["to"], found["outdated"]) == (2, True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": {"raw": " "}}, "content"),
        ({"content": {"raw": "x" * 32_769}}, "content"),
        ({"content": {"raw": "x"}, "inline": {"path": "shop/cart.py", "to": 900}}, "inline"),
        ({"content": {"raw": "x"}, "inline": {"path": "none.py", "to": 1}}, "inline"),
    ],
)
def test_a_comment_that_is_refused(stage: Stage, api: Api, body: Any, field: str) -> None:
    said = api("POST", f"{opened(stage)}/comments", body)
    assert said.status == 400
    assert list(said.body["error"]["fields"]) == [field]


def test_verdicts_are_said_and_withdrawn(stage: Stage, api: Api) -> None:
    at = opened(stage)
    assert api("POST", f"{at}/approve").body["state"] == "approved"
    assert api.get(at)["participants"][0]["approved"]
    assert api("DELETE", f"{at}/request-changes").status == 404
    assert api("DELETE", f"{at}/approve").status == 204
    assert api("POST", f"{at}/request-changes").body["state"] == "changes_requested"
    assert api.get(at)["participants"][0]["state"] == "changes_requested"


def test_a_put_replaces_all_of_it(stage: Stage, api: Api) -> None:
    at = opened(stage)
    pull = stage.forge.repositories[NAME].pulls[1]
    pull.tasks.append({"id": 1, "state": "UNRESOLVED"})
    ada = account(stage.forge, "ada")
    assert api("PUT", at, {"title": "Y", "reviewers": [ada]}).body["reviewers"] == [ada]
    found = api.get(at)
    assert (found["title"], found["description"], found["task_count"]) == ("Y", "", 1)
    assert api("PUT", at, {"title": "Y"}).body["reviewers"] == []
    assert api("PUT", at, {"description": "No title"}).status == 400
    assert api.get(f"{at}/tasks")["values"] == pull.tasks
    stage.forge.close(NAME, 1)
    assert api("PUT", at, {"title": "Z"}).status == 400


def test_a_pull_request_is_opened_once(stage: Stage, api: Api) -> None:
    wanted = {"title": "Mine", "source": {"branch": {"name": "x"}}}
    made = api("POST", f"{HERE}/pullrequests", wanted)
    assert (made.status, made.body["destination"]["branch"]["name"]) == (201, "main")
    assert made.body["author"]["type"] == "app_user"
    assert api("POST", f"{HERE}/pullrequests", wanted).body["id"] == made.body["id"]
    for branch in ("none", "main"):
        wanted["source"] = {"branch": {"name": branch}}
        assert api("POST", f"{HERE}/pullrequests", wanted).status == 400
    found = api.get(f"{HERE}/pullrequests?q={quote('source.branch.name="x"')}")["values"]
    assert [one["id"] for one in found] == [made.body["id"]]


def test_a_status_replaces_the_one_of_its_key(stage: Stage, api: Api) -> None:
    opened(stage)
    at = f"{HERE}/commit/{stage.forge.sha(NAME, 'x')}/statuses"
    wanted = {"key": "gatehouse", "state": "INPROGRESS", "url": "https://g.test/1"}
    assert api("POST", f"{at}/build", wanted).status == 201
    done = wanted | {"state": "SUCCESSFUL", "description": "Fine", "name": "Review"}
    assert api("POST", f"{at}/build/", done).status == 201
    (one,) = api.get(at)["values"]
    assert (one["state"], one["description"], one["name"]) == ("SUCCESSFUL", "Fine", "Review")
    for wrong in ({"state": "neutral"}, {"key": "k" * 41}, {"url": "nowhere"}):
        assert api("POST", f"{at}/build", wanted | wrong).status == 400, wrong


def test_who_may_what(stage: Stage, api: Api) -> None:
    stage.forge.repositories[NAME].collaborators = {"ada": "write", "bob": "read"}
    at = f"/workspaces/acme/permissions/repositories/shop?q={quote('permission>"read"')}"
    (one,) = api.get(at)["values"]
    assert (one["permission"], one["user"]["uuid"]) == ("write", uuid_of("ada"))
    own = f"{HERE}/permissions-config/users/{quote(uuid_of('bob'))}"
    assert api.get(own)["permission"] == "read"
    assert api("GET", f"{HERE}/permissions-config/users/{quote('{no}')}").status == 404
    plain = Api(stage, stage.forge.bitbucket_token(NAME, scopes=("repository",)))
    assert plain("GET", at).status == 403


TOKENS = {
    "none": ("nothing", "", 401),
    "expired": ("expired", "", 401),
    "an API token as an access token": ("api", "", 401),
    "an API token with another mail": ("api", "eve@example.org", 401),
    "an API token": ("api", "ada@example.org", 200),
    "another repository's": ("elsewhere", "", 404),
    "no scope": ("scope", "", 403),
    "a read scope": ("read", "", 200),
}


@pytest.mark.parametrize(("kind", "user", "status"), TOKENS.values(), ids=TOKENS)
def test_tokens(stage: Stage, kind: str, user: str, status: int) -> None:
    forge, scopes = stage.forge, ("read:pullrequest:bitbucket", "read:user:bitbucket")
    forge.add_repository("acme/other", {"a": "a"})
    made: dict[str, dict[str, Any]] = {
        "expired": {"names": NAME, "scopes": SCOPES, "lasts_s": -1.0},
        "api": {"names": NAME, "scopes": scopes, "email": "ada@example.org"},
        "elsewhere": {"names": "acme/other", "scopes": SCOPES},
        "scope": {"names": NAME, "scopes": ("webhook",)},
        "read": {"names": NAME, "scopes": ("pullrequest",)},
    }
    more = made.get(kind, {})
    token = forge.bitbucket_token(more.pop("names"), **more) if more else "nothing"
    api = Api(stage, token, user)
    said = api("GET", opened(stage))
    assert said.status == status, said
    if status == 403:
        assert said.body["error"]["detail"] == {"granted": ["webhook"], "required": ["pullrequest"]}
    if kind == "read":
        assert api("POST", f"{HERE}/pullrequests/1/approve").status == 403
        assert said.headers["X-Accepted-OAuth-Scopes"] == "pullrequest"
        assert api("GET", "/user").status == 403, "an access token is no user"
    if status == 200 and user:
        assert api.get("/user")["nickname"] == "ada"


def test_calls_are_counted(stage: Stage, api: Api) -> None:
    stage.forge.calls_left = 2
    assert [api("GET", HERE).status for _ in range(3)] == [200, 200, 429]
    stage.forge.calls_left = None
    assert api("GET", HERE).status == 200


def test_a_forks_commits_are_in_the_fork_alone(stage: Stage, api: Api, tmp_path: Path) -> None:
    forge = stage.forge
    fork = forge.add_repository("mallory/shop", {}, parent=NAME)
    head = forge.commit("mallory/shop", "evil", CHANGE, "Hi", base="main")
    pull = forge.open_pull(
        NAME, "evil", title="X", author="mallory", head_repository="mallory/shop"
    )
    at = f"{HERE}/pullrequests/{pull.number}"
    assert api.get(at)["source"]["repository"]["full_name"] == "mallory/shop"
    assert api.get(f"{at}/diff").startswith("diff --git")
    assert api("GET", f"{HERE}/commit/{head[:12]}").status == 404
    assert api.get(f"/repositories/mallory/shop/commit/{head[:12]}")["hash"] == head
    assert [one["hash"] for one in api.get(f"{at}/commits")["values"]] == [head]
    assert cloned(stage, NAME, tmp_path / "a") == 0
    assert cloned(stage, NAME, tmp_path / "b", head) != 0
    assert cloned(stage, "mallory/shop", tmp_path / "c", head) == 0
    fork.is_public = False
    assert api("GET", "/repositories/mallory/shop").status == 404
    assert cloned(stage, "mallory/shop", tmp_path / "d", head) != 0
    fork.is_gone = True
    assert api.get(at)["source"]["repository"] is None


def cloned(stage: Stage, name: str, folder: Path, wanted: str = "refs/heads/main") -> int:
    """The exit code of git, which fetches with the token of the file."""
    user = f"x-token-auth:{stage.token_file.read_text()}"
    host = stage.forge.url.replace("http://", f"http://{user}@")
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    words = ["git", "-C", str(folder), "fetch", "-q", f"{host}/{name}.git", wanted]
    return subprocess.run(words, capture_output=True, check=False).returncode


def test_git_takes_the_token_of_who_may(stage: Stage, tmp_path: Path) -> None:
    assert cloned(stage, NAME, tmp_path / "a") == 0
    stage.token_file.write_text(stage.forge.bitbucket_token(NAME, scopes=("webhook",)))
    assert cloned(stage, NAME, tmp_path / "b") != 0
    stage.token_file.write_text("nothing")
    assert cloned(stage, NAME, tmp_path / "c") != 0


# -- webhooks -------------------------------------------------------------------------------------


class Receiver:
    """A door for webhooks that answers with these statuses, the last one ever after."""

    def __init__(self, *statuses: int) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        left, got = list(statuses), self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                got.append(({key.lower(): value for key, value in self.headers.items()}, body))
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def keys(self) -> list[str]:
        return [headers["x-event-key"] for headers, _ in self.got]


EVENTS = ["pullrequest:created", "pullrequest:updated", "pullrequest:comment_created", "repo:push"]


def subscribed(api: Api, receiver: Receiver, *events: str) -> str:
    wanted = {"url": receiver.url, "events": events or EVENTS, "secret": "s3cret", "active": True}
    said = api("POST", f"{HERE}/hooks", {"description": "ours", **wanted})
    assert said.status == 201
    assert "s3cret" not in json.dumps(said.body)
    return str(said.body["uuid"])


def test_webhooks_are_signed_and_say_who_did_what(stage: Stage, api: Api) -> None:
    receiver = Receiver(202)
    hook = subscribed(api, receiver)
    opened(stage)
    stage.forge.comment(NAME, 1, author="bob", body="@gatehouse why")
    stage.forge.push(NAME, 1, {"b.py": "b = 1\n"}, "More")
    stage.forge.close(NAME, 1)
    stage.forge.until_sent()
    assert receiver.keys() == [
        *("pullrequest:created", "pullrequest:comment_created", "pullrequest:updated", "repo:push"),
    ]
    headers, body = receiver.got[1]
    wanted = "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature"] == wanted
    assert headers["x-hook-uuid"] == hook.strip("{}")
    assert headers["x-attempt-number"] == "1"
    told = json.loads(body)
    assert told["actor"]["uuid"] == uuid_of("bob")
    assert told["comment"]["content"]["raw"] == "@gatehouse why"
    assert (told["pullrequest"]["id"], told["repository"]["full_name"]) == (1, NAME)
    # As recorded ones have it: what a repository is more, its own address alone tells.
    known = {"type", "uuid", "full_name", "name", "links"}
    for repository in (told["repository"], told["pullrequest"]["source"]["repository"]):
        assert set(repository) == known
    at = f"{HERE}/hooks/{quote(hook)}"
    assert api.get(f"{HERE}/hooks")["values"] == [api.get(at)]
    assert api("PUT", at, {"active": False}).body["active"] is False
    stage.forge.comment(NAME, 1, author="bob", body="Hm")
    stage.forge.until_sent()
    assert len(receiver.got) == 4
    assert api("DELETE", at).status == 204
    assert api("GET", at).status == 404
    assert api("POST", f"{HERE}/hooks", {"url": "https://x.test"}).status == 400


def test_a_webhook_is_sent_again_twice_after_a_server_error(stage: Stage, api: Api) -> None:
    receiver = Receiver(500, 503, 500, 202)
    subscribed(api, receiver, "pullrequest:created")
    opened(stage)
    stage.forge.until_sent()
    assert [headers["x-attempt-number"] for headers, _ in receiver.got] == ["1", "2", "3"]
    assert len({headers["x-request-uuid"] for headers, _ in receiver.got}) == 1
    refused = Receiver(401)
    subscribed(api, refused, "pullrequest:comment_created")
    stage.forge.comment(NAME, 1, author="bob", body="Hm")
    stage.forge.until_sent()
    assert len(refused.got) == 1, "anything but a server error is final"


def test_a_webhook_that_is_too_big_is_never_sent(stage: Stage, api: Api) -> None:
    receiver = Receiver(202)
    subscribed(api, receiver)
    opened(stage)
    stage.forge.comment(NAME, 1, author="bob", body="x" * 300_000)
    stage.forge.comment(NAME, 1, author="bob", body="y")
    stage.forge.until_sent()
    assert receiver.keys() == ["pullrequest:created", "pullrequest:comment_created"]


def test_there_are_no_reactions_labels_or_issues(stage: Stage, api: Api) -> None:
    at = opened(stage)
    for path in (f"{HERE}/issues", f"{at}/labels", f"{at}/comments/1/reactions"):
        assert api("GET", path).status == 404
    assert time.strptime(api.get(at)["created_on"], "%Y-%m-%dT%H:%M:%S.%f%z")
