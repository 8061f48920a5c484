"""Hosts of model APIs, as the settings name them."""

import pytest

from supervisor.errors import UserError
from supervisor.network.model_hosts import model_hosts_of
from supervisor.settings import from_environment


def test_hosts_of_models_are_those_that_are_named_and_that_of_the_base_address() -> None:
    settings = from_environment()._replace(
        anthropic_base_url="https://gate.example.org:8443/x", model_hosts=" A.test, *.B.test,"
    )
    assert model_hosts_of(settings) == ("gate.example.org", "a.test", "*.b.test")


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2-hunter2@gate.example.org/",
        "https://[::1",
        "//me@gate.test",
        # Without its scheme, and as programs read it that mend it.
        "me:hunter2-hunter2@gate.example.org",
        "https:/me:hunter2-hunter2@gate.example.org/",
    ],
)
def test_an_address_of_the_model_has_no_secret_in_it_that_the_sandbox_would_see(url: str) -> None:
    with pytest.raises(UserError, match="ANTHROPIC_BASE_URL") as caught:
        model_hosts_of(from_environment()._replace(anthropic_base_url=url))
    assert "hunter2" not in str(caught.value)
