"""Bitbucket Cloud's tokens, as a file has them.

    ATCTT3...                       an access token of a repository, project or workspace
    mail@example.org:ATATT3...      an API token of an account, after the account's address
    expires: 2027-03-01             optional, in a line of its own

Pure. Source: support.atlassian.com/bitbucket-cloud, "Using access tokens", "Using API tokens".
"""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from supervisor.errors import UserError

# How long before its end a token is warned about.
WARN = timedelta(days=7)
_TOKEN = re.compile(r"[!-~]{20,4096}\Z")
_MAIL = re.compile(r"[^\s:@]{1,200}@[^\s:@]{1,200}\Z")
_EXPIRES = re.compile(r"expires:\s*(\S+)\Z")
_FORM = "write the access token alone, or MAIL:TOKEN for an API token; see docs/reviews.md"


class BitbucketToken(NamedTuple):
    """A token; `mail` is "" for an access token. `expires_at` in seconds since the epoch, None if
    nobody said."""

    token: str
    mail: str = ""
    expires_at: float | None = None

    @property
    def is_access(self) -> bool:
        """Return whether it belongs to a repository, project or workspace, not to a person."""
        return not self.mail

    @property
    def authorization(self) -> str:
        """Return the header's value for the API."""
        if self.is_access:
            return f"Bearer {self.token}"
        return "Basic " + base64.b64encode(f"{self.mail}:{self.token}".encode()).decode()

    @property
    def for_git(self) -> str:
        """Return `USER:TOKEN` for git over HTTPS."""
        return f"{'x-token-auth' if self.is_access else 'x-bitbucket-api-token-auth'}:{self.token}"


def read_token(text: str, where: str) -> BitbucketToken:
    """Return what a file holds. Raise `UserError`, which never shows the token, if it is none."""
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    if not lines:
        raise UserError(f"{where} is empty", _FORM)
    mail, colon, token = lines[0].rpartition(":")
    if token.startswith("ATBB"):
        raise UserError(
            f"{where} has an app password, which Bitbucket takes no more",
            "make an access token or an API token: `gatehouse bitbucket setup`",
        )
    if not _TOKEN.match(token) or (colon and not _MAIL.match(mail)):
        raise UserError(f"{where} has no token", _FORM)
    if not colon and token.startswith("ATATT"):
        raise UserError(f"{where} has an API token without its account's address", _FORM)
    expires_at = None
    for line in lines[1:]:
        found = _EXPIRES.match(line)
        if found is None:
            raise UserError(f"{where} has a line that is none of it", _FORM)
        expires_at = read_day(found[1], where)
    return BitbucketToken(token, mail, expires_at)


def read_day(text: str, where: str) -> float:
    """Return the begin of a day, UTC. Raise `UserError` if the text is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise UserError(f"{where}: `{text[:50]}` is no day", "write it as 2027-03-01") from error


def expiry_words(token: BitbucketToken, now: float) -> str:
    """Return that a token ends within a week, or has ended, in words; "" for others."""
    if token.expires_at is None or token.expires_at - now > WARN.total_seconds():
        return ""
    day = f"{datetime.fromtimestamp(token.expires_at, UTC):%Y-%m-%d}"
    verb = "expires" if token.expires_at > now else "expired"
    return f"Bitbucket's token {verb} on {day}: put a new one into its file"
