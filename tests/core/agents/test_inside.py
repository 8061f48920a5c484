"""Ports of a sandbox."""

from supervisor.core.agents.inside import AGENT_PORT, PROGRAMS_PORT, can_listen_at


def test_a_server_of_this_machine_takes_no_port_of_the_sandbox_s_own() -> None:
    assert all(map(can_listen_at, (1024, 5432, 8080, 65535)))
    assert not any(map(can_listen_at, (22, 80, 1023, 3128, 3129, AGENT_PORT, PROGRAMS_PORT)))
