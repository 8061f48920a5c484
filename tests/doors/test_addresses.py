"""Each request has an address: while it waits, once it is answered, and after a restart. Where
there is nothing, the page says what to do."""

import re

import pytest

from tests.doors.conftest import House

pytestmark = [pytest.mark.timeout(300)]

ASKS = "echo one > one.txt; sleep 4; echo two > two.txt"
AS_A_BROWSER = {"Accept": "text/html"}


@pytest.mark.many
def test_a_request_is_found_at_its_address_until_it_is_answered_and_later(house: House) -> None:
    house.up()
    session = house.agent(ASKS)
    asked = house.until_told(
        lambda: found if len(found := by_title(house)) == 2 else None, "both changes"
    )
    change, denied = asked["write one.txt"], asked["write two.txt"]
    assert address_of(house, change) == ("pending", "")
    assert f'href="/requests/{change}"' in house.page.get("/").text
    house.ok("approve", change)
    assert address_of(house, change) == ("used", "done")
    house.ok("deny", denied, "--reason", "not this <one>")
    assert address_of(house, denied) == ("denied", "denied")
    house.stop(session)
    house.end()
    house.up()
    assert address_of(house, change) == ("used", "done")
    assert address_of(house, denied) == ("denied", "denied")
    assert "not this &lt;one&gt;" in house.page.get(f"/requests/{denied}").text


@pytest.mark.parametrize("path", ["/requests/{}", "/requests/changes:{}", "/parts/card/{}"])
def test_where_there_is_nothing_the_page_says_what_to_do(house: House, path: str) -> None:
    house.up()
    for unknown in ("0" * 32, "%3Cscript%3Ealert(1)", "x" * 300):
        answer = house.page.get(path.format(unknown), headers=AS_A_BROWSER)
        assert answer.status_code == 404
        assert "What to do: " in answer.text
        assert "<script>alert" not in answer.text


def by_title(house: House) -> dict[str, str]:
    return {one["title"]: one["id"] for one in house.requests()}


def address_of(house: House, request: str) -> tuple[str, str]:
    """A request's status and state, as the page at its address says."""
    answer = house.page.get(f"/requests/{request}", headers=AS_A_BROWSER)
    assert answer.status_code == 200
    (card,) = re.findall(r"<article[^>]*>", answer.text)
    assert f'data-request="{request}"' in card
    status = re.search(r'data-status="(\w+)"', card)
    settled = answer.text.partition('<div class="answer settled"')[2]
    state = re.search(r'class="state (\w+)"', settled)
    assert status is not None
    return status[1], state[1] if state else ""
