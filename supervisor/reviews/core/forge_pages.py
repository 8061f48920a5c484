"""Addresses of a forge's pages for people: of a pull request, and of what was posted.

Pure. Only a page on the configured forge's own host is one: an address that a forge answers with,
or that somebody wrote, may lead anywhere else.
"""

import re
from urllib.parse import urlsplit

_REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}\Z")
_ADDRESS = re.compile(r"[!-~]{1,2000}\Z")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def pages_base(api: str) -> str:
    """Return where the pages of the forge are whose API is at `api`; "" if that can't be told.

    GitHub's own are beside its API's host (docs.github.com/rest, "Getting started with the REST
    API"), and so are Bitbucket's; those of an Enterprise Server are on the same."""
    parts = _parts(api)
    if parts is None:
        return ""
    scheme, host, name = parts
    if scheme != "https" and name not in _LOOPBACK:
        return ""
    if name in ("api.github.com", "api.bitbucket.org") or (
        name.startswith("api.") and name.endswith(".ghe.com")
    ):
        host = host.removeprefix("api.")
    return f"{scheme}://{host}"


def pull_page(base: str, repository: str, number: int, kind: str = "pull") -> str:
    """Return the address of a pull request; "" for none. `kind`: its forge's word for one."""
    is_name = base and number > 0 and _REPOSITORY.match(repository)
    return f"{base}/{repository}/{kind}/{number}" if is_name else ""


def own_page(base: str, url: str) -> str:
    """Return an address if it is one of the forge's pages; else ""."""
    parts = _parts(url)
    return url if base and parts is not None and f"{parts[0]}://{parts[1]}" == base else ""


def _parts(url: str) -> tuple[str, str, str] | None:
    """Return scheme, host with its port, and host; None for anything but a plain web address."""
    if not _ADDRESS.match(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    is_web = parts.scheme in ("https", "http") and "@" not in parts.netloc and parts.hostname
    return (parts.scheme, parts.netloc, parts.hostname or "") if is_web else None
