"""`gatehouse app create`: makes the reviewing GitHub App, by GitHub's manifest flow.

The person's browser posts the App's manifest to GitHub, which asks the person to confirm, and
redirects back here with a code. For the code GitHub gives the App's id, private key and webhook
secret, once. Source: docs.github.com/apps, "Registering a GitHub App from a manifest".
"""

import asyncio
import html
import json
import secrets
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from supervisor.cli.common.telling import say
from supervisor.errors import UserError
from supervisor.reviews.core.deliveries import is_full_name
from supervisor.reviews.forges.github_calls import NewApp, convert_manifest
from supervisor.settings import Settings

PATIENCE_S = 600.0
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = """<!doctype html><meta charset="utf-8"><title>Gatehouse</title>
<form method="post" action="{action}">
<input type="hidden" name="manifest" value="{manifest}">
<p>GitHub is asked for a new App. <button>Go on to GitHub</button></p></form>"""


def create(settings: Settings, *, organization: str, public_url: str) -> int:
    """Serve the start page, wait for the code, and store the App that it gives."""
    url = urlsplit(public_url)
    if url.scheme not in ("https", "http") or not url.hostname:
        raise UserError(
            f"`{public_url}` is no URL where GitHub could reach you", "give --url https://HOST"
        )
    if organization and not is_full_name(f"{organization}/x"):
        raise UserError(f"`{organization}` is no organisation", "give its login")
    folder = settings.github_app_dir
    if (folder / "app.json").exists():
        raise UserError(f"there is an App already: {folder}", "move that folder away first")
    with _Waiting(settings.github_api, organization, public_url) as waiting:
        say(f"open {waiting.url} in a browser, and confirm the App there")
        code = waiting.code(PATIENCE_S)
    app = asyncio.run(convert_manifest(settings.github_api, code))
    _keep(settings, app)
    say(f"the App `{app.slug}` is made; its key is in {folder}")
    say(f"install it: {app.url}/installations/new, then run `gatehouse up --reviews`")
    return 0


def manifest(public_url: str, redirect_url: str) -> dict[str, Any]:
    """Return the App's manifest: its permissions, and the address of its webhooks."""
    return {
        "name": f"gatehouse-{secrets.token_hex(3)}",
        "url": public_url,
        "hook_attributes": {"url": f"{public_url.rstrip('/')}/github", "active": True},
        "redirect_url": redirect_url,
        "public": False,
        "default_permissions": {
            "checks": "write",
            "contents": "read",
            # The event `issue_comment` requires it, and reports the comments on pull requests.
            "issues": "write",
            "metadata": "read",
            "pull_requests": "write",
        },
        "default_events": ["pull_request", "issue_comment", "pull_request_review_comment"],
    }


def _keep(settings: Settings, app: NewApp) -> None:
    folder = settings.github_app_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {
        "key.pem": app.key,
        "webhook.secret": app.secret,
        "app.json": json.dumps({"id": app.id, "slug": app.slug}),
    }
    for name, text in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)


class _Waiting:
    """A local server that runs until GitHub has redirected the browser back."""

    def __init__(self, api: str, organization: str, public_url: str) -> None:
        # A reader of the page knows the state that comes back. So other users of this machine, and
        # pages whose host name points here, must not read it.
        self._first, self._state = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self._code = ""
        self._came = threading.Event()
        waiting = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, page = waiting.answer(self.path, self.headers.get_all("Host") or [])
                data = page.encode()
                self.send_response(status)
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self._host}/{self._first}"
        whose = f"organizations/{organization}/" if organization else ""
        action = f"{_web(api)}/{whose}settings/apps/new?state={self._state}"
        wanted = json.dumps(manifest(public_url, f"http://{self._host}/created"))
        self._page = _PAGE.format(action=html.escape(action), manifest=html.escape(wanted))

    def __enter__(self) -> "_Waiting":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, target: str, hosts: Sequence[str]) -> tuple[int, str]:
        """Return status and page for a path, requested with these `Host` headers."""
        path, _, query = target.partition("?")
        if list(hosts) != [self._host]:
            return 403, "this page is at the address that the terminal shows"
        if _is(path, f"/{self._first}"):
            return 200, self._page
        given = {name: values[-1] for name, values in parse_qs(query).items()}
        is_ours = _is(given.get("state", ""), self._state)
        if path != "/created" or not is_ours or not given.get("code"):
            return 404, "nothing is here"
        self._code = given["code"]
        self._came.set()
        return 200, "The App is made. This page can be closed."

    def code(self, within_s: float) -> str:
        """Return the code once it arrived. Raise `UserError` if nobody came back in time."""
        if not self._came.wait(within_s):
            raise UserError("nobody came back from GitHub", "run it again")
        return self._code


def _is(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _web(api: str) -> str:
    """Return the web address of the forge with this API."""
    if api.rstrip("/") == "https://api.github.com":
        return "https://github.com"
    return api.rstrip("/").removesuffix("/v3").removesuffix("/api")
