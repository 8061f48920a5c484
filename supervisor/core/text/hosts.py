"""Canonical spelling of hosts and addresses; addresses that a rule must name.

Decides how a host is spelled in every rule, verdict and connection: the value that is matched is
the value that is dialled. It must never guess: anything but a valid name or address is an error.

Sources: RFC 1123 and 5891 (names), UTS 46 (mapping), the WHATWG URL standard's host parser (which
names are IPv4 addresses, and their octal, hexadecimal and short spellings), RFC 6052 and 8215
(NAT64), 3056 (6to4), 4380 (Teredo), 5214 (ISATAP), 2765 (SIIT).
"""

import ipaddress
import re
from functools import cache, lru_cache
from typing import Literal

import idna

from supervisor.core.text.data_tables import table

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressClass = Literal["public", "loopback", "link-local", "private", "shared", "never", "metadata"]

MAX_NAME_CHARS = 253
# Prefixes that mean all names below.
EVERY = "*."
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_PLAIN = re.compile(
    r"(?=[^.]*[a-z])(?:(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*(?!xn--)[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\Z"
)
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\Z")
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
# Reserved for documentation and examples. They aren't routed, so they are no more dangerous than a
# public address.
_EXAMPLES = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
# Private ranges that an operator may name in a rule; the rest of the non-public space is never
# dialled.
LIFTABLE: frozenset[AddressClass] = frozenset({"loopback", "link-local", "private", "shared"})


def is_named(host: str, name: str) -> bool:
    """Return whether a name means a host: the host itself, or, if it begins with `*.`, hosts at any
    depth below it, as in a rule. Both are canonical."""
    return host.endswith(name[1:]) if name.startswith(EVERY) else host == name


@lru_cache(maxsize=8192)
def canonical_host(text: str) -> str:
    """Return the one spelling of a host: a lower-case ASCII name without a trailing dot, or an
    address without brackets.

    Raise `ValueError` (a sentence part: "is ...") if it is neither a valid host name nor an
    address, or has a zone id.
    """
    if len(text) < MAX_NAME_CHARS and _PLAIN.match(text):
        return text
    if text.startswith("[") or ":" in text:
        return _ipv6(text)
    name = _mapped(text)
    name = name.removesuffix(".")
    if not name or len(name) > MAX_NAME_CHARS:
        raise ValueError("is empty" if not name else "is longer than a host name can be")
    labels = name.split(".")
    if _NUMBER.match(labels[-1]):
        return str(_ipv4(labels))
    for label in labels:
        if not _LABEL.match(label):
            raise ValueError("is not a valid host name")
        if label.startswith("xn--"):
            _check_punycode(label)
    return name


def _mapped(text: str) -> str:
    """Return a name in lower case and, if it has more than ASCII, mapped by UTS 46 and encoded."""
    if text.isascii():
        return text.lower()
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        pass
    try:
        # Digits and dots in other scripts: encoding by idna refuses a name that maps to an address;
        # the mapping alone doesn't.
        mapped = idna.uts46_remap(text, std3_rules=True)
    except (idna.IDNAError, UnicodeError):
        raise ValueError("is not a valid internationalised name") from None
    if not mapped.isascii():
        raise ValueError("is not a valid internationalised name")
    return mapped.lower()


def _check_punycode(label: str) -> None:
    """Check that an A-label is exactly the encoding of its own Unicode form; otherwise two
    spellings would be one name."""
    try:
        again = idna.alabel(idna.ulabel(label)).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        again = ""
    if again != label:
        raise ValueError("is not a valid internationalised name")


def _ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    """Return the IPv4 address in decimal, octal (`0...`), hexadecimal (`0x...`) or short form
    (`127.1`), as every resolver reads it."""
    if len(labels) > 4:
        raise ValueError("is not a valid address")
    numbers = []
    for label in labels:
        if not _NUMBER.match(label) or len(label) > 32:
            raise ValueError("is not a valid address")
        if label.startswith("0x"):
            numbers.append(int(label[2:] or "0", 16))
        elif len(label) > 1 and label[0] == "0":
            if not re.fullmatch("[0-7]+", label):
                raise ValueError("is not a valid address")
            numbers.append(int(label, 8))
        else:
            numbers.append(int(label))
    *first, last = numbers
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        raise ValueError("is not a valid address")
    value = last + sum(number << (8 * (3 - index)) for index, number in enumerate(first))
    return ipaddress.IPv4Address(value)


def _ipv6(text: str) -> str:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in inner:
        raise ValueError("has a zone id, which is never dialled")
    try:
        return str(ipaddress.IPv6Address(inner))
    except ValueError:
        raise ValueError("is not a valid address") from None


def as_address(host: str) -> Address | None:
    """Return the address that a canonical host is; None if it is a name."""
    if ":" not in host and not host[-1:].isdigit():
        return None
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def embedded(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address stands for on some network."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    value = int(address)
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    low = ipaddress.IPv4Address(value & 0xFFFFFFFF)
    is_isatap = (value >> 32) & 0xFDFFFFFF == 0x5EFE
    if (
        address in _NAT64
        or address in _TRANSLATED
        or is_isatap
        or (address in _COMPATIBLE and value > 1)
    ):
        found.append(low)
    return tuple(one for one in found if one is not None)


@cache
def _metadata() -> tuple[frozenset[Address], tuple[str, ...]]:
    data = table("metadata")
    return frozenset(ipaddress.ip_address(text) for text in data["addresses"]), tuple(data["names"])


@lru_cache(maxsize=8192)
def address_class(address: Address) -> AddressClass:
    """Return the class of an address; if it embeds others, the worst class of all.

    No rule lifts "never": unspecified, multicast, broadcast, reserved, and every embedded form of a
    non-public address.
    """
    inner = {_class(one) for one in embedded(address)} - {"public"}
    if "metadata" in inner or address in _metadata()[0]:
        return "metadata"
    if inner or (isinstance(address, ipaddress.IPv6Address) and address in _NAT64_LOCAL):
        return "never"
    return _class(address)


def _class(address: Address) -> AddressClass:
    if address in _metadata()[0]:
        return "metadata"
    if any(address in network for network in _EXAMPLES if network.version == address.version):
        return "public"
    if address.is_loopback:
        return "loopback"
    if (
        address.is_unspecified
        or address.is_multicast
        or (address.is_reserved and not embedded(address))
    ):
        return "never"
    if isinstance(address, ipaddress.IPv4Address) and (address in _SHARED):
        return "shared"
    if isinstance(address, ipaddress.IPv4Address) and int(address) >> 24 == 0:
        return "never"
    if address.is_link_local or (
        isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    ):
        return "link-local"
    if address.is_private and not embedded(address):
        return "private"
    return "public"


def is_metadata_name(host: str) -> bool:
    """Return whether a canonical name is that of a cloud metadata service, or below one."""
    return any(host == name or host.endswith(f".{name}") for name in _metadata()[1])


# This machine's loopback, as a sandbox names it. Nobody can have the name: `.internal` is reserved.
THIS_MACHINE, ITS_ADDRESS = "host.gatehouse.internal", "127.0.0.1"


def is_local_name(host: str) -> bool:
    """Return whether a canonical name is loopback by definition (RFC 6761)."""
    return host in ("localhost", "localhost.localdomain") or host.endswith(".localhost")


# -- public suffixes ------------------------------------------------------------------------------


@cache
def _suffixes() -> "object":
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def public_suffix(host: str) -> str:
    """Return the public suffix of a canonical name, by the Public Suffix List with its private
    part; an unknown last label is one."""
    return str(_suffixes().publicsuffix(host) or host)  # type: ignore[attr-defined]


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of a canonical name; None if it is a public suffix itself, or
    has one label."""
    found = _suffixes().privatesuffix(host)  # type: ignore[attr-defined]
    return str(found) if found else None


def is_shared_by_strangers(name: str) -> bool:
    """Return whether names below this one belong to people who don't know each other: it is a
    public suffix, or has one below it."""
    if registrable_domain(name) is None:
        return True
    return name in _parents_of_suffixes()


@cache
def _parents_of_suffixes() -> frozenset[str]:
    rules = getattr(_suffixes(), "_publicsuffix", ())
    found: set[str] = set()
    for rule in rules:
        text = rule.decode("utf-8", "replace") if isinstance(rule, bytes) else str(rule)
        labels = text.lstrip("!*.").split(".")
        found.update(".".join(labels[index:]) for index in range(1, len(labels)))
    return frozenset(found)
