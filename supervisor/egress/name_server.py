"""The name server of one sandbox: answer from `names`, ask nobody.

    A, AAAA        the addresses that stand for the name; for `localhost` the sandbox's own
    anything else  no such record: no TXT that could carry data, no HTTPS or SVCB that would lead to
                   HTTP/3 or hide the server name

It decides which messages are queries: one question of class IN, short, well-formed. Anything else
gets an error, or no answer where not even an error can be formed. When a session asks faster than
`Names.queries` allows, as many queries wait as programs look up at once; no more are read.

INVARIANT: the work for an answer grows at most linearly with the message.
INVARIANT: however many sockets and connections a session asks by, it gets one answer per turn of
the loop, and within its share.
INVARIANT: answers go only to the asker. The socket belongs to the sandbox's network, which has no
way out.

dnspython reads the question; it is imported with the first session that has a name server. The
answer (the question and at most one record) is written here: to compress a name of 126 labels,
dnspython would make 126 names.
"""

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Callable

import dns.exception
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from supervisor.base import log
from supervisor.core.text import hosts
from supervisor.egress.admission.names import Given, Names, NoneLeftError
from supervisor.egress.loop.failures import where
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.loop.relay import GoneError, HeldEnd, in_s

# A query with one question and EDNS needs less than half of this.
MOST_QUERY_BYTES = 1024
# RFC 1035, 4.1. The third byte of the head begins the flags; the next pair of bytes counts the
# questions. A record has a pointer to the first question's name, its type and class, the time to
# live and the data's length.
_HEAD_BYTES = 12
_ONE_QUESTION = b"\0\1"
_RESPONSE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x80, 0x01, 0x80
_COUNTS, _QUESTION, _RECORD = struct.Struct("!4H"), struct.Struct("!2H"), struct.Struct("!3HIH")
_SAME_NAME = 0xC000 | _HEAD_BYTES
_TTL_S = 60
# Datagrams that are read before connections get their turn again, and that may wait for an answer.
_MOST_READ = 256
# By default the kernel has room for a hundred or two. What is dropped is asked again after seconds,
# twice at most; this is as much as a machine's settings let everybody have.
_ROOM_BYTES = 1024 * 1024
MOST_WAITING = 1024
# A connection without a query for this long is closed.
_IDLE_S = 10.0
# Most answer bytes that may wait for a slow reader.
_MOST_UNREAD_BYTES = 64 * 1024
NONE_LEFT = "this session has looked up more names than there are addresses that stand for one"
_OWN = Given(ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))


type Refuse = Callable[[str, str], None]
"""Told the name that was refused, and why."""


class NameServer:
    """Answers on a datagram socket, which it owns, until it is closed."""

    def __init__(self, sock: socket.socket, names: Names, share: Share, refuse: Refuse) -> None:
        self._sock = sock
        self._names = names
        self._share = share
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Queue[tuple[bytes, tuple[str, int]]] = asyncio.Queue(MOST_WAITING)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        self._read_on()

    def close(self) -> None:
        """Stop answering."""
        if self._is_open():
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._asked.shutdown(immediate=True)

    async def serve(self) -> None:
        """Answer queries in turn until it is closed."""
        with contextlib.suppress(asyncio.QueueShutDown):
            while True:
                query, asker = await self._asked.get()
                if not self._reads:
                    self._read_on()
                said = await _in_turn(query, self._names, self._share, self._refuse, self._is_open)
                if said:
                    with contextlib.suppress(OSError):  # nobody to answer, or closed meanwhile
                        self._sock.sendto(said, asker)

    def _is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def _read_on(self) -> None:
        self._reads = True
        self._loop.add_reader(self._sock, self._receive)

    def _receive(self) -> None:
        with contextlib.suppress(OSError):  # nothing more to read
            for _ in range(_MOST_READ):
                if self._asked.full():
                    # Further queries wait in the kernel or are dropped there; clients ask again.
                    self._reads = False
                    self._loop.remove_reader(self._sock)
                    return
                self._asked.put_nowait(self._sock.recvfrom(MOST_QUERY_BYTES + 1))


async def serve_stream(client: HeldEnd, names: Names, share: Share, refuse: Refuse) -> None:
    """Answer one client's queries over TCP (RFC 7766) until it leaves or sends something that is no
    query. Raise `GoneError` when it leaves."""

    def is_there() -> bool:
        return not (client.is_lost or client.transport.is_closing())

    while True:
        by = in_s(_IDLE_S)
        try:
            while len(client.data) < 2 or len(client.data) < 2 + _length(client.data):
                await client.more(by)
        except TimeoutError:
            raise GoneError from None
        query = client.take(2 + _length(client.data))[2:]
        said = await _in_turn(query, names, share, refuse, is_there)
        if not said:
            raise GoneError
        client.send(len(said).to_bytes(2) + said)
        if client.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            raise GoneError


async def _in_turn(
    query: bytes, names: Names, share: Share, refuse: Refuse, is_wanted: Callable[[], bool]
) -> bytes:
    """Return the answer to one message, once the session may ask again; waiting queries keep their
    order. Return an empty answer where it isn't wanted any more."""
    async with names.turn:
        if is_wanted():
            # Always yields one turn of the loop to the other sessions.
            await asyncio.sleep(names.queries.wait_s(asyncio.get_running_loop().time()))
        if not is_wanted():
            return b""
        names.queries.take()
    async with share:
        return answer(query, names, refuse)


def _length(data: bytearray) -> int:
    """Return the length of the query that begins here. Raise `GoneError` where it is longer than
    any may be."""
    length = int.from_bytes(data[:2])
    if length > MOST_QUERY_BYTES:
        raise GoneError
    return length


def answer(query: bytes, names: Names, refuse: Refuse) -> bytes:
    """Return the answer to one message; empty where there is none. Never raises."""
    # A response is no query; updates and notifications aren't answered here.
    if not _HEAD_BYTES < len(query) <= MOST_QUERY_BYTES or query[2] & 0xF8:
        return b""
    # Checked before any question is read: a message of many, whose names point to the first one's,
    # holds 20 ms of work.
    if query[4:6] != _ONE_QUESTION:
        return _message(query, dns.rcode.FORMERR)
    try:
        # The records after the question (EDNS, signatures) don't affect the answer, and aren't
        # read.
        (asked,) = dns.message.from_wire(query, question_only=True).question
        return _answer(query, asked, names, refuse)
    except dns.exception.DNSException:
        return b""
    except Exception as error:
        log.error("query failed", error=where(error))
        return b""


def _answer(query: bytes, asked: dns.rrset.RRset, names: Names, refuse: Refuse) -> bytes:
    name = b"".join(bytes([len(label)]) + label for label in asked.name.labels)
    question = name + _QUESTION.pack(asked.rdtype, asked.rdclass)
    if asked.rdclass != dns.rdataclass.IN:
        return _message(query, dns.rcode.REFUSED, question)
    host = _host(asked.name.to_text(omit_final_dot=True))
    if host is None:
        return _message(query, dns.rcode.NXDOMAIN, question)
    if asked.rdtype not in (dns.rdatatype.A, dns.rdatatype.AAAA):
        return _message(query, dns.rcode.NOERROR, question)
    try:
        given = _OWN if host == "localhost" or host.endswith(".localhost") else names.give(host)
    except NoneLeftError:
        refuse(host, NONE_LEFT)
        return _message(query, dns.rcode.SERVFAIL, question)
    address = (given.v4 if asked.rdtype == dns.rdatatype.A else given.v6).packed
    record = _RECORD.pack(_SAME_NAME, asked.rdtype, asked.rdclass, _TTL_S, len(address)) + address
    return _message(query, dns.rcode.NOERROR, question, record)


def _message(
    query: bytes, code: dns.rcode.Rcode, question: bytes = b"", record: bytes = b""
) -> bytes:
    """Return the reply to a query."""
    flags = bytes([_RESPONSE | query[2] & _RECURSION_DESIRED, _RECURSION_AVAILABLE | code])
    return query[:2] + flags + _COUNTS.pack(bool(question), bool(record), 0, 0) + question + record


def _host(text: str) -> str | None:
    """Return the canonical name. Return None for a name that no rule could hold, such as an address
    written as a name."""
    try:
        host = hosts.canonical_host(text)
    except ValueError:
        return None
    return host if hosts.as_address(host) is None else None
