"""Addresses that stand for names, for programs that know no proxy.

A program that looks a name up and connects to the answer doesn't send the name when it connects. So
its name server gives every name its own address, from ranges that are routed nowhere, and remembers
it. A connection to that address is then judged as a CONNECT to the name. INVARIANT: the name
server's query never leaves the machine. The real look-up happens once a connection to the name was
allowed.

It decides only which address means which name, and how many names a session may query per second.
INVARIANT: an address never means a second name, because a program may keep it for as long as it
runs. A session that used up its whole range, which takes a flood, gets no new addresses. Egress
forgets its addresses at a restart, so each start begins `MOST_NAMES` further on. Addresses repeat
only after fifteen starts, or after a flood.
"""

import asyncio
import hashlib
import ipaddress
from collections import OrderedDict
from typing import NamedTuple

from supervisor.core.text import hosts
from supervisor.egress.loop.fair_turns import Bucket

# Benchmark networks (RFC 2544), and a unique local prefix of ours (RFC 4193). The same offset in
# both means the same name.
V4_RANGE = ipaddress.IPv4Network("198.18.0.0/15")
V6_RANGE = ipaddress.IPv6Network("fd67:6174:6568:6f75::/64")
# The first ones are reserved: the sandbox's own interface has one of them (`sandbox.redirect`).
_FIRST, _END = 256, V4_RANGE.num_addresses - 256
MOST_NAMES = 8192
# Queries of one session that are answered at once, and per second. Each takes up to a millisecond
# that all sessions share.
MOST_AT_ONCE = 400
MOST_A_SECOND = 200.0


class Given(NamedTuple):
    """A name's addresses."""

    v4: ipaddress.IPv4Address
    v6: ipaddress.IPv6Address


class NoneLeftError(Exception):
    """Every address of the session's range stands for a name, or did."""


def is_given(address: hosts.Address) -> bool:
    """Return whether an address can only stand for a name."""
    return address in (V4_RANGE if address.version == 4 else V6_RANGE)


class Names:
    """One session's table of addresses and the names they stand for. The least recently used
    entries are forgotten first; their addresses then stand for nothing.

    `start` counts earlier starts of egress. `queries` limits the rate of queries; a query that
    waits for it holds `turn`.
    """

    def __init__(self, session_id: str = "", start: int = 0) -> None:
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._names: dict[int, str] = {}
        # Each session begins at an offset of its own, the same after a restart.
        own = int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:8])
        self._first = own + start * MOST_NAMES
        self._given = 0
        self.queries = Bucket(MOST_AT_ONCE, MOST_A_SECOND)
        self.turn = asyncio.Lock()

    def give(self, name: str) -> Given:
        """Return the addresses of a canonical name. Raise `NoneLeftError` where the range is used
        up."""
        number = self._numbers.get(name)
        if number is None:
            number = self._unused()
            self._names[number] = name
            if len(self._names) > MOST_NAMES:
                _, forgotten = self._numbers.popitem(last=False)
                del self._names[forgotten]
        self._numbers[name] = number
        self._numbers.move_to_end(name)
        return Given(V4_RANGE[number], V6_RANGE[number])

    def name_of(self, address: hosts.Address) -> str | None:
        """Return the name that an address stands for, or None where it stands for none now."""
        if not is_given(address):
            return None
        base = V4_RANGE if address.version == 4 else V6_RANGE
        name = self._names.get(int(address) - int(base.network_address))
        if name is not None:
            self._numbers.move_to_end(name)
        return name

    def _unused(self) -> int:
        if self._given >= _END - _FIRST:
            raise NoneLeftError
        self._given += 1
        return _FIRST + (self._first + self._given) % (_END - _FIRST)
