# ruff: noqa: RUF001 (look-alikes are what is tested)
"""Hosts: one spelling for each, and which addresses are never just dialled."""

import ipaddress

import pytest

from supervisor.core.text.hosts import (
    address_class,
    as_address,
    canonical_host,
    embedded,
    is_local_name,
    is_metadata_name,
    is_shared_by_strangers,
    public_suffix,
    registrable_domain,
)
from tests.tables import each_row


@each_row(
    ("text", "host"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.Com.", "example.com"),
        ("localhost", "localhost"),
        ("r3---sn.example.com", "r3---sn.example.com"),
        ("1e1.com", "1e1.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--BCHER-kva.example", "xn--bcher-kva.example"),
        ("faß.de", "xn--fa-hia.de"),
        ("example。com", "example.com"),
        ("ⓔxample.com", "example.com"),
        ("exa\u200bmple.com", "example.com"),
        ("\u212a.com", "k.com"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.01", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7F000001", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[2001:DB8::A]", "2001:db8::a"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert canonical_host(text) == host


@each_row(
    "text",
    ["", ".", "..", "a..b", "a.b..", ".a", "-a.com", "a-.com", "a_b.com", "a b.com", "a\x00.com",
     "a/b", "a%2eb", "a@b", "a#b",
     "a:b:c", "[::1", "::1]", "[::1]x", "fe80::1%eth0", "[fe80::1%25eth0]", "[127.0.0.1]",
     "256.1.1.1", "1.2.3.4.5", "1.2.3.256",
     "09.1.1.1", "a.1", "a.0x1", "4294967296", "xn--", "xn--a.com", "xn--zzzzzzzz.com", "☃.net",
     "a" * 64 + ".com", "a." * 130 + "com",
     "\ud800.com", "a\n.com", "a\u202e.com", "*.com"],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        canonical_host(text)


@each_row(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"), ("2606:2800:220::1", "public"), ("192.0.2.1", "public"),
        ("2001:db8::1", "public"),
        ("127.0.0.1", "loopback"), ("127.255.0.1", "loopback"), ("::1", "loopback"),
        ("10.0.0.1", "private"), ("172.31.0.1", "private"), ("192.168.0.1", "private"), ("fc00::1",
         "private"), ("198.18.0.1", "private"),
        ("100.64.0.1", "shared"), ("100.127.255.255", "shared"),
        ("169.254.1.1", "link-local"), ("fe80::1", "link-local"), ("fec0::1", "link-local"),
        ("169.254.169.254", "metadata"), ("fd00:ec2::254", "metadata"), ("100.100.100.200",
         "metadata"), ("168.63.129.16", "metadata"),
        ("::ffff:169.254.169.254", "metadata"), ("64:ff9b::a9fe:a9fe", "metadata"),
        ("0.0.0.0", "never"), ("0.1.2.3", "never"), ("::", "never"), ("224.0.0.1", "never"),
        ("ff02::1", "never"), ("240.0.0.1", "never"),
        ("255.255.255.255", "never"),
        ("::ffff:10.0.0.1", "never"), ("::127.0.0.1", "never"), ("::ffff:0:127.0.0.1", "never"),
        ("64:ff9b::7f00:1", "never"),
        ("64:ff9b:1::808:808", "never"), ("2002:7f00:1::", "never"), ("2002:a00:1::", "never"),
        ("2606::5efe:a00:1", "never"),
        ("2001:0:a00:1::f7f7:f7f7", "never"), ("2001:0:808:808::f5ff:fffe", "never"),
        ("::ffff:8.8.8.8", "public"), ("64:ff9b::808:808", "public"), ("2002:808:808::1", "public"),
    ],
)  # fmt: skip
def test_an_address_has_a_class(address: str, kind: str) -> None:
    assert address_class(ipaddress.ip_address(address)) == kind


def test_names_are_no_addresses() -> None:
    assert as_address("example.com") is None
    assert as_address("a.b1") is None
    assert as_address("127.0.0.1") == ipaddress.ip_address("127.0.0.1")
    assert embedded(ipaddress.ip_address("127.0.0.1")) == ()


def test_names_that_mean_this_machine_or_its_cloud() -> None:
    assert is_local_name("localhost")
    assert is_local_name("x.localhost")
    assert not is_local_name("localhost.example.com")
    assert is_metadata_name("metadata.google.internal")
    assert is_metadata_name("x.metadata.google.internal")
    assert not is_metadata_name("xmetadata.google.internal")


@pytest.mark.parametrize(
    ("host", "suffix", "domain"),
    [
        ("a.b.example.com", "com", "example.com"),
        ("a.example.co.uk", "co.uk", "example.co.uk"),
        ("co.uk", "co.uk", None),
        ("github.io", "github.io", None),
        ("me.github.io", "github.io", "me.github.io"),
        ("box", "box", None),
        ("db.corp", "corp", "db.corp"),
    ],
)
def test_public_suffixes(host: str, suffix: str, domain: str | None) -> None:
    assert public_suffix(host) == suffix
    assert registrable_domain(host) == domain


def test_names_that_strangers_share() -> None:
    assert is_shared_by_strangers("amazonaws.com")
    assert is_shared_by_strangers("github.io")
    assert not is_shared_by_strangers("example.com")


@pytest.mark.parametrize("text", ["ab--\uff41", "AB--\uff41", "\uff41b--a"])
def test_a_wide_spelling_names_what_the_plain_one_names(text: str) -> None:
    """`idna` refuses to encode hyphens in the third and fourth place, which host names may have."""
    assert canonical_host(text) == canonical_host("ab--a") == "ab--a"
