"""Request to start a session, as the operator's API, the form and `run` send it."""

from pathlib import Path
from typing import Annotated

import msgspec

from supervisor.core.sessions import Kind, NetworkMode, OwnLimits
from supervisor.settings import CopyMode

_Name = Annotated[str, msgspec.Meta(max_length=64)]
_Value = Annotated[str, msgspec.Meta(max_length=4096)]


class StartSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None means the supervisor's setting, and `command` is empty for a review. `include_ignored`:
    what git ignores comes into the private copy, too; `copy`: how that is made; `network`: which of
    its programs can ask to get out; `keep_bodies`: the Network page shows bodies; `policy`: the
    whole path of the file that judges it; `limits`: its own bounds.

    Of the shell that it is started in: `search_path` is where its program is looked for, and
    `environment` what the sandbox takes over (`settings.TAKEN_OVER`). `expects` are settings
    that the person gave and that all sessions of a supervisor share, as
    `Settings.for_all_sessions` has them: where the supervisor has another, the session isn't
    started.
    """

    workspace: Path
    command: tuple[str, ...] = ()
    kind: Kind = "agent"
    base: str | None = None
    max_uptime_s: float | None = None
    budget: str | None = None
    include_ignored: bool | None = None
    tty: bool = False
    copy: CopyMode | None = None
    network: NetworkMode | None = None
    keep_bodies: bool | None = None
    policy: Path | None = None
    limits: OwnLimits = OwnLimits()
    review_model: _Value | None = None
    search_path: Annotated[str, msgspec.Meta(max_length=65536)] | None = None
    environment: dict[_Name, _Value] | None = None
    expects: dict[_Name, _Value] = {}
