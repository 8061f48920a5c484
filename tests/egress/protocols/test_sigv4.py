"""Signing anew, against the examples of AWS's own test suite and its own signer."""

import hashlib

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from supervisor.egress.protocols.sigv4 import Keys, is_in_pieces, parse, parse_keys, resign

EXAMPLE = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HEADERS = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}


def signed(names: str = "host;x-amz-date", service: str = "service", date: str = "20150830") -> str:
    return (
        f"AWS4-HMAC-SHA256 Credential=placeholder/{date}/us-east-1/{service}/aws4_request,"
        f" SignedHeaders={names}, Signature={'0' * 64}"
    )


@pytest.mark.parametrize(
    ("method", "target", "signature"),
    [
        ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
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
    without = resign(
        found,
        Keys("AK", "secret"),
        "GET",
        "/",
        HEADERS | {"x-amz-security-token": "placeholder"},
        b"",
    )
    assert without is not None
    assert "SignedHeaders=host;x-amz-date," in without["authorization"]


def test_the_bodys_hash_is_that_of_the_body_or_of_its_header() -> None:
    found = parse(signed())
    assert found is not None
    own = resign(found, EXAMPLE, "POST", "/", HEADERS, b"body")
    said = resign(
        found,
        EXAMPLE,
        "POST",
        "/",
        HEADERS | {"x-amz-content-sha256": hashlib.sha256(b"body").hexdigest()},
        None,
    )
    assert own == said
    assert own != resign(found, EXAMPLE, "POST", "/", HEADERS, b"other")


def test_paths_are_encoded_twice_but_for_s3() -> None:
    one, other = parse(signed()), parse(signed(service="s3"))
    assert one is not None
    assert other is not None
    assert resign(one, EXAMPLE, "GET", "/a%20b", HEADERS, b"") != resign(
        one, EXAMPLE, "GET", "/a%2520b", HEADERS, b""
    )
    as_it_is = resign(other, EXAMPLE, "GET", "/a%20b", HEADERS, b"")
    assert as_it_is is not None
    lambdas = parse(signed(service="s3-object-lambda"))
    assert lambdas is not None
    assert resign(lambdas, EXAMPLE, "GET", "/a%20b", HEADERS, b"") != resign(
        one, EXAMPLE, "GET", "/a%20b", HEADERS, b""
    )


def test_a_body_in_pieces_can_be_signed_anew_where_no_piece_is_signed() -> None:
    found = parse(signed("host;x-amz-content-sha256;x-amz-date", service="s3"))
    assert found is not None
    said = HEADERS | {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
    assert not is_in_pieces(said)
    made = resign(found, EXAMPLE, "PUT", "/bucket/key", said, None)
    assert made is not None
    assert made == resign(found, EXAMPLE, "PUT", "/bucket/key", said, b"whatever the body is")
    for kind in (
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "STREAMING-?",
    ):
        assert is_in_pieces(said | {"x-amz-content-sha256": kind})


@pytest.mark.parametrize("service", ["s3", "s3express", "dynamodb", "bedrock"])
@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a%20b/%C3%BC%2B~.txt?x=1&versionId=a%2Fb%20c~%3D%26%2A&x=0&empty",
        "/model/eu.anthropic%3A0/converse?b&a=",
    ],
)
@pytest.mark.parametrize("token", ["", "token/of+session=="])
def test_the_signature_is_that_of_awss_own_signer(service: str, target: str, token: str) -> None:
    names = "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a"
    found = parse(signed(names, service=service))
    assert found is not None
    headers = HEADERS | {
        "x-amz-meta-a": "  two   words ",
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
    }
    made = resign(found, EXAMPLE._replace(token=token), "PUT", target, headers, None)
    assert made is not None
    kind = S3SigV4Auth if service.startswith("s3") else SigV4Auth
    signer = kind(Credentials(EXAMPLE.access, EXAMPLE.secret, token or None), service, "us-east-1")
    request = AWSRequest(
        method="PUT", url=f"https://example.amazonaws.com{target}", headers=headers
    )
    if token:
        request.headers["x-amz-security-token"] = token
    request.context["timestamp"] = HEADERS["x-amz-date"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert made["authorization"].endswith(signer.signature(text, request))


@pytest.mark.parametrize(
    ("headers", "names", "body"),
    [
        (HEADERS, "host;x-amz-date", None),
        (
            HEADERS | {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
            "host;x-amz-date",
            b"",
        ),
        (HEADERS | {"x-amz-date": "20200101T000000Z"}, "host;x-amz-date", b""),
        ({"host": "h"}, "host", b""),
        (HEADERS, "host;x-amz-date;x-missing", b""),
        (HEADERS, "x-amz-date", b""),
    ],
)
def test_what_cant_be_signed(headers: dict[str, str], names: str, body: bytes | None) -> None:
    found = parse(signed(names))
    assert found is not None
    assert resign(found, EXAMPLE, "GET", "/", headers, body) is None


@pytest.mark.parametrize(
    "text",
    ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=a/b", signed() + " x", signed(date="2015")],
)
def test_other_headers_are_none(text: str) -> None:
    assert parse(text) is None


def test_keys() -> None:
    assert parse_keys("a:b") == Keys("a", "b")
    assert parse_keys("a:b:c:d") == Keys("a", "b", "c:d")
    assert parse_keys("a") is parse_keys("a:") is parse_keys(":b") is None
    assert "secret" not in repr(Keys("a", "secret"))
