"""Private, metadata and own addresses, by every spelling, by name and by redirect: never
dialled, whatever the answer says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import trustme

from supervisor.core.network.egress_wire import Answer, Decision, Question
from supervisor.egress.loop import addresses
from supervisor.settings import ROOT
from tests.egress.egress_harness import NAMES, Origin, Proxy, allow, body_of, status_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[::127.0.0.1]",
    "[::1]",
    "0.0.0.0",
    "0",
    "[::]",
    "localhost",
    "LOCALHOST.",
    "127.0.0.1.",
    "\uff11\uff12\uff17.0.0.1",
    "loopback.test",
    "mapped.test",
    "nat64.test",
    "any.test",
    "two-answers.test",
]
METADATA = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "metadata.test",
]
PRIVATE = [
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "100.64.0.1",
    "169.254.1.1",
    "[fe80::1]",
    "[fc00::1]",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
]
TABLE = {
    **NAMES,
    "localhost": ("127.0.0.1",),
    "loopback.test": ("127.0.0.1",),
    "mapped.test": ("::ffff:127.0.0.1",),
    "nat64.test": ("64:ff9b::7f00:1",),
    "any.test": ("0.0.0.0",),
    "metadata.test": ("169.254.169.254",),
    "two-answers.test": ("93.184.215.14", "127.0.0.1"),
    "zone.test": ("fe80::1%lo",),
}


def without_the_address(question: Question) -> Answer:
    """An allow that names no address: by a host rule, or by a person."""
    return Answer(question_id=question.question_id, decision="allow", settle=True)


async def assert_refused_both_ways(proxy: Proxy, target: str) -> None:
    """As a plain request, and as a CONNECT."""
    for request in (
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n",
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n",
    ):
        assert status_of(await proxy.send(request.encode())) in (400, 403)


@pytest.mark.parametrize("host", [*LOOPBACK, *METADATA, *PRIVATE, "zone.test"])
async def test_an_allow_that_does_not_name_the_address_reaches_none(
    proxy_with_table: Proxy, http: Origin, host: str
) -> None:
    proxy_with_table.supervisor.decide = without_the_address
    target = f"{host}:{http.port}"
    await assert_refused_both_ways(proxy_with_table, target)
    assert http.untouched


@pytest.mark.parametrize(
    "host", [*METADATA, "0.0.0.0", "[::]", "224.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]"]
)
async def test_metadata_and_nowhere_are_refused_even_where_a_rule_names_them(
    proxy_with_table: Proxy, http: Origin, host: str
) -> None:
    proxy_with_table.supervisor.decide = allow
    target = f"{host}:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) in (400, 403)
    assert http.untouched


@pytest.mark.parametrize("host", METADATA[:-1])
async def test_nobody_is_asked_about_a_metadata_address(
    proxy_with_table: Proxy, http: Origin, host: str
) -> None:
    target = f"{host}:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert body_of(answer)["remedy"] == "no rule opens this address"
    assert proxy_with_table.supervisor.questions == []


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "localhost", "origin.test"])
async def test_gatehouse_is_refused_even_where_a_rule_names_it(
    proxy_with_table: Proxy, http: Origin, host: str
) -> None:
    proxy_with_table.forbid(("127.0.0.1", http.port))
    target = f"{host}:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    assert "Gatehouse itself" in body_of(answer)["why"]
    assert http.untouched


@pytest.mark.parametrize("host", LOOPBACK)
async def test_gatehouse_is_refused_in_every_spelling(
    proxy_with_table: Proxy, http: Origin, host: str
) -> None:
    """Its listener at 127.0.0.1, and what may be one at ::1, as `app` says of itself; the rules
    name any address here."""
    proxy_with_table.forbid(("127.0.0.1", http.port), ("::1", http.port))
    target = f"{host}:{http.port}"
    await assert_refused_both_ways(proxy_with_table, target)
    assert http.untouched


async def test_a_listener_on_every_address_is_refused_at_each(
    proxy_with_table: Proxy, http: Origin
) -> None:
    proxy_with_table.forbid(("0.0.0.0", http.port))
    target = f"127.0.0.2:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    assert http.untouched


async def test_a_private_address_that_a_rule_names_is_reached(
    proxy_with_table: Proxy, http: Origin
) -> None:
    target = f"127.0.0.1:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) == 200


async def test_a_redirect_is_a_request_like_any_other(
    proxy_with_table: Proxy, http: Origin
) -> None:
    """The proxy follows none; the client's next request is judged anew."""
    location = f"http://169.254.169.254:{http.port}/latest/meta-data/"
    http.respond = lambda head: (
        f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    target = f"127.0.0.1:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) == 302
    http.reset()
    host = f"169.254.169.254:{http.port}"
    assert (
        status_of(
            await proxy_with_table.send(f"GET {location} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        )
        == 403
    )
    assert http.untouched


async def test_a_name_is_looked_up_only_after_it_was_allowed(
    proxy_with_table: Proxy, http: Origin
) -> None:
    """A look-up is a message to whoever owns the name. What isn't in the table has no address:
    the refusal would say so."""
    proxy_with_table.supervisor.decide = lambda question: Answer(
        question_id=question.question_id, decision="deny", why="no"
    )
    target = f"stolen-data.unknown.test:{http.port}"
    request = f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    assert body_of(await proxy_with_table.send(request))["why"] == "no"
    proxy_with_table.supervisor.decide = allow
    assert "has no address" in body_of(await proxy_with_table.send(request))["why"]


@pytest.mark.parametrize("decision", [one for one in get_args(Decision) if one != "allow"])
async def test_addresses_that_the_rules_do_not_allow_are_not_dialled(
    proxy_with_table: Proxy, http: Origin, decision: Decision
) -> None:
    proxy_with_table.supervisor.decide = lambda question: (
        allow(question)
        if question.after is None
        else Answer(
            question_id=question.question_id,
            decision=decision,
            why="not this network",
            private_ok=True,
        )
    )
    target = f"origin.test:{http.port}"
    answer = await proxy_with_table.send(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert body_of(answer)["why"] == "not this network"
    assert http.untouched


async def test_an_allow_whose_addresses_will_not_do_leaves_no_grant_open(
    proxy_with_table: Proxy, http: Origin
) -> None:
    proxy_with_table.supervisor.decide = without_the_address
    target = f"loopback.test:{http.port}"
    await proxy_with_table.send(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    settled = await proxy_with_table.supervisor.settled()
    assert settled.question_id == proxy_with_table.supervisor.questions[0].question_id
    assert (settled.outcome, "private address" in str(settled.detail["error"])) == ("failed", True)


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.0.0.1:80", "1.2.3", "fe80::1%lo", "::ffff:127.0.0.1%lo", "[::1]"]
)
async def test_only_literals_are_dialled(text: str) -> None:
    assert addresses.refusal(text, 80, private_ok=True, forbidden=frozenset()) is not None


async def test_public_addresses_are_reached(authority: trustme.CA, tmp_path: Path) -> None:
    for text in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"):
        assert addresses.refusal(text, 443, private_ok=False, forbidden=frozenset()) is None


# In a network of its own: what the machine has changes while egress runs, and each answer is of
# that moment.
_CHANGING = """
import fcntl, json, os, socket, struct
from supervisor.egress.loop.addresses import refusal

os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

def has(address):  # netdevice(7): SIOCSIFADDR and SIOCSIFFLAGS
    fcntl.ioctl(control, 0x8916, struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton(address)))
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))

def why(address, port):
    return refusal(address, port, private_ok=True, forbidden=frozenset({("0.0.0.0", 3700)}))

has("127.0.0.1")
before = why("8.8.8.8", 443), why("10.1.2.3", 443), why("10.1.2.3", 3700)
has("10.1.2.3")
then = why("8.8.8.8", 443), why("10.1.2.3", 443), why("10.1.2.3", 3700)
public = "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "::8.8.8.8"
others = [why(one, 443) for one in public]
has("8.8.8.8")
print(json.dumps([before, then, others, [why(one, 443) for one in public]]))
"""  # noqa: E501


async def test_what_is_this_machines_own_is_asked_anew_each_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHANGING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "PermissionError" in done.stderr:
        pytest.skip("this machine makes no network namespaces")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        [None, None, None],
        [None, None, "`10.1.2.3` port 3700 is Gatehouse itself"],
        [None] * 5,
        [
            f"`{one}` is this machine's own address"
            for one in (
                "8.8.8.8",
                "::ffff:8.8.8.8",
                "64:ff9b::808:808",
                "2002:808:808::1",
                "::808:808",
            )
        ],
    ]
