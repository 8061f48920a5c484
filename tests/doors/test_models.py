"""The settings of models elsewhere: their keys stay outside, and `doctor` asks their providers."""

import json

from tests.doors.conftest import House
from tests.doors.test_keys import Model, model, post, ran
from tests.fakes.messages_server import MessagesServer

__all__ = ["model"]
AWS_KEY, BEDROCK_KEY = "key-of-claude-at-aws-01", "key-of-bedrock-012345"
ACCESS, SECRET = "AKIDOFTESTS1234567890", "secret0of0tests0abcdef"
DATE = "20261128T000000Z"


def test_their_keys_are_put_in_and_their_calls_signed(house: House, model: Model) -> None:
    house.up(
        ANTHROPIC_AWS_API_KEY=AWS_KEY,
        ANTHROPIC_AWS_WORKSPACE_ID="wrkspc_1",
        ANTHROPIC_AWS_BASE_URL=model.url,
        AWS_BEARER_TOKEN_BEDROCK=BEDROCK_KEY,
        ANTHROPIC_BEDROCK_MANTLE_BASE_URL=f"{model.url}/anthropic",
        AWS_REGION="us-east-1",
    )
    house.ok("rules", "add", "allow", f"network(POST {model.url}/**)")
    said = ran(
        house,
        post(model, "/v1/messages", "x-api-key: $ANTHROPIC_AWS_API_KEY")
        + ";"
        + post(model, "/anthropic/v1/messages", "Authorization: Bearer $AWS_BEARER_TOKEN_BEDROCK"),
    )
    assert said.count("model-said") == 2, said
    assert AWS_KEY not in said
    assert BEDROCK_KEY not in said
    got = json.dumps(model.got)
    assert AWS_KEY in got
    assert BEDROCK_KEY in got
    house.end()
    model.got.clear()
    house.up(
        GATEHOUSE_AWS_KEYS=f"{ACCESS}:{SECRET}",
        ANTHROPIC_BEDROCK_MANTLE_BASE_URL=f"{model.url}/anthropic",
    )
    scope = f"{DATE[:8]}/us-east-1/bedrock-mantle/aws4_request"
    signed = (
        f"Authorization: AWS4-HMAC-SHA256 Credential=$GATEHOUSE_AWS_KEYS_BEDROCK/{scope},"
        f" SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    )
    said = ran(house, post(model, "/anthropic/v1/messages", signed, f"x-amz-date: {DATE}"))
    assert "model-said" in said, said
    assert SECRET not in said
    (head,) = model.got
    assert f"Credential={ACCESS}/{scope}" in head["authorization"]
    assert "0" * 64 not in head["authorization"]


def test_doctor_says_where_a_model_is_not(house: House) -> None:
    with MessagesServer([], models=("claude-sonnet-5-5",)) as server:
        done = house.run(
            "doctor",
            GATEHOUSE_REVIEW_MODEL="claude-sonnet-5-5, claude-sonet-5-5, openai:gpt-5.5",
            ANTHROPIC_API_KEY=AWS_KEY,
            ANTHROPIC_BASE_URL=server.url,
        )
        lines = [one for one in done.stdout.splitlines() if " model " in one]
        assert done.returncode == 1
        assert lines == [
            f"ok    model claude-sonnet-5-5: {server.url}",
            f"FAIL  model claude-sonet-5-5: {server.url} has no model `claude-sonet-5-5`",
            "FAIL  model openai:gpt-5.5: there is no key for it",
        ]
        assert "-> set OPENAI_API_KEY" in done.stdout
        done = house.run("doctor", GATEHOUSE_REVIEW_MODEL="claude, who?")
        assert "`who?` is no model" in done.stdout
