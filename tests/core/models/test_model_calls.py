"""Which requests call a model."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.model_calls import api_of, is_model_host, is_openai, is_regional
from tests.tables import each_row

GATEWAY, VENDOR = "gateway.example.org", "api.openai.com"
BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"


@each_row(
    ("path", "api"),
    [
        ("/v1/messages", "messages"),
        ("/v1/messages?beta=true", "messages"),
        ("/anthropic/v1/messages", "messages"),
        ("//v1/./x/../MESSAGES/", "messages"),
        ("/v1/%6dessages", "messages"),
        ("/v1/%256dessages", "messages"),
        ("/v1/messages;a=b", "messages"),
        ("\\v1\\messages", "messages"),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5@default:streamRawPredict",
            "messages",
        ),
        ("/v1/chat/completions", "chat"),
        ("/api/v1/chat/completions", "chat"),
        ("/openai/deployments/x/chat/completions?api-version=1", "chat"),
        ("/v1/completions", "chat"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/responses", "responses"),
        ("/openai/responses?api-version=1", "responses"),
        ("/v1/responses/compact", "responses"),
        ("/v1/responses/compact/x", None),
        (f"{BEDROCK}/invoke", "invoke"),
        (f"{BEDROCK}/invoke-with-response-stream", "invoke"),
        (f"{BEDROCK}/converse", "converse"),
        (f"{BEDROCK}/converse-stream", "converse"),
        (
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/converse",
            "converse",
        ),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/repos/x/messages", None),
        ("/", None),
    ],
)
def test_the_paths_of_model_apis(path: str, api: str | None) -> None:
    assert (
        api_of("POST", path)
        == api_of("PUT", path)
        == api_of("PATCH", path)
        == api_of("X-ANY", path)
        == api
    )
    assert api_of("GET", path) is None


def test_the_hosts_of_models() -> None:
    for host in (
        "api.anthropic.com", "eu.api.openai.com", "au.api.openai.com", "openrouter.ai",
        "us.openrouter.ai",
        "bedrock-runtime.eu-west-1.amazonaws.com", "bedrock-mantle.us-east-1.api.aws",
        "bedrock-runtime-fips.us-east-1.amazonaws.com",
        "bedrock.us-east-1.amazonaws.com", "bedrock-agent-runtime.cn-north-1.amazonaws.com.cn",
        "vpce-0a1b-c2.bedrock-runtime.us-east-1.vpce.amazonaws.com",
        "aws-external-anthropic.us-east-1.api.aws",
        "bedrock-mantle.us-east-1.api.aws",
    ):  # fmt: skip
        assert is_model_host(host)
    for host in ("notapi.openai.com", "xapi.openai.com.example.org", "myopenrouter.ai",
    "s3.us-east-1.amazonaws.com", "bedrock.example.org"):  # fmt: skip
        assert not is_model_host(host)
    assert is_model_host("gateway.example.org", frozenset({"gateway.example.org"}))
    assert not is_model_host("gateway.example.org")
    assert is_model_host("a.models.example.org", frozenset({"*.models.example.org"}))
    assert not is_model_host("models.example.org", frozenset({"*.models.example.org"}))
    assert not is_model_host("evilmodels.example.org", frozenset({"*.models.example.org"}))


def test_at_a_gateway_every_path_may_lead_to_a_model_but_the_free_ones() -> None:
    for path in ("/anything", "/smart-alias", "/v1/message%3Fx"):
        assert api_of("POST", path, GATEWAY, at_model_host=True) == "unmetered"
    assert api_of("GET", "/anything", GATEWAY, at_model_host=True) is None
    assert api_of("POST", "/v1/messages/count_tokens", GATEWAY, at_model_host=True) is None
    assert api_of("POST", "/v1/messages", GATEWAY, at_model_host=True) == "messages"


# By one reading each of these is free, a cheap call or nothing, and by another a call that costs
# more.
@each_row(
    "path",
    [
        "/v1/messages%3F/count_tokens",
        "/v1/messages%23/count_tokens",
        "/v1/files#/../chat/completions",
        "/anything%253F/count_tokens",
        "/v1/count_tokens%3F/../messages",
        "/anything%252Fcount_tokens",
        "/v1/messages;x/files",
        "/v1/messages/;/..",
        "/v1/messages/..;/..",
        "/v1/messages/%2e%2e/..",
        "/v1/messages/x%2f../..",
        "/v1/messages//..",
        "/v1/messages/\\../..",
        "/v1/messages/%5C../..",
        "/v1/chat/completions/../files",
        "/model/claude-3-haiku/converse%3F/../../../v1/chat/completions",
        "/v1/images/generations%3F/../../messages",
        "/v1/%256dessages",
        "/v1/messages/.",
    ],
)
def test_at_a_host_of_models_what_servers_may_read_differently_is_never_metered_as_the_cheaper(
    path: str,
) -> None:
    for host in (VENDOR, GATEWAY):
        assert api_of("POST", path, host, at_model_host=True) == "unmetered"


def test_what_every_server_reads_alike_is_no_matter() -> None:
    for path in (
        "//v1/messages/",
        "/V1/Messages?x=;../%25",
        "/v1/%6dessages",
        "/v1/.hidden/..x/v1/messages",
    ):
        assert api_of("POST", path, GATEWAY, at_model_host=True) == "messages"
    assert api_of("POST", f"{BEDROCK}/converse", "bedrock-runtime.eu-west-1.amazonaws.com",
    at_model_host=True) == "converse"  # fmt: skip
    assert api_of("POST", "/anything%2Fcount_tokens", GATEWAY, at_model_host=True) is None


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/model/claude-3-haiku/converse",
        "/model/claude-3-haiku/converse/v1/messages",
        "/converse/model/claude-3-haiku/converse/v1/messages",
        "/v1/responses/v1/chat/completions",
        "/v1/embeddings/v1/messages",
        "/models/claude-3-haiku:rawPredict/chat/completions",
    ],
)
def test_a_path_that_begins_as_one_call_and_ends_as_another_is_neither(path: str) -> None:
    """By its end a body may be read for less than a server reads in it that goes by the
    beginning."""
    assert api_of("POST", path, GATEWAY, at_model_host=True) == "unmetered"


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages/v1/messages", "messages"),
        ("/openai/v1/v1/chat/completions", "chat"),
        ("/converse/v1/messages", "messages"),
        ("/responses-eu/v1/messages", "messages"),
    ],
)
def test_a_prefix_that_names_no_other_call_changes_nothing(path: str, api: str) -> None:
    assert api_of("POST", path, GATEWAY, at_model_host=True) == api


@pytest.mark.parametrize(
    "path",
    ["/model-invocation-job", "/model/x/async-invoke", "/agents/a/agentAliases/b/sessions/c/text",
     "/retrieveAndGenerate"],
)  # fmt: skip
def test_at_bedrock_every_path_may_cost_but_the_free_ones(path: str) -> None:
    for host in (
        "bedrock.eu-west-1.amazonaws.com",
        "bedrock-agent-runtime.eu-west-1.amazonaws.com",
    ):
        assert api_of("POST", path, host, at_model_host=True) == "unmetered"
        assert api_of("POST", "/model/x/count-tokens", host, at_model_host=True) is None


@pytest.mark.parametrize(
    "path", ["/v1/realtime?model=x", "/", "/ws/live", "/%2e%2e//", "/v1/files", "/live;v1?x#y", ""]
)
def test_an_upgrade_at_a_host_of_models_talks_with_a_model_whatever_its_path(path: str) -> None:
    for host in (VENDOR, GATEWAY, "eu.openrouter.ai", "bedrock-runtime.eu-west-1.amazonaws.com"):
        assert api_of("GET", path, host, is_upgrade=True, at_model_host=True) == "unmetered"
    assert api_of("GET", path, GATEWAY, is_upgrade=True) is None


@pytest.mark.parametrize(
    ("method", "path", "is_upgrade", "api"),
    [
        ("POST", "/v1/messages/batches", False, "unmetered"),
        ("PUT", "/v1/threads/x/runs", False, "unmetered"),
        ("POST", "/v1/images/generations", False, "unmetered"),
        ("GET", "/v1/realtime?model=x", True, "unmetered"),
        ("GET", "/chat", True, "unmetered"),
        ("POST", "/v1/messages/count_tokens", False, None),
        ("POST", "/v1/files", False, None),
        ("POST", "/api/event_logging/batch", False, None),
        ("GET", "/v1/models", False, None),
    ],
)
def test_at_a_vendors_host_what_isnt_read_and_isnt_free_is_unmetered(
    method: str, path: str, is_upgrade: bool, api: str | None
) -> None:
    assert api_of(method, path, VENDOR, is_upgrade=is_upgrade, at_model_host=True) == api
    assert api_of(method, path, VENDOR, is_upgrade=is_upgrade) is None


def test_whoever_offers_responses_over_a_websocket_offers_them_to_plain_requests() -> None:
    for path in ("/v1/responses", "/team-a/openai/responses?api-version=1", "/v1/%72esponses/"):
        assert api_of("GET", path, is_upgrade=True) == "responses"
        assert api_of("GET", path) is None
    assert api_of("GET", "/v1/responses/resp_1", is_upgrade=True) is None


@pytest.mark.parametrize(
    ("host", "path", "model", "is_dearer"),
    [
        ("eu.api.openai.com", "/v1/responses", "gpt-5", True),
        ("api.openai.com", "/v1/responses", "gpt-5", False),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "/model/x/converse",
         "eu.anthropic.claude-haiku-4-5", True),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "/model/x/converse",
         "arn:aws:bedrock::1:inference-profile/global.x", False),
        ("h", "/v1/projects/p/locations/europe-west1/publishers/anthropic/models/m:rawPredict", "m",
         True),
        ("h", "/v1/projects/p/locations/global/publishers/anthropic/models/m:rawPredict", "m",
         False),
        ("h",
         "/v1/projects/p/locations/eu/publishers/anthropic/models/m:rawPredict?x=/locations/global/", "m", True),  # noqa: E501
        ("h", "/v1/projects/p/locations/global/../eu/publishers/anthropic/models/m:rawPredict", "m",
         True),
        ("h", "/v1/projects/p/%6cocations/eu/publishers/anthropic/models/m:rawPredict", "m", True),
    ],
)  # fmt: skip
def test_where_a_region_costs_more(host: str, path: str, model: str, is_dearer: bool) -> None:
    assert is_regional(host, path, model) is is_dearer


@pytest.mark.parametrize(
    ("host", "is_theirs"),
    [("api.openai.com", True), ("eu.api.openai.com", True), ("xapi.openai.com", False),
     ("openrouter.ai", False), ("", False)],
)  # fmt: skip
def test_openais_own_hosts(host: str, is_theirs: bool) -> None:
    assert is_openai(host) is is_theirs


# What was looked for from every place of a path. What it finds is right, but it takes the square of
# the path's length.
BY_TRYING = (
    (re.compile(r"/model/[^/]+(?:/[^/]+)*/converse(?:-stream)?$"), "converse"),
    (re.compile(r"/model/[^/]+(?:/[^/]+)*/invoke(?:-with-response-stream)?$"), "invoke"),
    (re.compile(r"/(?:count_tokens|files|uploads(?:/.*)?)$"), None),
)
PARTS = ("/model", "/model/", "/x", "/", "x", "/converse", "/converse-stream", "/invoke",
"/invoke-with-response-stream", "/uploads", "/uploads/", "/files", "\n")  # fmt: skip
# Servers drop what is empty before they read a path: here nothing is.
plain_paths = st.lists(st.sampled_from(PARTS), max_size=9).map(
    lambda parts: re.sub("/+", "/", "/" + "".join(parts))
)


@given(plain_paths)
def test_a_path_is_read_in_one_pass_as_it_was_by_trying_every_place(path: str) -> None:
    plain = path.removesuffix("/") or "/"
    wanted = next((api for pattern, api in BY_TRYING if pattern.search(plain)), "unmetered")
    if wanted in ("converse", "invoke"):
        assert api_of("POST", path) == wanted
    else:
        assert api_of("POST", path, GATEWAY, at_model_host=True) == wanted


@pytest.mark.untraced
@each_row(
    "piece",
    [
        "/model/a", "/model/%0a", "/model", "/model/a/converse", "/model/a/invoke/x",
        "/v1/messages", ":rawpredict", ":stream",
        "/chat/completions", "/v1", "1", "/v1beta", "/v1beta1", "/responses", "/responses/compact",
        "/uploads", "/uploads/%0a", "/files",
        "/..", "/a/..", "//", ";", "%3f", "%2523", "%25",
    ],
)  # fmt: skip
def test_a_path_is_read_in_one_pass_however_often_it_begins_anew(piece: str) -> None:
    """Read again from each of its segments, these take minutes, in which egress does nothing
    else: the suite's time-out tells."""
    for beginning, end in (("", "/x"), ("/v1", "x"), ("", "%0ax")):
        found = api_of("POST", beginning + piece * 100_000 + end, GATEWAY, at_model_host=True)
        assert found in ("unmetered", None)
    assert api_of("GET", piece * 100_000, GATEWAY, is_upgrade=True, at_model_host=True) in (
        "responses",
        "unmetered",
    )
