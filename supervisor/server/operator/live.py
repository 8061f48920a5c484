"""Live state for the operator's pages: one WebSocket with JSON events.

Each event is encoded once for all pages. Events only say what changed. Any of them can be lost
without harm, because `hello` has the present state on each (re)connect (level-triggered). Each
client has a bounded queue and a task of its own: a stalled one is dropped and never slows the
others. Nothing is taken *from* a page here: incoming messages are discarded.

    hello       what waits: `pending_ids` is complete but for changed files of the sessions in
                `changes`, which are shown as one card; `requests` are the first of it. All other
                requests on a page are answered by now
    request     a `request` is new, or one of its facts changed
    changes     of a session that many changed files wait of, or came at once, how many wait
    session     a `session` is new, or one of its facts changed
    output      the agent of `session_id` printed something
    printed     what the request `request_id` runs printed something
    rules       the rules in force changed
    network     a session sent something, or some of its traffic ended
    quiet       an agent asked something that gets no separate card
    banner      what is wrong changed
    shutdown    Gatehouse is ending, `why`; the connection closes next
"""

import asyncio
import contextlib
from collections import deque
from typing import Any, Literal

import msgspec
from litestar import WebSocket, websocket
from litestar.handlers import WebsocketRouteHandler

import supervisor
from supervisor.core.actions import Category, category_of, title
from supervisor.core.approvals import Origin, Request, Status, status
from supervisor.core.files.change_tree import FEW_CHANGES
from supervisor.core.sessions import Session, state
from supervisor.parts import Parts
from supervisor.server.common.auth import Operator, OperatorAuth
from supervisor.server.common.views import listed, view_of

MOST_CLIENTS = 64
# Events that a client may lag behind. A slower page had better reconnect, which shows it the
# present state.
MOST_WAITING = 512
# `hello` names this many requests, and has the ids of all.
HELLO_REQUESTS = 100
GOODBYE_S = 2.0
# What a program prints is told so often at most.
PRINTED_S = 0.25
CLOSE_SERVICE_RESTART, CLOSE_TRY_AGAIN_LATER, CLOSE_SIGNED_OUT = 1012, 1013, 4401


class Banners(msgspec.Struct, frozen=True, kw_only=True):
    """The banners of the page. Each is a sentence, or None while all is well."""

    version: str
    banner: str | None
    kill_switch: str | None
    audit_failure: str | None
    audit_broken: str | None
    files_banner: str | None
    untold: str | None
    paused_jobs: str | None


class RequestNews(msgspec.Struct, frozen=True, kw_only=True):
    """What a page that doesn't show it says of a request; `GET /api/requests/{id}` has the rest."""

    id: str
    session_id: str
    origin: Origin
    category: Category
    status: Status
    title: str


type LiveEvent = (
    Literal["hello", "request", "changes", "session", "output", "printed"]
    | Literal["rules", "network", "quiet", "banner", "shutdown"]
)
type Gone = Literal["left", "too slow", "shutdown", "signed out"]


class _Client:
    """One page. `put` never blocks: an event that doesn't fit ends the client."""

    def __init__(self, caller: Operator) -> None:
        self.caller = caller
        self.waiting: deque[tuple[str | None, str]] = deque()
        self.wake = asyncio.Event()
        self.gone: asyncio.Future[Gone] = asyncio.get_running_loop().create_future()
        self._merged: set[str] = set()

    def put(self, text: str, merge: str | None) -> None:
        """Queue an event. Only one event per `merge` key waits at a time."""
        if merge is not None:
            if merge in self._merged:
                return
            self._merged.add(merge)
        if len(self.waiting) >= MOST_WAITING:
            self.leave("too slow")
            return
        self.waiting.append((merge, text))
        self.wake.set()

    def take(self) -> str:
        merge, text = self.waiting.popleft()
        if merge is not None:
            self._merged.discard(merge)
        return text

    def leave(self, why: Gone) -> None:
        if not self.gone.done():
            self.gone.set_result(why)


class Live:
    """The listeners of one operator app. `app` calls `policy_changed` and `shutdown`; it observes
    the rest itself."""

    def __init__(self, parts: Parts, auth: OperatorAuth) -> None:
        self._parts = parts
        self._auth = auth
        self._clients: set[_Client] = set()
        self._farewell: str | None = None
        self._changed_files: dict[str, dict[str, Request]] = {}
        self._last_status = self.status()
        # The supervisor has more to do on a change of rules, and then tells the pages, too.
        parts.policies.on_change = lambda is_saved: self.policy_changed()
        parts.gate.rulings.policy_sets.on_change = lambda one, is_saved: self.policy_changed()
        parts.status_changed = self.status_changed
        parts.queue.on_change(self._request_changed)
        parts.sessions.on_change(self._session_changed)
        parts.sessions.on_output(self._output_grew)
        parts.spending.on_change(self._spend_changed)
        parts.network_log.on_change = self._network_changed
        parts.gate.repeats.on_change = self._quiet_changed
        self._printing: set[str] = set()
        parts.gate.printing.on_change = self._printed

    def status(self) -> Banners:
        """Return the present banners."""
        banner = self._parts.gate.rulings.policy_sets.banner
        files, reviews = self._parts.files_banner, self._parts.reviews
        return Banners(
            version=supervisor.__version__,
            banner=banner and self._parts.redactor.text(banner),
            kill_switch=self._parts.kill_switch.reason(),
            audit_failure=self._parts.audit.failure,
            audit_broken=self._parts.audit.broken,
            files_banner=files and self._parts.redactor.text(files),
            untold=self._parts.untold,
            paused_jobs=reviews and self._parts.redactor.text(reviews.schedule.paused_words()),
        )

    def hello(self) -> dict[str, Any]:
        """Return what waits now."""
        queue = self._parts.queue
        changes = {
            one: number for one, number in queue.waiting_changes().items() if number > FEW_CHANGES
        }
        now = self._parts.clock.now()
        pending = queue.pending_but(list(changes), limit=HELLO_REQUESTS, now=now)
        return {
            "pending_ids": queue.pending_ids_but(list(changes), now=now),
            "changes": [{"session_id": one, "waiting": number} for one, number in changes.items()],
            "requests": [self._news(request) for request in listed(pending)],
        }

    def publish(self, event: LiveEvent, *, merge: str | None = None, **facts: Any) -> None:
        """Send an event to every page. Never blocks."""
        if not self._clients:
            return
        text = _encoded(event, facts)
        for client in self._clients:
            client.put(text, merge)

    def policy_changed(self) -> None:
        """Tell pages that the rules in force or the banner changed. For `PolicyFiles.on_change`."""
        self.publish("rules")
        self.status_changed()

    def status_changed(self) -> None:
        """Tell the pages if the banner, the kill switch or the audit's state differs from what they
        know."""
        status = self.status()
        if status != self._last_status:
            self._last_status = status
            self.publish("banner")

    async def shutdown(self, why: str) -> None:
        """Tell every page that Gatehouse ends, and wait at most `GOODBYE_S` seconds until they
        received it."""
        self.publish("shutdown", why=why)
        self._farewell = why
        for client in self._clients:
            client.wake.set()
        leaving = [client.gone for client in self._clients]
        if leaving:
            await asyncio.wait(leaving, timeout=GOODBYE_S)
        for client in self._clients:
            client.leave("shutdown")

    def handler(self) -> WebsocketRouteHandler:
        """Return the route `/ws`."""

        @websocket("/ws", name="live")
        async def live(socket: WebSocket[Any, Any, Any]) -> None:
            await self._serve(socket, socket.scope["state"]["caller"])

        return live

    async def _serve(self, socket: WebSocket[Any, Any, Any], caller: Operator) -> None:
        await socket.accept()
        if len(self._clients) >= MOST_CLIENTS or self._farewell is not None:
            await socket.close(CLOSE_TRY_AGAIN_LATER, self._farewell or "too many pages are open")
            return
        client = _Client(caller)
        # INVARIANT: nothing awaits between joining and the snapshot, so no change is missed in
        # between.
        self._clients.add(client)
        client.put(_encoded("hello", self.hello()), None)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._write(socket, client)),
                    tasks.create_task(self._read(socket, client)),
                ]
                why = await client.gone
                for task in running:
                    task.cancel()
        finally:
            self._clients.discard(client)
        code = {"shutdown": CLOSE_SERVICE_RESTART, "signed out": CLOSE_SIGNED_OUT}.get(why)
        if code is not None:
            with contextlib.suppress(Exception):  # it may be gone already, and that is as good
                await socket.close(code, why)

    async def _write(self, socket: WebSocket[Any, Any, Any], client: _Client) -> None:
        try:
            while True:
                await client.wake.wait()
                client.wake.clear()
                while client.waiting:
                    if not self._auth.still_valid(client.caller):
                        client.leave("signed out")
                        return
                    await socket.send_text(client.take())
                if self._farewell is not None:
                    client.leave("shutdown")
                    return
        except Exception:  # whatever a lost connection raises: each server has its own
            client.leave("left")

    async def _read(self, socket: WebSocket[Any, Any, Any], client: _Client) -> None:
        try:
            while True:
                await socket.receive_data(mode="text")
        except Exception:
            client.leave("left")

    def _request_changed(self, request: Request) -> None:
        if self._clients and request.origin == "workspace":
            if not self._changed_files:
                asyncio.get_running_loop().call_soon(self._tell_changes)
            self._changed_files.setdefault(request.session_id, {})[request.id] = request
        elif self._clients:
            self._tell_request(request)

    def _tell_changes(self) -> None:
        """Send one event for many changed files of a session: a formatter must not flood the pages,
        nor us."""
        changed, self._changed_files = self._changed_files, {}
        waiting = self._parts.queue.waiting_changes()
        for session_id, requests in changed.items():
            number = waiting.get(session_id, 0)
            if max(number, len(requests)) > FEW_CHANGES:
                self.publish("changes", session_id=session_id, waiting=number)
            else:
                for request in requests.values():
                    self._tell_request(request)

    def _tell_request(self, request: Request) -> None:
        if self._clients:
            self.publish("request", request=self._news(request))
            self.status_changed()

    def _news(self, request: Request) -> RequestNews:
        return view_of(
            RequestNews,
            request,
            self._parts.redactor,
            category=category_of(request.action),
            status=status(request),
            title=title(request.action),
        )

    def _session_changed(self, session: Session) -> None:
        self.publish("session", session={"id": session.id, "state": state(session)})

    def _spend_changed(self, session_id: str) -> None:
        if self._clients:
            self._session_changed(self._parts.sessions.get(session_id))

    def _output_grew(self, session_id: str, _data: bytes) -> None:
        self.publish("output", session_id=session_id, merge=f"output:{session_id}")

    def _printed(self, request_id: str) -> None:
        """A program may print thousands of times a second; nobody reads that fast."""
        if self._clients and request_id not in self._printing:
            self._printing.add(request_id)
            asyncio.get_running_loop().call_later(PRINTED_S, self._tell_printed, request_id)

    def _tell_printed(self, request_id: str) -> None:
        self._printing.discard(request_id)
        self.publish("printed", request_id=request_id, merge=f"printed:{request_id}")

    def _network_changed(self, session_id: str) -> None:
        self.publish("network", session_id=session_id, merge=f"network:{session_id}")

    def _quiet_changed(self, session_id: str) -> None:
        self.publish("quiet", session_id=session_id, merge="quiet")


def _encoded(event: LiveEvent, facts: dict[str, Any]) -> str:
    return msgspec.json.encode({"type": event, **facts}).decode()
