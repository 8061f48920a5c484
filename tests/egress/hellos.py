"""ClientHellos as OpenSSL makes them, taken apart and put together otherwise."""

import ssl
from collections.abc import Iterable

from supervisor.egress.protocols.client_hello import MOST_HELLO_BYTES


def client_hello(server_name: str | None) -> bytes:
    """What a client of this machine's OpenSSL says first, as one record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def message(hello: bytes) -> bytes:
    """The handshake message in a record."""
    return hello[5:]


def records(text: bytes, sizes: Iterable[int] = (), kind: int = 22) -> bytes:
    """A message cut into records of these sizes, the rest in one more."""
    found = b""
    for size in sizes:
        part, text = text[:size], text[size:]
        found += record(part, kind) if part else b""
    return found + (record(text, kind) if text else b"")


def record(body: bytes, kind: int = 22) -> bytes:
    return bytes([kind, 3, 1]) + len(body).to_bytes(2) + body


def extension(kind: int, body: bytes) -> bytes:
    return kind.to_bytes(2) + len(body).to_bytes(2) + body


def server_name(*names: bytes, kind: int = 0) -> bytes:
    """The body of the extension `server_name`."""
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2) + name for name in names)
    return len(entries).to_bytes(2) + entries


def with_extensions(
    *extensions: bytes, session_id: bytes = b"", ciphers: bytes = b"\x13\x01", tail: bytes = b""
) -> bytes:
    """A ClientHello of our own making, as one record."""
    listed = b"".join(extensions)
    body = (
        b"\x03\x03"
        + bytes(32)
        + bytes([len(session_id)])
        + session_id
        + len(ciphers).to_bytes(2)
        + ciphers
        + b"\x01\x00"
    )
    body += len(listed).to_bytes(2) + listed + tail
    return record(b"\x01" + len(body).to_bytes(3) + body)


def with_extension(hello: bytes, more: bytes) -> bytes:
    """A ClientHello of one record with one extension more, the first."""
    body = message(hello)[4:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    listed = more + body[at + 2 :]
    body = body[:at] + len(listed).to_bytes(2) + listed
    return record(b"\x01" + len(body).to_bytes(3) + body)


RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def server_hello(random: bytes = bytes(32)) -> bytes:
    """The start of a server's answer; with `RETRY_RANDOM` it asks for another hello."""
    body = b"\x03\x03" + random + b"\x00" + b"\x13\x01" + b"\x00" + b"\x00\x00"
    return record(b"\x02" + len(body).to_bytes(3) + body)


NAME = "origin.test"
HELLO = client_hello(NAME)
# What is no ClientHello, by what is wrong with it.
BAD = {
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "http": b"GET / HTTP/1.1\r\n",
    "one wrong byte": b"\x00",
    "SSL 2": b"\x80\x2e\x01\x00\x02",
    "another version": b"\x16\x02\x00\x00\x05hello",
    "an empty record": b"\x16\x03\x01\x00\x00",
    "a record too long": b"\x16\x03\x01\x40\x01",
    "an alert": record(b"\x02\x28", kind=21),
    "data first": record(b"x", kind=23),
    "a change first": record(b"\x01", kind=20) + HELLO,
    "a ServerHello": server_hello(),
    "a hello too long": record(b"\x01" + (MOST_HELLO_BYTES + 1).to_bytes(3)),
    "data in between": records(message(HELLO), [50])[:55] + record(b"x", kind=23),
    "a message behind it": record(message(HELLO) + b"\x01"),
    "two names": with_extensions(extension(0, server_name(b"origin.test", b"other.test"))),
    "the extension twice": with_extensions(extension(0, server_name(b"origin.test")), extension(0,
    server_name(b"other.test"))),
    "another extension twice": with_extensions(extension(5, b""), extension(5, b"")),
    "another kind of name": with_extensions(extension(0, server_name(b"origin.test", kind=1))),
    "no name in the extension": with_extensions(extension(0, server_name())),
    "an empty extension": with_extensions(extension(0, b"")),
    "an empty name": with_extensions(extension(0, server_name(b""))),
    "a name too long": with_extensions(extension(0, server_name(b"a" * 256))),
    "a name that isn't ASCII": with_extensions(extension(0, server_name("ä.test".encode()))),
    "bytes behind the name": with_extensions(extension(0, server_name(b"origin.test") + b"x")),
    "bytes behind the extensions": with_extensions(extension(0, server_name(b"origin.test")),
    tail=b"x"),
    "an extension cut off": with_extensions(b"\x00\x00\x00\x09x"),
    "a session id too long": with_extensions(session_id=bytes(33)),
    "no ciphers": with_extensions(ciphers=b""),
    "half a cipher": with_extensions(ciphers=b"\x13\x01\x13"),
    "nothing in it": record(b"\x01\x00\x00\x00"),
    "many records": records(message(HELLO), [1] * 300),
    "many extensions": with_extensions(*(extension(kind, b"") for kind in range(1000, 1300))),
    "a thousand small records": record(b"\x01\x00\xff\xff") + record(b"x") * 30_000,
}  # fmt: skip
