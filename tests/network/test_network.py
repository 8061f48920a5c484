"""Egress and the real gate together: rules, people, time, and what happens when one of the
processes dies."""

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest
import trustme

from supervisor.core.approvals import status
from supervisor.core.network.egress_wire import Credential
from tests.egress.egress_harness import Origin, answer_of, body_of, status_of
from tests.fakes.processes import bytes_if_shown
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting, really_started, setting

LOOPBACK = "127.0.0.0/8"


def rules(
    origin: Origin,
    *,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> str:
    """Rules as YAML; the address of the tests' origins is named, so that names for it may be
    asked about."""
    lists = {"allow": (f"network(127.0.0.1:{origin.port})", *allow), "ask": ask, "deny": deny}
    return "".join(
        f"{key}:\n" + "".join(f"  - {rule}\n" for rule in found)
        for key, found in lists.items()
        if found
    )


async def send(place: Setting, data: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    try:
        writer.write(data.encode())
        return await answer_of(reader)
    finally:
        writer.close()


def get(origin: Origin, path: str = "/", host: str = "origin.test") -> str:
    return f"GET http://{host}:{origin.port}{path} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n\r\n"


async def curl(place: Setting, *arguments: str) -> tuple[int, str]:
    """curl's exit code and output, the status of the response last; through the proxy, trusting
    only our authority."""
    process = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--show-error", "--max-time", "60", "--proxy", place.url, "--cacert",
        str(place.ca_file),
        "--write-out", "\n%{http_code} %{http_connect}", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={"PATH": os.defpath},
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_rule_lets_a_plain_request_through_and_it_is_on_record(
    place: Setting, http: Origin
) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    assert status_of(await send(place, get(http))) == 200
    assert place.office.audited("verdict_given")
    await settled(place)


async def settled(place: Setting, count: int = 1) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        while len(found := place.office.audited("effect_settled")) < count:
            await asyncio.sleep(0.01)
    return found


async def test_a_deny_rule_says_so_in_the_403(place: Setting, http: Origin) -> None:
    rule = f"network(origin.test:{http.port})"
    place.office.policy(rules(http, deny=(rule,)))
    answer = await send(place, get(http))
    assert status_of(answer) == 403
    assert body_of(answer)["rule"] == rule
    assert http.untouched


async def test_what_egress_refuses_by_itself_is_on_record_too(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    head = get(http).replace("Host: origin.test", "Host: other.test")
    assert status_of(await send(place, head)) == 403
    async with asyncio.timeout(PATIENCE_S):
        while not place.office.audited("verdict_given"):
            await asyncio.sleep(0.01)
    (line,) = place.office.audited("verdict_given")
    assert '"by":"egress"' in line
    assert '"verdict":"deny"' in line
    assert http.untouched


async def test_a_plain_request_waits_for_a_person(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http))
    sending = asyncio.create_task(send(place, get(http)))
    request = await place.office.asked()
    assert http.untouched
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert status_of(await sending) == 200
    assert (
        '"ok":true' in (await settled(place))[0] or '"outcome":"done"' in (await settled(place))[0]
    )


async def test_a_person_says_no(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http))
    sending = asyncio.create_task(send(place, get(http)))
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "denied", by="tester", reason="not today")
    answer = await sending
    assert status_of(answer) == 403
    assert "not today" in body_of(answer)["why"]
    assert body_of(answer)["request_id"] == request.id
    assert http.untouched


async def test_nobody_answers_and_a_later_try_finds_the_answer(
    tmp_path: Path, authority: trustme.CA, http: Origin
) -> None:
    async with setting(tmp_path, authority, hold_s=0.3) as place:
        place.office.policy(rules(http))
        answer = await send(place, get(http))
        assert status_of(answer) == 403
        assert body_of(answer)["error"] == "not answered in time"
        (request,) = place.office.pending()
        assert body_of(answer)["request_id"] == request.id
        place.office.gate.resolve(request.id, "approved", by="tester")
        assert http.untouched
        assert status_of(await send(place, get(http))) == 200
        # Used up: the next one is asked anew.
        assert status_of(await send(place, get(http))) == 403
        assert place.office.pending()[0].id != request.id


def looking_inside(origin: Origin) -> str:
    """A rule that changes nothing but that connections to the origin are looked into."""
    return f"network(* https://origin.test:{origin.port}/never/**)"


async def test_https_is_asked_once_for_the_connection_and_its_requests(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https, deny=(looking_inside(https),)))
    url = f"https://origin.test:{https.port}"
    running = asyncio.create_task(curl(place, f"{url}/1", f"{url}/2"))
    request = await place.office.asked()
    assert https.untouched
    place.office.gate.resolve(request.id, "approved", by="tester")
    code, out = await running
    assert code == 0
    assert "GET /1" in out
    assert "GET /2" in out
    assert place.office.pending() == []
    judged = "\n".join(place.office.audited("verdict_given"))
    assert '"path":"/1"' in judged
    assert '"path":"/2"' in judged


async def test_an_asked_connect_that_is_denied_is_answered_403(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https))
    running = asyncio.create_task(curl(place, f"https://origin.test:{https.port}/"))
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "denied", by="tester")
    code, out = await running
    assert code == 56
    assert out.endswith(" 403")
    assert https.untouched


async def test_a_connect_that_nobody_answers_is_403_and_a_later_try_goes_through(
    tmp_path: Path, authority: trustme.CA, https: Origin
) -> None:
    async with setting(tmp_path, authority, hold_s=0.3) as place:
        place.office.policy(rules(https))
        url = f"https://origin.test:{https.port}/"
        assert (await curl(place, url))[1].endswith(" 403")
        (request,) = place.office.pending()
        place.office.gate.resolve(request.id, "approved", by="tester")
        assert https.untouched
        assert (await curl(place, url))[1].endswith("200 200")


async def test_a_deny_rule_for_a_path_holds_inside_of_an_approved_connection(
    place: Setting, https: Origin
) -> None:
    url = f"https://origin.test:{https.port}"
    place.office.policy(rules(https, deny=(f"network(* {url}/secret/**)",)))
    running = asyncio.create_task(curl(place, f"{url}/secret/key"))
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert (await running)[1].endswith("403 200")
    assert https.untouched


async def test_a_written_ask_rule_for_a_path_asks_inside_of_an_approved_connection(
    place: Setting, https: Origin
) -> None:
    url = f"https://origin.test:{https.port}"
    place.office.policy(rules(https, ask=(f"network(POST {url}/**)",)))
    running = asyncio.create_task(curl(place, "--data", "x", f"{url}/change"))
    connect = await place.office.asked()
    place.office.gate.resolve(connect.id, "approved", by="tester")
    async with asyncio.timeout(PATIENCE_S):
        while not place.office.pending():
            await asyncio.sleep(0.01)
    (post,) = place.office.pending()
    assert post.sticky
    assert not https.received
    place.office.gate.resolve(post.id, "approved", by="tester")
    assert (await running)[1].endswith("200 200")


async def test_a_written_ask_rule_for_the_host_asks_once_for_a_connection(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https, ask=(f"network(origin.test:{https.port})",)))
    running = asyncio.create_task(curl(place, f"https://origin.test:{https.port}/"))
    request = await place.office.asked()
    assert request.sticky
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert (await running)[1].endswith("200 200")


async def test_a_rule_for_a_path_opens_the_connection_for_that_path_only(
    tmp_path: Path, authority: trustme.CA, https: Origin
) -> None:
    async with setting(tmp_path, authority, hold_s=0.3) as place:
        url = f"https://origin.test:{https.port}"
        place.office.policy(rules(https, allow=(f"network(GET {url}/public/**)",)))
        assert (await curl(place, f"{url}/public/a"))[1].endswith("200 200")
        https.reset()
        for arguments in (
            (f"{url}/other",),
            ("--data", "x", f"{url}/public/a"),
            ("--path-as-is", f"{url}/public/../other"),
        ):
            assert (await curl(place, *arguments))[1].endswith("403 200")
        assert not https.received


async def test_a_rule_for_a_path_that_answers_a_waiting_connect_opens_it_for_that_path_only(
    tmp_path: Path, authority: trustme.CA, https: Origin
) -> None:
    async with setting(tmp_path, authority) as place:
        url = f"https://origin.test:{https.port}"
        place.office.policy(rules(https))
        sending = asyncio.create_task(curl(place, "--data", "x", f"{url}/other"))
        request = await place.office.asked()
        place.office.policies.add_rule(
            "allow", f"network(GET {url}/public/**)", why="", by="tester"
        )
        await place.office.gate.answers.rejudge(by="the new rule")
        assert status(place.office.gate.queue.get(request.id)) in ("approved", "used")
        inside = await place.office.asked()  # no rule is about this path, and nobody says yes
        place.office.gate.resolve(inside.id, "denied", by="tester")
        assert (await sending)[1].endswith("403 200")
        assert not https.received


async def test_a_name_for_a_private_address_needs_a_rule_that_names_the_address(
    place: Setting, http: Origin
) -> None:
    place.office.policy(f"allow:\n  - network(origin.test:{http.port})\n")
    answer = await send(place, get(http))
    assert status_of(answer) == 403
    assert "127.0.0.1" in body_of(answer)["why"]
    assert http.untouched


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "169.254.169.254", "0x7f000001", "[::ffff:127.0.0.1]"]
)
async def test_private_and_metadata_addresses_are_denied_at_once(
    place: Setting, http: Origin, host: str
) -> None:
    place.office.policy("modes: {network: allow}\n")
    assert status_of(await send(place, get(http, host=host))) == 403
    assert place.office.pending() == []
    assert http.untouched


async def test_the_kill_switch_stops_kept_connections_too(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(get(http).encode())
    assert status_of(await answer_of(reader)) == 200
    http.reset()
    place.office.kill_switch.stop("testing")
    writer.write(get(http).encode())
    assert status_of(await answer_of(reader)) == 403
    writer.close()
    assert http.untouched


async def test_open_connections_can_be_cut_and_new_ones_are_judged_again(
    place: Setting, http: Origin
) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(get(http).encode())
    assert status_of(await answer_of(reader)) == 200
    starts = place.broker.starts
    place.broker.end_connections()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    async with asyncio.timeout(PATIENCE_S):
        await place.broker.wait_healthy(after_starts=starts)
    assert status_of(await send(place, get(http))) == 200


async def test_a_session_that_ended_reaches_nothing(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(get(http).encode())
    assert status_of(await answer_of(reader)) == 200
    http.reset()
    await place.broker.close_session(place.session_id)
    writer.write(get(http).encode())
    assert await answer_of(reader) == b""
    writer.close()
    assert http.untouched


async def test_a_session_can_have_more_than_one_socket(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    with socket.create_server(("127.0.0.1", 0)) as second:
        await place.broker.open_session(place.session_id, second)
        first_port, place.port = place.port, second.getsockname()[1]
        assert status_of(await send(place, get(http))) == 200
        await place.broker.close_listener(place.session_id, second)
        second.close()
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                while True:  # until egress has closed its copy too
                    await send(place, get(http))
    place.port = first_port
    assert status_of(await send(place, get(http))) == 200


async def test_two_sessions_are_never_mixed_up(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place.office.open(
            "session-2", f"version: 1\nallow:\n  - network(origin.test:{http.port})\n"
        )
        await place.broker.open_session("session-2", listener)
        first_port, place.port = place.port, listener.getsockname()[1]
        assert status_of(await send(place, get(http))) == 200
        place.port = first_port
        waiting = asyncio.create_task(send(place, get(http)))
        request = await place.office.asked()
        assert request.session_id == "session-1"
        place.office.gate.resolve(request.id, "denied", by="tester")
        assert status_of(await waiting) == 403


async def test_a_client_that_leaves_does_not_take_its_request_along(
    place: Setting, http: Origin
) -> None:
    place.office.policy(rules(http))
    _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(get(http).encode())
    request = await place.office.asked()
    writer.close()
    while place.broker.open_questions:
        await asyncio.sleep(0.01)
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert status_of(await send(place, get(http))) == 200
    assert status(place.office.gate.queue.get(request.id)) == "used"


@really_started
async def test_egress_killed_is_started_again_and_lets_nothing_through_meanwhile(
    place: Setting, http: Origin
) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    assert status_of(await send(place, get(http))) == 200
    http.reset()
    place.office.policy(rules(http))
    waiting = asyncio.create_task(send(place, get(http)))
    request = await place.office.asked()
    starts, pid = place.broker.starts, place.broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await waiting == b""
    while place.broker.healthy:
        await asyncio.sleep(0)
    answer = await send(place, get(http))
    assert status_of(answer) == 503
    assert "nothing is let through" in body_of(answer)["why"]
    await place.broker.wait_healthy(after_starts=starts)
    assert http.untouched
    assert place.broker.pid != pid
    # What was asked before is still there, and its answer counts.
    place.office.gate.resolve(request.id, "approved", by="tester")
    assert status_of(await send(place, get(http))) == 200
    assert len(place.office.audited("egress_started")) == 2
    assert place.office.audited("egress_lost")


@really_started
async def test_an_approval_dies_with_the_connection_that_used_it(
    place: Setting, http: Origin
) -> None:
    """kill -9 after the approval was claimed: it was used, and isn't used a second time."""
    place.office.policy(rules(http))
    seen = asyncio.Event()
    http.respond = lambda head: seen.set() or b""  # type: ignore[func-returns-value]
    waiting = asyncio.create_task(send(place, get(http)))
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "approved", by="tester")
    await seen.wait()
    starts, pid = place.broker.starts, place.broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await waiting == b""
    await place.broker.wait_healthy(after_starts=starts)
    facts = place.office.gate.queue.get(request.id)
    assert status(facts) == "used"
    assert facts.outcome == {"ok": False, "error": "egress ended"}


async def test_an_egress_that_cannot_start_lets_nothing_through(
    tmp_path: Path, authority: trustme.CA, http: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.network.network.READY_TIMEOUT_S", 0.5)
    with pytest.raises(BaseExceptionGroup):
        async with setting(tmp_path, authority, command=("/bin/false",)):
            raise AssertionError("it started")
    assert http.untouched


@really_started
async def test_the_secret_is_in_no_argument_environment_or_log(
    place: Setting, http: Origin, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "a-secret-that-nobody-may-see"
    credential = Credential(
        placeholder="placeholder-123456", secret=secret, header="x-api-key",
        hosts=(f"origin.test:{http.port}",), scheme="http"
    )  # fmt: skip
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    await place.broker.open_session(place.session_id, place.listener, [credential])
    head = get(http).removesuffix("\r\n") + "X-Api-Key: placeholder-123456\r\n\r\n"
    assert status_of(await send(place, head)) == 200
    assert secret.encode() in http.received
    for name in ("cmdline", "environ"):
        assert secret.encode() not in bytes_if_shown(place.broker.pid or 0, name)
    assert secret not in (place.office.folder / "audit.log").read_text()
    assert secret not in "".join(capfd.readouterr())


async def test_who_leaves_while_a_person_is_asked_about_the_addresses_leaves_nothing_open(
    place: Setting, http: Origin
) -> None:
    allow = (f"network(origin.test:{http.port})",)
    place.office.policy(rules(http, allow=allow))
    assert status_of(await send(place, get(http))) == 200
    await settled(place)
    # The addresses are known now: name and addresses are one question.
    place.office.policy(rules(http, allow=allow, ask=(f"network(127.0.0.1:{http.port})",)))
    _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(get(http).encode())
    await place.office.asked()
    writer.close()
    _, last = await settled(place, 2)
    assert "nobody waited for the answer any more" in last
    assert http.connections == 1


async def test_what_a_person_allowed_of_a_names_addresses_ends_with_the_name(
    place: Setting, http: Origin
) -> None:
    place.office.policy(
        rules(
            http,
            allow=(f"network(origin.test:{http.port})",),
            ask=(f"network(127.0.0.1:{http.port})",),
        )
    )
    # The addresses aren't known yet: first the name is judged, by a rule, then a person is asked
    # about its addresses.
    sent = asyncio.create_task(send(place, get(http)))
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "approved", by="operator")
    assert status_of(await sent) == 200
    lines = await settled(place, 2)
    assert sum(request.id in line for line in lines) == 1
    assert all('"outcome":"done"' in line for line in lines)
