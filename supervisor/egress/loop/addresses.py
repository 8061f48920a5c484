"""Addresses that are never dialled, or only where a rule names them.

The supervisor's rules judge addresses too. This is a second check of the dialled literal, right
before the socket (law 3). No verdict overrides it for addresses that nothing may reach:
unspecified, multicast and reserved addresses, cloud metadata, and Gatehouse's own listeners.
"""

import functools
import ipaddress
import socket
from typing import NamedTuple

from supervisor.core.text import hosts

NOT_AN_ADDRESS = "this is not an address"
_EVERYWHERE = ("0.0.0.0", "::")


class _Literal(NamedTuple):
    """An address with its class, all addresses that it stands for (itself first), and their
    spellings."""

    address: hosts.Address
    kind: hosts.AddressClass
    every: tuple[hosts.Address, ...]
    forms: tuple[str, ...]


def refusal(
    address: str, port: int, *, private_ok: bool, forbidden: frozenset[tuple[str, int]]
) -> str | None:
    """Return why this address must not be dialled, or None. `address` is a literal without
    brackets; anything else is refused."""
    literal = _read(address)
    if literal is None:
        return NOT_AN_ADDRESS
    parsed, kind, every, forms = literal
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id is not None:
        return "an address with a zone is never dialled"
    if kind == "metadata":
        return f"`{parsed}` is a cloud metadata service, which is never reached"
    # Without generators: this is asked several times for each connection.
    for form in forms:
        if (form, port) in forbidden:
            return f"`{parsed}` port {port} is Gatehouse itself"
    # This machine's own addresses change at any time, so they are asked anew, but only where the
    # answer matters.
    for everywhere in _EVERYWHERE:
        if (everywhere, port) in forbidden and _is_any_own(every):
            return f"`{parsed}` port {port} is Gatehouse itself"
    if kind != "public" and kind not in hosts.LIFTABLE:
        return f"`{parsed}` is not an address that anything is reached at"
    if kind == "public" and _is_any_own(every):
        return f"`{parsed}` is this machine's own address"
    if kind != "public" and not private_ok:
        return f"`{parsed}` is a private address, which only a rule that names it allows"
    return None


@functools.lru_cache(maxsize=1024)
def _read(address: str) -> _Literal | None:
    """Return a literal's properties, or None where the text is no literal."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    every = (parsed, *hosts.embedded(parsed))
    return _Literal(parsed, hosts.address_class(parsed), every, tuple(map(str, every)))


def _is_any_own(every: tuple[hosts.Address, ...]) -> bool:
    """Return whether any form is an address of this machine. One form is enough: a gateway (NAT64,
    6to4) leads back to it."""
    return any(map(is_own, every))


def is_own(address: hosts.Address) -> bool:
    """Return whether this is an address of this machine. Only such an address can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
