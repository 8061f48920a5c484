"""Credentials in place of placeholders.

It decides where a placeholder may appear: in its own header, to its own hosts, and nowhere else (a
key that clients send in either of two headers has a credential for each). At those hosts the header
may hold nothing else. With an attacker's key, the agent would hand what it read to the attacker's
account, at a host that the rules allow. The secret exists in this process only; it must never reach
a log, an exception or a message to the supervisor.
"""

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from supervisor.core.network.egress_wire import Credential
from supervisor.core.secrets.redact import Redactor
from supervisor.core.secrets.secret_forms import Begun, SecretForms, SecretSearch
from supervisor.core.text.globs import Glob
from supervisor.core.text.hosts import EVERY, is_named, is_shared_by_strangers
from supervisor.core.text.urls import normalise_path
from supervisor.egress.protocols import sigv4
from supervisor.egress.protocols.checks import DEFAULT_PORTS, Head, split_authority

FOUND_IN_BODY = "the body holds a placeholder, and no credential belongs to this host"
ECHOED = (
    "the answer holds a credential that Gatehouse put into the request, which the agent must"
    " not see"
)
UNREADABLE = (
    "the answer is coded in a way that can't be read, and may hold the credential that Gatehouse"
    " put into the request"
)
IN_RANGES = (
    "several ranges in one answer may cut the credential apart that Gatehouse put into the request,"
    " so that it isn't found"
)
BEGUN = (
    "each piece of the answer ends in what the credential begins with, so that all of it would have"
    " to wait for its end"
)
GUESSED = (
    "answers to this session ended in what a credential begins with again and again, each time in"
    " more of it, as if somebody tried letter by letter what it is; until the session ends nothing"
    " more goes to hosts that a credential belongs to"
)
ECHOED_OFTEN = (
    "answers to this session gave a credential back again and again, and how each of them ends may"
    " tell something of it; until the session ends nothing more goes to hosts that a credential"
    " belongs to"
)
FOR_ANOTHER_SERVICE = (
    "the names of this host's service are anybody's (`*.` in the credential's hosts), and the"
    " request is signed for another service, which would take that signature from whoever has this"
    " name; only requests that are signed for the host's own service go there"
)
PRESIGNED = (
    "the address was signed beforehand (`X-Amz-Signature` in its query) with the placeholder of a"
    " credential for AWS; only a request that is signed in its header `authorization` is signed"
    " anew, so make the request itself instead"
)
_READS = ("GET", "HEAD")
# Query parameters of presigned addresses: Signature Version 4, 4A, and 2.
_IN_PRESIGNED = (b"x-amz-signature=", b"x-amz-credential=", b"awsaccesskeyid=")
# Separates texts that are searched together; it occurs in no name, value or path of a request.
_APART = b"\0\xff\0"
# RFC 1866 8.2.1 allows `;` as a separator, too, and some servers accept it.
_APART_IN_QUERY = re.compile(rb"[&;]")
# Rack, which GitLab and GitHub use, also reads `[token]` and `token]` as `token` (its
# `normalize_params`).
_BRACKET = re.compile(r"[\[\]]")
# GitHub's tokens before the `ghp_` prefix.
_OLD_KEY = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
# Without secrets it recognises keys by their shape.
_redactor = Redactor()
# Schemes that may precede the secret in its header.
_SCHEMES = ("basic", "bearer", "token")


@dataclass(frozen=True, slots=True)
class HeaderSwap:
    """Sets one header of the request to a value that holds a secret. With `signs`, the request is
    signed anew with these keys."""

    header: str
    value: str
    signs: bool = False

    def __repr__(self) -> str:
        return f"Swap(header={self.header!r})"


def swaps(
    credentials: tuple[Credential, ...], request: Head, host: str, port: int
) -> tuple[list[HeaderSwap], str | None]:
    """Return the headers to set in the request, and why it must be refused, if so."""
    found: list[HeaderSwap] = []
    why = _other_key(credentials, request, host, port)
    if why is not None:
        return [], why
    placeholders = tuple(dict.fromkeys(credential.placeholder for credential in credentials))
    if not _mentions(request, placeholders):
        return [], None
    for placeholder in placeholders:
        if not _mentions(request, (placeholder,)):
            continue
        own = [credential for credential in credentials if credential.placeholder == placeholder]
        headers = {credential.header.lower().encode() for credential in own}
        where = " or ".join(f"`{credential.header}`" for credential in own)
        others = tuple(
            (name, value) for name, value in request.headers if name.lower() not in headers
        )
        if any(one.signs for one in own) and _is_presigned(request, (placeholder,)):
            return [], PRESIGNED
        if _mentions(replace(request, headers=others), (placeholder,)):
            return (
                [],
                f"a placeholder is only replaced in the header {where}, and was found elsewhere",
            )
        for credential in own:
            header = credential.header.lower().encode()
            its = tuple((name, value) for name, value in request.headers if name.lower() == header)
            if not _mentions(replace(request, headers=its), (placeholder,)):
                continue
            value = _swapped(request, credential)
            if value is None:
                return [], _why_not_swapped(request, credential, where)
            why = _why_not(credential, request, host, port)
            if why is not None:
                return [], why
            found.append(HeaderSwap(credential.header, value, credential.signs))
    return found, None


def _why_not(credential: Credential, request: Head, host: str, port: int) -> str | None:
    """Return why a credential doesn't fit this request."""
    if not _bound(credential, request.scheme, host, port):
        place = host if port == DEFAULT_PORTS["https"] else f"{host}:{port}"
        return f"the credential for `{credential.header}` doesn't belong to `{place}`"
    if not _covers(credential, request):
        return f"the credential for `{credential.header}` is for other methods or paths of `{host}`"
    return (
        None
        if not credential.signs or _signs_for_it(credential, request, host, port)
        else FOR_ANOTHER_SERVICE
    )


def has_any(credentials: tuple[Credential, ...], host: str, port: int) -> bool:
    """Return whether a credential belongs to this host and port, so that its connections are
    inspected."""
    return any(_bound(credential, credential.scheme, host, port) for credential in credentials)


def _other_key(
    credentials: tuple[Credential, ...], request: Head, host: str, port: int
) -> str | None:
    """Return why the request must be refused if it brings its own key to a credential's host."""
    own = [
        credential
        for credential in credentials
        if _bound(credential, credential.scheme, host, port)
    ]
    for credential in own:
        fitting = _forms(
            tuple(one.placeholder for one in own if one.header.lower() == credential.header.lower())
        )
        for value in _values(request, credential.header):
            if value.strip() and not fitting.is_in(value):
                return (
                    f"the header `{credential.header}` of `{host}` is set by Gatehouse; no other"
                    " key is sent there"
                )
        place = _other_place(credential, request)
        if place is not None:
            return (
                f"{place} says a key, and that of `{host}` is set by Gatehouse; no other key is"
                " sent there"
            )
        # An address that somebody else presigned for reading is fine: nothing else goes out with
        # it.
        if (
            credential.signs
            and request.method not in _READS
            and _is_presigned(request, (credential.placeholder,)) is False
        ):
            return (
                "the address was signed beforehand with another key than Gatehouse has for"
                f" `{host}`; no other key is sent there"
            )
    return None


def _values(request: Head, header: str) -> list[bytes]:
    """Return the values of a header, also under the names that a CGI reads as the same: `_` as `-`
    (RFC 3875 4.1.18)."""
    name = header.lower().encode()
    return [
        value for written, value in request.headers if written.lower().replace(b"_", b"-") == name
    ]


def _other_place(credential: Credential, request: Head) -> str | None:
    """Return where else the service accepts a key."""
    for known in credential.other_headers:
        header, _, part = known.partition(": ")
        if any(value.strip() and part.encode() in value for value in _values(request, header)):
            return f"the header `{header}`"
    query = request.path.partition(b"?")[2] if credential.query_names else b""
    for item in _APART_IN_QUERY.split(query):
        written, _, value = item.partition(b"=")
        name = unquote_to_bytes(written).decode("utf-8", "replace").lower()
        name = _BRACKET.split(name.lstrip("[]"), maxsplit=1)[0]
        if value and name in credential.query_names:
            return f"`{name}` in the query"
    return None


def _signs_for_it(credential: Credential, request: Head, host: str, port: int) -> bool:
    """Return whether a request is signed for the host's own service, where the host may be a
    stranger's.

    Anybody can own a function that receives its caller's signature. A signature for S3 is of use at
    its own bucket only.
    """
    signed = sigv4.parse(request.values(credential.header.lower().encode())[0])
    names = [
        text.removeprefix(EVERY).partition(":")[0] for text in _binding(credential, host, port)
    ]
    is_of_strangers = all(text != host and is_shared_by_strangers(text) for text in names)
    if signed is None or signed.service in sigv4.OF_S3 or not is_of_strangers:
        return signed is not None
    return any(
        f"{label}-".startswith(f"{signed.service}-") for text in names for label in text.split(".")
    )


def _bound(credential: Credential, scheme: str, host: str, port: int) -> bool:
    return scheme == credential.scheme and next(_binding(credential, host, port), None) is not None


def _binding(credential: Credential, host: str, port: int) -> Iterator[str]:
    """Yield the credential's hosts that cover this one."""
    for text in credential.hosts:
        name = text.removeprefix(EVERY)
        parts = split_authority(name)
        if parts is None or (parts[1] or DEFAULT_PORTS[credential.scheme]) != port:
            continue
        if is_named(host, parts[0] if name == text else EVERY + parts[0]):
            yield text


def _is_presigned(request: Head, placeholders: tuple[str, ...]) -> bool | None:
    """Return whether the address itself is signed with one of these placeholders (AWS calls it
    presigned). Return None where it isn't signed at all."""
    query = request.path.partition(b"?")[2]
    read = unquote_to_bytes(query).lower()
    if not any(name in read for name in _IN_PRESIGNED):
        return None
    return _forms(placeholders).is_in(query)


def _swapped(request: Head, credential: Credential) -> str | None:
    """Return the header's new value. Return None unless there is exactly one such header and the
    placeholder is all of it."""
    values = request.values(credential.header.lower().encode())
    if len(values) != 1:
        return None
    if credential.signs:
        signed = sigv4.parse(values[0])
        return (
            credential.secret
            if signed is not None and signed.access == credential.placeholder
            else None
        )
    scheme, _, token = values[0].rpartition(" ")
    if scheme.lower() == "basic" and credential.basic:
        return _swapped_basic(token, credential)
    if token != credential.placeholder or scheme.lower() not in ("", "bearer", "token"):
        return None
    return f"{scheme} {credential.secret}" if scheme else credential.secret


def _why_not_swapped(request: Head, credential: Credential, where: str) -> str:
    """Return why the secret can't be put into a header's value."""
    values = request.values(credential.header.lower().encode())
    if not any(value.strip().lower().startswith("basic ") for value in values):
        return f"a placeholder is only replaced where it is all of the header {where}"
    if credential.basic:
        return (
            "in Basic credentials a placeholder is only replaced as the password, and of a user"
            " that is no other key"
        )
    return (
        f"the credential for `{credential.header}` isn't sent as Basic credentials; its placeholder"
        " stands there bare or after `Bearer`"
    )


def _swapped_basic(encoded: str, credential: Credential) -> str | None:
    """Return Basic credentials with the secret as their password, as git sends it."""
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    if password != credential.placeholder or credential.placeholder in user or _is_key(user):
        return None
    return "Basic " + base64.b64encode(f"{user}:{credential.secret}".encode()).decode()


def _is_key(user: str) -> bool:
    """Return whether the user of Basic credentials is itself a key: GitHub accepts one there, with
    `x-oauth-basic` as the password."""
    return _OLD_KEY.fullmatch(user) is not None or _redactor.text(user) != user


def _covers(credential: Credential, request: Head) -> bool:
    """Return whether a credential is for this method and path of its host. An ambiguous path is
    never covered."""
    if credential.methods and request.method not in credential.methods:
        return False
    if not credential.paths:
        return True
    path = normalise_path(request.path.decode("ascii", "replace"))
    if path.ambiguous or path.has_empty_segments:
        return False
    return any(Glob(one[1:]).matches(path.text[1:]) for one in credential.paths)


class BodyScan:
    """Looks for secrets in a body, piece by piece: in its decoded text, and in its raw bytes
    whatever its coding is said to be."""

    def __init__(self, forms: SecretForms) -> None:
        self._says, self._is = SecretSearch(forms), SecretSearch(forms)
        self.found = False

    @property
    def begun(self) -> tuple[Begun, ...]:
        """Return the partial secrets that the body so far ends in."""
        return tuple(one for one in (self._says.begun, self._is.begun) if one is not None)

    def see(self, part: bytes) -> None:
        """Scan a decoded part."""
        self.found = self.found or self._says.finds(part)

    def see_raw(self, part: bytes) -> None:
        """Scan a raw part of a coded body."""
        self.found = self.found or self._is.finds(part)


def hold(fields: Iterable[tuple[bytes, bytes]], forms: SecretForms) -> bool:
    """Return whether a header's name or value contains a secret."""
    return bool(forms) and forms.is_in(_APART.join(part for field in fields for part in field))


def foreign(credentials: tuple[Credential, ...], host: str, port: int) -> frozenset[str]:
    """Return the placeholders that must not go to a host in a body: all of them, or none where any
    credential belongs to the host.

    An agent that prints its environment tells its model the placeholders, and a placeholder opens
    nothing.
    """
    if any(_bound(one, one.scheme, host, port) for one in credentials):
        return frozenset()
    return frozenset(one.placeholder for one in credentials)


def back(
    credentials: tuple[Credential, ...], swaps: list[HeaderSwap], host: str, port: int
) -> frozenset[str]:
    """Return the real credentials that an origin may echo: those sent with this request, and those
    sent to this host with others. A signing key is never sent, only its session token."""
    found: set[str] = set()
    for one in swaps:
        if one.signs:
            keys = sigv4.parse_keys(one.value)
            found.add(keys.token if keys is not None else "")
        else:
            found.add(_secret_in(one.value))
    found |= {
        one.secret for one in credentials if not one.signs and _bound(one, one.scheme, host, port)
    }
    return frozenset(text for text in found if text)


def is_for_s3(
    credentials: tuple[Credential, ...], authorization: str, host: str, port: int
) -> bool:
    """Return whether a request is signed for S3 and its host is never sent anything else.

    No S3 object contains what was sent with its request, and AWS's programs load long objects in
    parts.
    """
    signed = sigv4.parse(authorization)
    own = [one for one in credentials if _bound(one, one.scheme, host, port)]
    return signed is not None and signed.service in sigv4.OF_S3 and all(one.signs for one in own)


def _secret_in(value: str) -> str:
    """Return the secret in a header's value. It may contain a space."""
    scheme, _, token = value.partition(" ")
    if scheme.lower() == "basic":
        token = _password(token) or token
    return token if scheme.lower() in _SCHEMES else value


def _password(encoded: str) -> str:
    """Return the password of Basic credentials; empty where there is none."""
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")[2]
    except ValueError:
        return ""


def _mentions(request: Head, placeholders: tuple[str, ...]) -> bool:
    """Return whether a placeholder is anywhere in the head, in any form."""
    fields = (*request.headers, (request.path, request.authority.encode("utf-8", "replace")))
    return hold(fields, _forms(placeholders))


@functools.lru_cache(maxsize=256)
def _forms(placeholders: tuple[str, ...]) -> SecretForms:
    """Return the finder of these placeholders, cached since consecutive heads have the same ones.
    INVARIANT: no secret is cached here, only placeholders."""
    return SecretForms(placeholders)
