"""What the agent says when egress says no: at CONNECT, and to a plain request, with the reason
in one line."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent_image.reviewer.anthropic_model import AnthropicModel
from agent_image.reviewer.egress import FetchError, fetch
from agent_image.reviewer.model import ModelError, Request

REFUSAL = {
    "error": "refused",
    "why": "no rule allows it",
    "remedy": "ask",
    "rule": "network(x)",
    "request_id": "r1",
}


class Proxy(BaseHTTPRequestHandler):
    """Refuses every tunnel and the host `no.example.test`; answers other plain requests itself."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""

    def do_CONNECT(self) -> None:
        self._answer(403, json.dumps(REFUSAL).encode())

    def do_GET(self) -> None:
        if "no.example.test" in self.path:
            return self._answer(403, json.dumps(REFUSAL).encode())
        if "plain403" in self.path:
            return self._answer(403, b'{"message": "the site says no"}')
        return self._answer(200, b"hello " + self.path.encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
    yield
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.mark.parametrize("url", ["https://no.example.test/", "http://no.example.test/x"])
def test_a_refusal_keeps_its_reason(url: str) -> None:
    answer = fetch(url, 1000)
    assert answer.status == 403
    assert answer.refusal == REFUSAL


def test_a_site_that_says_403_itself_is_no_refusal() -> None:
    answer = fetch("http://site.example.test/plain403", 1000)
    assert (answer.status, answer.refusal) == (403, None)


def test_a_page_is_fetched_through_the_proxy_and_cut() -> None:
    assert fetch("http://site.example.test/a?b=c", 12).body == b"hello http:/"


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://x/", "example.com", "http://", "http://a b/", "http://x/\r\nX: y",
     "http://x:99999/", "http://[x/"],
)  # fmt: skip
def test_other_addresses_are_refused_in_one_line(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(url, 10)
    assert "\r\nX" not in repr(str(caught.value))


def test_a_model_whose_connection_is_refused_says_why() -> None:
    said: list[str] = []
    model = AnthropicModel("m", "placeholder", "https://model.example.test", sleep=lambda _s: None)
    ask = Request(system="s", messages=[{"role": "user", "content": "x"}], tools=[], max_tokens=10)
    with pytest.raises(
        ModelError, match=r"refused: no rule allows it; rule network\(x\); ask; request r1"
    ) as caught:
        model.reply(ask, said.append)
    assert caught.value.is_refusal
    assert said == []
