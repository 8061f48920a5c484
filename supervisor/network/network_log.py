"""The last connections and requests of each session, for the Network tab.

The network broker feeds it, and the pages read it while Gatehouse runs. The audit log keeps every
verdict permanently; this holds bytes, times and headers of the last exchanges, in memory and
bounded. It decides nothing, and must never delay an answer.

INVARIANT: everything here passed the redactor. Authenticating headers and query values aren't kept.
Bodies are kept only where that was asked for, and only their beginnings.
"""

import base64
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from supervisor.base.clock import Clock
from supervisor.core.models.spend import Charge
from supervisor.core.money import microusd
from supervisor.core.network import body_text
from supervisor.core.network.egress_wire import (
    Answer,
    Body,
    EgressRefused,
    Moving,
    Question,
    Reserve,
    Settled,
    Spent,
)
from supervisor.core.network.exchanges import (
    NO_BODIES,
    Bodies,
    CallOfModel,
    Exchange,
    KeptBody,
    name_of,
)
from supervisor.core.secrets import url_secrets
from supervisor.core.secrets.redact import Redactor
from supervisor.core.secrets.token_shapes import MARK

MOST_EXCHANGES = 2000
MOST_SESSIONS = 50
MOST_HEADERS = 60
# Most answers that are noted but not yet kept.
MOST_NOTED = 64
# Shown length of a body, in characters (or bytes where it is no text); and of all kept bodies, in
# characters.
MOST_BODY_CHARS = 64 * 1024
MOST_BODIES_CHARS = 16 * 1024 * 1024


class SessionLog(NamedTuple):
    """A snapshot of a session's log. Later entries don't change it, so it can be read in a thread.

    `exchanges` are newest first; `cut` is how many older ones are no longer held. `places` gives
    each known host a fixed number, higher for hosts that came later.
    """

    exchanges: list[Exchange]
    cut: int
    places: dict[str, int]


class NetworkLog:
    """The last exchanges of the last sessions since `began_at`. `on_change` is called with a
    session's id after each change."""

    def __init__(self, clock: Clock, redactor: Redactor) -> None:
        self._clock = clock
        self.began_at = clock.now()
        self._redactor = redactor
        self._sessions: OrderedDict[str, OrderedDict[int, Exchange]] = OrderedDict()
        self._open: dict[int, tuple[str, int]] = {}
        self._cut: Counter[str] = Counter()
        self._places: dict[str, OrderedDict[str, int]] = {}
        self._bodies: OrderedDict[tuple[str, int], Bodies] = OrderedDict()
        self._bodies_chars = 0
        self._number = 0
        self._calls: dict[int, tuple[tuple[str, int], str]] = {}
        self._noted: list[tuple[Question, Answer, float, float]] = []
        self.on_change: Callable[[str], None] = lambda session_id: None

    def of_session(self, session_id: str) -> list[Exchange]:
        """Return a session's exchanges, newest first."""
        self._catch_up()
        return list(reversed(self._sessions.get(session_id, {}).values()))

    def held(self, session_id: str) -> SessionLog:
        """Return a snapshot of a session, for use in a thread."""
        return SessionLog(
            self.of_session(session_id),
            self._cut[session_id],
            dict(self._places.get(session_id, {})),
        )

    def bodies(self, session_id: str) -> dict[int, Bodies]:
        """Return the kept bodies of a session's exchanges, by exchange number."""
        return {
            number: found for (owner, number), found in self._bodies.items() if owner == session_id
        }

    def body(self, body: Body) -> None:
        """Keep the beginning of a body of an open exchange. If there are too many, the oldest of
        all are dropped."""
        self._catch_up()
        session_id, number = self._open.get(body.question_id, ("", 0))
        if number not in self._sessions.get(session_id, {}):
            return
        key = (session_id, number)
        kept = self._kept(body)
        self._bodies[key] = msgspec.structs.replace(
            self._bodies.get(key, NO_BODIES), **{body.of: kept}
        )
        self._bodies_chars += len(kept.text)
        while self._bodies_chars > MOST_BODIES_CHARS:
            self._drop_bodies(next(iter(self._bodies)))

    def _kept(self, body: Body) -> KeptBody:
        """INVARIANT: secrets are removed from the bytes before anybody reads a text or another
        coding in them."""
        is_cut = max(len(body.data), body.whole_bytes) > MOST_BODY_CHARS
        charset = body_text.charset_of(body.data, body.media_type, is_cut=is_cut)
        if charset is None:
            clean = self._redactor.body(body.data).decode("latin-1")
            clean_bytes = self._redactor.text(clean).encode("latin-1", "replace")[:MOST_BODY_CHARS]
            text = base64.b64encode(clean_bytes).decode()
        else:
            # In the charset of the text around it, without half a character that isn't part of a
            # secret.
            mark = MARK.encode(charset).strip(b"\0")
            text = self._redactor.text(
                body_text.decoded(self._redactor.body(body.data, mark), charset)
            )[:MOST_BODY_CHARS]
        return KeptBody(
            media_type=self._redactor.text(body.media_type),
            text=text,
            whole_bytes=max(0, body.whole_bytes),
            read_bytes=len(body.data),
            encoding="base64" if charset is None else "",
            is_cut=is_cut,
        )

    def answered(self, question: Question, answer: Answer, held_s: float = 0.0) -> None:
        """Log the answer to a question of egress, and for how long a person's answer delayed it. A
        later question about its addresses belongs to the same exchange.

        Most answers are only noted here: their client goes on at this moment, often on the same
        processor.
        """
        if question.after is None:
            self._noted.append((question, answer, self._clock.now(), held_s))
            if len(self._noted) >= MOST_NOTED:
                self._catch_up()
            self.on_change(question.session_id)
        elif answer.decision != "allow":
            self._catch_up()
            self._change(
                question.after, verdict=answer.decision, why=self._redactor.text(answer.why)
            )

    def _catch_up(self) -> None:
        """Keep noted answers; called before every read and write."""
        noted, self._noted = self._noted, []
        for question, answer, at, held_s in noted:
            exchange = self._keep(
                Exchange(
                    number=0,
                    session_id=question.session_id,
                    action=url_secrets.hidden(question.action),
                    at=at - held_s,
                    held_s=held_s,
                    is_upgrade=question.is_upgrade,
                    verdict=answer.decision,
                    why=answer.why,
                    rule=answer.rule,
                    request_id=answer.request_id,
                    headers=url_secrets.in_headers(question.headers[:MOST_HEADERS]),
                    ended_at=None if answer.decision == "allow" else at,
                ),
            )
            if exchange.ended_at is None:
                self._open[question.question_id] = (question.session_id, exchange.number)

    def refused(self, refused: EgressRefused) -> None:
        """Log a refusal by egress itself."""
        self._catch_up()
        now = self._clock.now()
        why = refused.why if refused.count == 1 else f"{refused.why} ({refused.count} times)"
        self._keep(
            Exchange(
                number=0, session_id=refused.session_id, action=url_secrets.hidden(refused.action),
                at=now,
                verdict="deny", why=why, ended_at=now,
            ),
        )  # fmt: skip
        self.on_change(refused.session_id)

    def moving(self, moving: Moving) -> None:
        """Note how much has moved so far for allowed questions."""
        self._catch_up()
        for question_id, up_bytes, down_bytes in moving.moved:
            self._change(question_id, up_bytes=up_bytes, down_bytes=down_bytes)

    def settled(self, settled: Settled) -> None:
        """Log the outcome of an allowed question."""
        self._catch_up()
        detail = settled.detail
        headers = url_secrets.in_headers(settled.headers[:MOST_HEADERS])
        self._change(
            settled.question_id,
            ended_at=self._clock.now(),
            response_headers=headers
            if self._redactor.is_clean(headers)
            else tuple(map(tuple, self._redactor.data(headers))),
            status=_whole(detail.get("status")),
            error=self._redactor.text(str(detail.get("error") or "")),
            up_bytes=_whole(detail.get("up_bytes")) or 0,
            down_bytes=_whole(detail.get("down_bytes")) or 0,
            duration_s=duration
            if isinstance(duration := detail.get("duration_s"), int | float)
            else None,
        )
        self._open.pop(settled.question_id, None)

    def calling(self, reserve: Reserve) -> None:
        """Log that a model call goes out. `called` follows, before or after the end of its
        exchange."""
        self._catch_up()
        if reserve.of in self._open and reserve.call.api != "unmetered":
            self._calls[reserve.question_id] = (self._open[reserve.of], reserve.call.model)

    def called(self, spent: Spent, charge: Charge | None) -> None:
        """Log a model call's usage and cost; None where that couldn't be recorded."""
        key, asked = self._calls.pop(spent.question_id, (("", 0), ""))
        if charge is not None:
            model = (spent.usage.model if spent.usage is not None else "") or asked
            self._change_exchange(key, call=_of_charge(self._redactor.text(model), charge))

    def egress_ended(self) -> None:
        """End open exchanges, since a new egress numbers its questions anew."""
        self._catch_up()
        now = self._clock.now()
        for question_id in list(self._open):
            self._change(question_id, ended_at=now, error="egress ended")
        self._open.clear()
        self._calls.clear()

    def _keep(self, exchange: Exchange) -> Exchange:
        self._number += 1
        kept = msgspec.structs.replace(exchange, number=self._number)
        if not self._redactor.is_clean(kept):
            kept = msgspec.convert(self._redactor.data(msgspec.to_builtins(kept)), Exchange)
        found = self._sessions.setdefault(exchange.session_id, OrderedDict())
        found[kept.number] = kept
        self._place(kept)
        if len(found) > MOST_EXCHANGES:
            self._drop_bodies((exchange.session_id, found.popitem(last=False)[0]))
            self._cut[exchange.session_id] += 1
        if len(self._sessions) > MOST_SESSIONS:
            session_id, gone = self._sessions.popitem(last=False)
            for number in gone:
                self._drop_bodies((session_id, number))
            self._cut[session_id] += len(gone)
            del self._places[session_id]
        return kept

    def _place(self, exchange: Exchange) -> None:
        """Give a host its place with its first exchange, and keep it after that is dropped: a list
        must not move under its reader.

        As many hosts are known as exchanges are held, the last used ones; so every host of a held
        exchange is known.
        """
        places = self._places.setdefault(exchange.session_id, OrderedDict())
        places.setdefault(name_of(exchange.action), exchange.number)
        places.move_to_end(name_of(exchange.action))
        if len(places) > MOST_EXCHANGES:
            places.popitem(last=False)

    def _drop_bodies(self, key: tuple[str, int]) -> None:
        gone = self._bodies.pop(key, NO_BODIES)
        self._bodies_chars -= sum(
            len(one.text) for one in (gone.request, gone.response) if one is not None
        )

    def _change(self, question_id: int, **facts: object) -> None:
        self._change_exchange(self._open.get(question_id, ("", 0)), **facts)

    def _change_exchange(self, key: tuple[str, int], **facts: object) -> None:
        session_id, number = key
        found = self._sessions.get(session_id, OrderedDict())
        if number in found:
            found[number] = msgspec.structs.replace(found[number], **facts)
            self.on_change(session_id)


def _of_charge(model: str, charge: Charge) -> CallOfModel:
    tokens = charge.tokens
    return CallOfModel(
        model=model,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.written,
        cost_microusd=microusd(charge.cost_picousd),
        flags=charge.flags,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
