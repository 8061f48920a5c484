"""`gatehouse bitbucket setup`: token, repositories and webhooks, each asked for and checked.

What it was told lies in `data/bitbucket`, in files that the person alone can read, and
`gatehouse up --reviews` finds it there. Nothing is written before the token works.
"""

import asyncio
import getpass
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from supervisor.base import plain_files
from supervisor.base.clock import RealClock
from supervisor.cli.common.telling import say
from supervisor.errors import GatehouseError, UserError
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken, read_day, read_token
from supervisor.reviews.core.deliveries import is_full_name
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.forges.bitbucket_checks import check_repository, is_data_center
from supervisor.reviews.forges.bitbucket_login import (
    CLOUD_ALONE,
    DATA_CENTER,
    REPOSITORIES,
    SECRET,
    TOKEN,
    BitbucketLogin,
    bitbucket_with,
    check_api,
)
from supervisor.reviews.forges.given_files import read_given
from supervisor.settings import Settings

SCOPES = "repository:write, pullrequest:write, webhook, and repository:admin to see who may write"
_TOKEN_WORDS = f"""\
1. The token. Make an access token (the repository's or workspace's settings > Access tokens), with
   the scopes {SCOPES}.
   Or an API token of an account that is Gatehouse's alone: write MAIL:TOKEN then."""
_REPOSITORIES_WORDS = "2. The repositories to review, as WORKSPACE/REPO, several with commas."
_URL_WORDS = """\
3. The address where Bitbucket reaches you, https://HOST: a reverse proxy with TLS, or a tunnel,
   that leads to the webhook port (GATEHOUSE_FORGE_PORT). Empty: you set the webhook yourself."""


class SetupAnswers(NamedTuple):
    """What a person gave on the command line; what is "" or None is asked for."""

    token_file: str
    expires: str
    repositories: str
    url: str | None


def set_up(settings: Settings, told: SetupAnswers) -> int:
    """Ask for what isn't told, check it, keep it, and register the webhooks. Return the exit
    code: 1 where something that is needed can't be done."""
    api, folder = settings.bitbucket_api, settings.bitbucket_dir
    check_api(api)
    if asyncio.run(is_data_center(api)):
        raise UserError(DATA_CENTER, CLOUD_ALONE)
    token, text = _token(told)
    names = _names(told)
    url = _ask(_URL_WORDS, "address") if told.url is None else told.url
    if url and (urlsplit(url).scheme not in ("https", "http") or not urlsplit(url).hostname):
        raise UserError(
            f"`{url[:200]}` is no address", "give --url https://HOST, or leave it empty"
        )
    secret = _kept(folder / SECRET) or secrets.token_urlsafe(32)
    login = BitbucketLogin(token, secret.encode(), names)
    hook = f"{url.rstrip('/')}/bitbucket" if url else ""
    if not asyncio.run(_checked(settings, login, hook)):
        say("nothing was kept: mend that, and run it again")
        return 1
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, kept in ((TOKEN, text), (SECRET, secret), (REPOSITORIES, "\n".join(names))):
        plain_files.replace(folder / name, f"{kept}\n".encode())
    if not hook:
        say(f"set a webhook in each repository: https://HOST/bitbucket, its secret is in {folder}")
    say(f"kept in {folder}; now run `gatehouse up --reviews`")
    return 0


def _token(told: SetupAnswers) -> tuple[BitbucketToken, str]:
    """Return the token, and the text that its file gets."""
    if told.token_file:
        file = Path(told.token_file).expanduser()
        text = read_given(file, "--token-file").decode("utf-8", "replace")
    else:
        text = _ask(_TOKEN_WORDS, "token", getpass.getpass)
    token = read_token(text, "the token")
    expires = told.expires
    if not expires and token.expires_at is None and not told.token_file:
        expires = _ask("   The day when it expires, as 2027-03-01. Empty: never.", "day")
    if expires:
        token = token._replace(expires_at=read_day(expires, "--expires"))
        text = f"{text.strip().splitlines()[0]}\nexpires: {expires}"
    return token, text.strip()


def _names(told: SetupAnswers) -> tuple[str, ...]:
    text = told.repositories or _ask(_REPOSITORIES_WORDS, "repositories")
    names = tuple(filter(None, (one.strip() for one in text.split(","))))
    wrong = next((one for one in names if not is_full_name(one)), None if names else text)
    if wrong is not None:
        raise UserError(f"`{wrong[:200]}` is no repository", "write WORKSPACE/REPO")
    return names


async def _checked(settings: Settings, login: BitbucketLogin, hook: str) -> bool:
    """Check a login and say what came of it; return whether all that is needed can be done."""
    forge = bitbucket_with(settings, login, RealClock(), lambda: login.token)
    is_good = True
    try:
        for name in login.repositories:
            for one in await check_repository(forge, name):
                say(f"{'ok' if not one.why else 'BAD' if one.needed else 'note'}  {one.what}")
                if one.why:
                    say(f"    {one.why}")
                    is_good = is_good and not one.needed
            if hook and is_good:
                is_good = await _hooked(forge, name, hook, login.secret.decode())
    finally:
        await forge.close()
    return is_good


async def _hooked(forge: Bitbucket, name: str, hook: str, secret: str) -> bool:
    what = f"{name}: its webhooks come to {hook}"
    try:
        await forge.put_hook(name, hook, secret)
    except GatehouseError as error:
        say(f"BAD  {what}")
        say(f"    {error}")
        return False
    say(f"ok  {what}")
    return True


def _ask(words: str, what: str, read: Callable[[str], str] = input) -> str:
    """Ask a person. Raise `UserError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise UserError(
            f"nobody can be asked for the {what}", "run it in a terminal, or see --help"
        )
    say(words)
    return read(f"   {what}: ").strip()


def _kept(file: Path) -> str:
    return file.read_text().strip() if file.is_file() else ""
