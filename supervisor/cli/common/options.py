"""The meaning of command-line words for every verb: settings, the running supervisor, ids."""

from __future__ import annotations

from supervisor.errors import UserError

# A constant that type checkers know: see `verbs`.
# Of an id: all of it, and the least that is looked for. What was answered meanwhile counts as well,
# so that no slip hits another request.
WHOLE_CHARS, LEAST_CHARS = 32, 4
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Any

    from supervisor.cli.common.client import Client
    from supervisor.settings import Settings


def settings_of(options: argparse.Namespace, *, policy: bool = True) -> Settings:
    """Return the environment's settings, overridden by the command line. Without `policy`,
    `--policy` is ignored: there it means another file."""
    from pathlib import Path

    from supervisor.core.text.duration import parse_duration
    from supervisor.settings import (
        copy_mode_of,
        exec_rules_of,
        from_environment,
        host_ports_of,
        network_mode_of,
        port_number,
    )

    settings, said = from_environment(), dict[str, dict[str, object]]()
    for option, name, field, read in (
        ("copy", "GATEHOUSE_COPY", "copy_mode", copy_mode_of),
        ("network", "GATEHOUSE_NETWORK", "network_mode", network_mode_of),
        ("exec_rules", "GATEHOUSE_EXEC_RULES", "exec_rules", exec_rules_of),
        ("host_port", "GATEHOUSE_HOST_PORTS", "host_ports", host_ports_of),
    ):
        if given := getattr(options, option, None):
            text = given if isinstance(given, str) else ",".join(given)
            said[name] = {field: read(text, f"--{option.replace('_', '-')}")}
    if getattr(options, "bind", None):
        said["GATEHOUSE_BIND"] = {"binds": tuple(options.bind)}
    if options.data_dir:
        said["GATEHOUSE_DATA"] = {"data_dir": Path(options.data_dir).expanduser().absolute()}
    if policy and getattr(options, "policy", None):
        said["GATEHOUSE_POLICY"] = {"policy_file": policy_file(options.policy)}
    if getattr(options, "max_uptime", None):
        said["MAX_UPTIME"] = {"max_uptime_s": parse_duration(options.max_uptime, "--max-uptime")}
    if getattr(options, "budget", None):
        said["MAX_COST"] = {"max_cost": ",".join(options.budget)}
    if getattr(options, "include_ignored", False):
        said["GATEHOUSE_INCLUDE_IGNORED"] = {"include_ignored": True}
    if getattr(options, "keep_bodies", False):
        said["GATEHOUSE_KEEP_BODIES"] = {"keep_bodies": True}
    if getattr(options, "port", None):
        said["GATEHOUSE_PORT"] = {"port": port_number(options.port, "--port")}
    values: dict[str, Any] = {name: value for one in said.values() for name, value in one.items()}
    return settings._replace(**values, given=settings.given | said.keys())


def policy_file(text: str) -> Path:
    """Return the policy that a path means, or the name of a shipped example: `strict`."""
    from pathlib import Path

    from supervisor.settings import ROOT

    given = Path(text).expanduser()
    shipped = ROOT / f"policy/examples/{text}.yaml"
    is_name = "/" not in text and not given.exists() and shipped.is_file()
    return shipped if is_name else given.absolute()


def client_of(options: argparse.Namespace) -> Client:
    from supervisor.cli.common.client import must_find

    return must_find(settings_of(options).data_dir)


def whole_id(client: Client, text: str, of: str) -> str:
    """Return the one id of a request, session or rule that begins so. What nothing begins with is
    returned as it is. `UserError` where it isn't one alone, or could be another's by chance."""
    start = id_of(text)
    if len(start) == WHOLE_CHARS:
        return start
    if len(start) < LEAST_CHARS:
        raise UserError(f"`{text}` is too short for an id", f"give {LEAST_CHARS} characters of it")
    from supervisor.core.text.id_starts import only_of

    known = client.get("/api/ids", start=start)
    return only_of(text, [one["id"] for one in known if one["of"] == of])


def id_of(text: str) -> str:
    """Return an id, or its start, as it may stand in a URL's path."""
    if not text.replace("-", "").replace("_", "").isalnum() or not text.isascii():
        raise UserError(
            f"`{text}` is not an id",
            "copy it from `gatehouse approvals`, `sessions`, `rules list` or `reviews list`",
        )
    return text
