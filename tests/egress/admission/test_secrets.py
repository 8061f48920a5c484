"""One key that clients send in either of two headers: a credential for each, with the same
placeholder."""

import base64
from dataclasses import replace

import msgspec
import pytest

from supervisor.core.network.credentials import credentials_of, parse_credentials
from supervisor.core.network.egress_wire import Credential
from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.egress.admission.secrets import (
    FOR_ANOTHER_SERVICE,
    PRESIGNED,
    BodyScan,
    HeaderSwap,
    back,
    foreign,
    has_any,
    swaps,
)
from supervisor.egress.protocols.checks import Head

PLACEHOLDER = "gatehouse-placeholder-0123456789"
BOTH = tuple(
    Credential(placeholder=PLACEHOLDER, secret="the-key", header=header, hosts=("model.test",))
    for header in ("x-api-key", "authorization")
)
PLAIN, BEARER = (
    (b"X-Api-Key", PLACEHOLDER.encode()),
    (b"Authorization", f"Bearer {PLACEHOLDER}".encode()),
)
BASIC = (b"Authorization", b"Basic " + base64.b64encode(f"a:{PLACEHOLDER}".encode()))


def head(*headers: tuple[bytes, bytes], path: bytes = b"/v1/messages") -> Head:
    return Head("POST", "https", path, "", headers, "HTTP/1.1")


def test_each_header_is_swapped_alone_and_both_together() -> None:
    as_key, as_bearer = (
        HeaderSwap("x-api-key", "the-key"),
        HeaderSwap("authorization", "Bearer the-key"),
    )
    assert swaps(BOTH, head(PLAIN), "model.test", 443) == ([as_key], None)
    assert swaps(BOTH, head(BEARER), "model.test", 443) == ([as_bearer], None)
    assert swaps(BOTH, head(PLAIN, BEARER), "model.test", 443) == ([as_key, as_bearer], None)


@pytest.mark.parametrize(
    "own",
    [
        (b"X-Api-Key", b"sk-of-the-attacker"),
        (b"authorization", b"Bearer sk-of-the-attacker"),
        (b"Authorization", b"Basic " + base64.b64encode(b"a:b")),
    ],
)
def test_a_key_of_the_agents_own_is_not_sent_to_the_credentials_host(
    own: tuple[bytes, bytes],
) -> None:
    for headers in ((own,), (own, PLAIN), (BEARER, own)):
        assert swaps(BOTH, head(*headers), "model.test", 443)[1] is not None
    assert swaps(BOTH, head(own), "other.test", 443) == ([], None)
    assert swaps(BOTH, head((b"X-Api-Key", b"")), "model.test", 443) == ([], None)


GITLAB = tuple(
    msgspec.structs.replace(
        one,
        header=header,
        other_headers=("job-token", "sec-websocket-protocol: insecure-key."),
        query_names=("private_token",),
    )
    for one, header in zip(BOTH, ("private-token", "authorization"), strict=True)
)
OTHERS = {
    "its own header, as a CGI reads it": head((b"Private_Token", b"of-the-attacker")),
    "another header": head((b"JOB-TOKEN", b"of-the-attacker")),
    "that one as a CGI reads it": head((b"job_token", b"of-the-attacker")),
    "among the protocols of a WebSocket": head(
        (b"Sec-WebSocket-Protocol", b"realtime, insecure-key.of-the-attacker")
    ),
    "the query": head(path=b"/v1?a=1&private_token=of-the-attacker"),
    "the query, percent-encoded": head(path=b"/v1?private%5ftoken=of-the-attacker"),
    "the query, in other letters": head(path=b"/v1?Private_Token=of-the-attacker"),
    "the query, behind a semicolon": head(path=b"/v1?a=1;private_token=of-the-attacker"),
}


@pytest.mark.parametrize("request_head", OTHERS.values(), ids=OTHERS)
def test_another_key_in_another_place_that_its_service_looks_into_is_refused(
    request_head: Head,
) -> None:
    for more in ((), (BEARER,)):
        both = replace(request_head, headers=(*request_head.headers, *more))
        found, why = swaps(GITLAB, both, "model.test", 443)
        assert (found, "no other key is sent there" in str(why)) == ([], True)
        assert "attacker" not in str(why)
    assert swaps(GITLAB, request_head, "other.test", 443) == ([], None)


@pytest.mark.parametrize(
    ("preset", "request_head"),
    [
        (
            "gitlab",
            head(
                (b"X-NuGet-ApiKey", b"of-the-attacker"), path=b"/api/v4/projects/1/packages/nuget"
            ),
        ),
        ("gitlab", head((b"Deploy-Token", b"of-the-attacker"))),
        ("gitlab", head(path=b"/api/v4/projects?bearer_token=of-the-attacker")),
        ("gitlab", head(path=b"/a/b.atom?rss_token=of-the-attacker")),
        ("gitlab", head(path=b"/a/b.atom?feed_token=of-the-attacker")),
        ("github", head(path=b"/user?access_token=of-the-attacker")),
        ("bitbucket", head(path=b"/2.0/user?jwt=of-the-attacker")),
        ("openrouter", head((b"X-Api-Key", b"of-the-attacker"), path=b"/api/v1/messages")),
        (
            "openai",
            head((b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key.of-the-attacker")),
        ),
    ],
)
def test_a_preset_knows_where_else_its_service_takes_keys(preset: str, request_head: Head) -> None:
    (binding,) = parse_credentials(
        f"version: 1\ncredentials: {{it: {{preset: {preset}, hosts: forge.test}}}}", ""
    )
    own = credentials_of(binding, PLACEHOLDER, "the-secret")
    assert "no other key is sent there" in str(swaps(own, request_head, "forge.test", 443)[1])


@pytest.mark.parametrize("preset", ["anthropic", "openrouter"])
@pytest.mark.parametrize("header", [PLAIN, BEARER])
def test_a_preset_of_models_has_its_key_in_either_header(
    preset: str, header: tuple[bytes, bytes]
) -> None:
    (binding,) = parse_credentials(
        f"version: 1\ncredentials: {{it: {{preset: {preset}, hosts: model.test}}}}", ""
    )
    found, why = swaps(
        credentials_of(binding, PLACEHOLDER, "the-secret"), head(header), "model.test", 443
    )
    assert ([one.header for one in found], why) == ([header[0].decode().lower()], None)


def test_what_is_no_key_may_stand_there() -> None:
    fine = head(
        BEARER,
        (b"Job-Token", b" "),
        (b"Sec-WebSocket-Protocol", b"realtime"),
        path=b"/v1?private_token=&page=2&x_private_token=1",
    )
    assert swaps(GITLAB, fine, "model.test", 443) == (
        [HeaderSwap("authorization", "Bearer the-key")],
        None,
    )


MISPLACED = {
    "in a third header too": head(PLAIN, (b"X-Other", PLACEHOLDER.encode())),
    "in the path too": head(BEARER, path=f"/?k={PLACEHOLDER}".encode()),
    "in Basic credentials": head(BASIC),
    "in Basic credentials beside the key": head(PLAIN, BASIC),
    "twice in one header": head(PLAIN, PLAIN),
    "percent-encoded in its own header": head(
        (b"X-Api-Key", PLACEHOLDER.replace("-", "%2d").encode())
    ),
}


@pytest.mark.parametrize("request_head", MISPLACED.values(), ids=MISPLACED)
def test_elsewhere_it_is_refused(request_head: Head) -> None:
    found, why = swaps(BOTH, request_head, "model.test", 443)
    assert not found
    assert why is not None
    assert "the-key" not in why


@pytest.mark.parametrize(
    ("is_basic", "said", "why"),
    [
        (False, f"a:{PLACEHOLDER}", "isn't sent as Basic credentials"),
        (True, f"{PLACEHOLDER}:", "only replaced as the password"),
        (True, f"{PLACEHOLDER}:x-oauth-basic", "only replaced as the password"),
    ],
)
def test_basic_credentials_that_cant_be_made_are_named_as_that(
    is_basic: bool, said: str, why: str
) -> None:
    bound = msgspec.structs.replace(BOTH[1], basic=is_basic)
    basic = (b"Authorization", b"Basic " + base64.b64encode(said.encode()))
    assert why in str(swaps((bound,), head(basic), "model.test", 443)[1])


def test_another_port_is_named_as_that() -> None:
    assert "doesn't belong to `model.test:8443`" in str(
        swaps(BOTH, head(PLAIN), "model.test", 8443)[1]
    )
    assert "doesn't belong to `other.test`" in str(swaps(BOTH, head(PLAIN), "other.test", 443)[1])


def test_another_host_never_gets_it() -> None:
    assert swaps(BOTH, head(PLAIN), "other.test", 443)[1] is not None
    assert swaps(BOTH, head(BEARER), "model.test", 8443)[1] is not None


def test_of_http2_the_authority_is_looked_at_too() -> None:
    """Its Host header may be missing."""
    request = Head("GET", "https", b"/", f"{PLACEHOLDER}.other.test", (), "HTTP/2.0")
    assert swaps(BOTH, request, f"{PLACEHOLDER}.other.test", 443)[1] is not None


def test_what_stands_apart_in_a_head_is_no_placeholder_together() -> None:
    begins, ends = PLACEHOLDER[:9].encode(), PLACEHOLDER[9:].encode()
    assert swaps(BOTH, head((begins, ends)), "other.test", 443) == ([], None)
    assert swaps(BOTH, head((b"X-A", begins), (ends, b"x")), "other.test", 443) == ([], None)


@pytest.mark.parametrize(
    ("host", "port", "is_one"),
    [
        ("bucket.s3.test", 443, True),
        ("a.b.s3.test", 443, True),
        ("xn--bcher-kva.s3.test", 443, True),
        ("s3.test", 443, False),
        ("evils3.test", 443, False),
        ("bucket.s3.test.evil.test", 443, False),
        ("bucket.s3.test", 8443, False),
        ("a.store.test", 8443, True),
        ("a.store.test", 443, False),
        ("10.0.0.1", 443, False),
    ],
)
def test_hosts_below_a_name_are_meant_as_in_a_rule(host: str, port: int, is_one: bool) -> None:
    wide = Credential(
        placeholder=PLACEHOLDER,
        secret="the-key",
        header="x-api-key",
        hosts=("*.s3.test", "*.store.test:8443"),
    )
    assert has_any((wide,), host, port) is is_one
    found, why = swaps((wide,), head(PLAIN), host, port)
    assert (bool(found), why is None) == (is_one, is_one)
    assert bool(back((wide,), [], host, port)) is is_one
    assert bool(foreign((wide,), host, port)) is not is_one
    # Nor another key.
    assert (
        swaps((wide,), head((b"X-Api-Key", b"sk-of-the-attacker")), host, port)[1] is not None
    ) is is_one


SIGNS = Credential(
    placeholder=PLACEHOLDER,
    secret="AKREAL:the-real-secret",
    header="authorization",
    hosts=("*.s3.test",),
    signs=True,
)
V4 = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F20260101%2Feu-west-1%2Fs3%2Faws4_request&X-Amz-Expires=60&X-Amz-Signature=00"  # noqa: E501
V2 = "AWSAccessKeyId={}&Expires=1&Signature=x"


@pytest.mark.parametrize(
    "query", [V4, V2, V4.replace("X-Amz", "%58-amz"), V4.replace("X-Amz-C", "x-amz-c")]
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_address_that_was_signed_beforehand_is_named_as_what_it_is(
    query: str, method: str
) -> None:
    for key in (PLACEHOLDER, PLACEHOLDER.replace("-", "%2D")):
        signed = of(method, f"/a?{query.format(key)}", "")
        assert swaps((SIGNS,), signed, "bucket.s3.test", 443) == ([], PRESIGNED)
        assert swaps((SIGNS,), signed, "other.test", 443) == ([], PRESIGNED)
    others = of(method, f"/a?{query.format('AKIDATTACKER')}", "")
    why = swaps((SIGNS,), others, "bucket.s3.test", 443)[1]
    assert why is None if method == "GET" else why is not None and "another key" in why
    assert swaps((SIGNS,), others, "other.test", 443) == ([], None)


WILD = (
    "*.execute-api.eu-west-1.amazonaws.com",
    "*.s3.eu-west-1.amazonaws.com",
    "*.s3-accelerate.amazonaws.com",
    "*.mine.test",
)


@pytest.mark.parametrize(
    ("host", "service", "is_sent"),
    [
        ("it.execute-api.eu-west-1.amazonaws.com", "execute-api", True),
        ("it.execute-api.eu-west-1.amazonaws.com", "sts", False),
        ("it.execute-api.eu-west-1.amazonaws.com", "execute", True),  # which is none
        ("it.execute-api.eu-west-1.amazonaws.com", "exec", False),
        ("it.execute-api.eu-west-1.amazonaws.com", "s3", True),
        ("bucket.s3.eu-west-1.amazonaws.com", "s3", True),
        ("bucket.s3.eu-west-1.amazonaws.com", "iam", False),
        ("a.mine.test", "sts", True),
        ("sts.amazonaws.com", "sts", True),
        ("named.execute-api.eu-west-1.amazonaws.com", "sts", True),
        ("s3.eu-west-1.amazonaws.com", "sts", True),  # strangers' are only those below it
    ],
)
def test_to_whoever_has_a_name_of_a_service_goes_no_signature_for_another(
    host: str, service: str, is_sent: bool
) -> None:
    """A gateway passes the header on to the function of whoever has the name."""
    named = (
        "sts.amazonaws.com",
        "named.execute-api.eu-west-1.amazonaws.com",
        "s3.eu-west-1.amazonaws.com",
    )
    signs = msgspec.structs.replace(SIGNS, hosts=(*WILD, *named))
    text = (
        f"AWS4-HMAC-SHA256 Credential={PLACEHOLDER}/20260101/eu-west-1/{service}/aws4_request,"
        f" SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    )
    found, why = swaps((signs,), of("GET", "/", text), host, 443)
    assert (bool(found), why) == (is_sent, None if is_sent else FOR_ANOTHER_SERVICE)


BOUND = Credential(
    placeholder=PLACEHOLDER, secret="the-key", header="authorization", hosts=("git.test",),
    methods=("GET", "POST"),
    paths=("/me/**",), basic=True,
)  # fmt: skip


def of(method: str, path: str, value: str) -> Head:
    return Head(
        method, "https", path.encode(), "", ((b"Authorization", value.encode()),), "HTTP/1.1"
    )


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_methods_and_paths_bind_further() -> None:
    bearer = f"Bearer {PLACEHOLDER}"
    assert swaps((BOUND,), of("GET", "/me/repo?x=1", bearer), "git.test", 443) == (
        [HeaderSwap("authorization", "Bearer the-key")],
        None,
    )
    for method, path in (
        ("DELETE", "/me/repo"),
        ("GET", "/you/repo"),
        ("GET", "/me/../you"),
        ("GET", "/me%2f..%2fyou"),
        ("GET", "//me/a"),
        ("GET", "/me//a"),
        ("GET", "/me%2fa"),
        ("GET", "/ME/a"),
    ):
        found, why = swaps((BOUND,), of(method, path, bearer), "git.test", 443)
        assert (found, why is not None) == ([], True), (method, path)


def test_a_password_of_basic_credentials_as_git_sends_it() -> None:
    found, why = swaps(
        (BOUND,), of("POST", "/me/r", basic("x-access-token", PLACEHOLDER)), "git.test", 443
    )
    assert why is None
    assert [one.value for one in found] == [basic("x-access-token", "the-key")]
    for value in (
        basic(PLACEHOLDER, PLACEHOLDER),
        basic(PLACEHOLDER, "x"),
        basic("a", PLACEHOLDER + "b"),
    ):
        assert swaps((BOUND,), of("POST", "/me/r", value), "git.test", 443)[1] is not None, value
    assert (
        swaps((BOUND,), of("POST", "/me/r", basic("a", PLACEHOLDER)), "other.test", 443)[1]
        is not None
    )


@pytest.mark.parametrize(
    "key", ["ghp_" + "a1B2" * 9, "0123456789abcdef0123456789abcdef01234567", "ATATT3" + "a1B2" * 9]
)
def test_no_other_key_is_sent_as_the_user_of_basic_credentials(key: str) -> None:
    found, why = swaps((BOUND,), of("POST", "/me/r", basic(key, PLACEHOLDER)), "git.test", 443)
    assert found == []
    assert why is not None
    assert why.endswith("as the password, and of a user that is no other key")


@pytest.mark.parametrize(
    ("secret", "value"),
    [
        ("two words in-it", "two words in-it"),
        ("two words in-it", "Bearer two words in-it"),
        ("of-nothing!", "Basic of-nothing!"),
        ("the-password", basic("me", "the-password")),
    ],
)
def test_what_goes_out_of_a_secret_is_known_whatever_it_looks_like(secret: str, value: str) -> None:
    assert back((), [HeaderSwap("x-key", value)], "model.test", 443) == {secret}


def test_what_went_to_a_host_before_is_known_and_of_a_signing_key_only_its_token() -> None:
    assert back(BOTH, [], "model.test", 443) == {"the-key"}
    assert back(BOTH, [], "other.test", 443) == frozenset()
    signing = Credential(
        placeholder=PLACEHOLDER,
        secret="AKID:the-secret",
        header="authorization",
        hosts=("aws.test",),
        signs=True,
    )
    assert back((signing,), [], "aws.test", 443) == frozenset()
    assert back(
        (signing,),
        [HeaderSwap("authorization", "AKID:the-secret:the-token", signs=True)],
        "aws.test",
        443,
    ) == {"the-token"}


def test_bodies_are_looked_through_wherever_they_are_cut() -> None:
    body = b"x" * 50 + PLACEHOLDER.encode() + b"y" * 50
    for size in range(1, len(PLACEHOLDER)):
        scan, raw = BodyScan(SecretForms({PLACEHOLDER})), BodyScan(SecretForms({PLACEHOLDER}))
        for at in range(0, len(body), size):
            scan.see(body[at : at + size])
            raw.see_raw(body[at : at + size])
        assert scan.found
        assert raw.found
    nothing, other = BodyScan(SecretForms(())), BodyScan(SecretForms({PLACEHOLDER}))
    nothing.see(body)
    other.see(body.replace(b"place", b"p1ace"))
    assert not nothing.found
    assert not other.found
    assert foreign(BOTH, "other.test", 443) == {PLACEHOLDER}
    assert foreign(BOTH, "model.test", 443) == frozenset()
