"""What unpacks to much is unpacked in small steps, between which everybody else has their turn;
and what can't be looked through doesn't go out."""

import asyncio
import gzip
import zlib
from pathlib import Path

import brotli
import pytest
import zstandard

from supervisor.core.network.egress_wire import Credential, EgressRefused
from supervisor.egress.admission.rooms import Room
from supervisor.egress.admission.secrets import FOUND_IN_BODY, UNREADABLE
from supervisor.egress.mitm.body_inspection import MOST_AT_ONCE, BodyPiece, Inspection
from supervisor.egress.mitm.guard import closes
from supervisor.egress.protocols.codings import (
    BROKEN,
    MOST_UNPACKED_BYTES,
    STEP_BYTES,
    TOO_MUCH,
    UNKNOWN,
    Decoder,
)
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    answer_of,
    body_of,
    running_egress,
    serving,
    status_of,
)
from tests.egress.mitm.test_leaks import all_of, answering, chunked

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = "the-real-secret-of-this-test"


def credential(port: int) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=SECRET,
        header="authorization",
        hosts=(f"origin.test:{port}",),
        scheme="http",
    )


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "gzip, gzip", ""])
async def test_everybody_else_has_a_turn_after_each_step(coding: str) -> None:
    body = bytes(20 * STEP_BYTES)
    coded = {
        "gzip": gzip.compress(body),
        "br": brotli.compress(body, quality=1),
        "zstd": zstandard.compress(body),
        "gzip, gzip": gzip.compress(gzip.compress(body)),
        "": body,
    }[coding]
    look = Inspection(Decoder(coding), asyncio.Lock())
    turns = [0]
    seen: list[tuple[int, int]] = []  # at which turn, how much
    look.add(lambda part: seen.append((turns[0], len(part))))
    assert not look.try_at_once(coded)

    async def other() -> None:
        while sum(length for _, length in seen) < len(body):
            turns[0] += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(other())
        tasks.create_task(look.in_steps(coded))
    assert sum(length for _, length in seen) == len(body)
    of_a_turn = [sum(length for at, length in seen if at == turn) for turn in range(turns[0] + 1)]
    assert max(of_a_turn) <= STEP_BYTES


async def test_what_is_not_seen_does_not_go_on() -> None:
    """Whatever goes wrong while it is looked at (law 3)."""

    class Addon:
        @closes(lambda piece: None)
        async def body_piece(self, piece: BodyPiece) -> None:
            await piece.look.in_steps(piece.data)
            piece.is_seen = True

    look = Inspection(Decoder("gzip"), asyncio.Lock())
    piece = BodyPiece(look, gzip.compress(b"x"))
    await Addon().body_piece(piece)
    assert piece.is_seen
    look.add(lambda part: 1 // 0)
    again = BodyPiece(look, gzip.compress(b"x") * 2)
    look._decoder = Decoder("gzip")
    await Addon().body_piece(again)
    assert not again.is_seen


async def test_many_tiny_pieces_are_not_looked_at_in_one_go() -> None:
    look = Inspection(Decoder(""), asyncio.Lock())
    turns = [look.try_at_once(b"x") for _ in range(3 * MOST_AT_ONCE)]
    assert [at for at, is_done in enumerate(turns, 1) if not is_done] == [
        MOST_AT_ONCE,
        2 * MOST_AT_ONCE,
        3 * MOST_AT_ONCE,
    ]


async def test_what_waits_to_be_looked_at_is_bounded() -> None:
    room = Room()
    await room.wait()
    room.hold(1 << 30)
    waiting = [asyncio.ensure_future(room.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    room.hold(-1)
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    room.hold(1 - (1 << 30))
    await asyncio.gather(*waiting)


# -- through the proxy ----------------------------------------------------------------------------

MANY = MOST_UNPACKED_BYTES + (1 << 20)
SHORT = {
    "gzip, gzip": (gzip.compress(gzip.compress(bytes(MANY), 1)), TOO_MUCH),
    "br": (brotli.compress(bytes(MANY), quality=5), TOO_MUCH),
    "zstd": (zstandard.compress(bytes(MANY)), TOO_MUCH),
    "lz4": (b"whatever", UNKNOWN),
    "gzip": (b"not coded at all", BROKEN),
    "deflate": (zlib.compress(b"x" * 1000)[:-40] + b"\xff" * 60, BROKEN),
}


@pytest.mark.parametrize("coding", SHORT)
async def test_a_body_that_cannot_be_looked_through_is_refused_by_name(
    proxy: Proxy, http: Origin, coding: str
) -> None:
    proxy.credentials(credential(1))
    body, why = SHORT[coding]
    target = f"other.test:{http.port}"
    head = (
        f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Encoding:"
        f" {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = await proxy.send(head.encode() + body)
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == why
    assert http.untouched
    await proxy.supervisor.until_one(lambda one: isinstance(one, EgressRefused) and one.why == why)


async def test_one_that_is_sent_on_its_way_is_cut_off_and_not_taken_for_whole(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(1))
    target = f"other.test:{http.port}"
    reader, writer = await proxy.open()
    body = chunked(gzip.compress(bytes(2 * MANY), 1), 30_000)
    head = (
        f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Encoding:"
        " gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await all_of(reader)
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == TOO_MUCH
    )
    assert not http.received.endswith(b"0\r\n\r\n")
    settled = await proxy.supervisor.settled()
    assert settled.detail["error"] == TOO_MUCH
    writer.close()


async def test_an_answer_that_unpacks_to_too_much_is_cut_off(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    said = answering(
        brotli.compress(bytes(MANY) + SECRET.encode(), quality=1), "Content-Encoding: br"
    )
    http.respond = lambda head: said
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\n\r\n".encode()
    )
    assert SECRET.encode() not in await all_of(reader)
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == UNREADABLE
    )
    writer.close()


@pytest.mark.parametrize(
    ("part", "is_short"),
    [
        ("Guard.body_piece", False),
        ("Raw.body_piece", False),
        ("BodyScan.see", False),
        ("BodyScan.see", True),
    ],
)
async def test_where_looking_raises_nothing_goes_on(
    tmp_path: Path, upstream_ca: Path, http: Origin, part: str, *, is_short: bool
) -> None:
    coded = gzip.compress(b"x" * 1000)
    said = answering(coded, "Content-Encoding: gzip")
    if not is_short:
        said = (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunked(coded)
        )
    http.respond = lambda head: said
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        proxy.credentials(credential(http.port))
        for host, head, body in (
            (
                "other.test",
                "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                chunked(coded),
            ),
            ("origin.test", f"Authorization: Bearer {PLACEHOLDER}\r\n", b""),
        ):
            reader, writer = await proxy.open()
            target = f"{host}:{http.port}"
            writer.write(
                f"PUT http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{head}\r\n".encode() + body
            )
            assert coded not in await all_of(reader)
            writer.close()
    assert coded not in http.received
    assert not http.received.endswith(b"0\r\n\r\n")


async def test_a_long_upload_that_is_packed_arrives_whole(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(1))
    body = b"".join(number.to_bytes(4) for number in range(500_000))
    coded = gzip.compress(body, 1)
    assert len(coded) > 5 * STEP_BYTES
    http.respond = None
    target = f"other.test:{http.port}"
    head = (
        f"PUT http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Encoding:"
        f" gzip\r\nContent-Length: {len(coded)}\r\n\r\n"
    )
    reader, writer = await proxy.open()
    writer.write(head.encode() + coded)
    assert status_of(await answer_of(reader)) == 200
    assert http.received.endswith(coded)
    writer.close()


async def test_what_is_found_in_a_request_whose_client_leaves_meanwhile_is_on_record(
    proxy: Proxy, http: Origin, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor is the request told as done, of which nothing went out."""
    proxy.credentials(credential(1))
    body = gzip.compress(b"0" * 40_000_000 + PLACEHOLDER.encode())
    target = f"other.test:{http.port}"
    coded = f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n"
    reader, writer = await proxy.open()
    writer.write(
        f"PUT http://{target}/ HTTP/1.1\r\nHost: {target}\r\nExpect: 100-continue\r\n{coded}\r\n".encode()  # noqa: E501
    )
    assert status_of(await reader.readuntil(b"\r\n\r\n")) == 100
    writer.write(body)
    writer.close()
    settled = await proxy.supervisor.settled()
    assert (settled.outcome, settled.detail["error"]) == ("failed", FOUND_IN_BODY)
    assert [one.why for one in proxy.supervisor.of_type(EgressRefused)] == [FOUND_IN_BODY]
    assert http.untouched
    assert "hook failed" not in capfd.readouterr().err
