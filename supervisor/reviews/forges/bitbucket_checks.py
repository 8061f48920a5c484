"""Checks of a Bitbucket token, made for real: for `bitbucket setup` and `doctor`."""

from typing import Any, NamedTuple

import httpx2
import msgspec

from supervisor.reviews.forges.base import ForgeError, RepositoryFacts
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.forges.bitbucket_calls import ANSWER_S

CLOUD = "https://api.bitbucket.org/2.0"


class TokenCheck(NamedTuple):
    """What was checked, and why it can't be done; "" if it can. `needed`: nothing works without."""

    what: str
    why: str = ""
    needed: bool = True


async def is_data_center(api: str) -> bool:
    """Return whether an address is that of a Data Center, which answers without a token. Source:
    developer.atlassian.com/server/bitbucket/rest, `application-properties`."""
    if api.rstrip("/") == CLOUD:
        return False
    scheme, _, host = api.partition("://")
    url = f"{scheme}://{host.partition('/')[0]}/rest/api/1.0/application-properties"
    try:
        async with httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False) as client:
            answer = await client.get(url)
        found = msgspec.json.decode(answer.content[:100_000], type=dict[str, Any])
    except (httpx2.HTTPError, ValueError):
        return False
    return answer.status_code == 200 and {"displayName", "version"} <= found.keys()


async def check_repository(forge: Bitbucket, name: str) -> list[TokenCheck]:
    """Return what the token may do in a repository, as far as that changes nothing."""
    facts = RepositoryFacts(
        forge="bitbucket",
        full_name=name,
        external_id=0,
        installation_id=0,
        default_branch="",
        clone_url="",
    )
    found = []
    for what, ask, needed in (
        ("its pull requests are read", lambda: forge.open_pulls(facts), True),
        (
            "who may write is read; else everybody is a stranger",
            lambda: forge.permission(facts, ""),
            False,
        ),
    ):
        try:
            await ask()
            found.append(TokenCheck(f"{name}: {what}"))
        except ForgeError as error:
            found.append(TokenCheck(f"{name}: {what}", str(error), needed))
    return found
