"""How mitmproxy's hooks reach our addons: straight, where mitmproxy makes a task of each and walks
over all addons' attributes.

A new connection that is looked into goes through some fifteen hooks, and most of them have
nothing to wait for: those run where the layer calls them, and the layer goes on in the same
step. What is left of one that has something to wait for takes mitmproxy's way, a task. It is
separate from `guard`, which says what happens in a hook, and decides nothing: what a function
raises is noted, as in mitmproxy, and it is `guard` and `layers` that refuse by default (law 3).
"""

import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any

import structlog
from mitmproxy.hooks import Hook
from mitmproxy.proxy import commands, events, layer

from supervisor.egress.loop.failures import where

log = structlog.get_logger("egress")

# What an addon has for a hook: it gives back what it has to wait for, None where that is nothing.
type Listener = Callable[[Any], Awaitable[None] | None]


class Hooks:
    """The functions of all addons, in their order; looked for once for each kind of hook."""

    def __init__(self, addons: Iterable[object]) -> None:
        self._addons = tuple(addons)
        # With which of its attributes a kind of hook goes to whom.
        self._listeners: dict[type[Hook], tuple[str, tuple[Listener, ...]]] = {}
        # What is left of those that were begun, and are on their way to `run`. By their identity,
        # since mitmproxy's can't be keys.
        self._begun: dict[int, tuple[Hook, Coroutine[Any, Any, None]]] = {}

    def ran(self, hook: Hook) -> bool:
        """Run a hook as far as nothing has to be waited for; False where that wasn't all: the
        rest has to be awaited by `run`."""
        rest = self._begin(hook)
        if rest is not None:
            self._begun[id(hook)] = hook, rest
        return rest is None

    async def run(self, hook: Hook) -> None:
        """Run a hook to its end, or what `ran` left of it."""
        rest = self._begun.pop(id(hook))[1] if id(hook) in self._begun else self._begin(hook)
        if rest is not None:
            await rest

    def _begin(self, hook: Hook) -> Coroutine[Any, Any, None] | None:
        attribute, functions = self._of(type(hook))
        return _go_on(hook, getattr(hook, attribute), iter(functions))

    def _of(self, kind: type[Hook]) -> tuple[str, tuple[Listener, ...]]:
        if kind not in self._listeners:
            # All hooks that come of connections have one attribute.
            (field,) = dataclasses.fields(kind)  # type: ignore[arg-type]
            functions = tuple(
                function
                for addon in self._addons
                if (function := getattr(addon, kind.name, None)) is not None
            )
            self._listeners[kind] = field.name, functions
        return self._listeners[kind]


def _go_on(
    hook: Hook, data: Any, functions: Iterator[Listener]
) -> Coroutine[Any, Any, None] | None:
    """Call one after the other; what is left once one of them has to be waited for."""
    for function in functions:
        try:
            waits = function(data)
        except Exception as error:
            _note(hook, error)
        else:
            if waits is not None:
                return _wait(hook, data, waits, functions)
    return None


async def _wait(
    hook: Hook, data: Any, waits: Awaitable[None], functions: Iterator[Listener]
) -> None:
    try:
        await waits
    except Exception as error:
        _note(hook, error)
    rest = _go_on(hook, data, functions)
    if rest is not None:
        await rest


class Straight:
    """In place of a connection's outermost layer: runs what it can of that layer's hooks, and
    passes every other command on.

    INVARIANT: the layer is told that a hook has run only after it has given all commands of what
    it was told before, as it would be by a task: layers aren't entered twice.
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
