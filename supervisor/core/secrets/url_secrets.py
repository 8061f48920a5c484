"""Redact query values that authenticate, such as `access_token`, in URLs.

It decides by the name alone, word by word, so that `monkey` is no key; an unknown value has no
shape to go by, and `redact` handles known ones. It applies only to what is stored or shown: rules,
fingerprints and requests use the full address. That changes no verdict, now or when a record is
judged again, since rules compare the path without its query (`urls.normalise_path`); a grant is
bound to the full address.

INVARIANT: if a name may also say what is to be done (`code`), only a random-looking value is
hidden: the person who answers must see what acts. A hidden long value shows its length, because a
token's name may cover a large upload.
"""

import re
from functools import lru_cache
from urllib.parse import unquote_plus

import msgspec

from supervisor.core.actions import Network

MARK = "[hidden]"
# Longer than the tokens that people know; an address may have 16,000 characters.
LONG_CHARS = 200
# One of these words in a name: `access_token`, `apiKey`, `X-Amz-Credential`, `user[password]`.
_WORDS = frozenset(
    {
        "accesskey", "accesstoken", "apikey", "assertion", "auth", "authkey", "authorization",
        "authtoken", "bearer",
        "clientsecret", "credential", "credentials", "hmac", "idtoken", "jsessionid", "jwt", "key",
        "otp", "pass",
        "passcode", "passphrase", "passwd", "password", "phpsessid", "privatekey", "pwd",
        "refreshtoken",
        "samlresponse", "secret", "secretkey", "secrets", "sessionid", "sessiontoken", "sid", "sig",
        "sign",
        "signature", "ticket", "token", "tokens", "totp",
    }
)  # fmt: skip
# As one word, with any text before it: `apitoken`, `consumersecret`. No ordinary word ends like
# this.
_ENDS = re.compile(
    r"(?:token|secret|password|passwd|passphrase|signature|(?:api|app|access|secret|private|shared)key)s?\Z"
)
# All words of a name, in one.
_NAMES = frozenset({"awsaccesskeyid", "session", "sessionid", "sessid"})
# These authenticate only if the value looks like it: a `code` may also belong to a country, an
# error, or a program.
_CODES = frozenset({"authcode", "authorizationcode", "code", "devicecode", "usercode"})
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9._~/=-]{6,}\Z")
# The characters of such a value before it is decoded: it ends at the next name at the latest.
_RANDOM_AS_WRITTEN = re.compile(r"[A-Za-z0-9._~/=%-]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# INVARIANT: a value extends as far as any server reads it. For some servers `;` starts another
# name, for others it is part of the value: here it is both.
_NAME_IN_QUERY = re.compile(r"(?:^|(?<=[?&;#]))([^?&;#=]+)=")
_END_IN_QUERY = re.compile(r"[&#]|\Z")
_NAME_IN_TEXT = re.compile(r"(?<=[?&;#])([^?&;#=\s]+)=")
_END_IN_TEXT = re.compile(r"[&#\s\"'<>]|\Z")


def hidden(action: Network) -> Network:
    """Return the action as it may be stored and shown."""
    path = None if action.path is None else in_target(action.path)
    return action if path == action.path else msgspec.structs.replace(action, path=path)


def in_target(target: str) -> str:
    """Return a request's target (`/path?query`) without values that authenticate."""
    path, mark, query = target.partition("?")
    return path + mark + _without(query, _NAME_IN_QUERY, _END_IN_QUERY) if "=" in query else target


def in_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return headers with such values removed from the addresses in them (Referer, Location, Link
    and others)."""
    if not any("=" in value for _, value in headers):
        return headers
    return tuple((name, _without(value, _NAME_IN_TEXT, _END_IN_TEXT)) for name, value in headers)


def _without(text: str, names: re.Pattern[str], ends: re.Pattern[str]) -> str:
    parts: list[str] = []
    done = end = 0
    for found in names.finditer(text):
        start = found.end()
        if found.start() < done:
            continue
        # Many names may share one end, so it is looked up once.
        if end < start:
            end = next(ends.finditer(text, start)).start()
        is_random = _RANDOM_AS_WRITTEN.fullmatch(text, start, end) is not None
        if start < end and (
            is_secret(found[1]) or (is_random and authenticates(found[1], text[start:end]))
        ):
            parts += [text[done:start], mark_for(text[start:end])]
            done = end
    return "".join([*parts, text[done:]])


def authenticates(name: str, value: str) -> bool:
    """Return whether the query value of this name, as written, authenticates: whoever has it could
    pass for the sender."""
    return is_secret(name) or (
        _kind(name) == "code" and _RANDOM.match(unquote_plus(value)) is not None
    )


def is_secret(name: str) -> bool:
    """Return whether every value of this name authenticates, whether it looks random or not."""
    return _kind(name) == "secret"


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    words = [word.lower() for word in _WORD.findall(unquote_plus(name))]
    joined = "".join(words)
    if joined in _CODES:
        return "code"
    if joined in _NAMES or not _WORDS.isdisjoint([joined, *words]) or _ENDS.search(joined):
        return "secret"
    return ""


def mark_for(value: str) -> str:
    """Return the mark in place of a value."""
    if value.startswith(MARK[:-1]) and value.endswith("]"):
        return value  # it passed here before
    return MARK if len(value) <= LONG_CHARS else f"[hidden: {len(value):,} characters]"
