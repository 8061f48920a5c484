"""Settings of the review agent: the only reader of its environment and arguments.

The token and the key are removed from the environment here, so that no later program inherits them.
The process is made unreadable to its siblings (`/proc/PID/environ`, ptrace), because a command of
the reviewed code may run as the same user.
"""

import argparse
import ctypes
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec

from agent_image.reviewer.orders import Order, read_order
from agent_image.reviewer.providers import Asked, read_models

WORKSPACE = "/workspace/merged"
# Changing files takes more turns than reading.
REVIEW_TURNS, MAINTENANCE_TURNS = 20, 60
REAL_WAIT_S, RECORDED_WAIT_S = 1800.0, 300.0
RUNTIMES = ("loop", "sdk", "cli")
_PR_SET_DUMPABLE = 4  # linux/prctl.h


class UsageError(Exception):
    """The agent was started wrongly. Its text is one line that ends in a remedy."""


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one review. Tokens are the model's own counts."""

    turns: int = REVIEW_TURNS
    reply_tokens: int = 16_000
    total_tokens: int = 2_000_000
    tool_output_bytes: int = 30_000
    diff_bytes: int = 50_000
    first_diff_bytes: int = 100_000
    calls_per_turn: int = 16
    # How long to wait for an answer before the review continues without it. The request itself
    # stays in the inbox.
    answer_wait_s: float = REAL_WAIT_S
    # How long to retry an unreachable supervisor.
    outage_s: float = 300.0
    retries: int = 5
    # How long Claude Code may take for one turn of its own, where it conducts the review.
    turn_s: float = 900.0


class Updating(msgspec.Struct, frozen=True):
    """Which dependencies are updated: of which managers, and which packages; all where none is
    named. Releases younger than `min_age_s` wait."""

    managers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    min_age_s: float = 0.0


class Settings(msgspec.Struct, frozen=True):
    """`base` is a revision, `auto` or `none`. `models` are asked, the first first; the recorded one
    is where there are none. With a `task`
    it maintains instead of reviewing; `scope` are the globs of what it may change, `categories` the
    kinds of tools that it has (all without any). `is_pull`: the change is a pull request's, and
    `reads_only`: it isn't run either; `order`: what else is known of it. `change`: the file with
    what is reviewed, of a reader in quarantine, which sees no workspace. `also`: further
    folders that are read, by their whole paths. `updates`: what it maintains is
    dependencies, and `tests` the command that says whether they fit. `runtime`: what conducts it,
    `loop`, `sdk` or `cli`; `claude` is the program of the last."""

    base: str
    workspace: Path
    output: Path | None
    gatehouse_url: str
    gatehouse_token: str
    models: tuple[Asked, ...]
    limits: Limits
    task: str = ""
    scope: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    is_pull: bool = False
    reads_only: bool = False
    change: Path | None = None
    order: Order = Order()
    also: tuple[Path, ...] = ()
    updates: Updating | None = None
    tests: str = ""
    runtime: str = "loop"
    claude: str = ""


def parse(argv: list[str], environ: MutableMapping[str, str]) -> Settings:
    """Return the settings from the arguments and the environment, and remove the secrets from
    `environ`.

    Raise `UsageError` for wrong or missing values; for unknown options argparse raises SystemExit.
    """
    options = _parser().parse_args(argv)
    token = environ.pop("GATEHOUSE_TOKEN", "")
    try:
        models = read_models(environ)
    except ValueError as error:
        raise UsageError(f"{error}; set it where Gatehouse runs") from error
    url = environ.get("GATEHOUSE_URL", "")
    if not url or not token:
        raise UsageError(
            "GATEHOUSE_URL and GATEHOUSE_TOKEN are not set; start the review with `gatehouse review"
            " --workspace DIR`"
        )
    if options.base.startswith("-"):
        raise UsageError(
            f"the base `{options.base}` is not a revision; give a branch, tag or commit, or `none`"
        )
    models = () if _wants_recorded(environ, models) else models
    task = _task(options.task) if options.task else ""
    return Settings(
        base=options.base,
        workspace=_workspace(options.workspace),
        output=Path(options.output) if options.output else None,
        gatehouse_url=url,
        gatehouse_token=token,
        models=models,
        limits=Limits(
            answer_wait_s=options.answer_wait or (REAL_WAIT_S if models else RECORDED_WAIT_S),
            turns=MAINTENANCE_TURNS if task else REVIEW_TURNS,
        ),
        task=task,
        scope=tuple(options.scope),
        categories=tuple(options.tool),
        is_pull=options.pull,
        reads_only=options.read_only,
        change=Path(options.change) if options.change else None,
        order=_order(options.order) if options.order else Order(),
        also=tuple(map(Path, options.also)),
        updates=(
            Updating(tuple(options.manager), tuple(options.package), options.min_age)
            if options.updates
            else None
        ),
        tests=options.tests,
        runtime=options.runtime,
        claude=options.claude,
    )


def hide_from_siblings() -> None:
    """Make this process's memory and environment unreadable to other processes of the same user
    (Linux; elsewhere do nothing)."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return


def tool_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of git and ripgrep: a path and a locale, nothing of the session."""
    return {
        "PATH": environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        "LC_ALL": "C.UTF-8",
        "HOME": "/nonexistent",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reviewer", description="Review the workspace's changes.", allow_abbrev=False
    )
    parser.add_argument(
        "--base", default="auto", help="revision to compare with; `auto` finds one, `none` has none"
    )
    parser.add_argument("--workspace", default=WORKSPACE, help="the private copy to review")
    parser.add_argument("--output", default="", help="also write the review as JSON to this file")
    parser.add_argument(
        "--pull", action="store_true", help="the change is a pull request's: nothing is changed"
    )
    parser.add_argument("--read-only", action="store_true", help="no command is run either")
    parser.add_argument(
        "--change", default="", help="in quarantine: the file with the change, from the supervisor"
    )
    parser.add_argument("--order", default="", help="with --pull: a file, what else is known of it")
    parser.add_argument(
        "--also", action="append", default=[], help="a further folder to read, by its whole path"
    )
    parser.add_argument("--task", default="", help="maintain: a file that says what to do")
    parser.add_argument(
        "--scope", action="append", default=[], help="with --task: a glob of what it may change"
    )
    parser.add_argument(
        "--tool", action="append", default=[], help="with --task: a category of tools that it has"
    )
    parser.add_argument(
        "--updates", action="store_true", help="with --task: it is updates of dependencies"
    )
    parser.add_argument("--manager", action="append", default=[], help="of this manager alone")
    parser.add_argument("--package", action="append", default=[], help="this package alone")
    parser.add_argument("--min-age", type=float, default=0.0, help="seconds that a release waits")
    parser.add_argument("--tests", default="", help="the command that says whether updates fit")
    parser.add_argument("--runtime", default="loop", choices=RUNTIMES, help="what conducts it")
    parser.add_argument("--claude", default="claude", help="with the runtime cli: Claude Code")
    parser.add_argument(
        "--answer-wait",
        type=_seconds,
        help="seconds to wait for an answer; a recorded model waits shorter",
    )
    return parser


def _seconds(words: str) -> float:
    value = float(words)
    if not 0 < value <= 7 * 86_400:
        raise ValueError
    return value


def _wants_recorded(environ: Mapping[str, str], models: tuple[Asked, ...]) -> bool:
    choice = environ.get("GATEHOUSE_MODEL", "")
    if choice not in ("", "recorded", "anthropic"):
        raise UsageError(f"GATEHOUSE_MODEL is `{choice}`; it must be `recorded` or `anthropic`")
    if choice == "anthropic" and not models:
        raise UsageError(
            "GATEHOUSE_MODEL is `anthropic` and ANTHROPIC_API_KEY is not set; set it, or use"
            " `recorded`"
        )
    return choice == "recorded" or not models


def _task(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the task `{name}` can't be read: {error}; give a text file") from error


def _order(name: str) -> Order:
    try:
        return read_order(Path(name))
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"the order `{name}` can't be read: {error}; start it again") from error


def _workspace(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        raise UsageError(f"the workspace `{name}` is not a folder; give one with --workspace")
    return path.resolve()
