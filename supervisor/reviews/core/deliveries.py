"""Webhooks as text: the parts that may be read before anything is believed.

Pure. A delivery is only a trigger: its facts about a pull request are read again from the forge.
`GitHubWebhooks` reads GitHub's, `bitbucket_deliveries` those of Bitbucket.
Sources: docs.github.com/webhooks (headers, events), RFC 8259.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from supervisor.core.forge_acts import Forge
from supervisor.errors import UserError

MOST_BYTES = 5 * 1024 * 1024
MOST_DEPTH = 64
# The maximum number of brackets in a body, including those in texts: an event has some thousands,
# and each takes time.
MOST_BRACKETS = 400_000
UNSIGNED = "the signature is missing or wrong"
# An owner is a login at GitHub, a workspace at Bitbucket; a repository has at most 100 characters.
_FULL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,61}/[A-Za-z0-9._-]{1,100}\Z")
_SHA = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_REF = re.compile(
    r"(?!/|.*(?:\.\.|//|@\{|\.lock\Z|[/.]\Z))"
    r"[^\x00-\x20\x7f~^:?*\[\\\ud800-\udfff-][^\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]*\Z"
)
_ID = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_EVENT = re.compile(r"[a-z_]{1,64}\Z")
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}\Z")
# Possessive quantifiers: backtracking would take a hundred times the memory of the text.
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)

# Actions on a pull request that trigger its slot.
PULL_ACTIONS = frozenset(
    {"opened", "reopened", "synchronize", "ready_for_review", "closed", "labeled", "edited"}
)
# Events of comments on a pull request, or beside its code.
COMMENT_EVENTS = frozenset({"issue_comment", "pull_request_review_comment"})
INSTALLATION_EVENTS = frozenset({"installation", "installation_repositories"})


# What an event is about; "" for one that is ignored.
EventKind = Literal["pull", "comment", "push", "repositories", ""]


class Webhook(NamedTuple):
    """A delivery's head, checked: its id, and the kind of its event. `action`: if the head says
    that, too."""

    delivery_id: str
    event: str
    action: str = ""


class SaidComment(NamedTuple):
    """The comment that an event is about, as the event describes it."""

    id: int
    author: str
    body: str
    is_inline: bool


class WebhookReader(Protocol):
    """Reads the webhooks of one forge. `signature` is the header that has it, in lower case;
    `events` are those that may be more than ignored."""

    forge: Forge
    signature: str
    events: frozenset[str]

    def head(self, headers: Mapping[str, str]) -> Webhook:
        """Return a delivery's head. Raise `UserError` if it isn't one."""

    def kind(self, event: str, action: str) -> EventKind:
        """Return what an event is about."""

    def action(self, head: Webhook, payload: Mapping[str, Any]) -> str:
        """Return an event's action; "" if it has none."""

    def number(self, payload: Mapping[str, Any]) -> int | None:
        """Return the number of the pull request that an event is about."""

    def comment(self, event: str, payload: Mapping[str, Any]) -> SaidComment | None:
        """Return the comment that an event is about."""


def is_signature(text: str) -> bool:
    """Return whether a header could be a signature at all; checked before the body is read."""
    return bool(_SIGNATURE.match(text))


def is_signed(secret: bytes, body: bytes, signature: str) -> bool:
    """Return whether the signature matches exactly these bytes, in constant time."""
    wanted = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace"))


def read_body(body: bytes) -> dict[str, Any]:
    """Return a delivery's body. Raise `UserError` if it isn't a JSON object, has a key twice, or is
    nested deeper than any event is."""
    if _is_deep(body):
        raise UserError(f"the body is nested deeper than {MOST_DEPTH} levels", "send an event")
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"the body is no JSON: {error}", "send it as `application/json`") from error
    if not isinstance(found, dict):
        raise UserError("the body is no JSON object", "send an event")
    if _has_doubles(body):
        raise UserError("a key stands twice in one object", "send each once")
    return found


def repository_name(payload: Mapping[str, Any]) -> str:
    """Return the repository that an event is about; "" if there is none, or its name is invalid."""
    name = field(payload, "repository", "full_name")
    return name if isinstance(name, str) and is_full_name(name) else ""


def pull_number(payload: Mapping[str, Any]) -> int | None:
    """Return the number of the pull request that an event is about."""
    number = field(payload, "pull_request", "number")
    return number if type(number) is int and 0 < number < 1 << 31 else None


def commented_pull(payload: Mapping[str, Any]) -> int | None:
    """Return the number of the pull request whose comment an event is about; None on an issue."""
    number = field(payload, "issue", "number")
    is_pull = isinstance(field(payload, "issue", "pull_request"), dict)
    return number if is_pull and type(number) is int and 0 < number < 1 << 31 else None


def is_from_fork(payload: Mapping[str, Any]) -> bool:
    """Return whether an event's pull request comes from another repository than its own, or from
    one that is gone."""
    head = field(payload, "pull_request", "head", "repo", "full_name")
    return bool(head != field(payload, "pull_request", "base", "repo", "full_name"))


def sender(payload: Mapping[str, Any]) -> str:
    """Return who caused an event; "" if it names nobody."""
    login = field(payload, "sender", "login")
    return login if isinstance(login, str) else ""


def action_name(payload: Mapping[str, Any]) -> str:
    """Return an event's action; "" if it has none."""
    action = payload.get("action")
    return action if isinstance(action, str) and _EVENT.match(action) else ""


def is_full_name(text: str) -> bool:
    """Return whether a text is `OWNER/REPO` and safe in a path."""
    return bool(_FULL_NAME.match(text)) and text.partition("/")[2] not in (".", "..")


def is_sha(text: str) -> bool:
    """Return whether a text is a full commit id."""
    return bool(_SHA.match(text))


def is_branch(text: str) -> bool:
    """Return whether a text may be a branch's name (git-check-ref-format(1)) and isn't an
    option."""
    return len(text) <= 255 and bool(_REF.match(text))


def field(payload: Mapping[str, Any], *keys: str) -> Any:
    """Return a nested field of an event; None if there is none."""
    found: Any = payload
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _is_deep(body: bytes) -> bool:
    """Return whether brackets outside of strings are nested too deep, or are too many."""
    if body.count(b"[") + body.count(b"{") > MOST_BRACKETS:
        return True
    depth = 0
    for part in _PART.finditer(body):
        first = part[0][:1]
        if first in b"[{":
            depth += 1
            if depth > MOST_DEPTH:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _has_doubles(body: bytes) -> bool:
    """Return whether an object has a key twice: readers differ on which of the two counts."""
    import json

    def pairs(found: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in found]
        if len(set(keys)) != len(keys):
            raise _DoubleKeyError

    try:
        json.loads(body, object_pairs_hook=pairs)
    except _DoubleKeyError:
        return True
    return False


class _DoubleKeyError(Exception):
    pass


class GitHubWebhooks:
    """Implements `WebhookReader`."""

    forge: Forge = "github"
    signature = "x-hub-signature-256"
    events = frozenset({"pull_request", "ping", *COMMENT_EVENTS, *INSTALLATION_EVENTS})

    def head(self, headers: Mapping[str, str]) -> Webhook:
        delivery_id = headers.get("x-github-delivery", "")
        event = headers.get("x-github-event", "")
        remedy = "send the webhook as GitHub does"
        if not _ID.match(delivery_id):
            raise UserError("no `X-GitHub-Delivery` that is an id", remedy)
        if not _EVENT.match(event):
            raise UserError("no `X-GitHub-Event` that is an event", remedy)
        return Webhook(delivery_id, event)

    def kind(self, event: str, action: str) -> EventKind:
        if event in INSTALLATION_EVENTS:
            return "repositories"
        if event in COMMENT_EVENTS:
            return "comment" if action == "created" else ""
        return "pull" if event == "pull_request" and action in PULL_ACTIONS else ""

    def action(self, head: Webhook, payload: Mapping[str, Any]) -> str:
        return action_name(payload)

    def number(self, payload: Mapping[str, Any]) -> int | None:
        return pull_number(payload)

    def comment(self, event: str, payload: Mapping[str, Any]) -> SaidComment | None:
        number = field(payload, "comment", "id")
        if not is_id(number):
            return None
        author, body = field(payload, "comment", "user", "login"), field(payload, "comment", "body")
        is_inline = event == "pull_request_review_comment"
        return SaidComment(number, text_of(author), text_of(body), is_inline)


def is_id(value: object) -> bool:
    """Return whether a value is the id of a comment."""
    return type(value) is int and 0 < value < 1 << 63


def text_of(value: object) -> str:
    """Return a value if it is a text; else ""."""
    return value if isinstance(value, str) else ""


def is_delivery_id(text: str) -> bool:
    """Return whether a text is the id of a delivery."""
    return bool(_ID.match(text))
