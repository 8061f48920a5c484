"""What is run in an egress process before it starts, so that a part of it raises: `Guard.HOOK`, or
a function that hooks use."""

from collections.abc import Callable

from supervisor.egress import app, early_connect, front, tunnels
from supervisor.egress.admission import admission, egress_sessions, portions, secrets
from supervisor.egress.loop import addresses, relay
from supervisor.egress.mitm import exchange, guard, http1, inspector, layers, leaks, meter
from supervisor.egress.mitm import tls as egress_tls
from supervisor.egress.protocols import checks, client_hello, connect_head


class BrokenError(Exception):
    """The text must not be seen anywhere: it stands for what a client sent."""


def _broken(*args: object, **kwargs: object) -> None:
    raise BrokenError("text of a client")


def _named(name: str) -> Callable[[object, object], None]:
    def hook(self: object, data: object) -> None:
        _broken()

    hook.__name__ = name
    return hook


def break_part(name: str) -> None:
    owner_name, _, attribute = name.partition(".")
    owner = OWNERS[owner_name]
    original = getattr(owner, attribute)
    if owner_name == "Guard" and hasattr(original, "__wrapped__"):
        # The hook itself raises, inside of what makes it fail closed.
        refuse = next(
            cell.cell_contents
            for cell in original.__closure__
            if cell.cell_contents is not original.__wrapped__
        )
        setattr(owner, attribute, guard.closes(refuse)(_named(attribute)))
    elif issubclass(type(owner), type) and issubclass(owner, relay.asyncio.Protocol):
        setattr(
            owner, attribute, relay._cuts(_named_callback(attribute))
        )  # the callback raises inside of what cuts
    else:
        setattr(owner, attribute, _broken)


def break_raw(name: str) -> None:
    """The hook or callback raises with nothing around it: mitmproxy logs it and goes on."""
    owner_name, _, attribute = name.rpartition(".")
    setattr(OWNERS[owner_name or "Guard"], attribute, _broken)


def _named_callback(name: str) -> Callable[..., None]:
    def callback(self: object, *arguments: object) -> None:
        _broken()

    callback.__name__ = name
    return callback


OWNERS = {
    "Guard": guard.Guard,
    "Admission": admission.Admission,
    "GuardedTls": egress_tls.GuardedTls,
    "Front": front.Front,
    "Egress": app.Egress,
    "Tunnels": tunnels.Tunnels,
    "Tunnel": relay.Tunnel,
    "Held": relay.HeldEnd,
    "Client": relay.ClientEnd,
    "Relay": relay._Relay,
    "Counted": relay._Counted,
    "Allowances": portions.Allowances,
    "Session": egress_sessions.EgressSession,
    "Handler": inspector.Handler,
    "HelloReader": client_hello.HelloReader,
    "Likely": early_connect.Likely,
    "Sessions": egress_sessions.Sessions,
    "front": front,
    "connect_head": connect_head,
    "tunnels": tunnels,
    "inspector": inspector,
    "checks": checks,
    "secrets": secrets,
    "addresses": addresses,
    "exchange": exchange,
    "layers": layers,
    "Leaks": leaks.Leaks,
    "Meter": meter.Meter,
    "BodyScan": secrets.BodyScan,
    "BoundedReader": http1.BoundedReader,
}


def break_all(names: str) -> None:
    """Break these parts, separated by commas."""
    for part in names.split(","):
        if part.startswith("Raw."):
            break_raw(part.removeprefix("Raw."))
        elif part != "nothing":
            break_part(part)
