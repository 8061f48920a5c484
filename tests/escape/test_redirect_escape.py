"""A sandbox whose connections are redirected: all of them come to the door, and its programs
can't change that. As root and as an ordinary user."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.escape import users

SCRIPT = Path(__file__).with_name("redirect_driver.py")
WHO = ["self", "ordinary"] if os.geteuid() == 0 else ["self"]


@pytest.fixture(scope="module", params=WHO)
def answer(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: Any = users.drive(request.param, SCRIPT)
    assert "error" not in found["inside"], found
    return found  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def inside(answer: dict[str, Any]) -> dict[str, Any]:
    return answer["inside"]  # type: ignore[no-any-return]


def test_every_connection_comes_to_the_door_with_where_it_was_for(inside: dict[str, str]) -> None:
    expected = {
        "public": "192.0.2.7 443",
        "public 6": "2001:db8::7 8443",
        "any port": "192.0.2.7 1",
        "mapped": "192.0.2.8 80",
        "metadata": "169.254.169.254 80",
        "metadata mapped": "169.254.169.254 80",
        "private": "10.1.2.3 22",
        "nat64": "64:ff9b::a9fe:a9fe 80",
        "link local 6": "fe80::1 80",
        "next to it": "198.18.0.2 3701",
        "next to it 6": "fd67:6174:6568:6f75::2 3701",
        "names by own address": "198.18.0.1 53",
        "door by own address": "198.18.0.1 3129",
        "door by own address 6": "fd67:6174:6568:6f75::1 3129",
        "from own address": "192.0.2.7 8081",
        "from own address 6": "2001:db8::7 8081",
        "from loopback": "192.0.2.7 8081",
        "from anywhere": "192.0.2.7 8081",
        "names by tcp": "127.0.0.1 53",
        "names elsewhere by tcp": "192.0.2.53 53",
        "door itself": "127.0.0.1 3129",
        "door itself 6": "::1 3129",
    }
    assert {name: inside[name] for name in expected} == {
        name: f"door {to}" for name, to in expected.items()
    }


def test_loopback_is_the_sandboxs_own(inside: dict[str, str]) -> None:
    names = (
        "loopback",
        "loopback 2",
        "loopback 6",
        "loopback mapped",
        "unspecified",
        "unspecified 6",
    )
    assert {inside[name] for name in names} == {"ECONNREFUSED"}
    assert inside["own server"] == "own"


def test_so_is_the_address_that_programs_are_told_is_theirs(inside: dict[str, str]) -> None:
    assert inside["server at my address"] == "198.18.0.1 own"
    assert inside["server at my address 6"] == "fd67:6174:6568:6f75::1 own"
    names = ("own address", "own address mapped", "own address 6", "proxy by own address")
    assert {inside[name] for name in names} == {"ECONNREFUSED"}


def test_the_host_is_not_reached_by_any_address_of_its(answer: dict[str, Any]) -> None:
    assert answer["inside"]["host"] == f"door {answer['host']} {answer['operator']}"
    assert (
        answer["inside"]["host from own address"] == f"door {answer['host']} {answer['operator']}"
    )
    for name in ("host by loopback", "operator by own address", "operator by own address 6"):
        assert answer["inside"][name] == "ECONNREFUSED"
    assert answer["reached"] == 0


def test_datagrams_go_nowhere_and_fail_at_once(inside: dict[str, str]) -> None:
    names = ("udp", "udp 6", "udp dns elsewhere", "udp host")
    assert {inside[name] for name in names} == {"ECONNREFUSED"}
    assert {inside["broadcast"], inside["multicast"], inside["multicast 6"]} <= {
        "EINVAL",
        "ENETUNREACH",
        "EACCES",
    }


def test_the_kernel_remembers_only_what_is_redirected(inside: dict[str, Any]) -> None:
    """It remembers each for minutes, and a program could make it do so of half a million."""
    assert inside["tracked of some_to_others"] == 20
    assert inside["tracked of many_datagrams"] == inside["tracked of many_to_myself"] == 0


def test_the_programs_can_not_change_it(inside: dict[str, str]) -> None:
    refused = {"EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT"}
    for name in (
        "nftables",
        "route",
        "delete route",
        "link",
        "unshare user and net",
        "setns",
        "raw socket",
    ):
        assert inside[name] in refused, name
    for name in ("packet socket", "transparent", "mark", "iptables", "take names", "take names 0"):
        assert inside[name] in refused, name
    for name in ("take door", "take door 0", "take door 6", "take door elsewhere"):
        assert inside[name] == "EADDRINUSE", name


def test_a_listener_at_somebody_elses_address_gets_none_of_the_connections(
    inside: dict[str, str],
) -> None:
    assert (inside["be anybody"], inside["be everybody"]) == ("bound", "bound")
    assert inside["still the door"] == "door 192.0.2.7 8443"
    assert inside["still the door 6"] == "door 2001:db8::7 9443"


def test_a_name_is_known_at_the_door_however_it_was_looked_up(inside: dict[str, str]) -> None:
    names = ("name", "name 4", "name 6", "configured", "configured 4", "configured 6")
    assert {name: inside[name] for name in names} == dict.fromkeys(names, "door name.test 443")
