"""Signing anew, against the examples of AWS's own test suite."""

import hashlib

import pytest

from supervisor.egress.sigv4 import Keys, parse, parse_keys, resign

EXAMPLE = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HEADERS = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}


def signed(names: str = "host;x-amz-date", service: str = "service", date: str = "20150830") -> str:
    return f"AWS4-HMAC-SHA256 Credential=placeholder/{date}/us-east-1/{service}/aws4_request, SignedHeaders={names}, Signature={'0' * 64}"


@pytest.mark.parametrize(
    ("method", "target", "signature"),
    [
        ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("GET", "/?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    ],
)
def test_the_examples_of_the_test_suite(method: str, target: str, signature: str) -> None:
    found = parse(signed())
    assert found is not None
    made = resign(found, EXAMPLE, method, target, HEADERS, b"")
    assert made is not None
    assert made["authorization"].endswith(f"Signature={signature}")
    assert made["authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
    )


def test_a_sessions_token_is_put_in_and_signed() -> None:
    found = parse(signed("host;x-amz-date;x-amz-security-token"))
    assert found is not None
    keys = Keys("AK", "secret", "real-token")
    made = resign(found, keys, "GET", "/", HEADERS | {"x-amz-security-token": "placeholder"}, b"")
    assert made is not None
    assert made["x-amz-security-token"] == "real-token"
    without = resign(found, Keys("AK", "secret"), "GET", "/", HEADERS | {"x-amz-security-token": "placeholder"}, b"")
    assert without is not None
    assert "SignedHeaders=host;x-amz-date," in without["authorization"]


def test_the_bodys_hash_is_that_of_the_body_or_of_its_header() -> None:
    found = parse(signed())
    assert found is not None
    own = resign(found, EXAMPLE, "POST", "/", HEADERS, b"body")
    said = resign(
        found, EXAMPLE, "POST", "/", HEADERS | {"x-amz-content-sha256": hashlib.sha256(b"body").hexdigest()}, None
    )
    assert own == said
    assert own != resign(found, EXAMPLE, "POST", "/", HEADERS, b"other")


def test_paths_are_encoded_twice_but_for_s3() -> None:
    one, other = parse(signed()), parse(signed(service="s3"))
    assert one is not None
    assert other is not None
    assert resign(one, EXAMPLE, "GET", "/a%20b", HEADERS, b"") != resign(one, EXAMPLE, "GET", "/a%2520b", HEADERS, b"")
    assert resign(other, EXAMPLE, "GET", "/a%20b", HEADERS, b"") is not None


@pytest.mark.parametrize(
    ("headers", "names", "body"),
    [
        (HEADERS, "host;x-amz-date", None),
        (HEADERS | {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, "host;x-amz-date", b""),
        (HEADERS | {"x-amz-date": "20200101T000000Z"}, "host;x-amz-date", b""),
        ({"host": "h"}, "host", b""),
        (HEADERS, "host;x-amz-date;x-missing", b""),
    ],
)
def test_what_cant_be_signed(headers: dict[str, str], names: str, body: bytes | None) -> None:
    found = parse(signed(names))
    assert found is not None
    assert resign(found, EXAMPLE, "GET", "/", headers, body) is None


@pytest.mark.parametrize(
    "text", ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=a/b", signed() + " x", signed(date="2015")]
)
def test_other_headers_are_none(text: str) -> None:
    assert parse(text) is None


def test_keys() -> None:
    assert parse_keys("a:b") == Keys("a", "b")
    assert parse_keys("a:b:c:d") == Keys("a", "b", "c:d")
    assert parse_keys("a") is parse_keys("a:") is parse_keys(":b") is None
    assert "secret" not in repr(Keys("a", "secret"))
