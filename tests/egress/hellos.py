"""ClientHellos as OpenSSL makes them, taken apart and put together otherwise."""

import ssl
from collections.abc import Iterable


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


RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def server_hello(random: bytes = bytes(32)) -> bytes:
    """The start of a server's answer; with `RETRY_RANDOM` it asks for another hello."""
    body = b"\x03\x03" + random + b"\x00" + b"\x13\x01" + b"\x00" + b"\x00\x00"
    return record(b"\x02" + len(body).to_bytes(3) + body)
