"""The sandbox's git configuration: who commits, and which remotes git reaches by Gatehouse. Pure.

Git starts the remote helper `gatehouse` for an address `gatehouse::URL` (gitremote-helpers(7)), and
looks for it as `git remote-gatehouse`: an alias holds whatever a program does to PATH. A rule of
`insteadOf` applies to every longer address, too: those aren't known here, and the helper leaves
them to git.

Sources: git-config(1), `url.*.insteadOf`, `alias.*`, `protocol.*.allow`; git-lfs-config(5).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

HELPER = "/opt/gatehouse/bin/git-remote-gatehouse"
LFS_AGENT = "/opt/gatehouse/agent_image/programs/git_lfs.py"


class KnownRemote(NamedTuple):
    """A remote of a repository in the workspace. `folder` is the repository's, relative to the
    workspace; `url` as written there, without a password."""

    folder: str
    name: str
    url: str


def sandbox_config(
    identity: Mapping[str, str], remotes: Iterable[KnownRemote]
) -> Iterator[tuple[str, str]]:
    """Yield keys and values of the configuration. `gatehouse.ADDRESS.known` tells the helper name
    and folder of each remote with that address."""
    yield from identity.items()
    yield "alias.remote-gatehouse", f"!{HELPER}"
    # It may also be used where a submodule's address wasn't typed by the user.
    yield "protocol.gatehouse.allow", "always"
    # Git LFS can't speak to the helper's addresses.
    yield "lfs.gatehouse://.standalonetransferagent", "gatehouse"
    yield "lfs.customtransfer.gatehouse.path", "/opt/gatehouse/python"
    yield "lfs.customtransfer.gatehouse.args", f"-I -S {LFS_AGENT}"
    yield "lfs.customtransfer.gatehouse.concurrent", "false"
    for remote in remotes:
        address = plain_address(remote.url)
        if not address.strip("./"):
            continue  # it would be the beginning of any relative path
        yield f"gatehouse.{address}.known", f"{remote.name} {remote.folder}"
        # The longest rule that fits is taken: of these, or of the repository's own.
        for spelling in dict.fromkeys((address, f"{address}.git", remote.url)):
            for key in ("insteadof", "pushinsteadof"):
                yield f"url.gatehouse::{spelling}.{key}", spelling


def plain_address(url: str) -> str:
    """Return an address without what makes no difference at its end; the helper does the same."""
    return url.rstrip("/").removesuffix(".git").rstrip("/")
