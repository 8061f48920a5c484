"""What the providers' own libraries make of a call that the budget doesn't allow: their error
with the reason, and no second try."""

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import botocore.session
import pytest
from botocore.exceptions import ClientError

from supervisor.core.models.model_calls import Api
from supervisor.core.models.model_errors import budget_error

WHY, REMEDY = "the budget of this session is $1.00", "ask the operator"


class Denying:
    """A server that answers every call as egress does where there is no money left."""

    def __init__(self) -> None:
        self.api: Api = "messages"
        self.calls = 0
        self.url = ""

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        denying = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                denying.calls += 1
                self.rfile.read(int(self.headers["content-length"]))
                error = budget_error(denying.api, WHY, REMEDY, host="models.test", path="/")
                self.send_response(error.status)
                for name, value in (error.headers | {"content-type": "application/json"}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(error.body)))
                self.end_headers()
                self.wfile.write(error.body)

        return Handler


@pytest.fixture
def denying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Denying]:
    monkeypatch.setenv("NO_PROXY", "*")
    found = Denying()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), found.handler()) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("streams", [False, True])
def test_anthropics(denying: Denying, streams: bool) -> None:
    client = anthropic.Anthropic(api_key="k", base_url=denying.url)
    with pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(
            model="claude-haiku-4-5",
            max_tokens=5,
            messages=[{"role": "user", "content": "x"}],
            stream=streams,
        )
    assert raised.value.status_code == 402
    assert f"{WHY}; {REMEDY}" in str(raised.value)
    assert denying.calls == 1


def _converse(client: Any) -> None:
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "x"}]}])


def _converse_stream(client: Any) -> None:
    client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": "x"}]}])


def _invoke(client: Any) -> None:
    client.invoke_model(modelId="m", body=b"{}")


@pytest.mark.parametrize(
    ("api", "call"), [("converse", _converse), ("converse", _converse_stream), ("invoke", _invoke)]
)
def test_bedrocks(
    denying: Denying, monkeypatch: pytest.MonkeyPatch, api: Api, call: Callable[[Any], None]
) -> None:
    denying.api = api
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    session = botocore.session.get_session()
    client = session.create_client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=denying.url
    )
    with pytest.raises(ClientError) as raised:
        call(client)
    assert raised.value.response["Error"]["Code"] == "ServiceQuotaExceededException"
    assert f"{WHY}; {REMEDY}" in str(raised.value)
    assert denying.calls == 1
