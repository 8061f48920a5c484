"""One network pattern and one target: how a pattern is read, and what it matches, narrow and
broad."""

import ipaddress

import pytest

from supervisor.core.policy.network_patterns import NetworkPattern, Target, check, parse
from supervisor.core.text.hosts import as_address, canonical_host
from supervisor.core.text.urls import normalise_path, split_url
from supervisor.errors import PolicyError
from tests.tables import each_row


def connection(host: str, port: int = 443, *resolved: str) -> Target:
    name = canonical_host(host)
    return Target(name, as_address(name), port, resolved=tuple(map(ipaddress.ip_address, resolved)))


def request(method: str, url: str, *, body: bool = False) -> Target:
    parts = split_url(url)
    name = canonical_host(parts.host)
    is_read = body and method in ("GET", "HEAD")
    path = normalise_path(parts.path)
    return Target(
        name, as_address(name), parts.port, method, parts.scheme, path, is_read_with_body=is_read
    )


@each_row(
    ("pattern", "target", "narrow", "broad"),
    [
        ("api.example.com", connection("api.example.com"), True, True),
        ("api.example.com", connection("API.example.com.", 80), True, True),
        ("api.example.com", connection("api.example.com", 8443), False, True),
        ("api.example.com:8443", connection("api.example.com", 8443), True, True),
        ("api.example.com:8443", connection("api.example.com", 443), False, False),
        ("*.example.com", connection("a.b.example.com"), True, True),
        ("*.example.com", connection("example.com"), False, False),
        ("*.example.com", connection("xexample.com"), False, False),
        ("*", connection("example.com"), False, True),
        ("10.0.0.0/8", connection("10.1.2.3"), True, True),
        ("10.0.0.0/8", connection("11.1.2.3"), False, False),
        # An address that a name resolves to, and one that is wrapped in another, are meant by deny
        # rules only.
        ("10.0.0.0/8", connection("a.example.com", 443, "10.1.2.3"), False, True),
        ("10.0.0.0/8", connection("::ffff:10.1.2.3"), False, True),
        ("fd00::1", connection("[fd00::1]", 80), True, True),
        ("[fd00::1]:8443", connection("fd00::1", 8443), True, True),
        ("fd00::/8", connection("10.0.0.1"), False, False),
        # A URL never matches a mere connection.
        ("GET https://api.example.com/**", connection("api.example.com"), False, False),
        (
            "GET https://api.example.com/a/**",
            request("GET", "https://api.example.com/a/b"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a/**",
            request("POST", "https://api.example.com/a/b"),
            False,
            False,
        ),
        (
            "GET https://api.example.com/a/**",
            request("get", "https://api.example.com/a/b"),
            False,
            True,
        ),
        (
            "GET https://api.example.com/a/**",
            request("GET", "https://api.example.com/A/b"),
            False,
            True,
        ),
        (
            "GET https://api.example.com/a/**",
            request("GET", "https://api.example.com//a/b"),
            False,
            True,
        ),
        (
            "GET https://api.example.com/a/**",
            request("GET", "https://api.example.com/x/..;/a/b"),
            False,
            True,
        ),
        (
            "GET https://api.example.com/a/**",
            request("GET", "http://api.example.com/a/b"),
            False,
            False,
        ),
        (
            "get,HEAD https://api.example.com/a",
            request("HEAD", "https://api.example.com/a?x=1"),
            True,
            True,
        ),
        ("* https://api.example.com/a", request("PURGE", "https://api.example.com/a"), True, True),
        ("https://api.example.com/a", request("PURGE", "https://api.example.com/a"), True, True),
        ("GET *://api.example.com/a", request("GET", "http://api.example.com/a"), True, True),
        (
            "GET http://api.example.com/a",
            request("GET", "http://api.example.com:443/a"),
            False,
            True,
        ),
        (
            "GET https://api.example.com:8443/a",
            request("GET", "https://api.example.com:8443/a"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a%20b",
            request("GET", "https://api.example.com/a%20b"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a%20?",
            request("GET", "https://api.example.com/a%20b"),
            True,
            True,
        ),
        # An encoded wildcard is the character, and nothing else.
        (
            "GET https://api.example.com/a%2Ab",
            request("GET", "https://api.example.com/a*b"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a%2ab",
            request("GET", "https://api.example.com/a%2Ab"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a%2Ab",
            request("GET", "https://api.example.com/axb"),
            False,
            False,
        ),
        (
            "GET https://api.example.com/%2A%2A",
            request("GET", "https://api.example.com/a/b"),
            False,
            False,
        ),
        (
            "GET https://api.example.com/a%3Fb",
            request("GET", "https://api.example.com/a%3Fb"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/a%3Fb",
            request("GET", "https://api.example.com/axb"),
            False,
            False,
        ),
        (
            "GET https://api.example.com/%5Bab]%3f?",
            request("GET", "https://api.example.com/%5Bab%5D%3Fx"),
            True,
            True,
        ),
        (
            "GET https://api.example.com/%5Bab]",
            request("GET", "https://api.example.com/a"),
            False,
            False,
        ),
        ("api.example.com", request("GET", "https://api.example.com/a"), True, True),
        # What is read carries nothing, but where every request may go.
        (
            "GET,HEAD https://api.example.com/**",
            request("GET", "https://api.example.com/a", body=True),
            False,
            True,
        ),
        (
            "GET,HEAD https://api.example.com/**",
            request("HEAD", "https://api.example.com/a", body=True),
            False,
            True,
        ),
        (
            "POST https://api.example.com/**",
            request("POST", "https://api.example.com/a", body=True),
            True,
            True,
        ),
        (
            "* https://api.example.com/**",
            request("GET", "https://api.example.com/a", body=True),
            True,
            True,
        ),
        (
            "https://api.example.com/**",
            request("GET", "https://api.example.com/a", body=True),
            True,
            True,
        ),
        ("api.example.com", request("HEAD", "https://api.example.com/a", body=True), True, True),
    ],
)
def test_a_pattern_matches_narrowly_to_allow_and_broadly_to_deny(
    pattern: str, target: Target, narrow: bool, broad: bool
) -> None:
    compiled = parse(pattern)
    assert compiled.matches(target, broad=False) is narrow
    assert compiled.matches(target, broad=True) is broad


def test_a_pattern_of_every_host_speaks_of_no_host() -> None:
    assert parse("*").is_every_host
    assert parse("**:443") == NetworkPattern(port=443)
    assert not parse("*.example.com").is_every_host


@each_row(
    ("pattern", "said"),
    [
        ("a b", "neither a host nor a URL"),
        ("a.example.com/x", "neither a host nor a URL"),
        ("GET ftp://a.example.com/", "unknown scheme `ftp`"),
        ("GET https://a.example.com", "names no path"),
        ("GET https://a.example.com/?x=1", "names a query"),
        ("GET https://a.example.com/#x", "names a query"),
        ("GET https://a.example.com/a/../b", "dot or empty segments"),
        ("GET https://a.example.com//b", "dot or empty segments"),
        ("GET https://a.example.com/a%2fb", "an encoded slash"),
        ("GET https://a.example.com/a\\b", "a backslash"),
        ("GET https://a.example.com/a**", "`**` beside other characters"),
        ("GTE https://a.example.com/", None),
        (
            "G*T https://a.example.com/",
            "`G*T` in `network(G*T https://a.example.com/)` is not a list of methods",
        ),
        ("GET,,HEAD https://a.example.com/", "is not a list of methods"),
        ("a.example.com:0", "`0` in `network(a.example.com:0)` is not a port"),
        ("a.example.com:65536", "is not a port"),
        ("10.0.0.0/99", "is not an address"),
        ("fd00::zz", "is not an address"),
        ("10.0.0.256", "is not a valid address"),
        (".example.com", "starts with a dot"),
        ("a.*.com", "a wildcard inside of a name"),
        ("*a.example.com", "a wildcard inside of a name"),
        ("a?.example.com", "a wildcard inside of a name"),
        ("a_b.example.com", "is not a valid host name"),
        ("a]b", "is empty"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_remedy(pattern: str, said: str | None) -> None:
    if said is None:
        # Any method may be named: servers know more than the usual ones.
        assert parse(pattern).methods == frozenset({"GTE"})
        return
    with pytest.raises(PolicyError) as caught:
        parse(pattern)
    assert said in caught.value.message
    assert caught.value.remedy


def test_a_mistyped_method_is_told_its_nearest() -> None:
    with pytest.raises(PolicyError) as caught:
        parse("G*ET https://a.example.com/")
    assert caught.value.remedy == "did you mean `GET`?"
    with pytest.raises(PolicyError) as caught:
        parse("GET,** https://a.example.com/")
    assert caught.value.remedy == "write e.g. `GET,HEAD`, or `*`"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("*", "would allow every host"),
        ("* https://*/**", "would allow every host"),
        ("0.0.0.0/0", "would allow every host"),
        ("::/0", "would allow every host"),
        ("*.com", "below the public suffix `com`"),
        ("*.github.io", "below the public suffix `github.io`"),
    ],
)
def test_an_allow_rule_never_opens_everybodys_hosts(pattern: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check(pattern, allows=True)
    assert said in caught.value.message
    assert check(pattern, allows=False) == ""


def test_an_address_that_is_never_reached_is_a_warning() -> None:
    assert "never matches" in check("169.254.169.254", allows=True)
    assert check("10.0.0.1", allows=True) == ""
