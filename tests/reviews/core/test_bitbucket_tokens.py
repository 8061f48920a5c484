"""Bitbucket's tokens, as a file has them."""

from datetime import UTC, datetime

import pytest

from supervisor.errors import UserError
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken, expiry_words, read_token

ACCESS, API = "ATCTT3" + "x" * 40, "ATATT3" + "y" * 40
DAY = 86_400.0


def test_an_access_token_stands_alone_and_an_api_token_after_its_address() -> None:
    access = read_token(f"{ACCESS}\n", "t")
    assert (access.is_access, access.expires_at) == (True, None)
    assert access.authorization == f"Bearer {ACCESS}"
    assert access.for_git == f"x-token-auth:{ACCESS}"
    api = read_token(f"\n bot@example.org:{API}\n\nexpires: 2031-02-03\n", "t")
    assert (api.token, api.mail, api.is_access) == (API, "bot@example.org", False)
    assert api.authorization.startswith("Basic ")
    assert api.for_git == f"x-bitbucket-api-token-auth:{API}"
    assert api.expires_at == datetime(2031, 2, 3, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("ATBB" + "x" * 32, "app password"),
        ("ada:ATBB" + "x" * 32, "app password"),
        ("short", "no token"),
        (f"nobody:{ACCESS}", "no token"),
        ("x" * 5000, "no token"),
        (API, "without its account's address"),
        (f"{ACCESS}\nnonsense", "none of it"),
        (f"{ACCESS}\nexpires: tomorrow", "is no day"),
    ],
)
def test_what_is_no_token_is_refused_without_showing_it(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        read_token(text, "the file")
    assert text.strip()[:30] not in str(refused.value) or not text


def test_a_token_is_told_from_a_week_before_its_end_on() -> None:
    token = BitbucketToken(ACCESS, expires_at=100 * DAY)
    assert expiry_words(BitbucketToken(ACCESS), 0.0) == ""
    assert expiry_words(token, 92.9 * DAY) == ""
    assert expiry_words(token, 93.1 * DAY).startswith("Bitbucket's token expires on 1970-04-11")
    assert expiry_words(token, 100 * DAY).startswith("Bitbucket's token expired on 1970-04-11")
