"""How mitmproxy's hooks reach our addons: straight, where mitmproxy makes a task of each and walks over all addons' attributes.

A new connection that is looked into goes through some fifteen hooks, and most of them have nothing to wait for: those run where the layer calls
them, and the layer goes on in the same step. One with something to wait for takes mitmproxy's way, a task. It is separate from `guard`,
which says what happens in a hook, and decides nothing: what a function raises is noted, as in mitmproxy, and it is `guard` and `layers` that
refuse by default (law 3).
"""

import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import structlog
from mitmproxy.hooks import Hook
from mitmproxy.proxy import commands, events, layer

from supervisor.egress.failures import where

log = structlog.get_logger("egress")


class _Listeners(NamedTuple):
    """Whom a kind of hook goes to, with which of its attributes; `are_plain`: none of them waits."""

    attribute: str
    functions: tuple[Callable[[Any], Any], ...]
    are_plain: bool


class Hooks:
    """The functions of all addons, in their order; looked for once for each kind of hook."""

    def __init__(self, addons: Iterable[object]) -> None:
        self._addons = tuple(addons)
        self._listeners: dict[type[Hook], _Listeners] = {}

    def ran(self, hook: Hook) -> bool:
        """Run a hook that waits for nothing; False where it has to be awaited by `run`, and nothing was done."""
        listeners = self._of(type(hook))
        if not listeners.are_plain:
            return False
        data = getattr(hook, listeners.attribute)
        for function in listeners.functions:
            try:
                function(data)
            except Exception as error:
                _note(hook, error)
        return True

    async def run(self, hook: Hook) -> None:
        """Run a hook to its end."""
        listeners = self._of(type(hook))
        data = getattr(hook, listeners.attribute)
        for function in listeners.functions:
            try:
                waits = function(data)
                if waits is not None:
                    await waits
            except Exception as error:
                _note(hook, error)

    def _of(self, kind: type[Hook]) -> _Listeners:
        if kind not in self._listeners:
            # All hooks that come of connections have one attribute.
            (field,) = dataclasses.fields(kind)  # type: ignore[arg-type]
            functions = tuple(
                function for addon in self._addons if (function := getattr(addon, kind.name, None)) is not None
            )
            are_plain = not any(inspect.iscoroutinefunction(function) for function in functions)
            self._listeners[kind] = _Listeners(field.name, functions, are_plain)
        return self._listeners[kind]


class Straight:
    """In place of a connection's outermost layer: runs what it can of that layer's hooks, and passes every other command on.

    INVARIANT: the layer is told that a hook has run only after it has given all commands of what it was told before, as it would be by a task:
    layers aren't entered twice.
    """

    def __init__(self, outermost: layer.Layer, hooks: Hooks) -> None:
        self._outermost = outermost
        self._hooks = hooks

    def handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """What the layer wants done, with its plain hooks done."""
        told = deque([event])
        while told:
            for command in self._outermost.handle_event(told.popleft()):
                if not (isinstance(command, commands.StartHook) and self._hooks.ran(command)):
                    yield command
                elif command.blocking:
                    told.append(events.HookCompleted(command))


def _note(hook: Hook, error: Exception) -> None:
    log.error("hook failed", hook=hook.name, error=where(error))
