"""How long the CLI waits for the supervisor, and what it says when no answer comes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from supervisor.cli.common import client
from supervisor.cli.common.client import Client
from supervisor.errors import UserError
from tests.egress.egress_harness import nobody_at

PATIENCE_S = 0.05


class Slow(ThreadingHTTPServer):
    """Answers a POST once `answers` is set; with `hangs_up` it ends the connection instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = threading.Event()
        self.answers_after_s = PATIENCE_S * 5
        self.hangs_up = False


class Handler(BaseHTTPRequestHandler):
    server: Slow

    def do_POST(self) -> None:
        self.server.answers.wait(self.server.answers_after_s)
        if self.server.hangs_up:
            self.close_connection = True
            return
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    monkeypatch.setattr(client, "ANSWER_S", PATIENCE_S)
    server = Slow()
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.answers.set()
    server.shutdown()
    serving.join()
    server.server_close()


def test_what_may_take_long_is_waited_for(slow: Slow) -> None:
    assert Client(slow.server_port, "x").post_and_wait("/api/undo", token="t") == {
        "path": "/api/undo"
    }


def test_anything_else_is_not_called_failed_where_it_only_took_long(slow: Slow) -> None:
    slow.answers_after_s = 60.0  # not before this test is over
    with pytest.raises(UserError, match=r"didn't answer within 0\.05 s") as error:
        Client(slow.server_port, "x").post("/api/stop")
    assert "may be done all the same" in error.value.remedy


def test_a_supervisor_that_dies_meanwhile(slow: Slow) -> None:
    slow.hangs_up = True
    slow.answers.set()
    with pytest.raises(UserError, match="ended before it answered"):
        Client(slow.server_port, "x").post_and_wait("/api/undo")


def test_nobody_there(slow: Slow) -> None:
    slow.answers.set()
    with nobody_at() as port, pytest.raises(UserError, match="doesn't answer"):
        Client(port, "x").get("/api/status")
