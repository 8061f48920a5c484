"""Every setting, in one frozen struct: the only module that reads the environment.

A field of `Settings` is a setting, with all that there is to say of it but its meaning: that is the
table of docs/settings.md, which a test holds equal to `SETTINGS` in names and defaults.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from supervisor.base.search_path import absolute_entries
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.numbers import whole_number
from supervisor.core.text.providers import Provider
from supervisor.core.text.utf8 import is_text
from supervisor.errors import UserError

type CopyMode = Literal["auto", "copy", "overlay"]
type NetworkMode = Literal["proxy", "transparent"]
type ExecRules = Literal["asked", "enforce"]
type ReviewRuntime = Literal["loop", "sdk", "cli"]
type Backend = Literal["bubblewrap", "compose"]

# Names that the sandbox takes over from the shell that a session is started in.
TAKEN_OVER = ("TERM", "COLORTERM", "TZ", "ANTHROPIC_MODEL")
# Secrets that no program but ours is given.
OURS_ALONE = ("GATEHOUSE_TELL", "GATEHOUSE_GITHUB_TOKEN", "GATEHOUSE_AWS_KEYS")
_KEYS_OF_MODELS = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_AWS_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
)
# Where compose.yaml mounts WORKSPACE in the supervisor's container.
WORKSPACE_IN_COMPOSE = Path("/workspace/host")
ROOT = Path(__file__).resolve().parent.parent
DEFAULT_POLICY = ROOT / "policy/default.yaml"


type Reader[Value] = Callable[[str, str], Value]


class Setting(NamedTuple):
    """A setting: its name in the environment, its default there, and what makes a value of a text
    and the name. `is_shared`: one supervisor has it for all its sessions."""

    name: str
    default: str
    read: Reader[Any]
    is_shared: bool = False


def _setting[Value](
    name: str, default: str, read: Reader[Value], *, is_shared: bool = False
) -> Value:
    """The default of a field, for `SETTINGS` and `from_environment` to find."""
    return cast("Value", Setting(name, default, read, is_shared))


def _one_of[Word: str](noun: str, *words: Word) -> Reader[Word]:
    def read(text: str, what: str) -> Word:
        for word in words:
            if word == text:
                return word
        first = ", ".join(words[:-1])
        raise UserError(f"{what}: `{text}` is no {noun}", f"choose {first} or {words[-1]}")

    return read


def _whole(least: int, most: int, unit: int = 1) -> Reader[int]:
    def read(text: str, name: str) -> int:
        number = whole_number(text)
        if number is None or not least <= number <= most:
            raise UserError(
                f"{name}: `{text}` is not a whole number from {least} to {most}",
                f"the default is {_DEFAULTS[name]}",
            )
        return number * unit

    return read


def _text(text: str, _name: str) -> str:
    return text


def _uptime(text: str, name: str) -> float:
    return parse_duration(text, name, may_be_bare=True)


def _asks(text: str, name: str) -> bool:
    return _one_of("answer at a limit", "ask", "deny")(text, name) == "ask"


def _yes(text: str, name: str) -> bool:
    if text not in ("yes", "no"):
        raise UserError(
            f"{name}: `{text}` is neither `yes` nor `no`", f"the default is {_DEFAULTS[name]}"
        )
    return text == "yes"


def _absolute(text: str, _name: str) -> Path:
    """A path that users give is relative to where they are, a default to the installation."""
    path = Path(text).expanduser()
    if path.is_absolute():
        return path
    return (ROOT if text in _DEFAULTS.values() else Path.cwd()) / path


def _plain_path(text: str, _name: str) -> Path | None:
    return Path(text) if text else None


def _file(text: str, _name: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _several(text: str, _name: str) -> tuple[str, ...]:
    return tuple(filter(None, (one.strip() for one in text.split(","))))


def host_ports_of(text: str, name: str) -> tuple[int, ...]:
    """Return ports of this machine. `UserError` where one is none."""
    return tuple(_whole(1, 65535)(one, name) for one in _several(text, name))


def _debounce(text: str, name: str) -> tuple[float, float]:
    quiet, slash, longest = text.partition("/")
    if not slash:
        raise UserError(f"{name}: `{text}` is not two times", "write 15s/120s")
    return parse_duration(quiet, name), parse_duration(longest, name)


# These three are read from options and forms, too.
copy_mode_of: Reader[CopyMode] = _one_of("way to make a copy", "auto", "copy", "overlay")
network_mode_of: Reader[NetworkMode] = _one_of("way out of a sandbox", "proxy", "transparent")
exec_rules_of: Reader[ExecRules] = _one_of("way to hold exec rules", "asked", "enforce")
review_runtime_of: Reader[ReviewRuntime] = _one_of("runtime", "loop", "sdk", "cli")


class Settings(NamedTuple):
    """What the supervisor runs with. Sizes in bytes, durations in seconds.

    A named tuple, since every verb of the CLI reads settings and msgspec takes three times as
    long to import as Python to start.
    """

    max_uptime_s: float = _setting("MAX_UPTIME", "4h", _uptime)
    max_cost: str = _setting("MAX_COST", "", _text)
    max_cost_per_day: str = _setting("MAX_COST_PER_DAY", "", _text, is_shared=True)
    max_cost_total: str = _setting("MAX_COST_TOTAL", "", _text, is_shared=True)
    ask_at_limit: bool = _setting("GATEHOUSE_AT_LIMIT", "ask", _asks, is_shared=True)
    prices_file: Path = _setting(
        "GATEHOUSE_PRICES", "policy/prices.yaml", _absolute, is_shared=True
    )
    # None where nobody said: it lies in `data_dir` then.
    credentials_file: Path | None = _setting(
        "GATEHOUSE_CREDENTIALS", "data/credentials.yaml", _absolute, is_shared=True
    )
    # None where nobody said, as above.
    mcp_servers: Path | None = _setting(
        "GATEHOUSE_MCP_SERVERS", "data/mcp-servers.yaml", _absolute, is_shared=True
    )
    data_dir: Path = _setting("GATEHOUSE_DATA", "data", _absolute)
    port: int = _setting("GATEHOUSE_PORT", "3700", _whole(0, 65535))
    binds: tuple[str, ...] = _setting("GATEHOUSE_BIND", "", _several)
    host_ports: tuple[int, ...] = _setting("GATEHOUSE_HOST_PORTS", "", host_ports_of)
    exec_rules: ExecRules = _setting("GATEHOUSE_EXEC_RULES", "asked", exec_rules_of)
    agent_image: str = _setting("GATEHOUSE_AGENT_IMAGE", "", _text, is_shared=True)
    backend: Backend = _setting(
        "GATEHOUSE_SANDBOX", "bubblewrap", _one_of("sandbox", "bubblewrap", "compose"),
        is_shared=True,
    )  # fmt: skip
    policy_file: Path = _setting("GATEHOUSE_POLICY", "policy/default.yaml", _absolute)
    share_caches: bool = _setting("GATEHOUSE_SHARE_CACHES", "no", _yes, is_shared=True)
    keep_bodies: bool = _setting("GATEHOUSE_KEEP_BODIES", "no", _yes)
    keep_left_s: float = _setting("GATEHOUSE_KEEP_LEFT", "7d", parse_duration, is_shared=True)
    kept_copies_bytes: int = _setting(
        "GATEHOUSE_KEPT_COPIES_GB", "20", _whole(0, 1 << 20, 10**9), is_shared=True
    )
    hold_s: float = _setting("GATEHOUSE_HOLD", "60s", parse_duration)
    include_ignored: bool = _setting("GATEHOUSE_INCLUDE_IGNORED", "no", _yes)
    memory_bytes: int = _setting("GATEHOUSE_MEMORY_MB", "4096", _whole(64, 1 << 30, 1 << 20))
    processes: int = _setting("GATEHOUSE_PROCESSES", "512", _whole(8, 1 << 20))
    cpu_s: float = _setting("GATEHOUSE_CPU", "4h", parse_duration)
    output_bytes: int = _setting("GATEHOUSE_OUTPUT_MB", "64", _whole(1, 1 << 20, 1 << 20))
    copy_mode: CopyMode = _setting("GATEHOUSE_COPY", "auto", copy_mode_of)
    network_mode: NetworkMode = _setting("GATEHOUSE_NETWORK", "proxy", network_mode_of)
    upstream_ca: Path | None = _setting("GATEHOUSE_UPSTREAM_CA", "", _plain_path, is_shared=True)
    review_model: str = _setting("GATEHOUSE_REVIEW_MODEL", "", _text)
    review_runtime: ReviewRuntime = _setting("GATEHOUSE_REVIEW_RUNTIME", "loop", review_runtime_of)
    # Keys are compared by their hashes: see `for_all_sessions`.
    anthropic_api_key: str = _setting("ANTHROPIC_API_KEY", "", _text)
    anthropic_base_url: str = _setting("ANTHROPIC_BASE_URL", "", _text, is_shared=True)
    claude_oauth_token: str = _setting("CLAUDE_CODE_OAUTH_TOKEN", "", _text)
    openai_api_key: str = _setting("OPENAI_API_KEY", "", _text)
    openai_base_url: str = _setting("OPENAI_BASE_URL", "", _text, is_shared=True)
    anthropic_aws_api_key: str = _setting("ANTHROPIC_AWS_API_KEY", "", _text)
    anthropic_aws_workspace: str = _setting("ANTHROPIC_AWS_WORKSPACE_ID", "", _text, is_shared=True)
    anthropic_aws_base_url: str = _setting("ANTHROPIC_AWS_BASE_URL", "", _text, is_shared=True)
    bedrock_api_key: str = _setting("AWS_BEARER_TOKEN_BEDROCK", "", _text)
    bedrock_base_url: str = _setting("ANTHROPIC_BEDROCK_MANTLE_BASE_URL", "", _text, is_shared=True)
    aws_keys: str = _setting("GATEHOUSE_AWS_KEYS", "", _text)
    aws_region: str = _setting("AWS_REGION", "", _text, is_shared=True)
    forge_port: int = _setting("GATEHOUSE_FORGE_PORT", "3702", _whole(0, 65535))
    github_app_id: str = _setting("GATEHOUSE_GITHUB_APP_ID", "", _text)
    github_key_file: Path | None = _setting("GATEHOUSE_GITHUB_KEY_FILE", "", _file)
    github_secret_file: Path | None = _setting("GATEHOUSE_GITHUB_SECRET_FILE", "", _file)
    # A workflow's, for `gatehouse action`; no other program is given it.
    github_token: str = _setting("GATEHOUSE_GITHUB_TOKEN", "", _text)
    github_api: str = _setting("GATEHOUSE_GITHUB_API", "https://api.github.com", _text)
    bitbucket_api: str = _setting("GATEHOUSE_BITBUCKET_API", "https://api.bitbucket.org/2.0", _text)
    bitbucket_repos: tuple[str, ...] = _setting("GATEHOUSE_BITBUCKET_REPOS", "", _several)
    bitbucket_token_file: Path | None = _setting("GATEHOUSE_BITBUCKET_TOKEN_FILE", "", _file)
    bitbucket_secret_file: Path | None = _setting("GATEHOUSE_BITBUCKET_SECRET_FILE", "", _file)
    # After the last push, and after the first at most.
    review_debounce_s: tuple[float, float] = _setting(
        "GATEHOUSE_REVIEW_DEBOUNCE", "15s/120s", _debounce
    )
    review_poll_s: float = _setting("GATEHOUSE_REVIEW_POLL", "5m", parse_duration)
    check: Literal["neutral", "action_required"] = _setting(
        "GATEHOUSE_CHECK", "neutral", _one_of("kind of check", "neutral", "action_required")
    )
    review_concurrency: int = _setting("GATEHOUSE_REVIEW_CONCURRENCY", "2", _whole(1, 64))
    review_cost: str = _setting("GATEHOUSE_REVIEW_COST", "2usd", _text)
    pr_cost: str = _setting("GATEHOUSE_PR_COST", "10usd", _text)
    repo_day_cost: str = _setting("GATEHOUSE_REPO_DAY_COST", "5usd", _text)
    owner_month_cost: str = _setting("GATEHOUSE_OWNER_MONTH_COST", "", _text)
    all_day_cost: str = _setting("GATEHOUSE_ALL_DAY_COST", "", _text)
    job_pulls: int = _setting("GATEHOUSE_JOB_PULLS", "3", _whole(1, 100))
    job_author: str = _setting("GATEHOUSE_JOB_AUTHOR", "", _text)
    job_sign_off: bool = _setting("GATEHOUSE_JOB_SIGN_OFF", "no", _yes)
    model_hosts: str = _setting("GATEHOUSE_MODEL_HOSTS", "", _text, is_shared=True)
    # Compared by its hash, as keys are: it has addresses that are secrets.
    tell: str = _setting("GATEHOUSE_TELL", "", _text)
    tell_after_s: float = _setting("GATEHOUSE_TELL_AFTER", "20s", parse_duration, is_shared=True)
    # Where compose.yaml mounts what the containers share: their sockets, and the private copy.
    control_dir: Path = Path("/run/gatehouse/control")
    shared_copy: Path = Path("/workspace/merged")
    # Folders that sessions read besides, each at its own place: what a workflow checked out.
    checkouts: tuple[Path, ...] = ()
    # The names of those that the environment or the command line said: the others are defaults.
    given: frozenset[str] = frozenset()

    @property
    def sessions_dir(self) -> Path:
        return self.data_dir / "sessions"

    @property
    def github_app_dir(self) -> Path:
        """Return the folder where `gatehouse app create` keeps its App."""
        return self.data_dir / "github-app"

    @property
    def bitbucket_dir(self) -> Path:
        """Return the folder where `gatehouse bitbucket setup` keeps what it was told."""
        return self.data_dir / "bitbucket"

    @property
    def clones_dir(self) -> Path:
        """Clones for reviews."""
        return self._cache("clones")

    @property
    def demos_dir(self) -> Path:
        """Projects of demos that were started on the page."""
        return self._cache("demos")

    def _cache(self, kind: str) -> Path:
        """A cache of this data folder, and no part of it: no sandbox shows the data folder."""
        return cache_dir() / kind / str(self.data_dir.absolute()).replace("/", "%")[-200:]

    @property
    def saved_rules_file(self) -> Path:
        """The rules saved from inbox and CLI, a policy file of its own."""
        return self.data_dir / "policy.yaml"

    @property
    def bindings_file(self) -> Path:
        """What names the secrets, and says where each may go."""
        return self.credentials_file or self.data_dir / "credentials.yaml"

    @property
    def mcp_servers_file(self) -> Path:
        """What names the MCP servers that agents may use."""
        return self.mcp_servers or self.data_dir / "mcp-servers.yaml"

    @property
    def jobs_file(self) -> Path:
        """The named maintenance jobs, and when each is due."""
        return self.data_dir / "jobs.yaml"

    @property
    def secrets_dir(self) -> Path:
        """The values of named secrets, a file for each."""
        return self.data_dir / "secrets"

    @property
    def files_it_is_told_by(self) -> tuple[Path, ...]:
        """The person's own files that say what is allowed, what it costs, to whom secrets go
        (and by which commands they are read) and who vouches for hosts."""
        named = (
            *(self.policy_file, self.prices_file, self.credentials_file, self.upstream_ca),
            self.mcp_servers,
        )
        return tuple(one for one in named if one is not None)

    @property
    def database(self) -> Path:
        return self.data_dir / "gatehouse.db"

    @property
    def audit_log(self) -> Path:
        return self.data_dir / "audit.log"

    @property
    def model_keys(self) -> dict[str, str]:
        """The keys of models, by the variable that they came in; empty where there is none."""
        # For a server of one's own people set any word.
        is_key = len(self.openai_api_key) >= 8
        return {
            "ANTHROPIC_API_KEY": self.anthropic_api_key,
            "CLAUDE_CODE_OAUTH_TOKEN": self.claude_oauth_token,
            "OPENAI_API_KEY": self.openai_api_key if is_key else "",
            "ANTHROPIC_AWS_API_KEY": self.anthropic_aws_api_key,
            "AWS_BEARER_TOKEN_BEDROCK": self.bedrock_api_key,
            "GATEHOUSE_AWS_KEYS": self.aws_keys,
        }

    @property
    def model_urls(self) -> dict[Provider, str]:
        """Other addresses of models' APIs than the providers' own."""
        urls: dict[Provider, str] = {
            "anthropic": self.anthropic_base_url,
            "openai": self.openai_base_url,
            "aws": self.anthropic_aws_base_url,
            "bedrock": self.bedrock_base_url,
        }
        return {provider: url for provider, url in urls.items() if url}

    def for_all_sessions(self) -> dict[str, str]:
        """The settings that one supervisor has for all its sessions, by name, to be compared
        with another's. Of a key its hash."""
        import hashlib

        keys = {
            name: hashlib.sha256(key.encode()).hexdigest() if key else ""
            for name, key in (self.model_keys | {"GATEHOUSE_TELL": self.tell}).items()
        }
        own = self._replace(
            credentials_file=self.bindings_file,
            mcp_servers=self.mcp_servers_file,
            upstream_ca=self.upstream_ca.absolute() if self.upstream_ca else None,
        )
        return keys | {
            one.name: str(getattr(own, field)) for field, one in _FIELDS.items() if one.is_shared
        }


_FIELDS: dict[str, Setting] = {
    field: one for field, one in Settings._field_defaults.items() if isinstance(one, Setting)
}
SETTINGS = tuple(_FIELDS.values())
_DEFAULTS = {one.name: one.default for one in SETTINGS}


def _also(name: str) -> str:
    """What another name says where the setting's own isn't set. That name is others', too: what is
    no value of ours is theirs."""
    text = os.environ.get("RUNTIME_MODE", "") if name == "GATEHOUSE_REVIEW_RUNTIME" else ""
    return text if text in ("loop", "sdk", "cli") else ""


def from_environment() -> Settings:
    """The settings as the environment gives them; `UserError` names the variable that can't be
    used."""
    given = {name: text for name in _DEFAULTS if (text := os.environ.get(name) or _also(name))}
    for name, text in given.items():
        if not is_text(text):
            raise UserError(f"{name}: `{text}` is not UTF-8 text", "give it another name or text")
    values = {
        field: one.read(given.get(one.name, one.default), one.name)
        for field, one in _FIELDS.items()
    }
    if "GATEHOUSE_CREDENTIALS" not in given:
        values["credentials_file"] = None
    if "GATEHOUSE_MCP_SERVERS" not in given:
        values["mcp_servers"] = None
    return Settings(**values, given=frozenset(given))


def port_number(text: str, what: str) -> int:
    """A port to listen on, as `what` says it."""
    if (number := whole_number(text)) is None or number > 65535:
        raise UserError(
            f"{what}: `{text}` is not a port", "give a number from 0 (any free one) to 65535"
        )
    return number


def inherited(*names: str) -> dict[str, str]:
    """Those of the named variables that are set: for processes of ours that need, say, PATH."""
    return {name: os.environ[name] for name in names if name in os.environ}


def of_the_caller() -> dict[str, str]:
    """What the agent's sandbox takes over of a person's environment."""
    return inherited(*TAKEN_OVER)


def everything() -> dict[str, str]:
    """The environment for a person's own commands (`cmd:` of a credential) alone: all of it but our
    own secrets."""
    return {name: value for name, value in os.environ.items() if name not in OURS_ALONE}


def for_own_git() -> dict[str, str]:
    """The environment of the person's own git: no secret of ours, nor what points git elsewhere."""
    kept = ("GIT_SSH", "GIT_ASKPASS", "GIT_SSL", "GIT_CONFIG", "GIT_HTTP", "GIT_PROXY")
    env = _without_keys(dict(os.environ))
    return {one: env[one] for one in env if not one.startswith("GIT_") or one.startswith(kept)}


def for_package_managers() -> dict[str, str]:
    """The environment of the person's own package managers; rustup installs nothing for them."""
    return _without_keys(dict(os.environ)) | {"RUSTUP_AUTO_INSTALL": "0"}


def _without_keys(env: dict[str, str]) -> dict[str, str]:
    keys = (*_KEYS_OF_MODELS, *OURS_ALONE)
    return {name: value for name, value in env.items() if name not in keys}


def cache_dir() -> Path:
    """Where what can be had again is kept, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gatehouse"


def for_our_python() -> dict[str, str]:
    """What a Python of ours needs to start: one that was moved finds its library so."""
    return inherited("LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE")


def search_path() -> str:
    """Where the person's shell looks for programs, whatever folder it is in."""
    return absolute_entries(os.environ.get("PATH", os.defpath))


def keep_absolute_path() -> None:
    """Have libraries that start programs (a browser) look in absolute folders alone."""
    os.environ["PATH"] = search_path()
