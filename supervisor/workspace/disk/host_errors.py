"""Messages for host effects that fail: one error per path, with a remedy.

It must never pass on a system error that doesn't name the path.
"""

import errno

from supervisor.errors import GatehouseError
from supervisor.workspace.disk.scan import TooLargeError, UnsteadyError


class StaleError(GatehouseError):
    """The host differs from what the request was about. Nothing was changed."""

    http_status = 409


def stale(name: str) -> StaleError:
    """Return the error for a path that changed on the host."""
    return StaleError(
        f"`{name}` changed on the host since; nothing was overwritten", "look at it and ask again"
    )


class as_errors:  # noqa: N801  # used like a function; a class, because several of them stand on the way of each effect
    """Turn any system or look-up error at a path into a GatehouseError for a person."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                return
            case UnsteadyError() | FileExistsError():
                raise stale(self._name) from None
            case TooLargeError():
                text = f"`{self._name}` is too large to be changed"
                raise GatehouseError(text, "change it on the host yourself") from None
            case OSError():
                text = f"`{self._name}` can't be changed on the host: {error.strerror}"
                raise GatehouseError(text, _remedy(error)) from error


def _remedy(error: OSError) -> str:
    """Return a remedy for the person."""
    remedies = {
        errno.ENOSPC: "make room on the host's disk",
        errno.EDQUOT: "make room on the host's disk",
        errno.EACCES: "check the permissions on the host",
        errno.EPERM: "check the permissions on the host",
        errno.EROFS: "the workspace's file system is read-only",
        errno.ENOTEMPTY: "the folder holds more than the session knows of",
        errno.ENOTDIR: "a folder on the way is a symlink or a file on the host",
        errno.ELOOP: "a folder on the way is a symlink or a file on the host",
        errno.ENAMETOOLONG: "choose a shorter name",
    }
    return remedies.get(error.errno or 0, "look at the path on the host")
