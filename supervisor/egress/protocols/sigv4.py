"""AWS Signature Version 4: replace a placeholder key's signature. Pure.

It decides which signed requests it understands, and signs them; `secrets` decides whether the host
may have the credential. Only the signature leaves this process, never the key. Source: AWS's
"Create a signed AWS API request"; the test is the example of its test suite.
"""

import hashlib
import hmac
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM}"
    r" Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request,\s*"  # noqa: E501
    r"SignedHeaders=(?P<headers>[a-z0-9;_-]+),\s*Signature=[0-9a-f]{64}"
)
_UNRESERVED = "-_.~"
_SESSION = "x-amz-security-token"
HASH = "x-amz-content-sha256"
# The only chunked form without a signature per piece; AWS's libraries send it to S3 over https.
_UNSIGNED_PIECES = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
# Services whose paths are signed exactly as written.
OF_S3 = frozenset({"s3", "s3express", "s3-object-lambda", "s3-outposts"})


class Keys(NamedTuple):
    """The real credentials. `token` is empty where they belong to no session."""

    access: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return "Keys()"


class Signed(NamedTuple):
    """A request's signature. `access` is the key that it claims to be signed with."""

    access: str
    date: str
    region: str
    service: str
    headers: tuple[str, ...]


def parse_keys(value: str) -> Keys | None:
    """Parse `ACCESS:SECRET` or `ACCESS:SECRET:TOKEN`; return None for any other text."""
    parts = value.split(":", 2)
    return Keys(*parts) if len(parts) > 1 and all(parts) else None


def parse(authorization: str) -> Signed | None:
    """Return the parts of an `Authorization` header of this kind, or None for any other."""
    match = _AUTHORIZATION.fullmatch(authorization.strip())
    if match is None:
        return None
    return Signed(
        match["key"],
        match["date"],
        match["region"],
        match["service"],
        tuple(match["headers"].split(";")),
    )


def is_in_pieces(headers: dict[str, str]) -> bool:
    """Return whether each piece of the body has its own signature, made from the one before."""
    digest = headers.get(HASH, "")
    return digest.startswith("STREAMING-") and digest != _UNSIGNED_PIECES


def resign(
    signed: Signed,
    keys: Keys,
    method: str,
    target: str,
    headers: dict[str, str],
    body: bytes | None,
) -> dict[str, str] | None:
    """Return the headers to set. `headers` are the request's by lower-case name; `body` is None
    where it isn't at hand.

    Return None where the request can't be signed. That is so if the body is neither at hand nor
    hashed in a header, or is signed piece by piece. It is also so if the host isn't signed: the
    signature would be as good at any other.
    """
    changed = {_SESSION: keys.token} if keys.token else {}
    now = {name: value for name, value in headers.items() if name != _SESSION} | changed
    named = sorted({name for name in signed.headers if name != _SESSION} | set(changed))
    stamp = now.get("x-amz-date", "")
    digest = now.get(HASH) or (hashlib.sha256(body).hexdigest() if body is not None else "")
    if (
        "host" not in named
        or not digest
        or is_in_pieces(now)
        or not stamp.startswith(signed.date)
        or not set(named) <= set(now)
    ):
        return None
    path, _, query = target.partition("?")
    canonical = "\n".join(
        [
            method,
            path if signed.service in OF_S3 else quote(path, safe="/" + _UNRESERVED),
            _canonical_query(query),
            *(f"{name}:{' '.join(now[name].split())}" for name in named),
            "",
            ";".join(named),
            digest,
        ]
    )
    scope = f"{signed.date}/{signed.region}/{signed.service}/aws4_request"
    text = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in (signed.date, signed.region, signed.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = (
        f"{ALGORITHM} Credential={keys.access}/{scope}, SignedHeaders={';'.join(named)},"
        f" Signature={signature}"
    )
    return changed | {"authorization": authorization}


def _canonical_query(query: str) -> str:
    pairs = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        pairs.append(
            (
                quote(unquote_to_bytes(name), safe=_UNRESERVED),
                quote(unquote_to_bytes(value), safe=_UNRESERVED),
            )
        )
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
