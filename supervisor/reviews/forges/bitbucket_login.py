"""What the service needs for Bitbucket: token, secret and repositories, from files and settings.

`gatehouse bitbucket setup` writes the files; settings name others.
"""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from supervisor.base.clock import Clock
from supervisor.errors import UserError
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken, read_token
from supervisor.reviews.core.deliveries import is_full_name
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.forges.given_files import read_given, read_secret
from supervisor.settings import Settings

TOKEN, SECRET, REPOSITORIES = "token", "webhook.secret", "repositories"
ACCOUNT = "account.json"
DATA_CENTER = "this is Bitbucket Data Center, which Gatehouse doesn't know"
CLOUD_ALONE = "it reviews on Bitbucket Cloud (https://api.bitbucket.org/2.0) and GitHub"


class BitbucketLogin(NamedTuple):
    """The token, the secret of the webhooks, and the repositories that are reviewed."""

    token: BitbucketToken
    secret: bytes
    repositories: tuple[str, ...]


def is_bitbucket_set_up(settings: Settings) -> bool:
    """Return whether somebody wants reviews on Bitbucket."""
    return settings.bitbucket_token_file is not None or (settings.bitbucket_dir / TOKEN).is_file()


def read_bitbucket(settings: Settings) -> BitbucketLogin:
    """Return what settings and files say. Raise `UserError` if something is missing or can't be
    used: without its secret the webhook port takes nothing."""
    check_api(settings.bitbucket_api)
    secret_file = settings.bitbucket_secret_file
    if secret_file is None and (settings.bitbucket_dir / SECRET).is_file():
        secret_file = settings.bitbucket_dir / SECRET
    names = settings.bitbucket_repos
    if not names and (settings.bitbucket_dir / REPOSITORIES).is_file():
        names = tuple((settings.bitbucket_dir / REPOSITORIES).read_text().split())
    for one in names:
        if not is_full_name(one):
            raise UserError(
                f"GATEHOUSE_BITBUCKET_REPOS: `{one[:200]}` is no repository",
                "write WORKSPACE/REPO, several with commas",
            )
    if not names:
        raise UserError(
            "GATEHOUSE_BITBUCKET_REPOS names no repository",
            "write WORKSPACE/REPO, several with commas",
        )
    secret = read_secret(secret_file, "GATEHOUSE_BITBUCKET_SECRET_FILE", "Bitbucket")
    return BitbucketLogin(token_of(settings), secret, names)


def token_of(settings: Settings) -> BitbucketToken:
    """Return the token as its file has it now. Raise `UserError` if there is none."""
    file = settings.bitbucket_token_file or settings.bitbucket_dir / TOKEN
    data = read_given(file, "GATEHOUSE_BITBUCKET_TOKEN_FILE")
    return read_token(data.decode("utf-8", "replace"), str(file))


def bitbucket_of(settings: Settings, login: BitbucketLogin, clock: Clock) -> Bitbucket:
    """Return the client for a login; a new token in the file counts at once."""
    return bitbucket_with(settings, login, clock, lambda: token_of(settings))


def bitbucket_with(
    settings: Settings, login: BitbucketLogin, clock: Clock, token: Callable[[], BitbucketToken]
) -> Bitbucket:
    """Return the client for a login, with what gives its token."""
    return Bitbucket(
        api=settings.bitbucket_api,
        token=token,
        repositories=login.repositories,
        account_file=settings.bitbucket_dir / ACCOUNT,
        now=clock.now,
        monotonic=clock.monotonic,
    )


def check_api(api: str) -> None:
    """Raise `UserError` if an address isn't that of Bitbucket Cloud's API."""
    parts = urlsplit(api)
    if "/rest" in parts.path:
        raise UserError(f"GATEHOUSE_BITBUCKET_API: {DATA_CENTER}", CLOUD_ALONE)
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
        raise UserError(f"GATEHOUSE_BITBUCKET_API: `{api[:200]}` is no address", CLOUD_ALONE)
