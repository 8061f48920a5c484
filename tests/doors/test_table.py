"""doors.yaml has every verb, route, tool and setting, and names tests that are there."""

import re
from pathlib import Path

import pytest
import yaml

from supervisor.settings import SETTINGS
from tests.conftest import ROOT

TABLE = yaml.safe_load((Path(__file__).parent / "doors.yaml").read_text("utf-8"))


def _named(page: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE))


def test_every_door_is_in_the_table() -> None:
    routes = _named("api.md", r"^\| `((?:GET|POST|PATCH|DELETE|WS) /[^`]*)` \|")
    agents = {one for one in routes if " /v1/" in one or one.endswith("/mcp")}
    assert TABLE["routes"].keys() == routes - agents
    assert TABLE["agent_routes"].keys() == agents
    assert TABLE["tools"].keys() == _named("api.md", r"^\| `(\w+)` \| `(?:GET|POST) /v1/")
    assert TABLE["verbs"].keys() == _named("cli.md", r"^\| `gatehouse ([a-z-]+)")
    assert TABLE["settings"].keys() == {one.name for one in SETTINGS}


@pytest.mark.parametrize("part", TABLE)
def test_what_the_table_names_is_there(part: str) -> None:
    assert not {one for one in TABLE[part].values() if not (ROOT / one).exists()}
