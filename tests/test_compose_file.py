"""compose.yaml as text: what each container may. That it holds is shown by `make test-compose`."""

import re
from typing import Any

import pytest
import yaml

from agent_image.runner import RUNNER
from supervisor.settings import ROOT, SETTINGS
from tests.fakes.containers import CONTROL, RIGHTS

FILE = (ROOT / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(FILE)
SERVICES = COMPOSE["services"]
INSIDE = ("agent", "tools")


@pytest.mark.parametrize("service", INSIDE)
def test_agent_and_commands_have_no_network_no_rights_and_bounds(service: str) -> None:
    of = SERVICES[service]
    assert of["network_mode"] == "none"
    assert "ports" not in of
    assert "environment" not in of, "no key and no token"
    assert of["pids_limit"] > 0
    assert of["mem_limit"]


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_read_only_and_has_no_rights_but_its_runners(service: str) -> None:
    of = SERVICES[service]
    assert of["read_only"] is True
    assert of["cap_drop"] == ["ALL"]
    assert of["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "devices", "pid", "ipc"} & set(of)
    if service in INSIDE:
        # To become a job's user, to give up rights for good, and to end processes.
        assert of["cap_add"] == list(RIGHTS)
    else:
        assert "cap_add" not in of
        assert of["user"].startswith("${GATEHOUSE_UID:-1000}")
    assert of["healthcheck"]["test"]
    assert not any("docker.sock" in volume for volume in of["volumes"])


def test_the_agent_sees_the_workspace_read_only_and_nothing_of_the_supervisors() -> None:
    for service in INSIDE:
        volumes = SERVICES[service]["volumes"]
        assert "${WORKSPACE:-.}:/workspace/lower:ro" in volumes
        assert "copy:/workspace/merged" in volumes
        assert not any(volume.startswith("data:") for volume in volumes)
    sockets = {
        service: [one for one in SERVICES[service]["volumes"] if one.startswith("control-")]
        for service in INSIDE
    }
    assert sockets == {
        "agent": [f"control-agent:{CONTROL}:ro"],
        "tools": [f"control-tools:{CONTROL}:ro"],
    }, "neither reaches the other's runner"


def test_the_folder_of_the_socket_is_the_runners_alone() -> None:
    image = (ROOT / "agent_image/Dockerfile").read_text()
    assert f"chown {RUNNER}:{RUNNER} /opt/gatehouse/private" in image
    assert "chmod 700 /opt/gatehouse/private" in image


def test_the_page_is_on_this_machine_alone() -> None:
    (port,) = SERVICES["supervisor"]["ports"]
    assert port.startswith("127.0.0.1:")


def test_what_it_reads_from_the_environment_is_known() -> None:
    names = set(re.findall(r"\$\{(\w+)", FILE))
    known = {setting.name for setting in SETTINGS}
    own = {"WORKSPACE", "AGENT", "ANTHROPIC_API_KEY_FILE"}
    own |= {"GATEHOUSE_UID", "GATEHOUSE_GID", "GATEHOUSE_USERNS"}
    assert names <= known | own
    assert set(SERVICES["supervisor"]["environment"]) <= known
