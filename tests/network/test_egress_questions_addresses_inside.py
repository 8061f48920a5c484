"""A request inside of a CONNECT that is asked about goes out only to addresses that the rules
allow by then."""

from tests.egress.egress_harness import Origin, Proxy, answer_of, status_of
from tests.network.conftest import Setting


def allowing(at: str, *more: str, path: str = "other") -> str:
    return "\n".join(["allow:", f"  - network(* https://{at}/{path})", *more, ""])


def proxy(place: Setting) -> Proxy:
    return Proxy(None, place.session_id, place.port)  # type: ignore[arg-type]


async def test_addresses_that_are_allowed_no_longer(place: Setting, https: Origin) -> None:
    at, address = f"origin.test:{https.port}", f"  - network(127.0.0.1:{https.port})"
    asked = f"ask:\n  - network(* https://{at}/asked)\n"
    place.office.policy(allowing(at, address) + asked)
    reader, writer = await proxy(place).tunnel(at, trust=place.ca_file)
    writer.write(f"GET /asked HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    request = await place.office.asked()
    place.office.policy(allowing(at) + asked)
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert status_of(await answer_of(reader)) == 403
    assert not https.received
    assert any(
        "loopback address that no rule names" in one
        for one in place.office.audited("effect_settled")
    )
    writer.close()


async def test_addresses_that_are_asked_about_by_now(place: Setting, https: Origin) -> None:
    """The rule that allows the name speaks of none, and nobody was asked about them when the
    connection began."""
    at, address = f"origin.test:{https.port}", f"  - network(127.0.0.1:{https.port})"
    rules = allowing(at, address, path="asked")
    place.office.policy(rules)
    reader, writer = await proxy(place).tunnel(at, trust=place.ca_file)
    place.office.policy(f"{rules}ask:\n{address}\n")
    writer.write(f"GET /asked HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    request = await place.office.asked()
    assert not https.received
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert status_of(await answer_of(reader)) == 200
    writer.close()
