"""Every setting, in one frozen struct: the only module that reads the environment.

`SETTINGS` is the table of docs/settings.md (a test compares them): name in the environment,
default, what it means.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

from supervisor.base.search_path import absolute_entries
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.numbers import whole_number
from supervisor.core.text.utf8 import is_text
from supervisor.errors import UserError

type CopyMode = Literal["auto", "copy", "overlay"]
type NetworkMode = Literal["proxy", "transparent"]
type ExecRules = Literal["asked", "enforce"]
type Backend = Literal["bubblewrap", "compose"]

# Names that the sandbox takes over from the shell that a session is started in.
TAKEN_OVER = ("TERM", "COLORTERM", "TZ", "ANTHROPIC_MODEL")
# Where compose.yaml mounts WORKSPACE in the supervisor's container.
WORKSPACE_IN_COMPOSE = Path("/workspace/host")
ROOT = Path(__file__).resolve().parent.parent
DEFAULT_POLICY = ROOT / "policy/default.yaml"


class Setting(NamedTuple):
    """One row of the table of settings."""

    name: str
    default: str
    help: str


SETTINGS = (
    Setting(
        "MAX_UPTIME",
        "4h",
        "how long a session may last: 7d, 4h, 30m, 1h30m, 2h15m30s, 500ms, or bare"
        " milliseconds from 1000 on",
    ),
    Setting(
        "MAX_COST",
        "",
        "how much a session may use: dollars and tokens of models (5usd, 2M-tokens), requests and"
        " bytes out of all its traffic (1000-requests, 50MB), several with commas; no limit where"
        " empty",
    ),
    Setting("MAX_COST_PER_DAY", "", "the same for all sessions together on one day"),
    Setting("MAX_COST_TOTAL", "", "the same for all sessions that are in the database"),
    Setting(
        "GATEHOUSE_AT_LIMIT",
        "ask",
        "what happens to a call or request that would pass such a limit: ask (it is held, and you"
        " may add to the budget) or deny",
    ),
    Setting("GATEHOUSE_PRICES", "policy/prices.yaml", "what model calls cost"),
    Setting(
        "GATEHOUSE_CREDENTIALS",
        "data/credentials.yaml",
        "which named secrets the agent may use without holding them, and where; none where there is"
        " no such file",
    ),
    Setting(
        "GATEHOUSE_DATA",
        "data",
        "the folder for the database, the audit log, saved rules, the CA and sessions",
    ),
    Setting("GATEHOUSE_PORT", "3700", "the port of the operator's page, on 127.0.0.1"),
    Setting(
        "GATEHOUSE_BIND",
        "",
        "tools of your home that sandboxes show read-only: nvm, pyenv, cargo, a folder of programs,"
        " or gitconfig for name and e-mail; several with commas",
    ),
    Setting(
        "GATEHOUSE_EXEC_RULES",
        "asked",
        "which commands the deny and ask rules for exec are about: asked (what agents and their"
        " tools ask for), or enforce (every program that starts in a sandbox, too)",
    ),
    Setting(
        "GATEHOUSE_AGENT_IMAGE",
        "",
        "which agent the containers' image has: claude, codex or opencode (set by compose.yaml)",
    ),
    Setting(
        "GATEHOUSE_SANDBOX",
        "bubblewrap",
        "what agents and commands run in: bubblewrap, or compose (set by compose.yaml alone)",
    ),
    Setting("GATEHOUSE_POLICY", "policy/default.yaml", "the policy that sessions start with"),
    Setting(
        "GATEHOUSE_KEEP_BODIES",
        "no",
        "yes: of sessions that don't say, the Network page shows what the bodies of decrypted"
        " requests and responses begin with (64 kB of each, 16 MB in all, in memory only, secrets"
        " redacted)",
    ),
    Setting(
        "GATEHOUSE_KEEP_LEFT",
        "7d",
        "how long what a session left unanswered (changes, pushes, installs) stays answerable after"
        " its end",
    ),
    Setting(
        "GATEHOUSE_KEPT_COPIES_GB",
        "20",
        "how much disk the private copies of ended sessions may use, in GB: above it the oldest go,"
        " but none that something is left to answer of",
    ),
    Setting("GATEHOUSE_HOLD", "60s", "how long an asked connection is held open for an answer"),
    Setting("GATEHOUSE_INCLUDE_IGNORED", "no", "yes: private copies have what git ignores, too"),
    Setting(
        "GATEHOUSE_MEMORY_MB",
        "4096",
        "the most memory that the processes of one sandbox may use together, in MB",
    ),
    Setting(
        "GATEHOUSE_PROCESSES",
        "512",
        "the most processes and threads that one sandbox may have at once",
    ),
    Setting(
        "GATEHOUSE_CPU",
        "4h",
        "the most processor time that the processes of one sandbox may use together",
    ),
    Setting("GATEHOUSE_OUTPUT_MB", "64", "the most output of a session that is kept, in MB"),
    Setting(
        "GATEHOUSE_COPY",
        "auto",
        "how the private copy is made: copy, overlay (at once, whatever the size), or auto: overlay"
        " from 5,000 files on",
    ),
    Setting(
        "GATEHOUSE_NETWORK",
        "proxy",
        "how programs in a sandbox get out: proxy (those that go by HTTP_PROXY), or transparent"
        " (every TCP connection is judged)",
    ),
    Setting("GATEHOUSE_UPSTREAM_CA", "", "a PEM file of authorities that egress trusts, too"),
    Setting("GATEHOUSE_REVIEW_MODEL", "", "the review agent's model; its own default where empty"),
    Setting(
        "ANTHROPIC_API_KEY",
        "",
        "the key of the review agent's model; it stays with egress, the sandbox has a placeholder",
    ),
    Setting("ANTHROPIC_BASE_URL", "", "another address of the Messages API"),
    Setting(
        "CLAUDE_CODE_OAUTH_TOKEN",
        "",
        "a long-lived token of Claude Code's (`claude setup-token`), in place of a key; it stays"
        " with egress, too",
    ),
    Setting("OPENAI_API_KEY", "", "the key of Codex's and OpenCode's models; it stays with egress"),
    Setting("OPENAI_BASE_URL", "", "another address of the Responses API, with its `/v1`"),
    Setting("GATEHOUSE_FORGE_PORT", "3702", "the port where webhooks of forges come in"),
    Setting("GATEHOUSE_GITHUB_APP_ID", "", "the id of the App that reviews (docs/reviews.md)"),
    Setting("GATEHOUSE_GITHUB_KEY_FILE", "", "the file with the App's private key, PEM"),
    Setting("GATEHOUSE_GITHUB_SECRET_FILE", "", "the file with the secret of the App's webhook"),
    Setting(
        "GATEHOUSE_GITHUB_API",
        "https://api.github.com",
        "the address of GitHub's REST API; of an Enterprise Server, `https://HOST/api/v3`",
    ),
    Setting(
        "GATEHOUSE_REVIEW_DEBOUNCE",
        "15s/120s",
        "how long a review waits after the last push, and after the first at most",
    ),
    Setting("GATEHOUSE_REVIEW_POLL", "5m", "how often the forge is asked for what no webhook told"),
    Setting("GATEHOUSE_CHECK", "neutral", "a check without yes or no: neutral or action_required"),
    Setting("GATEHOUSE_REVIEW_CONCURRENCY", "2", "how many reviews run at once"),
    Setting("GATEHOUSE_REVIEW_COST", "2usd", "how much one review may use, as MAX_COST"),
    Setting("GATEHOUSE_PR_COST", "10usd", "how many dollars all reviews of a pull request may use"),
    Setting("GATEHOUSE_REPO_DAY_COST", "5usd", "those of a repository on one day, UTC"),
    Setting("GATEHOUSE_OWNER_MONTH_COST", "", "those of an owner's repositories in a month, UTC"),
    Setting("GATEHOUSE_ALL_DAY_COST", "", "all reviews together on one day, UTC"),
    Setting(
        "GATEHOUSE_MODEL_HOSTS",
        "",
        "other hosts that serve models, so that their calls are metered: a gateway's,"
        " `*.openai.azure.com`; several with commas",
    ),
)
_CHECKS: tuple[Literal["neutral", "action_required"], ...] = ("neutral", "action_required")
_DEFAULTS = {setting.name: setting.default for setting in SETTINGS}


class Settings(NamedTuple):
    """What the supervisor runs with. Sizes in bytes, durations in seconds.

    A named tuple, since every verb of the CLI reads settings and msgspec takes three times as
    long to import as Python to start.
    """

    data_dir: Path
    port: int
    policy_file: Path
    max_uptime_s: float
    hold_s: float
    keep_left_s: float
    kept_copies_bytes: int
    include_ignored: bool
    memory_bytes: int
    processes: int
    cpu_s: float
    output_bytes: int
    copy_mode: CopyMode
    upstream_ca: Path | None
    review_model: str
    anthropic_api_key: str
    anthropic_base_url: str
    claude_oauth_token: str = ""
    openai_api_key: str = ""
    openai_base_url: str = ""
    model_hosts: str = ""
    max_cost: str = ""
    max_cost_per_day: str = ""
    max_cost_total: str = ""
    ask_at_limit: bool = True
    prices_file: Path = ROOT / "policy/prices.yaml"
    credentials_file: Path | None = None
    keep_bodies: bool = False
    network_mode: NetworkMode = "proxy"
    binds: tuple[str, ...] = ()
    exec_rules: ExecRules = "asked"
    backend: Backend = "bubblewrap"
    agent_image: str = ""
    # Where compose.yaml mounts what the containers share: their sockets, and the private copy.
    control_dir: Path = Path("/run/gatehouse/control")
    shared_copy: Path = Path("/workspace/merged")
    forge_port: int = 3702
    github_app_id: str = ""
    github_key_file: Path | None = None
    github_secret_file: Path | None = None
    github_api: str = "https://api.github.com"
    # After the last push, and after the first at most.
    review_debounce_s: tuple[float, float] = (15.0, 120.0)
    review_poll_s: float = 300.0
    check: Literal["neutral", "action_required"] = "neutral"
    review_concurrency: int = 2
    review_cost: str = "2usd"
    pr_cost: str = "10usd"
    repo_day_cost: str = "5usd"
    owner_month_cost: str = ""
    all_day_cost: str = ""
    # The names of those that the environment or the command line said: the others are defaults.
    given: frozenset[str] = frozenset()

    @property
    def sessions_dir(self) -> Path:
        return self.data_dir / "sessions"

    @property
    def github_app_dir(self) -> Path:
        """What `gatehouse app create` keeps of the App that it made."""
        return self.data_dir / "github-app"

    @property
    def clones_dir(self) -> Path:
        """Clones for reviews: a cache, and no part of the data folder, which no sandbox shows."""
        name = str(self.data_dir.absolute()).replace("/", "%")[-200:]
        return cache_dir() / "clones" / name

    @property
    def saved_rules_file(self) -> Path:
        """The rules saved from inbox and CLI, a policy file of its own."""
        return self.data_dir / "policy.yaml"

    @property
    def bindings_file(self) -> Path:
        """What names the secrets, and says where each may go."""
        return self.credentials_file or self.data_dir / "credentials.yaml"

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
        named = (self.policy_file, self.prices_file, self.credentials_file, self.upstream_ca)
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
        }

    def for_all_sessions(self) -> dict[str, str]:
        """The settings that one supervisor has for all its sessions, by name, to be compared
        with another's. Of a key its hash."""
        import hashlib

        keys = {
            name: hashlib.sha256(key.encode()).hexdigest() if key else ""
            for name, key in self.model_keys.items()
        }
        return keys | {
            "MAX_COST_PER_DAY": self.max_cost_per_day,
            "MAX_COST_TOTAL": self.max_cost_total,
            "GATEHOUSE_AT_LIMIT": "ask" if self.ask_at_limit else "deny",
            "GATEHOUSE_PRICES": str(self.prices_file),
            "GATEHOUSE_CREDENTIALS": str(
                self.credentials_file or self.data_dir / "credentials.yaml"
            ),
            "GATEHOUSE_UPSTREAM_CA": str(self.upstream_ca.absolute()) if self.upstream_ca else "",
            "ANTHROPIC_BASE_URL": self.anthropic_base_url,
            "OPENAI_BASE_URL": self.openai_base_url,
            "GATEHOUSE_MODEL_HOSTS": self.model_hosts,
            "GATEHOUSE_AGENT_IMAGE": self.agent_image,
            "GATEHOUSE_SANDBOX": self.backend,
            "GATEHOUSE_KEEP_LEFT": f"{self.keep_left_s:g}s",
            "GATEHOUSE_KEPT_COPIES_GB": str(self.kept_copies_bytes // 10**9),
        }


def from_environment() -> Settings:
    """The settings as the environment gives them; `UserError` names the variable that can't be
    used."""
    read = {name: os.environ.get(name) or default for name, default in _DEFAULTS.items()}
    for name, text in read.items():
        if not is_text(text):
            raise UserError(f"{name}: `{text}` is not UTF-8 text", "give it another name or text")
    return Settings(
        data_dir=_absolute(read["GATEHOUSE_DATA"]),
        port=_whole(read, "GATEHOUSE_PORT", 0, 65535),
        policy_file=_absolute(read["GATEHOUSE_POLICY"]),
        max_uptime_s=parse_duration(read["MAX_UPTIME"], "MAX_UPTIME", may_be_bare=True),
        hold_s=parse_duration(read["GATEHOUSE_HOLD"], "GATEHOUSE_HOLD"),
        kept_copies_bytes=_whole(read, "GATEHOUSE_KEPT_COPIES_GB", 0, 1 << 20) * 10**9,
        keep_left_s=parse_duration(read["GATEHOUSE_KEEP_LEFT"], "GATEHOUSE_KEEP_LEFT"),
        include_ignored=_yes(read, "GATEHOUSE_INCLUDE_IGNORED"),
        memory_bytes=_whole(read, "GATEHOUSE_MEMORY_MB", 64, 1 << 30) << 20,
        processes=_whole(read, "GATEHOUSE_PROCESSES", 8, 1 << 20),
        cpu_s=parse_duration(read["GATEHOUSE_CPU"], "GATEHOUSE_CPU"),
        output_bytes=_whole(read, "GATEHOUSE_OUTPUT_MB", 1, 1 << 20) << 20,
        copy_mode=copy_mode(read["GATEHOUSE_COPY"], "GATEHOUSE_COPY"),
        upstream_ca=Path(read["GATEHOUSE_UPSTREAM_CA"]) if read["GATEHOUSE_UPSTREAM_CA"] else None,
        review_model=read["GATEHOUSE_REVIEW_MODEL"],
        anthropic_api_key=read["ANTHROPIC_API_KEY"],
        anthropic_base_url=read["ANTHROPIC_BASE_URL"],
        claude_oauth_token=read["CLAUDE_CODE_OAUTH_TOKEN"],
        openai_api_key=read["OPENAI_API_KEY"],
        openai_base_url=read["OPENAI_BASE_URL"],
        model_hosts=read["GATEHOUSE_MODEL_HOSTS"],
        max_cost=read["MAX_COST"],
        max_cost_per_day=read["MAX_COST_PER_DAY"],
        max_cost_total=read["MAX_COST_TOTAL"],
        ask_at_limit=_choice(
            read["GATEHOUSE_AT_LIMIT"], "GATEHOUSE_AT_LIMIT", ("ask", "deny"), "answer at a limit"
        )
        == "ask",
        prices_file=_absolute(read["GATEHOUSE_PRICES"]),
        keep_bodies=_yes(read, "GATEHOUSE_KEEP_BODIES"),
        credentials_file=(
            _absolute(read["GATEHOUSE_CREDENTIALS"])
            if "GATEHOUSE_CREDENTIALS" in os.environ
            else None
        ),
        network_mode=network_mode(read["GATEHOUSE_NETWORK"], "GATEHOUSE_NETWORK"),
        binds=tuple(filter(None, (one.strip() for one in read["GATEHOUSE_BIND"].split(",")))),
        forge_port=_whole(read, "GATEHOUSE_FORGE_PORT", 0, 65535),
        github_app_id=read["GATEHOUSE_GITHUB_APP_ID"],
        github_key_file=_file(read, "GATEHOUSE_GITHUB_KEY_FILE"),
        github_secret_file=_file(read, "GATEHOUSE_GITHUB_SECRET_FILE"),
        github_api=read["GATEHOUSE_GITHUB_API"],
        review_debounce_s=_debounce(read),
        review_poll_s=parse_duration(read["GATEHOUSE_REVIEW_POLL"], "GATEHOUSE_REVIEW_POLL"),
        check=_choice(read["GATEHOUSE_CHECK"], "GATEHOUSE_CHECK", _CHECKS, "kind of check"),
        review_concurrency=_whole(read, "GATEHOUSE_REVIEW_CONCURRENCY", 1, 64),
        review_cost=read["GATEHOUSE_REVIEW_COST"],
        pr_cost=read["GATEHOUSE_PR_COST"],
        repo_day_cost=read["GATEHOUSE_REPO_DAY_COST"],
        owner_month_cost=read["GATEHOUSE_OWNER_MONTH_COST"],
        all_day_cost=read["GATEHOUSE_ALL_DAY_COST"],
        exec_rules=exec_rules(read["GATEHOUSE_EXEC_RULES"], "GATEHOUSE_EXEC_RULES"),
        agent_image=read["GATEHOUSE_AGENT_IMAGE"],
        backend=_choice(
            read["GATEHOUSE_SANDBOX"], "GATEHOUSE_SANDBOX", ("bubblewrap", "compose"), "sandbox"
        ),
        given=frozenset(name for name in _DEFAULTS if os.environ.get(name)),
    )


def copy_mode(text: str, what: str) -> CopyMode:
    """How the private copy is to be made, as `what` says it."""
    return _choice(text, what, ("auto", "copy", "overlay"), "way to make a copy")


def network_mode(text: str, what: str) -> NetworkMode:
    """How programs in a sandbox are to get out, as `what` says it."""
    return _choice(text, what, ("proxy", "transparent"), "way out of a sandbox")


def exec_rules(text: str, what: str) -> ExecRules:
    """Which commands the rules for exec are about, as `what` says it."""
    return _choice(text, what, ("asked", "enforce"), "way to hold exec rules")


def _choice[Word: str](text: str, what: str, words: tuple[Word, ...], noun: str) -> Word:
    for word in words:
        if word == text:
            return word
    first = ", ".join(words[:-1])
    raise UserError(f"{what}: `{text}` is no {noun}", f"choose {first} or {words[-1]}")


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
    """The whole environment: for a person's own commands (`cmd:` of a credential) alone."""
    return dict(os.environ)


def for_own_git() -> dict[str, str]:
    """The environment of the person's own git: no model's key, nor what points git elsewhere."""
    kept = ("GIT_SSH", "GIT_ASKPASS", "GIT_SSL", "GIT_CONFIG", "GIT_HTTP", "GIT_PROXY")
    env = _without_keys(dict(os.environ))
    return {one: env[one] for one in env if not one.startswith("GIT_") or one.startswith(kept)}


def for_package_managers() -> dict[str, str]:
    """The environment of the person's own package managers; rustup installs nothing for them."""
    return _without_keys(dict(os.environ)) | {"RUSTUP_AUTO_INSTALL": "0"}


def _without_keys(env: dict[str, str]) -> dict[str, str]:
    keys = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY")
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


def _absolute(text: str) -> Path:
    """A path that users give is relative to where they are, a default to the installation."""
    path = Path(text).expanduser()
    if path.is_absolute():
        return path
    return (ROOT if text in _DEFAULTS.values() else Path.cwd()) / path


def _file(read: dict[str, str], name: str) -> Path | None:
    return Path(read[name]).expanduser() if read[name] else None


def _debounce(read: dict[str, str]) -> tuple[float, float]:
    name = "GATEHOUSE_REVIEW_DEBOUNCE"
    quiet, slash, longest = read[name].partition("/")
    if not slash:
        raise UserError(f"{name}: `{read[name]}` is not two times", "write 15s/120s")
    return parse_duration(quiet, name), parse_duration(longest, name)


def _yes(read: dict[str, str], name: str) -> bool:
    if read[name] not in ("yes", "no"):
        raise UserError(
            f"{name}: `{read[name]}` is neither `yes` nor `no`", f"the default is {_DEFAULTS[name]}"
        )
    return read[name] == "yes"


def _whole(read: dict[str, str], name: str, least: int, most: int) -> int:
    text, number = read[name], whole_number(read[name])
    if number is None or not least <= number <= most:
        raise UserError(
            f"{name}: `{text}` is not a whole number from {least} to {most}",
            f"the default is {_DEFAULTS[name]}",
        )
    return number
