"""Client of the agent API: ask, wait, report. Standard library only.

A request can wait hours for a person, and the supervisor may be restarted meanwhile. So a lost
connection is retried for a bounded time, and waiting continues where it was. Calls go straight to
the sandbox's own loopback, never through the proxy. No call here answers a request, because the
agent's door has no such route.
"""

import http.client
import json
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

_POLL_S = 30
_CONNECT_S = 10.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 5.0
_MAX_ANSWER_BYTES = 8 * 1024 * 1024
# 429 and 5xx of a supervisor that is starting, stopping or busy.
_PASSING = frozenset({429, 500, 502, 503, 504})


class Ask(msgspec.Struct, frozen=True):
    """A request as the supervisor reports it. Unknown fields are left out."""

    id: str
    status: str
    why: str | None = None
    rule: str | None = None
    remedy: str | None = None
    outcome: Any = None
    settled: bool = False

    @property
    def is_granted(self) -> bool:
        """Return whether a rule or a person said yes."""
        return self.status in ("allowed", "approved", "used")

    @property
    def is_over(self) -> bool:
        """Return whether it is final: refused in any way, or carried out."""
        return (
            self.settled
            or self.outcome is not None
            or not (self.is_granted or self.status == "pending")
        )


class ApiError(Exception):
    """The agent API rejected the call itself, or couldn't be reached. Its text is one line for a
    person or the model."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Refused(ApiError):  # noqa: N818 (the project's word for an expected no)
    """A refusal with its reason: `{error, why, remedy, rule, request_id}`."""


class Gatehouse:
    """One session's connection to the agent API. Safe to use from several threads: each call has
    its own connection."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        outage_s: float = 300.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ApiError(
                f"GATEHOUSE_URL `{url}` is not an http address; it looks like http://127.0.0.1:3701"
            )
        self._host, self._port = parts.hostname, parts.port or 80
        self._token = token
        self._outage_s = outage_s
        self._sleep = sleep
        self._clock = clock

    def execute(
        self, command: str, *, cwd: str = ".", reason: str = "", timeout_s: float = 120.0
    ) -> Ask:
        """Ask to run a command line in a tool sandbox."""
        return self._ask(
            "/v1/exec", {"command": command, "cwd": cwd, "reason": reason, "timeout_s": timeout_s}
        )

    def write(self, path: str, content: str, *, reason: str = "") -> Ask:
        """Ask to write a file of the host's workspace."""
        return self._ask("/v1/files/write", {"path": path, "content": content, "reason": reason})

    def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, reason: str = ""
    ) -> Ask:
        """Ask to replace text in a file of the host's workspace."""
        body = {"path": path, "old": old, "new": new, "replace_all": replace_all, "reason": reason}
        return self._ask("/v1/files/edit", body)

    def packages(self, command: str, *, cwd: str = ".", reason: str = "") -> Ask:
        """Ask to run a package manager."""
        return self._ask("/v1/packages", {"command": command, "cwd": cwd, "reason": reason})

    def git(self, command: str, *, reason: str = "") -> Ask:
        """Ask for a git operation that reaches beyond the private copy."""
        return self._ask("/v1/git", {"command": command, "reason": reason})

    def propose(self, effect: str, rule: str, why: str) -> Ask:
        """Propose a change to the policy; a person always decides."""
        return self._ask("/v1/policy-proposals", {"effect": effect, "rule": rule, "why": why})

    def session(self) -> dict[str, Any]:
        """Return the session's facts."""
        facts = self._call("GET", "/v1/session")
        return facts if isinstance(facts, dict) else {}

    def must_conclude(self) -> bool:
        """Return whether the session's budget is so far used that the next turn must be the
        last."""
        facts = self._call("GET", "/v1/budget")
        return isinstance(facts, dict) and bool(facts.get("conclude"))

    def report(self, review: object) -> None:
        """Hand over the review."""
        self._call("POST", "/v1/review", msgspec.to_builtins(review))

    def quarantined(self, tool: str, arguments: object) -> tuple[bool, str]:
        """Call a tool in quarantine. Return whether it was allowed, and its answer or the
        reason."""
        found = self._call("POST", "/v1/quarantine", {"tool": tool, "arguments": arguments})
        return found["allowed"] is True, str(found["text"])

    def wait(self, request_id: str, limit_s: float, *, settle_s: float = 180.0) -> Ask:
        """Wait until the request is over or `limit_s` seconds have passed. Return the request as it
        is then.

        Once it is granted, wait at most `settle_s` seconds for its outcome.
        """
        deadline = self._clock() + limit_s
        granted = False
        while True:
            left = deadline - self._clock()
            poll_s = max(0, min(_POLL_S, int(left)))
            path = f"/v1/requests/{quote(request_id, safe='')}?wait={poll_s}"
            ask = _to_ask(self._call("GET", path, read_s=poll_s + 15.0))
            if ask.is_over or self._clock() >= deadline:
                return ask
            if ask.is_granted and not granted:
                granted, deadline = True, min(deadline, self._clock() + settle_s)
            # An immediate answer "not yet" must not cause a busy loop.
            self._sleep(min(0.25, max(0.0, deadline - self._clock())))

    def _ask(self, path: str, body: dict[str, Any]) -> Ask:
        return _to_ask(self._call("POST", path, body))

    def _call(self, method: str, path: str, body: object = None, *, read_s: float = 60.0) -> Any:
        """Make one call, retrying while the supervisor is away, for at most `outage_s` seconds."""
        # One key for all tries, so that the supervisor can distinguish a retry from a new request.
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": uuid.uuid4().hex}
        payload = None if body is None else json.dumps(body).encode()
        if payload is not None:
            headers["Content-Type"] = "application/json"
        give_up_at = self._clock() + self._outage_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                status, data = self._once(method, path, payload, headers, read_s)
                if status not in _PASSING:
                    return _answer(status, data)
                trouble = f"answers {status}"
            except (OSError, http.client.HTTPException) as error:
                trouble = f"can't be reached ({type(error).__name__})"
            if self._clock() + pause_s > give_up_at:
                raise ApiError(
                    f"the supervisor {trouble}; nothing is done without it, so start the review"
                    " again"
                )
            self._sleep(pause_s)
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    def _once(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str], read_s: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(read_s)
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_MAX_ANSWER_BYTES)
        finally:
            connection.close()


def refusal_text(body: dict[str, Any]) -> str:
    """Return a refusal `{error, why, remedy, rule, request_id}` as one line."""
    why = body.get("why") or body.get("error") or "no reason was given"
    parts = [f"refused: {why}"]
    if body.get("rule"):
        parts.append(f"rule {body['rule']}")
    if body.get("remedy"):
        parts.append(str(body["remedy"]))
    if body.get("request_id"):
        parts.append(f"request {body['request_id']}")
    return "; ".join(parts)


def _answer(status: int, data: bytes) -> Any:
    try:
        body = json.loads(data) if data else None
    except ValueError:
        body = None
    if status < 300:
        if body is None and data:
            raise ApiError(
                "the supervisor's answer is not JSON; its version may differ from the agent's",
                status,
            )
        return body
    known = body if isinstance(body, dict) else {}
    if status == 403:
        raise Refused(refusal_text(known), status)
    words = [str(known[name]) for name in ("error", "why", "remedy") if known.get(name)]
    raise ApiError("; ".join(dict.fromkeys(words)) or f"the supervisor answers {status}", status)


def _to_ask(body: Any) -> Ask:
    try:
        return msgspec.convert(body, type=Ask)
    except msgspec.ValidationError as error:
        raise ApiError(f"the supervisor's answer is not a request: {error}") from error
