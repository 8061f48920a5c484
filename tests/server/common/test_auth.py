"""Credentials by themselves: their strength, their ends, and that nothing of them is kept."""

import pytest

from supervisor.server.common.auth import (
    MOST_COOKIES,
    MOST_LOGIN_TOKENS,
    BadTokens,
    OperatorAuth,
    same,
)
from tests.fakes.clock import FakeClock


@pytest.fixture
def auth() -> OperatorAuth:
    return OperatorAuth(port=3700, clock=FakeClock())


def test_credentials_have_256_bits_and_never_repeat(auth: OperatorAuth) -> None:
    tokens = {auth.new_login_token() for _ in range(20)}
    tokens |= {auth.sign_in(auth.new_login_token()) or "" for _ in range(20)}
    tokens |= {OperatorAuth(port=1, clock=FakeClock()).cli_token for _ in range(20)}
    assert len(tokens) == 60
    assert min(map(len, tokens)) >= 43


def test_nothing_kept_is_a_credential(auth: OperatorAuth) -> None:
    login = auth.new_login_token()
    cookie = auth.sign_in(auth.new_login_token())
    assert cookie is not None
    kept = repr({name: value for name, value in vars(auth).items() if name != "cli_token"})
    assert login not in kept
    assert cookie not in kept
    caller = auth.by_cookie(cookie)
    assert caller is not None
    assert cookie not in repr(caller)


def test_tables_are_bounded_and_the_oldest_goes(auth: OperatorAuth) -> None:
    first = auth.new_login_token()
    for _ in range(MOST_LOGIN_TOKENS):
        auth.new_login_token()
    assert auth.sign_in(first) is None
    cookies = [auth.sign_in(auth.new_login_token()) or "" for _ in range(MOST_COOKIES + 1)]
    assert auth.by_cookie(cookies[0]) is None
    assert auth.by_cookie(cookies[-1]) is not None


def test_a_login_token_is_no_cookie_and_no_bearer(auth: OperatorAuth) -> None:
    token = auth.new_login_token()
    assert auth.by_cookie(token) is None
    assert auth.by_bearer(token) is None
    assert auth.by_cookie(auth.cli_token) is None
    assert auth.sign_in(auth.cli_token) is None


@pytest.mark.parametrize("text", ["", "\0", "ü", "\ud800", "x" * 100_000])
def test_any_text_is_only_a_wrong_credential(auth: OperatorAuth, text: str) -> None:
    assert auth.by_bearer(text) is None
    assert auth.by_cookie(text) is None
    assert auth.sign_in(text) is None
    assert not same(text, auth.cli_token)


def test_two_supervisors_do_not_share_anything() -> None:
    clock = FakeClock()
    one, two = OperatorAuth(port=3700, clock=clock), OperatorAuth(port=3701, clock=clock)
    assert one.cookie_name != two.cookie_name
    assert not one.hosts & two.hosts
    cookie = one.sign_in(one.new_login_token())
    assert cookie is not None
    assert two.by_cookie(cookie) is None
    assert two.sign_in(one.new_login_token()) is None


def test_a_window_of_wrong_tokens_slides() -> None:
    clock = FakeClock()
    bad = BadTokens(clock)
    for _ in range(1000):
        bad.count()
    assert bad.too_many
    clock.advance(60)
    assert not bad.too_many


def test_an_open_connection_ends_with_its_cookie(auth: OperatorAuth) -> None:
    caller = auth.by_cookie(auth.sign_in(auth.new_login_token()) or "")
    assert caller is not None
    assert auth.still_valid(caller)
    auth.sign_out(caller)
    assert not auth.still_valid(caller)
    cli = auth.by_bearer(auth.cli_token)
    assert cli is not None
    assert auth.still_valid(cli)
