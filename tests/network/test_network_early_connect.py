"""Connections that are likely to be allowed, under the rules of a real gate: what changed
meanwhile holds for the very next of them."""

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.egress.egress_harness import Origin, RefusedTunnelError, status_of
from tests.network.conftest import Setting
from tests.network.test_network_tunnels import get, rules, tunnel


async def passes(place: Setting, origin: Origin, host: str = "origin.test") -> None:
    async with tunnel(place, origin, host) as streams:
        assert status_of(await get(streams, origin)) == 200


async def refused(place: Setting, origin: Origin, host: str = "origin.test") -> str:
    """The why of the refusal that a client reads in HTTP."""
    with pytest.raises(RefusedTunnelError) as found:
        await passes(place, origin, host)
    assert status_of(found.value.answer) == 403
    return found.value.body["why"]


def verdicts(place: Setting) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.office.audited("verdict_given")]


async def test_name_and_addresses_are_one_line_on_record_where_one_rule_allows_both(
    place: Setting, https: Origin
) -> None:
    rule = f"network(127.0.0.1:{https.port})"
    place.office.policy(f"allow:\n  - rule: {rule}\n    uses: 3\nmodes: {{network: deny}}\n")
    for count in (1, 2, 3):
        await passes(place, https, "127.0.0.1")
        assert [(one["rule"], one["action"]["resolved"]) for one in verdicts(place)] == [
            (rule, ["127.0.0.1"])
        ] * count
    # Counted once each, and nobody was told early of what a limit may end.
    assert (
        await refused(place, https, "127.0.0.1")
        == "`127.0.0.1` is a loopback address that no rule names"
    )


async def test_name_and_addresses_have_a_line_each_where_two_rules_allow_them(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https))
    for _ in range(2):
        await passes(place, https)
    assert [one["action"]["resolved"] for one in verdicts(place)] == [[], ["127.0.0.1"]] * 2


CHANGES: dict[str, Callable[[Setting, Origin], None]] = {
    "the rule is gone": lambda place, origin: place.office.policy("modes: {network: deny}\n"),
    "all is stopped by hand": lambda place, origin: (
        (place.office.folder / "stopped").write_text("enough") and None
    ),
    "the record can't be written": lambda place, origin: (
        place.office.folder / "audit.log"
    ).unlink(),
    "the gate raises": lambda place, origin: setattr(place.office.gate, "decide_by_rules", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_is_allowed_no_longer_reaches_nothing(
    place: Setting, https: Origin, change: Callable[[Setting, Origin], None]
) -> None:
    place.office.policy(rules(https))
    await passes(place, https)
    https.reset()
    change(place, https)
    # Nobody noticed before it asks: it is told in TLS, and the next in HTTP.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await passes(place, https)
    assert await refused(place, https)
    assert https.untouched


async def test_the_next_after_a_change_that_was_noticed_is_told_in_http(
    place: Setting, https: Origin
) -> None:
    place.office.policies.on_change = lambda is_saved: (
        place.broker.rules_changed()
    )  # as `app` wires it
    place.office.policy(rules(https))
    await passes(place, https)
    await passes(place, https)
    https.reset()
    place.office.policy("modes: {network: deny}\n")
    assert place.office.policies.banner is None  # looks at the file, as the housekeeping does
    assert await refused(place, https) == "no rule matches; network denies"
    assert https.untouched


async def test_one_that_is_asked_after_all_waits_for_the_person(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https))
    await passes(place, https)
    https.reset()
    place.office.policy(rules(https, "ask:", f"  - network(origin.test:{https.port})"))
    asking = asyncio.create_task(passes(place, https))
    request = await place.office.asked()
    assert https.untouched
    place.office.gate.resolve(request.id, "approved", by="tester")
    await asking
    assert https.connections == 1
