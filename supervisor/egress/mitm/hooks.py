"""Call the addons' functions for mitmproxy's hooks, looked up once for each kind of hook.

mitmproxy walks over all addons' attributes for each hook, which takes a quarter of a request. It is
separate from `guard`, which says what happens in a hook, and decides nothing: what a function
raises is logged, as in mitmproxy, and `guard` and `layers` refuse by default (law 3).
"""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from mitmproxy.hooks import Hook

from supervisor.base import log
from supervisor.egress.loop.failures import where

# An addon's function for a hook: it returns what is to be awaited, or None.
type Listener = Callable[[Any], Awaitable[None] | None]


class Hooks:
    """The functions of all addons, in their order."""

    def __init__(self, addons: Iterable[object]) -> None:
        self._addons = tuple(addons)
        # The hook's attribute that each function gets, and the functions.
        self._listeners: dict[type[Hook], tuple[str, tuple[Listener, ...]]] = {}

    async def run(self, hook: Hook) -> None:
        """Call one function after the other. What one raises keeps no other from its turn."""
        attribute, functions = self._of(type(hook))
        data = getattr(hook, attribute)
        for function in functions:
            try:
                waits = function(data)
                if waits is not None:
                    await waits
            except Exception as error:
                log.error("hook failed", hook=hook.name, error=where(error))

    def _of(self, kind: type[Hook]) -> tuple[str, tuple[Listener, ...]]:
        if kind not in self._listeners:
            # Every hook of a connection has one attribute.
            (field,) = dataclasses.fields(kind)  # type: ignore[arg-type]
            functions = tuple(
                function
                for addon in self._addons
                if (function := getattr(addon, kind.name, None)) is not None
            )
            self._listeners[kind] = field.name, functions
        return self._listeners[kind]
