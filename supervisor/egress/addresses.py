"""Which addresses are never dialled, and which only where a rule names them.

The supervisor's rules judge addresses too; this is the second, independent check, right before the socket (law 3). It takes
no verdict's word for the addresses that nothing may reach: unspecified, multicast and reserved ones, cloud metadata, and
Gatehouse's own listeners.
"""

import ipaddress
import socket

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Cloud metadata and credential services. Sources: the vendors' manuals (AWS, GCP and Azure IMDS; ECS task credentials; EKS pod
# identity; Azure wire server; Oracle; Alibaba; AWS over IPv6).
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
NOT_AN_ADDRESS = "this is not an address"
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


def refusal(address: str, port: int, *, private_ok: bool, forbidden: frozenset[tuple[str, int]]) -> str | None:
    """Why this address must not be dialled, or None. `address` is a literal; anything else is refused."""
    try:
        outer = ipaddress.ip_address(address)
    except ValueError:
        return NOT_AN_ADDRESS
    if isinstance(outer, ipaddress.IPv6Address) and outer.scope_id is not None:
        return "an address with a zone is never dialled"
    for inner in (outer, *embedded(outer)):
        why = _refusal(inner, port, private_ok=private_ok, forbidden=forbidden)
        if why is not None:
            return why
    return None


def embedded(address: Address) -> tuple[Address, ...]:
    """The IPv4 addresses that an IPv6 address stands for: mapped, compatible, NAT64 (RFC 6052), 6to4, Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    found: list[Address] = []
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)


def _refusal(address: Address, port: int, *, private_ok: bool, forbidden: frozenset[tuple[str, int]]) -> str | None:
    if address in METADATA:
        return f"`{address}` is a cloud metadata service, which is never reached"
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        return f"`{address}` is not the address of one host"
    own = address.is_loopback or is_own(address)
    if (str(address), port) in forbidden or (own and ({("0.0.0.0", port), ("::", port)} & forbidden)):
        return f"`{address}` port {port} is Gatehouse itself"
    # `is_global` is false for private, shared (RFC 6598), link-local, documentation and reserved ranges (IANA registries).
    if not private_ok and (own or not address.is_global):
        return f"`{address}` is a private address, which only a rule that names it allows"
    return None


def is_own(address: Address) -> bool:
    """Whether this is an address of this machine: only such an address can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
