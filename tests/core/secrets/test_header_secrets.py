"""Headers whose names speak of what authenticates are seen without their values, but for those
that are known never to have a secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.secrets.header_secrets import authenticates
from tests.tables import each_row

SECRET = b"q8Zr2Lw0vT5kXc7B"


@each_row(
    ("name", "value"),
    [
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("X-RateLimit-Reset-Tokens", "9ms"),
        ("x-ratelimit-reset-tokens_usage_based", "7.66s"),
        ("x-ratelimit-limit-tokens-minute", "500000"),
        ("anthropic-ratelimit-tokens-limit", "400000"),
        ("anthropic-ratelimit-input-tokens-remaining", "50000"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-11-23T20:51:55Z"),
        ("anthropic-priority-input-tokens-remaining", "12000"),
        ("fireworks-cached-prompt-tokens", "0"),
        ("X-Amzn-Bedrock-Input-Token-Count", "25"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("Surrogate-Key", "page/1 page/2 project-requests"),
        ("X-OAuth-Scopes", "repo, admin:org, user:email"),
        ("X-Accepted-OAuth-Scopes", ""),
        ("github-authentication-token-expiration", "2026-12-23 10:11:12 UTC"),
        ("x-amz-server-side-encryption-bucket-key-enabled", "true"),
        ("Sec-WebSocket-Protocol", "graphql-transport-ws, v4.channel.k8s.io"),
        ("Content-Type", "text/plain"),
        ("X-Design", SECRET.decode()),
    ],
)
def test_what_carries_no_secret_is_to_be_read(name: str, value: str) -> None:
    assert not authenticates(name.encode(), value.encode())


@each_row(
    "name",
    [
        "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key",
        "Private-Token", "X-Amz-Security-Token",
        "X-Goog-Api-Key", "api-key", "Fastly-Key", "X-Session-Id", "Mcp-Session-Id", "X-CSRF-Token",
        "Signature", "X-Auth",
        "CB-ACCESS-PASSPHRASE", "npm-otp", "X-GitHub-OTP", "X-Pwd", "X-Ticket", "api-sign", "X-Sid",
        "CF-Access-Client-Secret",
        "X-Tokens", "X-Reset-Tokens", "X-Reset-Token", "X-Limit-Token", "X-Used-Token",
        "X-Auth-Limit-Tokens", "X-Session-Token-Count",
        "X-Key-Remaining-Tokens", "X-Inputtokens", "X-Credentials",
        "Access-Control-Allow-Credential", "X-Surrogate-Key-Secret",
    ],
)  # fmt: skip
@each_row("value", [SECRET, b"482913"])
def test_what_may_be_a_secret_is_not_even_as_a_number(name: str, value: bytes) -> None:
    assert authenticates(name.encode(), value)


@pytest.mark.parametrize(
    "name",
    [
        "x-ratelimit-remaining-tokens", "anthropic-ratelimit-input-tokens-remaining",
        "x-amzn-bedrock-input-token-count",
        "access-control-allow-credentials", "sec-websocket-key", "x-oauth-scopes",
        "github-authentication-token-expiration",
    ],
)  # fmt: skip
def test_a_secret_under_the_name_of_something_else_is_not_to_be_read(name: str) -> None:
    assert authenticates(name.encode(), SECRET)


@pytest.mark.parametrize(
    "value",
    [
        "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.cThacjJMdzB2VDVrWGM3Qg",
        "realtime, openai-insecure-api-key.q8Zr2Lw0vT5kXc7B",
        "chat, " + "0123456789abcdef" * 3,
    ],
)
def test_a_websocket_s_protocols_hide_a_token_among_them(value: str) -> None:
    assert authenticates(b"Sec-WebSocket-Protocol", value.encode())


@given(
    st.binary(max_size=400),
    st.sampled_from(["token", "Secret", "api-KEY", "otp-cookie", "password"]),
    st.binary(),
)
def test_a_long_name_hides_as_a_short_one_does(before: bytes, word: str, value: bytes) -> None:
    assert authenticates(before + b"-x" * 150 + b"-" + word.encode(), value)
