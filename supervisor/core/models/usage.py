"""Token usage of a model call, read from its response as it streams by.

It decides which numbers of a response are the provider's own count, and says what is missing; it
never guesses (`spend.py` does, upwards). It keeps at most one event of a stream, and at most
`MOST_BODY_BYTES` of a body that isn't streamed. A response with too many values counts as missing.
It is fed with decoded bytes, in chunks cut anywhere. Sources: the API references of Anthropic,
OpenAI and Amazon Bedrock.
"""

import base64
import binascii
import contextlib
import json
import math
from fractions import Fraction
from typing import Any, TypeIs

import msgspec

from supervisor.core.models.call_bodies import has_too_many_values
from supervisor.core.models.event_streams import AwsEvents, ServerSent, StreamEvent
from supervisor.core.models.model_calls import (
    MOST_NAME_CHARS,
    TIERS,
    Api,
    Tier,
    Tokens,
    dearest_tier,
)
from supervisor.core.money import PICOUSD

MOST_BODY_BYTES = 8 * 1024 * 1024
# No call uses more; a higher count is ignored.
MOST_COUNT = 10**9
MOST_COST_USD = 10**6
MOST_ITERATIONS = 100
_OK = range(200, 300)
# A proxy in front of the provider stopped waiting (RFC 9110 15.6.5; 499 and 524 are nginx's and
# Cloudflare's): the output until then is billed.
_GIVEN_UP = frozenset({408, 499, 504, 524})
# Azure bills the prompt of a call that its filter refused (its page on costs), by which such an
# error can be told.
_REFUSED = 400
_FILTERED = b'"content_filter"'
# Items of an answer that OpenAI bills by the piece.
_SEARCH_CALLS = ("web_search_call", "file_search_call")
_WANTED = (b'usage"', b'Tokens"', b'"error"', b'"model"', b'TokenCount"', b'"bytes"')


class Beside(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Usage beside the answer itself. `model` is empty if it is the answer's."""

    model: str
    tokens: Tokens


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The usage of a call as the provider gave it. `has_input`, `has_output`: the count is final.
    `only_began`: for the input only the count at the beginning is known; with the provider's own
    tools that count grows.

    `tells_writes`: it says how long the tokens put into the cache are kept. `tier`: the tier that
    served the call, whatever the call asked for. `content_bytes` is the size of the answer that
    arrived: if `has_output` is False, the answer has at most as many tokens. None: more was
    generated than arrived, or that can't be told. `beside` isn't in `tokens`: the usage of a
    summary of the conversation, or of another model that was asked. `cost_picousd` is the
    provider's own bill, which may be more than its tokens cost.
    """

    tokens: Tokens = Tokens()
    model: str = ""
    has_input: bool = False
    has_output: bool = False
    only_began: bool = False
    tells_writes: bool = False
    content_bytes: int | None = 0
    cost_picousd: int = 0
    beside: tuple[Beside, ...] = ()
    failed: bool = False
    cut_off: bool = False
    tier: Tier = "plain"


class _Counts:
    """Counts as they arrive; the largest of each is kept, because those of a stream grow."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def take(self, kind: str, *values: object) -> bool:
        """Keep the first of `values` that is a count; return whether there was one."""
        for value in values:
            if _is_count(value):
                self.seen[kind] = max(self.seen.get(kind, 0), value)
                return True
        return False

    def tokens(self) -> Tokens:
        return Tokens(**self.seen)


class UsageReader:
    """Reads one response, from its head to its end."""

    def __init__(
        self,
        api: Api,
        status: int,
        content_type: str,
        counted: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """`counted` holds input and output counts as Bedrock gives them in headers
        (`x-amzn-bedrock-input-token-count`)."""
        self._api = api
        self._is_ok = status in _OK
        self._is_given_up = status in _GIVEN_UP
        self._is_refused = status == _REFUSED
        kind = content_type.partition(";")[0].strip().lower()
        self._frames: ServerSent | AwsEvents | None = None
        if kind == "text/event-stream":
            self._frames = ServerSent()
        elif kind == "application/vnd.amazon.eventstream":
            self._frames = AwsEvents()
        self._body = bytearray()
        self._is_long = False
        # An event was skipped unread: counts grow in a stream, and it may have had the final ones.
        self._is_uncounted = False
        self._counts = _Counts()
        self._model = ""
        self._has_input = self._counts.take("input", counted[0])
        self._has_begun = False
        self._has_output = self._counts.take("output", counted[1])
        self._is_final = False
        self._tells_writes = False
        self._content_bytes = 0
        self._failed = False
        self._tier: Tier = "plain"
        self._cost_picousd = 0
        self._beside: tuple[Beside, ...] = ()

    def feed(self, chunk: bytes) -> None:
        """Take in the next decoded bytes."""
        self._content_bytes += len(chunk)
        if not (self._is_ok or self._is_refused):
            return
        if self._frames is not None:
            for event in self._frames.feed(chunk):
                self._event(event)
        elif len(self._body) + len(chunk) <= MOST_BODY_BYTES:
            self._body += chunk
        else:
            self._is_long = True
            self._body.clear()

    def end(self, *, complete: bool, was_read: bool = True) -> Usage:
        """Return the usage. `complete` False: one side hung up before the end. `was_read` False:
        some of the data couldn't be decoded."""
        if self._is_ok and self._frames is not None:
            # Checked before `end`: an event cut off at the end is merely missing, not lost.
            self._is_uncounted = self._is_uncounted or self._frames.lost
            for event in self._frames.end():
                self._event(event)
        elif self._is_ok and complete and not self._is_long:
            self._json(bytes(self._body))
        if self._is_given_up:
            return Usage(content_bytes=None, failed=True)
        if self._is_refused and _FILTERED in self._body:
            return Usage(has_output=True, content_bytes=self._content_bytes, failed=True)
        if not self._is_ok:
            # There was no answer: providers don't bill failed calls.
            return Usage(
                has_input=True, has_output=True, content_bytes=self._content_bytes, failed=True
            )
        return Usage(
            tokens=self._counts.tokens(),
            model=self._model,
            has_input=self._has_input and not self._is_uncounted,
            only_began=self._frames is not None
            and not self._is_final
            and (self._has_begun or not complete),
            tells_writes=self._tells_writes,
            # A count that was still growing when one side hung up doesn't count.
            has_output=self._has_output and (complete or self._is_final) and not self._is_uncounted,
            content_bytes=self._content_bytes
            if was_read and (complete or self._frames is not None)
            else None,
            cost_picousd=self._cost_picousd,
            beside=self._beside,
            failed=self._failed,
            cut_off=not complete,
            tier=self._tier,
        )

    def _event(self, event: StreamEvent) -> None:
        if any(word in event.data for word in _WANTED):
            self._json(event.data)

    def _json(self, data: bytes) -> None:
        if has_too_many_values(data):
            self._is_uncounted = self._frames is not None
            return
        root = _read(data)
        if root is None:
            # It may have had the last count, which is then unknown.
            self._is_uncounted = self._frames is not None
        if isinstance(root, dict):
            self._take(root)

    def _take(self, root: dict[str, Any]) -> None:
        """Take one object of a response: a whole body, or an event."""
        inner = root.get("bytes")
        if isinstance(inner, str):  # Bedrock wraps each event of a model
            try:
                self._json(base64.b64decode(inner, validate=True))
            except binascii.Error:
                return
        message = root.get("message") or root.get("response")
        holder = message if isinstance(message, dict) else root
        if root.get("error") or holder.get("error"):
            self._failed = True
        model = holder.get("model")
        if isinstance(model, str) and not self._model:
            self._model = model[:MOST_NAME_CHARS]
        self._tier = max(self._tier, _tier(holder), key=TIERS.index)
        self._searches(holder.get("output"))
        self._metrics(root.get("amazon-bedrock-invocationMetrics"))
        usage = holder.get("usage")
        if isinstance(usage, dict):
            self._costs(usage)
            is_start = root.get("type") == "message_start"
            self._has_begun = self._has_begun or is_start
            self._is_final = self._frames is None or _ends(root)
            if self._api in ("messages", "invoke"):
                self._anthropic(usage, is_start=is_start)
            elif self._api == "converse":
                self._converse(usage)
            else:
                self._openai(usage)

    def _searches(self, output: object) -> None:
        """Count searches: OpenAI bills each that it made, and lists them as items of the answer."""
        if isinstance(output, list):
            kinds = [item.get("type") for item in output if isinstance(item, dict)]
            self._counts.take("searches", sum(kinds.count(kind) for kind in _SEARCH_CALLS))

    def _anthropic(self, usage: dict[str, Any], *, is_start: bool) -> None:
        """Read Anthropic's counts. Input excludes cached tokens; the output of `message_start` is
        only its beginning."""
        taken = self._counts.take("input", usage.get("input_tokens"))
        self._has_input = taken or self._has_input
        self._counts.take("cache_read", usage.get("cache_read_input_tokens"))
        parts = usage.get("cache_creation")
        if isinstance(parts, dict):
            self._tells_writes = True
            self._counts.take("cache_write", parts.get("ephemeral_5m_input_tokens"))
            self._counts.take("cache_write_long", parts.get("ephemeral_1h_input_tokens"))
        else:
            self._written(usage.get("cache_creation_input_tokens"))
        if self._counts.take("output", usage.get("output_tokens")) and not is_start:
            self._has_output = True
        self._iterations(usage.get("iterations"))
        tools = usage.get("server_tool_use")
        if isinstance(tools, dict):
            self._counts.take("searches", tools.get("web_search_requests"))

    def _iterations(self, iterations: object) -> None:
        """Add what Anthropic's own sums leave out: the pages on compaction and on the advisor
        tool."""
        if not isinstance(iterations, list):
            return
        found = []
        for part in iterations[:MOST_ITERATIONS]:
            if isinstance(part, dict) and part.get("type") != "message":
                reader = UsageReader("messages", 200, "")
                reader._anthropic({**part, "iterations": None}, is_start=False)
                model = part.get("model")
                name = model[:MOST_NAME_CHARS] if isinstance(model, str) else ""
                found.append(Beside(model=name, tokens=reader._counts.tokens()))
        self._beside = tuple(found)

    def _written(self, whole: object) -> None:
        """Take a sum of cache writes. If its kinds were given separately before, it says nothing
        new."""
        known = self._counts.seen.get("cache_write", 0) + self._counts.seen.get(
            "cache_write_long", 0
        )
        if isinstance(whole, int) and not isinstance(whole, bool) and whole > known:
            self._counts.take("cache_write", whole - self._counts.seen.get("cache_write_long", 0))

    def _costs(self, usage: dict[str, Any]) -> None:
        """Take OpenRouter's bill, and the provider's: both are paid if the key is the customer's
        own, otherwise they are the same charge. Source: its page on usage accounting."""
        details = usage.get("cost_details")
        said = [
            usage.get("cost"),
            details.get("upstream_inference_cost") if isinstance(details, dict) else None,
        ]
        found = [one for one in said if isinstance(one, int | float) and not isinstance(one, bool)]
        costs = [math.ceil(Fraction(one) * PICOUSD) for one in found if 0 <= one <= MOST_COST_USD]
        cost = sum(costs) if usage.get("is_byok") is True else max(costs, default=0)
        self._cost_picousd = max(self._cost_picousd, cost)

    def _openai(self, usage: dict[str, Any]) -> None:
        """Read OpenAI's counts. Input includes cached tokens, which are subtracted here."""
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        whole = usage.get("prompt_tokens", usage.get("input_tokens"))
        if not _is_count(whole):
            return
        if isinstance(details, dict):
            self._counts.take("cache_read", details.get("cached_tokens"))
            self._counts.take(
                "cache_write",
                details.get("cache_write_tokens"),
                details.get("cache_creation_tokens"),
            )
        cached = self._counts.seen.get("cache_read", 0) + self._counts.seen.get("cache_write", 0)
        self._has_input = self._counts.take("input", max(0, whole - cached))
        output, total = (
            usage.get("completion_tokens", usage.get("output_tokens")),
            usage.get("total_tokens"),
        )
        # xAI and Google count thoughts beside the output, and only the total has both. Embeddings
        # have no output, and don't report any.
        rest = total - whole if _is_count(total) else None
        self._has_output = self._counts.take(
            "output", max(filter(_is_count, (output, rest)), default=None)
        )

    def _converse(self, usage: dict[str, Any]) -> None:
        self._has_input = self._counts.take("input", usage.get("inputTokens"))
        self._has_output = self._counts.take("output", usage.get("outputTokens"))
        self._counts.take("cache_read", usage.get("cacheReadInputTokens"))
        details = usage.get("cacheDetails")
        for part in details if isinstance(details, list) else ():
            if isinstance(part, dict):
                self._tells_writes = True
                self._counts.take(
                    "cache_write_long" if part.get("ttl") != "5m" else "cache_write",
                    part.get("inputTokens"),
                )
        self._written(usage.get("cacheWriteInputTokens"))

    def _metrics(self, metrics: object) -> None:
        """Read Bedrock's own count, at the end of a stream of any model."""
        if isinstance(metrics, dict):
            self._is_final = True
            self._has_input = (
                self._counts.take("input", metrics.get("inputTokenCount")) or self._has_input
            )
            self._has_output = (
                self._counts.take("output", metrics.get("outputTokenCount")) or self._has_output
            )
            self._counts.take("cache_read", metrics.get("cacheReadInputTokenCount"))
            self._written(metrics.get("cacheWriteInputTokenCount"))


def _read(data: bytes) -> object:
    """Parse JSON, accepting half a pair of surrogates and NaN: a model can be brought to write the
    first. Return None if it can't be parsed."""
    for decode in (msgspec.json.decode, json.loads):
        with contextlib.suppress(ValueError, RecursionError):
            return decode(data)
    return None


def _is_count(value: object) -> TypeIs[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT


def _tier(holder: dict[str, Any]) -> Tier:
    """Return the tier that served the call according to the response: OpenAI, Anthropic,
    Bedrock."""
    usage, tier = holder.get("usage"), holder.get("serviceTier")
    said = [holder.get("service_tier")]
    # Anthropic's own `service_tier` in there doesn't matter: it says what was prepaid.
    said += [usage.get("speed")] if isinstance(usage, dict) else []
    said += [tier.get("type")] if isinstance(tier, dict) else []
    return dearest_tier(*said)


def _ends(event: dict[str, Any]) -> bool:
    """Return whether an event with a count is the last one with a count."""
    delta = event.get("delta")
    if isinstance(delta, dict):
        return bool(delta.get("stop_reason"))
    return event.get("type") != "message_start" and not event.get("choices")
