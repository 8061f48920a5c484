"""Whether the providers have the models that reviews ask, where they list them.

Sources: https://platform.claude.com/docs/en/api/models/list and
https://platform.openai.com/docs/api-reference/models.
"""

import ssl
from collections.abc import Iterator
from urllib.parse import quote

import httpx2

from supervisor.core.agents.agents import MODEL_KEYS
from supervisor.core.text.providers import NamedModel, read_models, url_in_region
from supervisor.errors import GatehouseError
from supervisor.sandbox.check_result import CheckResult, bad
from supervisor.settings import Settings

TIMEOUT_S = 10.0


def findings(settings: Settings) -> Iterator[CheckResult]:
    """Yield a finding for each model that GATEHOUSE_REVIEW_MODEL names."""
    setting = "GATEHOUSE_REVIEW_MODEL"
    try:
        models = read_models(settings.review_model, setting)
    except GatehouseError as error:
        yield bad(setting, error.message, error.remedy)
        return
    for one in models:
        name = f"model {one}"
        keys = [
            key
            for key in MODEL_KEYS
            if key.provider == one.provider
            and settings.model_keys[key.variable]
            and not key.is_of_claude_code
        ]
        if not keys:
            known = [key.variable for key in MODEL_KEYS if key.provider == one.provider]
            yield bad(name, "there is no key for it", f"set {' or '.join(known)}")
            continue
        try:
            url = settings.model_urls.get(one.provider) or url_in_region(
                one.provider, settings.aws_region
            )
        except GatehouseError as error:
            yield bad(name, error.message, error.remedy)
            continue
        if keys[0].signs:
            yield CheckResult(name, ok=True, detail=f"{url}, which isn't asked without a key")
            continue
        key = settings.model_keys[keys[0].variable]
        yield _asked(name, one, url.rstrip("/"), key, keys[0].headers[0], settings)


def _asked(
    name: str, model: NamedModel, url: str, key: str, header: str, settings: Settings
) -> CheckResult:
    base = f"{url}/models" if model.provider == "openai" else f"{url}/v1/models"
    headers = {header: key if header == "x-api-key" else f"Bearer {key}"}
    if model.provider != "openai":
        headers["anthropic-version"] = "2023-06-01"
    if model.provider == "aws":
        headers["anthropic-workspace-id"] = settings.anthropic_aws_workspace
    trusted = ssl.create_default_context()
    if settings.upstream_ca is not None:
        trusted.load_verify_locations(settings.upstream_ca)
    try:
        with httpx2.Client(headers=headers, verify=trusted, timeout=TIMEOUT_S) as client:
            status = client.get(f"{base}/{quote(model.name, safe='')}").status_code
            # A gateway may know the calls of a model and no list: it answers 404 to anything.
            has_list = status == 404 and client.get(base).status_code == 200
    except httpx2.HTTPError as error:
        return bad(name, f"{url} can't be reached ({type(error).__name__})", "look at its address")
    if status in (401, 403):
        return bad(name, f"{url} doesn't take the key ({status})", "give another key")
    if has_list:
        return bad(name, f"{url} has no model `{model.name}`", "name one that it has")
    is_there = status == 200
    return CheckResult(name, ok=True, detail=url if is_there else f"{url} doesn't list its models")
