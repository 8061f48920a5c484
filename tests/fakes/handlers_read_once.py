"""Has Litestar read the signature of a handler once a process, and not for each app that a test
builds: a third of what an app takes to build.

Nobody depends on its being read again: a function's signature is that of its text.
"""

from collections.abc import Callable
from typing import Any

from litestar.utils.signature import ParsedSignature

_read_anew = ParsedSignature.from_fn
_read: dict[tuple[object, ...], ParsedSignature] = {}


def _read_once(handler: Callable[..., Any], namespace: dict[str, Any]) -> ParsedSignature:
    key = (handler.__module__, handler.__qualname__, handler.__code__)
    if key not in _read:
        _read[key] = _read_anew(handler, namespace)
    return _read[key]


def install() -> None:
    """For all apps that this process builds from now on."""
    ParsedSignature.from_fn = staticmethod(_read_once)
