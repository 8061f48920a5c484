"""Redaction: what must never be stored, and what must stay readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.redact import MARK, Redactor

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijklmnop",
        "glpat-abcdefghijklmnopqrst",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        KEY,
        KEY[:60],
    ],
)
def test_shapes_of_secrets_go(secret: str) -> None:
    assert Redactor().text(f"before {secret} after").count(secret) == 0


def test_a_bearer_token_and_a_password_in_a_url_go() -> None:
    assert Redactor().text("Authorization: Bearer abcdef0123456789==") == f"Authorization: Bearer {MARK}"
    assert Redactor().text("https://me:hunter22@example.org/x") == f"https://{MARK}@example.org/x"


def test_known_secrets_go_whatever_their_shape() -> None:
    redactor = Redactor(["correct horse"])
    redactor.add("battery staple")
    assert redactor.data({"a": ["x correct horse", 3, None], "battery staple": True}) == {
        "a": [f"x {MARK}", 3, None],
        MARK: True,
    }


def test_short_values_would_redact_ordinary_text_and_are_not_taken() -> None:
    assert Redactor(["a", ""]).text("banana") == "banana"


@pytest.mark.parametrize(
    "text", ["git log --oneline -3", "src/sk-learn.py", "https://example.org/a@b", "skill-based", "Bearer"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().text(text) == text


@given(st.text())
def test_redaction_is_idempotent(text: str) -> None:
    redactor = Redactor(["secret-value"])
    assert redactor.text(redactor.text(text)) == redactor.text(text)
