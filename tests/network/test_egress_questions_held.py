"""Held requests: for as long as the policy says, one card for a loop of them, and back-off after
a denial, with a real egress process."""

import asyncio

from supervisor.core.approvals import Request, status
from tests.egress.egress_harness import PATIENCE_S, Origin, body_of, status_of
from tests.network.conftest import Setting
from tests.network.test_network import get, send


async def test_the_policy_says_how_long_and_a_loop_is_one_card(
    place: Setting, http: Origin
) -> None:
    place.office.policy(f"hold: 50ms\nallow:\n  - network(127.0.0.1:{http.port})\n")
    target = f"origin.test:{http.port}"
    for data in (get(http), f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"):
        for _ in range(4):
            answer = await send(place, data)
            assert status_of(answer) == 403
            assert body_of(answer)["error"] == "not answered in time"
            assert body_of(answer)["why"].startswith("nobody answered within 0.05 s")
    cards = place.office.pending()
    assert sorted(card.asked_times for card in cards) == [4, 4]
    assert http.untouched
    # The answer that comes late counts at the next try, once.
    for card in cards:
        place.office.gate.resolve(card.id, "approved", by="tester")
    assert status_of(await send(place, get(http))) == 200
    assert status_of(await send(place, get(http))) == 403
    found = place.office.network_log.of_session(place.session_id)
    assert min(one.held_s for one in found if one.verdict == "ask_timeout") >= 0.05
    assert sum(one.verdict == "allow" for one in found) == 1


async def test_what_was_denied_is_denied_again_without_a_card(place: Setting, http: Origin) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{http.port})\n")

    async def deny() -> None:
        place.office.gate.resolve(
            (await place.office.asked()).id, "denied", by="tester", reason="not there"
        )

    denying = asyncio.create_task(deny())
    first = body_of(await send(place, get(http, "/find?q=1")))
    await denying
    for query in range(20):
        answer = body_of(await send(place, get(http, f"/find?q={query}")))
        assert (answer["error"], answer["why"], answer["request_id"]) == (
            "denied",
            first["why"],
            first["request_id"],
        )
        assert "/find?q=1` was denied" in answer["remedy"]
        assert "ask again after" in answer["remedy"]
    assert place.office.pending() == []
    (one,) = place.office.queue.of_session(place.session_id)
    assert (status(one), one.asked_times) == ("denied", 21)
    assert http.untouched


async def asked(place: Setting, times: int) -> Request:
    """The one card that waits, once it was asked for so often."""
    changed = asyncio.Event()
    place.office.queue.on_change(lambda request: changed.set())
    async with asyncio.timeout(PATIENCE_S):
        while [one.asked_times for one in place.office.pending()] != [times]:
            changed.clear()
            await changed.wait()
    (card,) = place.office.pending()
    return card


async def test_of_several_on_one_card_an_approval_lets_one_through_and_the_others_are_held_on(
    place: Setting, http: Origin
) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{http.port})\n")
    sending = [asyncio.create_task(send(place, get(http))) for _ in range(3)]
    first = await asked(place, 3)
    place.office.gate.resolve(first.id, "approved", by="tester")
    second = await asked(place, 2)
    assert second.id != first.id
    assert second.fingerprint == first.fingerprint
    place.office.gate.resolve(second.id, "approved", by="tester")
    third = await asked(place, 1)
    place.office.gate.resolve(third.id, "denied", by="tester", reason="twice is enough")
    answers = await asyncio.gather(*sending)
    assert sorted(status_of(one) for one in answers) == [200, 200, 403]
    (refused,) = [body_of(one) for one in answers if status_of(one) == 403]
    assert refused["why"] == "denied by tester: twice is enough"
    assert len(place.office.audited("effect_started")) == 2


async def test_a_rule_that_is_saved_from_the_card_lets_all_of_them_through(
    place: Setting, http: Origin
) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{http.port})\n")
    sending = [asyncio.create_task(send(place, get(http))) for _ in range(3)]
    await asked(place, 3)
    place.office.policies.add_rule(
        "allow", f"network(origin.test:{http.port})", why="", by="tester"
    )
    await place.office.gate.answers.rejudge("tester")
    assert [status_of(one) for one in await asyncio.gather(*sending)] == [200] * 3
    assert place.office.pending() == []


async def test_a_card_whose_client_hung_up_is_left_at_once(place: Setting, http: Origin) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{http.port})\n")
    sending = asyncio.create_task(send(place, get(http)))
    card = await asked(place, 1)
    assert card.hold_until is not None
    sending.cancel()
    async with asyncio.timeout(PATIENCE_S):
        while (left := place.office.gate.queue.get(card.id)).hold_until == card.hold_until:
            await place.office.queue.next_change(card.id, PATIENCE_S)
    assert left.hold_until is not None
    assert left.hold_until <= place.office.clock.now()
    assert status(left) == "pending"
    # Its client tries again: it is waited for on the same card.
    sending = asyncio.create_task(send(place, get(http)))
    assert (await asked(place, 2)).id == card.id
    place.office.gate.resolve(card.id, "approved", by="tester")
    assert status_of(await sending) == 200
