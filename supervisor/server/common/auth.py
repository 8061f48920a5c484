"""Authenticates the operator: by a one-time login token, the cookie that it is exchanged for, or
the CLI's bearer token.

Only hashes are kept, so a look-up in a table leaks nothing by its timing, and a dump of the process
shows no cookie. Knowing a cookie isn't enough for a state change: the page also sends a CSRF token,
an HMAC over the cookie that only our pages carry.

It decides identity only; `request_guard` applies it to every connection. It must never take a name
from a caller: the audit log names who answered by what is decided here.
"""

import hashlib
import hmac
import secrets
from typing import Literal

import msgspec

from supervisor.base.clock import Clock

# Of the URL that is printed at the start. It works once; an unused one stops working, since
# terminals keep what they showed.
LOGIN_TOKEN_S = 3600.0
COOKIE_S = 12 * 3600.0
# A person has a few browsers; more than this is a loop. The oldest is signed out.
MOST_COOKIES = 32
MOST_LOGIN_TOKENS = 32
# Wrong credentials in this window before the answer becomes 429. See `BadTokens`.
BAD_TOKENS_WINDOW_S = 60.0
MOST_BAD_TOKENS = 20


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated operator. `csrf` is what pages must send back with state changes; empty
    for the CLI."""

    name: str
    via: Literal["browser", "cli"]
    csrf: str = ""
    cookie_hash: str = ""


class BadTokens:
    """Counts wrong credentials over a sliding window.

    Tokens have 256 bits, so this limits noise, not guessing: a right credential always passes.
    Otherwise any web page could lock the operator out by sending wrong ones.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: list[float] = []

    def count(self) -> None:
        """Count one more wrong credential."""
        now = self._clock.monotonic()
        self._times = [at for at in self._times if now - at < BAD_TOKENS_WINDOW_S][
            -MOST_BAD_TOKENS:
        ]
        self._times.append(now)

    @property
    def too_many(self) -> bool:
        now = self._clock.monotonic()
        return sum(now - at < BAD_TOKENS_WINDOW_S for at in self._times) > MOST_BAD_TOKENS


class OperatorAuth:
    """The operator's credentials. `port` is where the page is served; set it when the socket is
    bound.

    `cli_token` belongs in `data/operator.token`, mode 0600. All of it lives in memory: a restart
    signs every browser out.
    """

    def __init__(self, *, port: int, clock: Clock, cli_token: str | None = None) -> None:
        self.port = port
        self.cli_token = cli_token or secrets.token_urlsafe(32)
        self.bad_tokens = BadTokens(clock)
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._login_tokens: dict[str, float] = {}
        self._cookies: dict[str, float] = {}

    @property
    def cookie_name(self) -> str:
        """Return the cookie's name. It has the port, since cookies don't tell ports apart: two
        Gatehouses on one machine must not sign each other out.
        """
        return f"gatehouse_{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """Return the only values that a Host header may have: any other name that resolves to us is
        rebound.
        """
        return frozenset({f"127.0.0.1:{self.port}", f"localhost:{self.port}"})

    def new_login_token(self) -> str:
        """Return a token that signs one browser in, once, within `LOGIN_TOKEN_S` seconds."""
        token = secrets.token_urlsafe(32)
        _put(
            self._login_tokens,
            _hash(token),
            self._clock.monotonic() + LOGIN_TOKEN_S,
            MOST_LOGIN_TOKENS,
        )
        return token

    def login_url(self) -> str:
        """Return the URL to print or to open."""
        return f"http://127.0.0.1:{self.port}/login?token={self.new_login_token()}"

    def sign_in(self, token: str) -> str | None:
        """Exchange a login token, once, for the value of a new cookie; None if the token isn't
        valid.
        """
        expires_at = self._login_tokens.pop(_hash(token), None)
        if expires_at is None or self._clock.monotonic() >= expires_at:
            self.bad_tokens.count()
            return None
        cookie = secrets.token_urlsafe(32)
        _put(self._cookies, _hash(cookie), self._clock.monotonic() + COOKIE_S, MOST_COOKIES)
        return cookie

    def sign_out(self, caller: Operator) -> None:
        """Invalidate the caller's cookie."""
        self._cookies.pop(caller.cookie_hash, None)

    def by_cookie(self, value: str) -> Operator | None:
        """Return the operator whose browser holds this cookie."""
        mark = _hash(value)
        if not self._is_signed_in(mark):
            return None
        return Operator(
            name="operator (browser)", via="browser", csrf=self._csrf(value), cookie_hash=mark
        )

    def by_bearer(self, token: str) -> Operator | None:
        """The CLI."""
        if not hmac.compare_digest(_hash(token), _hash(self.cli_token)):
            return None
        return Operator(name="operator (cli)", via="cli")

    def still_valid(self, caller: Operator) -> bool:
        """Return whether the caller of an open connection would still be let in."""
        return caller.via == "cli" or self._is_signed_in(caller.cookie_hash)

    def _is_signed_in(self, mark: str) -> bool:
        return self._clock.monotonic() < self._cookies.get(mark, float("-inf"))

    def _csrf(self, cookie: str) -> str:
        return hmac.new(self._key, b"csrf:" + cookie.encode(), hashlib.sha256).hexdigest()


def same(first: str, second: str) -> bool:
    """Return whether two secrets are equal, in constant time, for any characters."""
    return hmac.compare_digest(
        first.encode(errors="surrogatepass"), second.encode(errors="surrogatepass")
    )


def _hash(token: str) -> str:
    return hashlib.blake2b(token.encode(errors="surrogatepass"), digest_size=32).hexdigest()


def _put(table: dict[str, float], mark: str, expires_at: float, most: int) -> None:
    """Add to a bounded table; the oldest entry makes room."""
    while len(table) >= most:
        del table[next(iter(table))]
    table[mark] = expires_at
