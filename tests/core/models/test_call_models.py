"""Which models a call may mean: every place counts where some server looks for one, and the
dearest of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.models.call_bodies import read_call
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.prices import parse_prices
from supervisor.core.models.spend import bound, charge
from supervisor.core.models.usage import Usage
from tests.tables import each_row

TABLE = parse_prices(
    (Path(__file__).resolve().parents[3] / "policy/prices.yaml").read_text(), "prices.yaml"
)
GATEWAY, AZURE = "gateway.example.org", "mine.openai.azure.com"
CHEAP, DEAR = "gpt-5-nano", "claude-opus-4-1"
CHAT = "/v1/chat/completions"


def read(path: str, model: object = CHEAP, api: Any = "chat", host: str = GATEWAY) -> ModelCall:
    body = {"max_tokens": 9, "messages": []} | ({} if model is None else {"model": model})
    found = read_call(api, path, json.dumps(body).encode(), host=host)
    assert found is not None
    return found


def read_body(
    api: Any, body: dict[str, Any], path: str = "/v1/x", *headers: tuple[str, str]
) -> ModelCall:
    found = read_call(api, path, json.dumps(body).encode(), headers=headers)
    assert found is not None
    return found


def dearest(found: ModelCall) -> int:
    """What it costs by the dearest model alone."""
    alone = ModelCall(api=found.api, model=DEAR, body_bytes=found.body_bytes, max_output_tokens=9)
    return bound(alone, TABLE).cost_picousd


PATHS = [
    f"{CHAT}?model={DEAR}",
    f"{CHAT}?x=1;model={DEAR}",
    f"{CHAT}?Mod%65l[]={DEAR}",
    f"{CHAT}?model={CHEAP}&model={DEAR}",
    f"/engines/{DEAR}/chat/completions",
    f"/v1/engines/{DEAR}/chat/completions?model={CHEAP}",
    f"/openai/deployments/{DEAR}/chat/completions",
    f"/openai/deployments/{CHEAP}/chat/completions?model={DEAR}",
    f"/openai/deployments/{CHEAP}/deployments/{DEAR}/chat/completions",
    f"/openai/deployments/{DEAR}/engines/{CHEAP}/chat/completions",
    f"/models/{CHEAP}:x/models/{DEAR}:x/chat/completions",
]


@each_row("path", PATHS)
def test_the_dearest_of_address_and_body_is_reserved_and_settled_whatever_the_answer_says(
    path: str,
) -> None:
    found = read(path)
    assert {found.model, *found.others} == {CHEAP, DEAR}
    assert found.disputed
    reserved = bound(found, TABLE)
    assert reserved.cost_picousd >= dearest(found)
    used = Tokens(input=100, output=9)
    said = Usage(tokens=used, model=CHEAP, has_input=True, has_output=True)
    assert charge(found, said, reserved, TABLE).cost_picousd == TABLE.cost_picousd(
        TABLE.find(DEAR).price, used, found
    )


def test_a_name_that_has_no_price_counts_as_the_highest_where_another_is_named_beside_it() -> None:
    found = read(f"{CHAT}?model=our-alias")
    used = Tokens(input=100, output=9)
    said = Usage(tokens=used, model=CHEAP, has_input=True, has_output=True)
    cost = charge(found, said, bound(found, TABLE), TABLE)
    assert (cost.cost_picousd, cost.flags) == (
        TABLE.cost_picousd(TABLE.highest, used, found),
        ("unknown_model",),
    )


def test_a_body_that_cant_be_read_counts_as_the_highest_model_of_the_address() -> None:
    found = read_call("chat", f"{CHAT}?model={DEAR}", b"{", host=GATEWAY)
    assert found is not None
    used = Tokens(input=100, output=9)
    said = Usage(tokens=used, model=CHEAP, has_input=True, has_output=True)
    cost = charge(found, said, bound(found, TABLE), TABLE).cost_picousd
    assert cost == TABLE.cost_picousd(TABLE.highest, used, found)


@pytest.mark.parametrize("verb", ["converse", "invoke"])
def test_what_a_body_says_beside_bedrocks_path_counts_too(verb: str) -> None:
    found = read(f"/model/{CHEAP}/{verb}", DEAR, verb)
    assert (found.model, found.others, found.disputed) == (CHEAP, (DEAR,), True)
    plain = read(f"/model/{CHEAP}/{verb}", None, verb)
    assert (plain.model, plain.others, plain.disputed) == (CHEAP, (), False)


def test_a_path_that_goes_on_behind_a_call_names_what_stands_before_that() -> None:
    found = read(f"/model/{DEAR}/invoke/model/{CHEAP}/invoke", None, "invoke")
    assert DEAR in found.others


@pytest.mark.parametrize("path", [f"/openai/deployments/{CHEAP}/chat/completions",
f"{CHAT}?model={CHEAP}&x=model", CHAT])  # fmt: skip
def test_where_all_name_the_same_nothing_is_in_dispute(path: str) -> None:
    found = read(path)
    assert (found.model, found.others, found.disputed) == (CHEAP, (), False)


@pytest.mark.parametrize(
    "other",
    [
        {"models": [DEAR]},
        {"fallbacks": [DEAR], "mock_testing_fallbacks": True},
        {"context_window_fallbacks": [{CHEAP: [DEAR]}]},
        {"content_policy_fallbacks": [{CHEAP: [DEAR]}]},
        {"context_window_fallback_dict": {CHEAP: DEAR}},
    ],
)
def test_a_model_that_a_gateway_falls_back_to_is_paid_though_the_answer_names_the_one_that_was_asked_for(  # noqa: E501
    other: dict[str, Any],
) -> None:
    body = json.dumps({"model": CHEAP, "max_tokens": 9, "messages": [], **other}).encode()
    found = read_call("chat", CHAT, body, host=GATEWAY)
    assert found is not None
    reserved = bound(found, TABLE)
    assert reserved.cost_picousd >= dearest(found)
    used = Tokens(input=100, output=9)
    said = Usage(tokens=used, model=CHEAP, has_input=True, has_output=True)
    least = TABLE.cost_picousd(TABLE.find(DEAR).price, used, found)
    assert charge(found, said, reserved, TABLE).cost_picousd >= least
    openrouter = read_call("chat", "/api/v1/chat/completions", body, host="openrouter.ai")
    assert openrouter is not None
    assert charge(openrouter, said, reserved, TABLE).cost_picousd < least


def test_a_host_that_says_what_answered_is_believed() -> None:
    """A deployment of Azure's has a name of its own, and its answers the model's."""
    for host in (AZURE, "api.openai.com", "bedrock-runtime.eu-west-1.amazonaws.com"):
        found = read("/openai/deployments/ours/chat/completions", DEAR, host=host)
        assert (found.model, found.others, found.disputed) == ("ours", (DEAR,), False)
    assert read(
        "/openai/deployments/ours/chat/completions", DEAR, host=f"{AZURE}.example.org"
    ).disputed


@pytest.mark.parametrize(
    "path",
    [
        "".join(f"/deployments/{number}" for number in range(12)) + CHAT,
        f"{CHAT}?" + "&".join(f"model={number}" for number in range(12)),
    ],
    ids=["path", "query"],
)
def test_an_address_with_too_many_names_may_mean_any(path: str) -> None:
    found = read(path)
    assert found.others == ("",)
    assert bound(found, TABLE).flags == ("unknown_model",)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": f"{CHEAP},{CHEAP}"}, CHAT),
        ({"model": [CHEAP, DEAR]}, CHAT),
        ({"model": CHEAP}, f"{CHAT}?model={DEAR},{DEAR}"),
        ({"model": CHEAP}, f"/engines/{DEAR}%2C{DEAR}/chat/completions"),
        ({"model": CHEAP, "extra_body": {"model": DEAR}}, CHAT),
        ({"model": CHEAP, "extra_query": {"model": DEAR}}, CHAT),
        ({"model": CHEAP, "extra_headers": {"x-amzn-bedrock-service-tier": "priority"}}, CHAT),
        ({"model": CHEAP, "user_config": {"model_list": [{}]}}, CHAT),
        ({"model": CHEAP, "router_settings_override": {"fallbacks": [DEAR]}}, CHAT),
    ],
)
def test_what_a_gateway_makes_other_calls_of_cant_be_metered(
    body: dict[str, Any], path: str
) -> None:
    found = read_body("chat", {"messages": [], **body}, path)
    assert (found.api, found.model) == ("unmetered", "")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({}, [("X-Portkey-Config", ' {"override_params": {"model": "dear"}}')]),
        ({}, [("helicone-fallbacks", '[{"target-url": "https://x"}]')]),
        ({"num_retries": 50, "timeout": 1}, []),
        ({"timeout": 1}, [("x-litellm-num-retries", "50")]),
        ({}, [("CF-AIG-Max-Attempts", "5"), ("cf-aig-request-timeout", "1000")]),
    ],
)
def test_what_headers_have_a_gateway_make_of_a_call_cant_be_metered_either(
    body: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    assert (
        read_body("chat", {"model": CHEAP, "messages": [], **body}, CHAT, *headers).api
        == "unmetered"
    )


def test_a_route_that_is_kept_at_a_gateway_may_lead_to_any_model() -> None:
    found = read_body("chat", {"model": CHEAP, "max_tokens": 9}, CHAT, ("x-portkey-config", "pc-1"))
    assert (found.api, found.others, found.disputed) == ("chat", ("",), True)


def test_trying_again_without_giving_up_costs_no_more() -> None:
    for headers in (("x-litellm-num-retries", "2"), ("x-litellm-timeout", "600")):
        assert read_body("chat", {"model": CHEAP}, CHAT, headers).api == "chat"
    assert read_body("chat", {"model": CHEAP, "num_retries": 0, "timeout": 9}, CHAT).api == "chat"


def test_what_names_nothing_else_is_metered() -> None:
    assert (
        read_body(
            "chat", {"model": CHEAP, "extra_body": None, "extra_headers": {}, "user": "a,b"}
        ).api
        == "chat"
    )


@pytest.mark.parametrize("piece", ["&model=x", ";model", "&", "%26model=x", "&model[="])
def test_a_query_is_read_in_one_pass(piece: str) -> None:
    """The suite's time-out tells."""
    assert len(read(f"{CHAT}?{piece * 100_000}").others) <= 2


@pytest.mark.parametrize(
    ("path", "model", "others"),
    [
        ("/deployments/cheap/../../v1/chat/completions", "cheap", ("Dear",)),
        ("/models/cheap:x/../../v1/chat/completions", "cheap", ("Dear",)),
        ("/deployments/cheap/%2e%2e/%252e%252e/v1/chat/completions", "cheap", ("Dear",)),
        ("/openai/deployments/cheap/chat/completions", "cheap", ("Dear",)),
        ("/openai/deployments/DEAR/chat/completions", "DEAR", ()),
        ("/v1/chat/completions?x=/deployments/cheap/", "Dear", ()),
        ("/v1/chat/completions", "Dear", ()),
    ],
)
def test_a_path_that_names_a_model_hides_no_other(
    path: str, model: str, others: tuple[str, ...]
) -> None:
    found = read_body("chat", {"model": "Dear", "messages": []}, path)
    assert (found.model, found.others[-1:]) == (model, others)


def test_a_path_that_names_two_models_may_mean_either() -> None:
    found = read_body("invoke", {}, "/model/dear/invoke%3F/model/cheap/invoke")
    assert {found.model.rpartition("/")[2], *found.others} == {"cheap", "dear"}


def test_a_path_that_names_the_model_is_believed_rather_than_the_body() -> None:
    cheap = {"model": "claude-3-haiku", "messages": []}
    assert (
        read_body("messages", cheap, "/v1/projects/p/models/claude-opus-5:rawPredict").model
        == "claude-opus-5"
    )
    assert (
        read_body(
            "chat", cheap, "/openai/deployments/gpt-6-astra/chat/completions?api-version=1"
        ).model
        == "gpt-6-astra"
    )


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"models": ["dear", "cheap", "dear"]}, ("dear", "cheap")),
        ({"fallbacks": [{"model": "dear"}, "x"]}, ("", "x")),
        ({"preset": "mine"}, ("mine", "")),
        ({"models": None, "fallbacks": []}, ()),
        ({"models": [str(number) for number in range(50)]}, ("",)),
    ],
)
def test_other_models_that_may_answer_are_named(
    other: dict[str, Any], names: tuple[str, ...]
) -> None:
    found = read_body("chat", {"model": "m", **other})
    assert (found.model, found.others) == ("m", names)
