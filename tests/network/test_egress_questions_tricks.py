"""Ways around rules, with the real gate behind a real egress process. The list of all tricks is
in `tests/egress/mitm/test_guard_tricks.py`."""

import asyncio
import re

import pytest

from tests.egress.egress_harness import Origin, status_of
from tests.network.conftest import Setting
from tests.network.test_network import curl, send

POLICIES = {
    "empty lists": "modes: {network: deny}\nallow: []\nask: []\ndeny: []\n",
    "no lists": "modes: {network: deny}\n",
    "a file that can't be read": "allow: [network(\n",
    "an unknown key": "alow: [network(origin.test)]\n",
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
async def test_an_empty_policy_opens_nothing(place: Setting, http: Origin, policy: str) -> None:
    (place.office.folder / "policy.yaml").unlink(missing_ok=True)
    place.office.policy("modes: {network: deny}\n")
    assert place.office.policies.banner is None
    place.office.policy(policy)
    target = f"origin.test:{http.port}"
    for data in (
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n",
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n",
        f"CONNECT 127.0.0.1:{http.port} HTTP/1.1\r\nHost: 127.0.0.1:{http.port}\r\n\r\n",
    ):
        assert status_of(await send(place, data)) == 403
    assert http.untouched


SPELLINGS = (
    "/public/../secret", "/public/./../secret", "/public/%2e%2e/secret", "/public/.%2E/secret",
    "/public%2f..%2fsecret",
    "/public/..%2fsecret", "/public/..;/secret", "/public/..;a=b/secret", "/public/%2e%2e;/secret",
    "/public/..%3b/secret",
    "/public/%252e%252e/secret", "/public/%25%32%65%25%32%65/secret", "/public/%5c..%5csecret",
    "/public/..%5csecret",
    "//secret", "/public//../secret", "/public/%00/../secret", "/public/x%00",
    "/public%00/../secret", "/%73ecret", "/SECRET/../secret",
    "/public/%c0%ae%c0%ae/secret", "/public/%u002e%u002e/secret", "/public/%", "/public/%2",
    "/./secret", "/public/../../secret",
    "/secret?/public/x", "/secret%3f/public/", "/secret%23/public/",
)  # fmt: skip


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "decrypted"])
async def test_no_spelling_of_a_path_gets_around_a_rule(
    place: Setting, http: Origin, https: Origin, tls: bool
) -> None:
    origin, scheme = (https, "https") if tls else (http, "http")
    base = f"{scheme}://origin.test:{origin.port}"
    place.office.policy(
        f"modes: {{network: deny}}\nallow:\n  - network(127.0.0.1:{origin.port})\n  - network(GET"
        f" {base}/public/**)\n"
    )
    place.office.policies.current()

    async def answered() -> None:
        # What is ambiguous is asked at most: nobody says yes here.
        while True:
            for one in place.office.pending():
                place.office.gate.resolve(one.id, "denied", by="tester")
            await asyncio.sleep(0.02)

    denying = asyncio.create_task(answered())
    try:
        arguments = [one for path in SPELLINGS for one in ("--path-as-is", f"{base}{path}")]
        _, out = await curl(place, *arguments)
        statuses = re.findall(r"^([0-9]{3}) [0-9]{3}(?=$|\{)", out, re.MULTILINE)
        assert len(statuses) == len(SPELLINGS)
        assert set(statuses) == {"403"}
        assert not origin.received
        _, out = await curl(place, f"{base}/public/x")
        assert out.splitlines()[-1].startswith("200")
    finally:
        denying.cancel()
