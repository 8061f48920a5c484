"""Specs of a session's sandboxes, the agent's and that of one command.

Command, environment, binds, bounds. INVARIANT: no secret is in a Spec, only placeholders; the token
of the agent's door is in the agent's alone.
"""

import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from supervisor.core.actions import Exec
from supervisor.core.agents.agents import AGENTS, MODEL_KEYS, AgentName, ModelKey
from supervisor.core.agents.inside import AGENT_PORT, DOOR, INDEX, PROGRAMS_PORT, Inside
from supervisor.core.jobs import Job, job_prompt
from supervisor.core.mcp_servers_file import McpServer
from supervisor.core.network.egress_wire import Credential
from supervisor.core.packages import installed_places
from supervisor.core.packages.package_commands import managers
from supervisor.core.sessions import QUARANTINED, Session, is_quarantined
from supervisor.core.text.providers import (
    AT_AWS,
    URL_VARIABLES,
    Provider,
    read_models,
    url_in_region,
)
from supervisor.errors import UserError
from supervisor.sandbox.arguments import PATH
from supervisor.sandbox.base import (
    CA_BUNDLE,
    GIB,
    HOME,
    JAVA_STORE,
    MERGED,
    MIB,
    SandboxLimits,
    Spec,
)
from supervisor.sandbox.program_listener import JudgeProgram, ProgramWatch
from supervisor.sandbox.programs import find_program
from supervisor.sandbox.session_home import (
    FETCHED_FOLDER,
    HOME_FOLDER,
    INSTALLED_FOLDER,
    make_folders,
)
from supervisor.sandbox.toolchains import ShownTools, checkouts_in
from supervisor.sessions import agent_programs, conversations
from supervisor.sessions.mcp_programs import shown_of_server
from supervisor.sessions.named_secrets import NamedSecrets
from supervisor.settings import ROOT, Settings

PROXY_PORT = 3128
# Processes of an MCP server; its memory is a GiB at most.
MOST_OF_SERVER = 128
# Programs of the home come last: none of them is taken for one of the system's.
PROGRAMS_AT_HOME = (*installed_places.PROGRAMS, f"{HOME}/.local/bin", f"{HOME}/go/bin")
INSIDE = "/opt/gatehouse"
# Stands in for each package manager, by its name.
_MANAGER = "agent_image/programs/package_manager"
# Programs that fetch a package and run it. They have stand-ins, too.
RUNNERS = ("npx", "pnpx", "bunx", "uvx")
# What leads managers there that are started by their path, or first on the PATH of an environment.
# pip starts itself anew by the first; `_MANAGER` takes away the others.
_FOR_OTHER_MANAGERS = {
    "PIP_PYTHON": f"{INSIDE}/pip-python",
    **dict.fromkeys(
        ("npm_config_registry", "YARN_REGISTRY", "YARN_NPM_REGISTRY_SERVER", "UV_DEFAULT_INDEX"),
        INDEX,
    ),
    "GOPROXY": INDEX,
    "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
}
# The built-in agent's task, below its home.
TASK = ".gatehouse/task"
# Of a reader in quarantine: what it reviews.
CHANGE = ".gatehouse/change.json"
ORDER = ".gatehouse/order.json"
_CA_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "HEX_CACERTS_PATH",
    "NIX_SSL_CERT_FILE",
    "DENO_CERT",
)
# Java reads neither the proxy's variables nor PEM files: every virtual machine that starts takes
# these as its own options.
_JAVA_OPTIONS = " ".join(
    (
        *(
            f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PROXY_PORT}"
            for scheme in ("http", "https")
        ),
        f"-Djavax.net.ssl.trustStore={JAVA_STORE}",
        # Maven 3.9 has a client of its own that asks for this; Maven 4 calls it so.
        *(
            f"-Daether.{name}.useSystemProperties=true"
            for name in ("connector.http", "transport.apache")
        ),
    )
)

# The configuration that git has in a session's sandboxes, in its folder.
GIT_CONFIG = "gitconfig"
DEFAULT_MODEL = "the review agent's default"

# The namespaces of a private copy that is mounted: of its users and of its mounts.
type Within = tuple[int, int] | None


class StartingShell(NamedTuple):
    """The shell that started a session: its PATH, the variables that the sandbox takes over, and
    the tools that it shows.
    """

    search_path: str
    variables: Mapping[str, str]
    tools: ShownTools = ShownTools()


class SessionSandboxes:
    """Makes the sandbox specs of sessions. `masked` are folders that no sandbox shows."""

    def __init__(
        self,
        settings: Settings,
        named_secrets: NamedSecrets,
        ca_bundle: Path,
        java_store: Path,
        masked: tuple[Path, ...],
    ) -> None:
        self._settings = settings
        self._named_secrets = named_secrets
        self._ca_bundle = ca_bundle
        self._java_store = java_store
        self._masked = masked
        # The address of the operator's page; the port that was free is known later.
        self.page = f"http://127.0.0.1:{settings.port}"
        self._checkouts = checkouts_in(settings.checkouts)
        self._placeholders = {
            key.variables: f"gatehouse-placeholder-{secrets.token_hex(12)}" for key in MODEL_KEYS
        }

    def of_agent(
        self, session: Session, token: str, within: Within, caller: StartingShell, *, tty: bool
    ) -> Spec:
        """Return the agent's sandbox. `UserError` where its program is gone."""
        env = self._environment(session, caller) | {
            "GATEHOUSE_URL": DOOR,
            "GATEHOUSE_TOKEN": token,
            "GATEHOUSE_SESSION": session.id,
        }
        env |= self._key_variables()
        ports = (PROXY_PORT, AGENT_PORT)
        if is_quarantined(session.kind, session.command):
            env["GATEHOUSE_QUARANTINE"] = "1"
        else:
            env |= self._named_secrets.variables
        home_files: dict[str, str] = {}
        if session.agent:
            agent = AGENTS[cast("AgentName", session.agent)]
            env |= agent.environment
            home_files = agent.home(self._inside())
            env["GATEHOUSE_PAGE"] = self.page
        elif session.job is not None:
            home_files = {TASK: job_prompt(session.job)}
        elif session.order:
            home_files = {ORDER: session.order}
        command, binds = self._program(session, caller)
        spec = self._base(session, command, env, binds, within, caller, ports=ports, tty=tty)
        spec = msgspec.structs.replace(spec, home_files=home_files)
        return spec if is_quarantined(session.kind, session.command) else with_programs(spec)

    def of_tool(
        self, session: Session, action: Exec, within: Within, caller: StartingShell
    ) -> Spec:
        """Return the sandbox of one command: no token, no key, no door."""
        command = ("/bin/bash", "-c", action.command)
        env = self._environment(session, caller)
        ports = (PROXY_PORT,)
        spec = self._base(session, command, env, (), within, caller, ports=ports, tty=False)
        return msgspec.structs.replace(
            spec, cwd=MERGED if action.cwd in ("", ".") else f"{MERGED}/{action.cwd}"
        )

    def of_mcp_server(
        self, session: Session, name: str, server: McpServer, variables: Mapping[str, str]
    ) -> Spec:
        """Return the sandbox of an operator's MCP server: no workspace, no home, no session's
        variables. `UserError` where its program is gone."""
        if self._settings.backend == "compose":
            raise UserError(
                "MCP servers need the bubblewrap sandbox", "leave GATEHOUSE_SANDBOX out"
            )
        folder = self._settings.sessions_dir / session.id / "mcp" / name
        folder.mkdir(0o700, parents=True, exist_ok=True)
        command, binds = _our_program("mcp_bridge.py", str(AGENT_PORT))
        binds += shown_of_server(server)
        shown = {inside: source for source, inside in binds}
        env = self._environment(session, StartingShell("", {}))
        if server.url:  # also this machine's loopback is reached by egress alone
            env |= {"NO_PROXY": "", "no_proxy": ""}
        return Spec(
            command=command,
            workspace_lower=None,
            workspace_merged=folder,
            env=env | server.env | dict(variables),
            masked=self._masked,
            readonly_binds=tuple((source, inside) for inside, source in shown.items()),
            ca_bundle=self._ca_bundle,
            java_store=self._java_store,
            ports=(PROXY_PORT, AGENT_PORT),
            limits=SandboxLimits(
                cpu_s=int(self._settings.cpu_s),
                memory_bytes=min(self._settings.memory_bytes, GIB),
                processes=min(self._settings.processes, MOST_OF_SERVER),
                output_bytes=MIB,
                tmpfs_bytes=GIB // 4,
            ),
        )

    def at_home(self, session: Session, spec: Spec, *, owns_settings: bool = False) -> Spec:
        """Return the same sandbox with the session's home, where it has one."""
        home = self._settings.sessions_dir / session.id / HOME_FOLDER
        if not home.is_dir() or is_quarantined(session.kind, session.command):
            return spec
        path = ":".join((spec.env["PATH"], *PROGRAMS_AT_HOME))
        env = spec.env | {"PATH": path, "GIT_CONFIG_GLOBAL": f"{HOME}/.config/gitconfig"}
        if stores := self._stores(session):
            env |= installed_places.ENVIRONMENT
            binds = (*spec.readonly_binds, *stores)
            links = (installed_places.CRATES_LINK,)
            spec = msgspec.structs.replace(spec, readonly_binds=binds, home_links=links)
        return msgspec.structs.replace(spec, home=home, owns_settings=owns_settings, env=env)

    def with_conversations(self, session: Session, spec: Spec) -> Spec:
        """Return the same agent's sandbox with its conversations, where it keeps some."""
        kept = conversations.folder_of(session, self._settings)
        if spec.home is None or kept is None or not kept.is_dir():
            return spec
        told = AGENTS[cast("AgentName", session.agent)].conversations
        return msgspec.structs.replace(
            spec,
            writable_binds=((kept, f"{HOME}/{told.place}"),),
            forgotten=tuple(f"{told.place}/{name}/" for name in told.forgotten),
            env={**spec.env, **told.environment},
        )

    def filling(
        self, session: Session, spec: Spec, places: tuple[str, ...], *, shows_home: bool
    ) -> Spec:
        """Return an install's sandbox, which writes what it installs to these places in the
        session's home: it sees nothing else of that, but for an environment in there. It finds no
        program in it."""
        env = spec.env | installed_places.ENVIRONMENT | installed_places.OF_INSTALLS
        if installed_places.FETCHED not in places:
            env |= installed_places.THROWN_AWAY
        if shows_home:
            spec = self.at_home(session, spec, owns_settings=True)
        written = tuple(one for one in self._stores(session) if one[1] in places)
        return msgspec.structs.replace(spec, writable_binds=written, env=env)

    def prepare_stores(self, session: Session) -> None:
        """Make the folders for what approved installs put there and fetch."""
        for folder, _ in self._store_places(session):
            folder.mkdir(0o700, parents=True, exist_ok=True)
        make_folders(self._store_places(session)[1][0], (installed_places.CRATES,))

    def _stores(self, session: Session) -> tuple[tuple[Path, str], ...]:
        places = self._store_places(session)
        return places if all(folder.is_dir() for folder, _ in places) else ()

    def _store_places(self, session: Session) -> tuple[tuple[Path, str], ...]:
        own = self._settings.sessions_dir / session.id
        shared = self._settings.data_dir / "caches" / conversations.key_of(session.workspace)
        fetched = shared if self._settings.share_caches else own / FETCHED_FOLDER
        return (
            (own / INSTALLED_FOLDER, installed_places.INSTALLED),
            (fetched, installed_places.FETCHED),
        )

    def model_url(self, provider: Provider) -> str:
        """Return the URL of a provider's API; `UserError` where that needs a region."""
        given = self._settings.model_urls.get(provider)
        return given or url_in_region(provider, self._settings.aws_region)

    def model_credentials(self) -> tuple[Credential, ...]:
        """Return the model keys, for each header in which clients send them."""
        found = []
        for key in self._keys():
            try:
                url = self.model_url(key.provider)
            except UserError:  # a session that wants its models is told
                continue
            scheme, _, rest = url.partition("://")
            found += [
                Credential(
                    placeholder=self._placeholders[key.variables],
                    secret=self._settings.model_keys[key.variable],
                    header=header,
                    hosts=(rest.split("/")[0],),
                    scheme="http" if scheme == "http" else "https",
                    signs=key.signs,
                )
                for header in key.headers
            ]
        return tuple(found)

    def _keys(self) -> list[ModelKey]:
        return [key for key in MODEL_KEYS if self._settings.model_keys[key.variable]]

    def _key_variables(self) -> dict[str, str]:
        return {
            variable: self._placeholders[key.variables]
            for key in self._keys()
            for variable in key.variables
        }

    def providers_with_keys(self) -> frozenset[Provider]:
        """Return the providers that there is a key for, of those that the built-in agent uses."""
        return frozenset(key.provider for key in self._keys() if not key.is_of_claude_code)

    def _inside(self) -> Inside:
        hook = [_python()[0], "-I", "-S", f"{INSIDE}/agent_image/hooks/pre_tool_use.py"]
        return Inside(
            workspace=MERGED,
            hook=shlex.join(hook),
            plugin=(ROOT / "agent_image/hooks/opencode.js").read_text(),
            placeholders=self._key_variables(),
            urls={str(one): url for one, url in self._settings.model_urls.items()},
            page=self.page,
        )

    def _program(
        self, session: Session, caller: StartingShell
    ) -> tuple[tuple[str, ...], tuple[tuple[Path, str], ...]]:
        if session.kind == "review":
            given: tuple[str, ...] = ("--order", f"{HOME}/{ORDER}") if session.order else ()
            words = [one for one in session.command[1:] if one != QUARANTINED]
            if is_quarantined(session.kind, session.command):
                given += ("--change", f"{HOME}/{CHANGE}")
            else:
                given += tuple(f"--also={one}" for one in self._settings.checkouts)
            return self._our_agent(session, caller, *words, *given)
        if session.kind == "maintenance" and not session.agent:
            job = session.job or Job(prompt="")
            more = [*_each("--scope", job.scope), *_each("--tool", job.tools), *_update_words(job)]
            base = session.base or "none"
            more += session.command[1:]
            return self._our_agent(
                session, caller, "--task", f"{HOME}/{TASK}", "--base", base, *more
            )
        if session.agent:
            return self._named_agent(cast("AgentName", session.agent), session.command[1:], caller)
        if self._settings.backend == "compose":
            return session.command, ()
        path, binds = find_program(session.command[0], caller.search_path, Path.home())
        return (path, *session.command[1:]), binds

    def _our_agent(
        self, session: Session, caller: StartingShell, *words: str
    ) -> tuple[tuple[str, ...], tuple[tuple[Path, str], ...]]:
        """Return the command of the built-in agent, and what it needs, shown read-only. `UserError`
        where what conducts it is gone."""
        runtime = agent_programs.runtime_of(session.command)
        program = agent_programs.of_runtime(runtime, caller.search_path, self._settings)
        words += ("--claude", program.path) if program is not None and program.path else ()
        command, binds = _our_program("reviewer/__main__.py", *words)
        return command, (*binds, *(program.binds if program is not None else ()))

    def _named_agent(
        self, name: AgentName, words: tuple[str, ...], caller: StartingShell
    ) -> tuple[tuple[str, ...], tuple[tuple[Path, str], ...]]:
        """Return its command, and its program and hook, shown read-only."""
        program = agent_programs.find(name, caller.search_path, self._settings)
        if program is None:
            raise UserError(f"{AGENTS[name].title} is gone", f"run `gatehouse {name}` again")
        hooks = (ROOT / "agent_image/hooks", f"{INSIDE}/agent_image/hooks")
        binds = {inside: source for source, inside in (*program.binds, *_python()[1], hooks)}
        return (program.path, *AGENTS[name].arguments, *words), tuple(
            (source, inside) for inside, source in binds.items()
        )

    def _base(
        self,
        session: Session,
        command: tuple[str, ...],
        env: dict[str, str],
        binds: tuple[tuple[Path, str], ...],
        within: Within,
        caller: StartingShell,
        *,
        ports: tuple[int, ...],
        tty: bool,
    ) -> Spec:
        settings, own = self._settings, session.limits
        is_shown = not is_quarantined(session.kind, session.command)
        tools = caller.tools + (self._checkouts if is_shown else ShownTools())
        shown = tuple((one, str(one)) for one in tools.folders)
        folder = settings.sessions_dir / session.id
        git_config = folder / GIT_CONFIG
        return Spec(
            command=command,
            workspace_lower=Path(session.workspace) if is_shown else None,
            workspace_merged=folder / "merged",
            env=env,
            masked=(*self._masked, *tools.masked),
            readonly_binds=(*binds, *shown),
            ca_bundle=self._ca_bundle,
            java_store=self._java_store,
            git_config=git_config if git_config.exists() else None,
            ports=ports,
            redirected=session.network == "transparent",
            limits=SandboxLimits(
                cpu_s=int(own.cpu_s or settings.cpu_s),
                memory_bytes=own.memory_bytes or settings.memory_bytes,
                processes=own.processes or settings.processes,
                output_bytes=own.output_bytes or settings.output_bytes,
            ),
            tty=tty,
            within=within,
        )

    def _environment(self, session: Session, caller: StartingShell) -> dict[str, str]:
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        env = {
            "PATH": ":".join((*map(str, caller.tools.programs), PATH)),
            "HOME": HOME,
            "USER": "agent",
            "LOGNAME": "agent",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own tmpfs
            "HTTP_PROXY": proxy,
            "HTTPS_PROXY": proxy,
            "http_proxy": proxy,
            "https_proxy": proxy,
            "NO_PROXY": "127.0.0.1,localhost,::1",
            "no_proxy": "127.0.0.1,localhost,::1",
            "NODE_USE_ENV_PROXY": "1",
            # Yarn since its second version reads no other.
            "YARN_HTTP_PROXY": proxy,
            "YARN_HTTPS_PROXY": proxy,
            "JAVA_TOOL_OPTIONS": _JAVA_OPTIONS,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }
        env |= caller.variables
        env |= {URL_VARIABLES[provider]: url for provider, url in self._settings.model_urls.items()}
        env |= dict.fromkeys(_CA_VARIABLES, CA_BUNDLE)
        if session.kind not in ("agent", "quarantine") and not session.agent:
            env["GATEHOUSE_MODEL"] = "recorded" if session.model == "recorded" else "anthropic"
            model = "" if session.model in ("recorded", DEFAULT_MODEL) else session.model or ""
            env["GATEHOUSE_REVIEW_MODEL"] = model
            for one in read_models(model, "GATEHOUSE_REVIEW_MODEL"):
                env[URL_VARIABLES[one.provider]] = self.model_url(one.provider)
                if one.provider in AT_AWS:
                    env["AWS_REGION"] = self._settings.aws_region
                    env["ANTHROPIC_AWS_WORKSPACE_ID"] = self._settings.anthropic_aws_workspace
        return env


def with_programs(spec: Spec) -> Spec:
    """Return the same sandbox, with the programs' door and our programs that ask there."""
    python, binds = _python()
    shown = {inside: source for source, inside in (*spec.readonly_binds, *binds)}
    shown.pop(f"{INSIDE}/agent_image/hooks", None)
    shown[f"{INSIDE}/agent_image"] = ROOT / "agent_image"
    return msgspec.structs.replace(
        spec,
        ports=(*spec.ports, PROGRAMS_PORT),
        readonly_binds=tuple((source, inside) for inside, source in shown.items()),
        links=(
            (python, f"{INSIDE}/python"),
            ("agent_image/bin", f"{INSIDE}/bin"),
            *((f"../{_MANAGER}", f"{INSIDE}/managers/{one}") for one in _managers(spec)),
            (_MANAGER, f"{INSIDE}/pip-python"),
        ),
        env=spec.env
        | {
            "PATH": f"{INSIDE}/bin:{INSIDE}/managers:{spec.env['PATH']}",
            **_FOR_OTHER_MANAGERS,
        },
    )


def _managers(spec: Spec) -> list[str]:
    """Return which package managers the sandbox has, so that no other seems to be there."""
    folders = spec.env["PATH"].split(":")
    names = [*RUNNERS, *(name for manager in managers().values() for name in manager.names)]
    return [name for name in names if any(os.access(f"{one}/{name}", os.X_OK) for one in folders)]


def watched(spec: Spec, judge: JudgeProgram) -> Spec:
    """Return the same sandbox, with `judge` asked before each program executed in it."""
    python, binds = _python()
    launcher = f"{INSIDE}/agent_image/exec_notify.py"
    shown = {inside: source for source, inside in spec.readonly_binds}
    if f"{INSIDE}/agent_image" not in shown:
        shown[launcher] = ROOT / "agent_image/exec_notify.py"
    shown |= {inside: source for source, inside in binds}
    return msgspec.structs.replace(
        spec,
        readonly_binds=tuple((source, inside) for inside, source in shown.items()),
        programs=ProgramWatch((python, "-I", "-S", launcher), judge),
    )


def _update_words(job: Job) -> list[str]:
    if job.updates is None:
        return []
    words = ["--updates", f"--min-age={job.updates.min_age_s}", f"--tests={job.tests}"]
    return words + _each("--manager", job.updates.managers) + _each("--package", job.updates.names)


def _our_program(program: str, *words: str) -> tuple[tuple[str, ...], tuple[tuple[Path, str], ...]]:
    """Return the command of a program of ours, the built-in agent's or the bridge to an MCP server,
    and what it needs, shown read-only."""
    python, binds = _python()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = Path(sys.prefix) / "lib" / version / "site-packages"
    command = (python, "-I", f"{INSIDE}/agent_image/{program}", *words)
    return command, (
        (ROOT / "agent_image", f"{INSIDE}/agent_image"),
        (libraries.resolve(), f"{INSIDE}/site-packages"),
        *binds,
    )


def _python() -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Return the Python that runs our programs inside, and what shows it there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    prefix = Path(sys.base_prefix).resolve()
    if prefix == Path("/usr"):
        return f"/usr/bin/{version}", ()
    # At its own place: a Python that is built with a shared library looks for it by the path that
    # it was installed to.
    binds = () if prefix.is_relative_to("/usr") else ((prefix, str(prefix)),)
    return f"{prefix}/bin/{version}", binds


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
