"""The settings of keys, prices and hosts of models: a started program puts the key in, counts what
the answer says, and gives the sandbox a placeholder."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.doors.conftest import House
from tests.fakes.quiet_http import QuietHandler, QuietServer

pytestmark = [pytest.mark.timeout(300)]

KEY, OPENAI_KEY, SECRET = "sk-ant-test-0123456789", "sk-openai-test-0123456789", "of-the-tracker-1"
CALL = json.dumps(
    {"model": "dear", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
)
ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "dear",
    "content": [{"type": "text", "text": "model-said"}], "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "output_tokens": 10},
}  # fmt: skip


class Model(QuietServer):
    """Notes the headers of each call, and answers as the Messages API does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(QuietHandler):
    server: Model

    def do_POST(self) -> None:
        self.body()
        self.server.got.append({name.lower(): value for name, value in self.headers.items()})
        self.respond(200, "application/json", json.dumps(ANSWER).encode())


@contextlib.contextmanager
def serving() -> Iterator[Model]:
    with Model() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def model() -> Iterator[Model]:
    with serving() as server:
        yield server


@pytest.fixture
def tracker() -> Iterator[Model]:
    with serving() as server:
        yield server


def post(model: Model, path: str, *headers: str) -> str:
    """A command that posts a call of a model by way of egress."""
    said = " ".join(f'-H "{one}"' for one in headers)
    return (
        f'curl -s -m 60 --noproxy "" -x "$http_proxy" {model.url}{path} {said}'
        f" -H 'Content-Type: application/json' -d '{CALL}'; echo"
    )


def ran(house: House, script: str, **env: str) -> str:
    done = house.run("run", "--workspace", str(house.workspace), "--", "sh", "-c", script, **env)
    return done.stdout + done.stderr


def spent(house: House) -> Any:
    session = house.sessions()[0]["id"]
    return house.http("GET", f"/api/spend?session={session}&span=session")[1]


def test_keys_reach_their_models_alone(house: House, model: Model, tracker: Model) -> None:
    given = house.folder / "named.yaml"
    given.write_text(
        "version: 1\ncredentials:\n  tracker: {env: OF_MINE, paths: [/api/**], hosts:"
        f" ['{tracker.url.removeprefix('http://')}'], header: x-tracker, variable: TRACKER}}\n"
    )
    given.chmod(0o600)
    house.up(
        ANTHROPIC_API_KEY=KEY,
        ANTHROPIC_BASE_URL=model.url,
        OPENAI_API_KEY=OPENAI_KEY,
        OPENAI_BASE_URL=f"{model.url}/v1",
        GATEHOUSE_CREDENTIALS=str(given),
        OF_MINE=SECRET,
    )
    for one in (model, tracker):
        house.ok("rules", "add", "allow", f"network(POST {one.url}/**)")
    said = ran(
        house,
        "env | grep -E 'ANTHROPIC|OPENAI|TRACKER';"
        + post(model, "/v1/messages", "x-api-key: $ANTHROPIC_API_KEY")
        + ";"
        + post(model, "/v1/responses", "Authorization: Bearer $OPENAI_API_KEY")
        + ";"
        + post(tracker, "/api/x", "x-tracker: $TRACKER"),
    )
    assert "model-said" in said, said
    assert not any(one in said for one in (KEY, OPENAI_KEY, SECRET))
    got = json.dumps(model.got)
    assert [one in got for one in (KEY, OPENAI_KEY)] == [True, True], said[-900:]
    # A named secret goes over TLS alone.
    assert "TRACKER=gatehouse-placeholder-" in said
    assert ("doesn't belong to" in said, tracker.got) == (True, [])


@pytest.mark.many
def test_a_call_costs_what_the_price_file_says(house: House, model: Model) -> None:
    prices = house.folder / "prices.yaml"
    cost = "{input: 1000, output: 1000, max_output_tokens: 100, context_tokens: 1000}"
    shipped = (ROOT / "policy/prices.yaml").read_text("utf-8")
    prices.write_text(shipped.replace("\nmodels:\n", f"\nmodels:\n  dear: {cost}\n"), "utf-8")
    house.up(GATEHOUSE_PRICES=str(prices), GATEHOUSE_MODEL_HOSTS="127.0.0.1")
    house.ok("rules", "add", "allow", f"network({model.url.removeprefix('http://')})")
    assert "model-said" in ran(house, post(model, "/v1/messages"))
    assert "110000" in json.dumps(spent(house)), spent(house)


@pytest.mark.many
def test_a_long_lived_token_is_one_of_the_keys(house: House, model: Model) -> None:
    token = "sk-ant-oat01-0123456789abcdef"
    house.up(CLAUDE_CODE_OAUTH_TOKEN=token, ANTHROPIC_BASE_URL=model.url)
    house.ok("rules", "add", "allow", f"network(POST {model.url}/**)")
    header = "Authorization: Bearer $CLAUDE_CODE_OAUTH_TOKEN"
    said = ran(house, "env | grep CLAUDE;" + post(model, "/v1/messages", header))
    assert token not in said
    assert token in json.dumps(model.got), said
