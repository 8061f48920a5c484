"""Parse the first message of a TLS client strictly. Pure.

It decides what is a ClientHello and which server name it carries; whether that name is allowed is
up to `checks.server_name`. Anything ambiguous (two names, an extension twice, stray bytes) is no
ClientHello. Of an encrypted hello the outer name counts. It is the only one on the wire, and a
decoy (draft-ietf-tls-esni 6.2) looks the same. Formats: RFC 8446 4.1.2 and 5.1, RFC 6066 3.
"""

import struct
from typing import NamedTuple

MOST_HELLO_BYTES = 64 * 1024
_MOST_RECORD_BYTES = 2**14
# Clients use one or two records and about twenty extensions; thousands would only cost time.
MOST_RECORDS, MOST_EXTENSIONS = 256, 256
_HEADER_BYTES = 5
_CHANGE_CIPHER_SPEC, _ALERT, _HANDSHAKE, _DATA = 20, 21, 22, 23
_TLS_MAJOR = 3
# Before its second hello a client may have sent early data, which the server skips, and a record
# for old middleboxes.
_NOTHING_YET = (_CHANGE_CIPHER_SPEC, _DATA)
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
# Position in a ClientHello, after version and random.
_SESSION_ID_AT = 2 + 32
_EXTENSION = struct.Struct("!HH")  # type and length
_SERVER_NAME = 0
_HOST_NAME = 0
_MOST_NAME_BYTES = 255
_CUT_OFF = "a field of the ClientHello is cut off"
# The random of a ServerHello that asks the client for another hello: RFC 8446 4.1.3.
_RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
# End of the random from the start of the record: header, type and length, version, random.
_RANDOM_AT = _HEADER_BYTES + 4 + 2
RETRY_BYTES = _RANDOM_AT + 32


class HelloError(ValueError):
    """The bytes are no ClientHello. Its text is a complete why."""


class ClientHello(NamedTuple):
    """A parsed hello. `server_name` is None where none was sent; `length` is its size on the
    connection, in bytes."""

    server_name: str | None
    length: int


class HelloReader:
    """Reads one ClientHello from the growing bytes of a connection, however they are split into
    records and segments.

    `is_second`: it follows a retry, so empty or skipped records may precede it (RFC 8446 4.2.10,
    D.4).
    """

    def __init__(self, *, is_second: bool = False) -> None:
        self._is_second = is_second
        self._at = self._records = 0
        self._message = bytearray()

    def read(self, data: bytearray) -> ClientHello | None:
        """Return the hello at the start of `data`, which only grows between calls. Return None
        until it is complete. Raise `HelloError` for anything else."""
        while True:
            body = self._record(data)
            if body is None:
                return None
            self._message += body
            message = self._message
            if message and message[0] != _CLIENT_HELLO:
                raise HelloError("the first TLS message is not a ClientHello")
            if len(message) < 4:
                continue
            length = 4 + int.from_bytes(message[1:4])
            if length > MOST_HELLO_BYTES:
                raise HelloError(f"the ClientHello is longer than {MOST_HELLO_BYTES} bytes")
            if len(message) > length:
                raise HelloError("more than a ClientHello came before the server's answer")
            if len(message) == length:
                return ClientHello(_server_name(bytes(message[4:])), self._at)

    def _record(self, data: bytearray) -> bytes | None:
        """Return the content of the next handshake record, or None until it is complete."""
        header = data[self._at : self._at + _HEADER_BYTES]
        kind = header[0] if header else _HANDSHAKE
        says_nothing = self._is_second and not self._message and kind in _NOTHING_YET
        if (kind != _HANDSHAKE and not says_nothing) or (
            len(header) > 1 and header[1] != _TLS_MAJOR
        ):
            raise HelloError("this is not TLS")
        if len(header) < _HEADER_BYTES:
            return None
        length = int.from_bytes(header[3:])
        if not 0 < length <= _MOST_RECORD_BYTES or self._at + length > 2 * MOST_HELLO_BYTES:
            raise HelloError("a TLS record has a length that it can't have")
        end = self._at + _HEADER_BYTES + length
        if len(data) < end:
            return None
        body = bytes(data[self._at + _HEADER_BYTES : end])
        if kind == _CHANGE_CIPHER_SPEC and body != b"\x01":
            raise HelloError("this is not TLS")
        self._at = end
        self._records += 1
        if self._records > MOST_RECORDS:
            raise HelloError("the ClientHello is cut into too many records")
        return b"" if says_nothing else body


def asks_again(data: bytes) -> bool | None:
    """Return whether a server's first bytes ask the client for another hello, or None until that is
    known. Raise `HelloError` where they aren't TLS."""
    kind = data[0] if data else _HANDSHAKE
    if kind not in (_HANDSHAKE, _ALERT) or (len(data) > 1 and data[1] != _TLS_MAJOR):
        raise HelloError("the server does not answer with TLS")
    if kind == _ALERT:
        return None if len(data) < 2 else False
    if len(data) > _HEADER_BYTES and data[_HEADER_BYTES] != _SERVER_HELLO:
        raise HelloError("the server does not answer with a ServerHello")
    # INVARIANT: a record that ends before the random is refused, so that a retry can't hide in
    # small pieces.
    if (
        len(data) >= _HEADER_BYTES
        and int.from_bytes(data[3:_HEADER_BYTES]) < RETRY_BYTES - _HEADER_BYTES
    ):
        raise HelloError("the server's answer comes in pieces too small")
    return None if len(data) < RETRY_BYTES else data[_RANDOM_AT:RETRY_BYTES] == _RETRY_RANDOM


def _vector(data: bytes, at: int, length_bytes: int) -> tuple[int, int]:
    """Return the start and end of the vector whose length stands here."""
    begin = at + length_bytes
    end = begin + int.from_bytes(data[at:begin])
    if begin > len(data) or end > len(data):
        raise HelloError(_CUT_OFF)
    return begin, end


def _server_name(body: bytes) -> str | None:
    """Return the server name in the body of a ClientHello."""
    session_id, session_id_end = _vector(body, _SESSION_ID_AT, 1)
    ciphers, ciphers_end = _vector(body, session_id_end, 2)
    compressions, end = _vector(body, ciphers_end, 1)
    count = ciphers_end - ciphers
    if session_id_end - session_id > 32 or not count or count % 2 or compressions == end:
        raise HelloError("a field of the ClientHello has a length that it can't have")
    if end == len(body):
        return None
    at, end = _vector(body, end, 2)
    if end != len(body):
        raise HelloError("the ClientHello goes on behind its end")
    found = _extension_of_name(body, at)
    return None if found is None else _host_name(found)


def _extension_of_name(body: bytes, at: int) -> bytes | None:
    """Return the extension `server_name`. Each extension from here to the end may occur once."""
    found, kinds, end = None, set(), len(body)
    while at < end:
        if end - at < _EXTENSION.size:
            raise HelloError(_CUT_OFF)
        kind, length = _EXTENSION.unpack_from(body, at)
        at += _EXTENSION.size + length
        if at > end:
            raise HelloError(_CUT_OFF)
        if kind in kinds:
            raise HelloError("an extension of the ClientHello comes twice")
        kinds.add(kind)
        if len(kinds) > MOST_EXTENSIONS:
            raise HelloError("the ClientHello has too many extensions")
        if kind == _SERVER_NAME:
            found = body[at - length : at]
    return found


def _host_name(extension: bytes) -> str:
    """Return the one name of the extension `server_name`."""
    kind_at, end = _vector(extension, 0, 2)
    begin, name_end = _vector(extension, kind_at + 1, 2)
    if not name_end == end == len(extension) or extension[kind_at] != _HOST_NAME:
        raise HelloError("the ClientHello has more than one server name")
    name = extension[begin:end]
    if not 0 < len(name) <= _MOST_NAME_BYTES or not name.isascii():
        raise HelloError("the server name of the ClientHello is not a name")
    return name.decode("ascii")
