"""The demo forge as an App sees it: GitHub's REST API, and git over HTTP, on loopback.

It refuses as the real one does: a remark outside of the diff fails the whole review (422), a diff
of more than 300 files isn't given (406), a token works only for what it was minted for (403, 404),
and only until it expires (401). Git is served by git's own `git http-backend`
(git-http-backend(1)), as a CGI program.
"""

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from supervisor.reviews.demo import conversation_routes, pull_page
from supervisor.reviews.demo.api_call import Call, Refusal, page, pull_of, refuse
from supervisor.reviews.demo.conversation import user_json
from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import DemoIssue, Json, run_git

MOST_DIFF_FILES, MOST_DIFF_LINES = 300, 20_000
_API = "/api"


def _tokens(call: Call, installation: str) -> tuple[int, Any]:
    call.as_app()
    if int(installation) != call.forge.installation:
        refuse(404, "Not Found")
    wanted = call.json
    token = call.forge.mint(
        int(installation), wanted.get("repositories", []), wanted.get("permissions", {})
    )
    if token is None:
        refuse(422, "The permissions requested are not granted to this installation.")
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(token.expires_at))
    body = {"token": token.value, "expires_at": expires, "permissions": token.permissions}
    return 201, body


def _convert(call: Call, code: str) -> tuple[int, Any]:
    made = call.forge.manifests.pop(code, None)
    if made is None:
        refuse(404, "Not Found")
    return 201, made


def _app(call: Call) -> tuple[int, Any]:
    call.as_app()
    slug = call.forge.app_login.removesuffix("[bot]")
    return 200, {"id": int(call.forge.app_id), "slug": slug, "name": slug}


def _installations(call: Call) -> tuple[int, Any]:
    call.as_app()
    account = {"login": "acme", "type": "Organization"}
    found = [
        {
            "id": number,
            "account": account,
            "permissions": call.forge.permissions,
            "suspended_at": None,
        }
        for number in (*call.forge.lost_installations, call.forge.installation)
    ]
    return 200, page(call, found)


def _installed(call: Call) -> tuple[int, Any]:
    token = call.forge.tokens.get(call.authorization.partition(" ")[2])
    if token is None:
        refuse(401, "Bad credentials")
    found = [
        call.forge.repository_json(call.forge.repositories[one])
        for one in sorted(token.repositories)
    ]
    return 200, {"total_count": len(found), "repositories": page(call, found)}


def _deliveries(call: Call) -> tuple[int, Any]:
    call.as_app()
    with call.forge.lock:
        sent = list(reversed(call.forge.sent))
    return 200, [
        {
            "id": one.id,
            "guid": one.guid,
            "event": one.event,
            "redelivery": one.redelivery,
            "status": "OK" if 200 <= one.status < 300 else "failed",
            "status_code": one.status,
        }
        for one in sent[: int(call.query.get("per_page", 30))]
    ]


def _redeliver(call: Call, delivery: str) -> tuple[int, Any]:
    call.as_app()
    if not call.forge.redeliver(int(delivery)):
        refuse(404, "Not Found")
    return 202, {}


def _repository(call: Call, name: str) -> tuple[int, Any]:
    return 200, call.forge.repository_json(call.repository(name, "metadata"))


def _pulls(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    wanted = call.query.get("state", "open")
    head = call.query.get("head", "")
    pulls = list(repository.pulls.values())
    if call.query.get("direction") == "desc":
        pulls.reverse()
    found = [
        call.forge.pull_json(repository, one)
        for one in pulls
        if wanted == "all" or one.is_open == (wanted == "open")
        if not head or head == f"{one.head_repository.partition('/')[0]}:{one.head_ref}"
    ]
    return 200, page(call, found)


def _one_pull(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    pull = pull_of(repository, number)
    if "diff" not in call.accept:
        return 200, call.forge.pull_json(repository, pull)
    patch = call.forge.patch(repository, pull)
    files = patch.count("\ndiff --git ") + patch.startswith("diff --git ")
    if files > MOST_DIFF_FILES or patch.count("\n") > MOST_DIFF_LINES:
        errors = {"resource": "PullRequest", "field": "diff", "code": "too_large"}
        refuse(406, "Sorry, the diff exceeded the maximum number of files (300)", errors)
    return 200, patch


def _open_pull(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    wanted = call.json
    try:
        call.forge.sha(name, wanted["head"])
    except RuntimeError:
        refuse(422, "Validation Failed", {"field": "head", "code": "invalid"})
    for one in repository.pulls.values():
        if one.is_open and (one.head_ref, one.base_ref) == (wanted["head"], wanted["base"]):
            refuse(422, "Validation Failed", {"message": "A pull request already exists"})
    pull = call.forge.open_pull(
        name,
        wanted["head"],
        title=wanted["title"],
        author=call.forge.app_login,
        body=wanted.get("body", ""),
        base=wanted["base"],
    )
    return 201, call.forge.pull_json(repository, pull)


def _change_pull(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull, wanted = pull_of(repository, number), call.json
    pull.title, pull.body = wanted.get("title", pull.title), wanted.get("body", pull.body)
    return 200, call.forge.pull_json(repository, pull)


def _ref(call: Call, name: str, branch: str) -> tuple[int, Any]:
    call.repository(name, "contents")
    try:
        sha = call.forge.sha(name, unquote(branch))
    except RuntimeError:
        refuse(404, "Not Found")
    return 200, {"ref": f"refs/heads/{branch}", "object": {"type": "commit", "sha": sha}}


def _commit(call: Call, name: str, sha: str) -> tuple[int, Any]:
    repository = call.repository(name, "contents")
    said = run_git(repository.folder, "show", "-s", "--format=%T%n%cn%n%ce%n%B", sha)
    tree, by, mail, message = said.split("\n", 3)
    committer = {"name": by, "email": mail}
    return 200, {"sha": sha, "tree": {"sha": tree}, "committer": committer, "message": message}


def _issue_json(call: Call, name: str, issue: DemoIssue) -> Json:
    return {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": "open" if issue.is_open else "closed",
        "user": user_json(issue.author),
        "html_url": f"{call.forge.url}/{name}/issues/{issue.number}",
    }


def _issues(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "issues")
    found = [
        _issue_json(call, name, one)
        for one in reversed(repository.plain_issues.values())
        if one.is_open and call.query.get("creator", one.author) == one.author
    ]
    return 200, page(call, found)


def _open_issue(call: Call, name: str) -> tuple[int, Any]:
    call.repository(name, "issues", level="write")
    wanted = call.json
    made = call.forge.open_issue(name, wanted["title"], call.forge.app_login)
    made.body = wanted.get("body", "")
    return 201, _issue_json(call, name, made)


def _change_issue(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "issues", level="write")
    issue = repository.plain_issues.get(int(number))
    if issue is None:
        refuse(404, "Not Found")
    issue.title = call.json.get("title", issue.title)
    issue.body = call.json.get("body", issue.body)
    return 200, _issue_json(call, name, issue)


def _events(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", "issues")
    return 200, page(call, pull_of(repository, number).events)


def _permission(call: Call, name: str, login: str) -> tuple[int, Any]:
    repository = call.repository(name, "metadata")
    held = repository.collaborators.get(unquote(login))
    if held is None:
        refuse(404, f"{login} is not a user")
    return 200, {"permission": held, "user": {"login": login}}


def _checks(call: Call, name: str, ref: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks")
    found = [
        one
        for one in repository.checks
        if one["head_sha"] == ref and call.query.get("check_name") in (None, one["name"])
    ]
    return 200, {"total_count": len(found), "check_runs": page(call, found)}


def _add_check(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks", level="write")
    wanted = call.json
    if not re.fullmatch("[0-9a-f]{40}", wanted.get("head_sha", "")):
        refuse(422, "No commit found for SHA")
    one = {
        **wanted,
        "id": next(call.forge.ids),
        "html_url": f"{call.forge.url}/{name}/checks",
        "app": {"slug": call.forge.app_login.removesuffix("[bot]")},
    }
    repository.checks.append(one)
    return 201, one


def _change_check(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks", level="write")
    for one in repository.checks:
        if one["id"] == int(number):
            one |= call.json
            return 200, one
    raise Refusal(404, "Not Found")


_NAME = r"([^/]+/[^/]+)"
# A pull request for people, and the sheets of that page.
_PAGE = re.compile(rf"/{_NAME}/pull/([0-9]{{1,9}})|/-/([a-z]+\.css)")
_ROUTES: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
    ("POST", r"/app/installations/(\d+)/access_tokens", _tokens),
    ("POST", r"/app-manifests/([^/]+)/conversions", _convert),
    ("GET", r"/app", _app),
    ("GET", r"/app/installations", _installations),
    ("GET", r"/app/hook/deliveries", _deliveries),
    ("POST", r"/app/hook/deliveries/(\d+)/attempts", _redeliver),
    ("GET", r"/installation/repositories", _installed),
    ("GET", rf"/repos/{_NAME}", _repository),
    ("GET", rf"/repos/{_NAME}/pulls", _pulls),
    ("POST", rf"/repos/{_NAME}/pulls", _open_pull),
    ("GET", rf"/repos/{_NAME}/pulls/(\d+)", _one_pull),
    ("PATCH", rf"/repos/{_NAME}/pulls/(\d+)", _change_pull),
    ("GET", rf"/repos/{_NAME}/git/ref/heads/(.+)", _ref),
    ("GET", rf"/repos/{_NAME}/git/commits/([0-9a-f]{{40}})", _commit),
    ("GET", rf"/repos/{_NAME}/issues", _issues),
    ("POST", rf"/repos/{_NAME}/issues", _open_issue),
    ("PATCH", rf"/repos/{_NAME}/issues/(\d+)", _change_issue),
    ("GET", rf"/repos/{_NAME}/issues/(\d+)/events", _events),
    ("GET", rf"/repos/{_NAME}/collaborators/([^/]+)/permission", _permission),
    ("GET", rf"/repos/{_NAME}/commits/([^/]+)/check-runs", _checks),
    ("POST", rf"/repos/{_NAME}/check-runs", _add_check),
    ("PATCH", rf"/repos/{_NAME}/check-runs/(\d+)", _change_check),
    *conversation_routes.ROUTES,
]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"
    body: bytes

    def _any(self) -> None:
        forge = self.server.forge
        self.body = self._read()
        where = urlsplit(self.path)
        with forge.lock:
            forge.calls.append((self.command, where.path))
        if forge.is_down:
            self._answer(503, {"message": "No server is currently available"})
            return
        if where.path.startswith(f"{_API}/"):
            self._rest(forge, where.path.removeprefix(_API), where.query)
        elif self.command == "GET" and (found := _PAGE.fullmatch(where.path)):
            self._page(forge, found)
        else:
            self._git(forge, where.path, where.query)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815

    def _rest(self, forge: DemoForge, path: str, query: str) -> None:
        for (method, part), status in list(forge.refuses.items()):
            if method == self.command and part in path:
                self._answer(status, {"message": "refused by the test"})
                return
        for method, pattern, answer in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == self.command:
                try:
                    status, body = answer(
                        Call(forge, dict(self.headers.items()), self.body, query), *found.groups()
                    )
                    for (verb, part), done in list(forge.after.items()):
                        if verb == self.command and part in path:
                            done()
                    self._answer(status, body)
                except ConnectionError:  # of an `after`: it is done, and the answer is lost
                    self.close_connection = True
                except Refusal as refusal:
                    self._answer(refusal.status, refusal.body)
                return
        self._answer(404, {"message": "Not Found"})

    def _page(self, forge: DemoForge, found: re.Match[str]) -> None:
        """Answer with a pull request's page, or a sheet of its."""
        repository = forge.repositories.get(found[1] or "")
        pull = repository and repository.pulls.get(int(found[2]))
        if found[3] in pull_page.SHEETS:
            self._send(200, pull_page.sheet(found[3]), "text/css; charset=utf-8")
        elif repository and pull:
            html = pull_page.pull_page(forge, repository, pull)
            self._send(200, html.encode("utf-8", "replace"), "text/html; charset=utf-8")
        else:
            self._answer(404, {"message": "Not Found"})

    def _git(self, forge: DemoForge, path: str, query: str) -> None:
        name = path.lstrip("/").partition(".git/")[0]
        token = None
        scheme, _, given = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                value = base64.b64decode(given).decode("latin-1").partition(":")[2]
                token = forge.tokens.get(value)
        may = token is not None and token.expires_at > time.time() and name in token.repositories
        writes = "git-receive-pack" in path + query
        wanted = ("write",) if writes else ("read", "write")
        if token is None or not may or token.permissions.get("contents") not in wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="GitHub"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = {key.lower(): value for key, value in self.headers.items()}
        found = answer(forge.folder, self.command, path, query, headers, self.body)
        if writes and self.command == "POST":
            forge.heads_moved(name)
            for (verb, part), done in list(forge.after.items()):
                if verb == "PUSH" and part in path:
                    done()
        self.send_response(found.status)
        for key, value in found.headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            found = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self._send(status, b"" if status == 204 else data, "application/json; charset=utf-8")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'self'")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, forge: DemoForge, port: int) -> None:
        self.forge = forge
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller who went away, as at the end of the demo."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(forge: DemoForge, port: int = 0) -> Iterator[str]:
    """Serve the forge; yield the base of its REST API."""
    with _Server(forge, port) as server:
        forge.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield forge.url + _API
        finally:
            forge.stop()
            server.shutdown()
            thread.join()


class CgiAnswer(NamedTuple):
    """The CGI program's response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answer(
    root: Path, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> CgiAnswer:
    """Return the response to a request about the repository at `path` below `root`."""
    env = {
        "PATH": os.defpath,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "",
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
    }
    done = subprocess.run(
        ["git", "http-backend"], env=env, input=body, capture_output=True, check=False
    )
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    status, found = 200, []
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split()[0])
        elif name:
            found.append((name, value))
    return CgiAnswer(status, found, content)
