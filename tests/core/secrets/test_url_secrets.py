"""Values of a query that authenticate are hidden by their names, and nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Network
from supervisor.core.secrets import url_secrets
from supervisor.core.secrets.url_secrets import MARK, hidden, in_headers, in_target, is_secret
from supervisor.core.text.urls import normalise_path
from tests.tables import each_row

VALUE = "s3cr3t/value=="


@each_row(
    "name",
    [
        "access_token", "api_key", "apiKey", "APIKey", "APIkey", "apikey", "key", "token", "sig",
        "signature", "password",
        "client_secret", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token",
        "x-goog-signature", "AWSAccessKeyId",
        "user[password]", "token2", "%61ccess%5Ftoken", "ACCESS_TOKEN", "jwt", "SAMLResponse",
        "sid", "code", "auth_code",
        "private-token", "refreshToken", "session", "apitoken", "consumersecret", "appkey",
        "USERPASSWORD", "csrftokens",
    ],
)  # fmt: skip
def test_what_authenticates_is_hidden(name: str) -> None:
    value = "a1b2c3d4e5"
    assert in_target(f"/a?x=1&{name}={value}&y=2") == f"/a?x=1&{name}={MARK}&y=2"
    assert in_target(f"/a?{name}={value}") == f"/a?{name}={MARK}"
    assert in_target(f"/a?x=1;{name}={value}") == f"/a?x=1;{name}={MARK}"
    assert in_target(f"/a?next=/b?{name}={value}") == f"/a?next=/b?{name}={MARK}"


@each_row(
    "target",
    [
        "/a", "/a?", "/a?b", "/a?b=1", "/a?monkey=x1y2z3", "/a?keyword=x", "/a?hockey=1",
        "/a?design=x", "/a?assign=x",
        "/a?token=", "/a?token", "/token=abc", "/a?error_code=404", "/a?country_code=DE",
        "/a?code=DE", "/a?code=print(1)",
        "/a?code=rm+-rf+x1", "/a?author=ada", "/a?tokenizer=x", "/a?signal=9", "", "?",
    ],
)  # fmt: skip
def test_all_else_stays_as_it_is(target: str) -> None:
    assert in_target(target) == target


def test_a_value_is_hidden_to_its_end_whatever_is_in_it() -> None:
    assert in_target(f"/a?token={VALUE};b=?c&d=1#e") == f"/a?token={MARK}&d=1#e"


def test_a_long_value_says_how_long_it_is_and_stays_so() -> None:
    once = in_target("/a?token=" + "x" * 4012)
    assert once == "/a?token=[hidden: 4,012 characters]"
    assert in_target(once) == once


@given(st.text(max_size=60), st.text(max_size=60))
def test_hiding_twice_is_hiding_once_and_rules_see_no_difference(path: str, query: str) -> None:
    target = f"/{path}?token=abc&{query}"
    once = in_target(target)
    assert in_target(once) == once
    assert normalise_path(once) == normalise_path(target)


def test_headers_with_addresses_in_them() -> None:
    headers = (
        ("Referer", f"https://a.example.org/b?access_token={VALUE}&c=1"),
        ("Location", "/cb#access_token=abc&state=1"),
        ("Link", '<https://a.example.org/?page=2&token=abc>; rel="next"'),
        ("Content-Type", "text/html; charset=utf-8"),
        ("Accept", "*/*;q=0.1"),
    )
    assert in_headers(headers) == (
        ("Referer", f"https://a.example.org/b?access_token={MARK}&c=1"),
        ("Location", f"/cb#access_token={MARK}&state=1"),
        ("Link", f'<https://a.example.org/?page=2&token={MARK}>; rel="next"'),
        *headers[3:],
    )
    plain = (("Accept", "*/*"),)
    assert in_headers(plain) is plain


def test_a_name_alone_tells_unless_its_value_has_to() -> None:
    assert is_secret("access_token")
    assert is_secret("npm-otp")
    assert not is_secret("code")
    assert not is_secret("monkey")


def test_of_an_action_only_the_path_changes() -> None:
    action = Network(
        operation="request",
        host="a.example.org",
        port=443,
        scheme="https",
        method="GET",
        path="/?key=abc",
    )
    assert hidden(action).path == f"/?key={MARK}"
    plain = Network(operation="connect", host="a.example.org", port=443)
    assert hidden(plain) is plain


def test_no_name_in_the_tables_is_ordinary_or_twice() -> None:
    assert not url_secrets._WORDS & url_secrets._CODES
