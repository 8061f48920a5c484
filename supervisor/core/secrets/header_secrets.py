"""Decide which HTTP headers are shown without their values, since these may authenticate.

It decides by the name, and rather hides too many than too few: a person can look up a hidden value
in the program, but everybody who opens the page sees a shown one. Two kinds of names contain such a
word and never hold a secret: those in `_OPEN`, and amounts of a model's tokens
(`x-ratelimit-remaining-tokens`).

INVARIANT: these, too, are shown only with a value that fits their name, so a secret under another's
name stays hidden.
"""

import re
from functools import lru_cache

from supervisor.core.secrets.url_secrets import is_secret

# Longer than any name in use. Longer names aren't cached, or clients could fill the memory with
# them.
_MOST_KEPT_BYTES = 300
_AUTHENTICATES = re.compile(
    rb"auth|cookie|key|token|secret|session|signature|credential|passw|csrf|xsrf|jwt", re.IGNORECASE
)
_NOTHING = re.compile(rb"(?!)")
_FLAG = re.compile(rb"true|false", re.IGNORECASE)
_SCOPES = re.compile(rb"(?:[a-z_]{1,30}(?::[a-z_]{1,30})?(?:, ?|\Z)){0,60}")
_DATE = re.compile(
    rb"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-9.]{2,12}"
    rb" ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2})"
)
_OPEN = {
    b"access-control-allow-credentials": _FLAG,  # Fetch standard 3.3.3
    b"x-amz-server-side-encryption-bucket-key-enabled": _FLAG,
    # 16 random bytes, which the origin echoes: RFC 6455 4.1
    b"sec-websocket-key": re.compile(rb"[A-Za-z0-9+/]{22}=="),
    # They name a request to do once, and pages to drop from a cache; neither works as a credential.
    b"idempotency-key": re.compile(rb"[!-~]{1,255}"),
    b"x-idempotency-key": re.compile(rb"[!-~]{1,255}"),
    b"surrogate-key": re.compile(rb"[ -~]*"),
    # A browser has no other header for a token: `base64url.bearer.authorization.k8s.io.<token>` is
    # one of the protocols of Kubernetes.
    b"sec-websocket-protocol": re.compile(rb"(?!.*(?:auth|bearer|key|token|secret|passw|jwt))[!-+.-~-]{1,40}(?:, ?[!-+.-~-]{1,40})*", re.IGNORECASE),  # noqa: E501
    # Scopes and expiry of a GitHub token.
    b"x-oauth-scopes": _SCOPES,
    b"x-accepted-oauth-scopes": _SCOPES,
    b"github-authentication-token-expiration": _DATE,
}  # fmt: skip
# `tokens` or `token-count`, together with a word of amounts; `reset` alone isn't enough, or the
# code in `x-reset-tokens` would count as an amount.
_TOKENS = re.compile(rb"(?:^|[-_])(?:tokens(?=[-_]|\Z)|token-count\Z)", re.IGNORECASE)
_OF_AMOUNTS = re.compile(
    rb"(?:^|[-_])(?:ratelimit|limit|remaining|input|output|prompt|completion|cached|total|used|usage)(?:[-_]|\Z)",
    re.IGNORECASE,
)
# A number, or a time until then (`6m0s`, `12ms`), or a date.
_AMOUNT = re.compile(
    rb"[0-9]{1,15}(?:\.[0-9]{1,12})?|(?:[0-9]{1,9}(?:\.[0-9]{1,12})?(?:ns|us|ms|s|m|h|d)){1,5}|"
    + _DATE.pattern
)


def authenticates(name: bytes, value: bytes) -> bool:
    """Return whether the name suggests that its value authenticates: whoever has it could pass for
    the sender."""
    if len(name) > _MOST_KEPT_BYTES:
        return _has_word(name)
    open_to = _open_to(name.lower())
    return open_to is not None and open_to.fullmatch(value) is None


@lru_cache(maxsize=1024)
def _open_to(name: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern that a value must match to be shown. None: any value is shown; `_NOTHING`:
    no value is."""
    if name in _OPEN:
        return _OPEN[name]
    if not _has_word(name):
        return None
    rest, tokens = _TOKENS.subn(b"", name)
    return _AMOUNT if tokens and _OF_AMOUNTS.search(name) and not _has_word(rest) else _NOTHING


def _has_word(name: bytes) -> bool:
    """Return whether a part of the name means authentication, or is a word that also hides a value
    in an address (`CB-ACCESS-PASSPHRASE`, `npm-otp`)."""
    return _AUTHENTICATES.search(name) is not None or is_secret(
        name[:_MOST_KEPT_BYTES].decode("latin-1")
    )
