"""How a setting names models."""

import pytest

from supervisor.core.text.providers import NamedModel, read_models, url_in_region
from supervisor.errors import UserError


def test_models_of_providers() -> None:
    text = "claude-sonnet-5-5, bedrock:anthropic.claude-v2:0,openai:org/gpt@1 ,us.x:1,"
    assert read_models(text, "S") == (
        NamedModel("anthropic", "claude-sonnet-5-5"),
        NamedModel("bedrock", "anthropic.claude-v2:0"),
        NamedModel("openai", "org/gpt@1"),
        NamedModel("anthropic", "us.x:1"),
    )
    assert read_models(" ", "S") == ()
    assert [str(one) for one in read_models("anthropic:a, aws:b", "S")] == ["a", "aws:b"]


@pytest.mark.parametrize("text", ["a b", "openai:", "-x", "a" * 201, "a,b,c,d,e"])
def test_what_is_no_model(text: str) -> None:
    with pytest.raises(UserError, match=r"^SETTING"):
        read_models(text, "SETTING")


def test_addresses() -> None:
    assert url_in_region("anthropic", "") == "https://api.anthropic.com"
    assert url_in_region("openai", "") == "https://api.openai.com/v1"
    assert url_in_region("aws", "eu-central-1") == (
        "https://aws-external-anthropic.eu-central-1.api.aws"
    )
    assert url_in_region("bedrock", "us-gov-west-1") == (
        "https://bedrock-mantle.us-gov-west-1.api.aws/anthropic"
    )
    for region in ("", "us-east-1.evil.example", "us"):
        with pytest.raises(UserError, match="AWS_REGION"):
            url_in_region("bedrock", region)
