"""Stopping everything ends what is open, too."""

import asyncio
import http.server
import threading
from pathlib import Path

from tests.fakes.supervised import PATIENCE_S, settings_in, supervised

# Sends a line, and then waits for one that never comes: a stream that stays open as long as it is
# let.
STREAM = "curl -sN --proxy $HTTP_PROXY http://stream.test:{port}/; echo; echo ended with $?"


class _Stream(http.server.BaseHTTPRequestHandler):
    ending = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"begun\n")
        self.wfile.flush()
        self.ending.wait(PATIENCE_S)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""


async def test_a_stream_that_is_open_when_everything_is_stopped_ends(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stream) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        port = server.server_address[1]
        policy = (
            f"version: 1\nallow: ['network(stream.test:{port})', 'network(127.0.0.1:{port})']\n"
        )
        names = {"stream.test": ("127.0.0.1",)}
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                supervised(settings_in(tmp_path, policy), names=names) as running,
            ):
                command = STREAM.format(port=port)
                session = await running.start(tmp_path / "workspace", "sh", "-c", command)
                await running.printed(session, "begun")
                running.parts.kill_switch.stop("enough")
                await running.printed(session, "ended with")
        finally:
            _Stream.ending.set()
            server.shutdown()
