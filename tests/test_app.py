"""What the parts are given of the settings."""

from supervisor.app import _model_hosts
from supervisor.settings import from_environment


def test_hosts_of_models_are_those_that_are_named_and_that_of_the_base_address() -> None:
    settings = from_environment()._replace(
        anthropic_base_url="https://gate.example.org:8443/x", model_hosts=" A.test, *.B.test,"
    )
    assert _model_hosts(settings) == ("gate.example.org", "a.test", "*.b.test")
