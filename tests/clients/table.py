"""The clients: how each is run, what it prints when it got through, and how much of a refusal its
user sees.

One row per client, nothing else differs between them: `test_clients.py` plays every row through
every outcome, tunnelled and looked into. A client has no option here that its user wouldn't give
it: proxy and authorities come from the sandbox's environment. What is said beyond that only
keeps it from trying again for minutes, or makes it print what it got.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from supervisor.settings import ROOT
from tests.fakes.claude_code import claude_binary
from tests.fakes.site import WHEEL
from tests.fakes.with_pip import python_with_pip

type Origin = Literal["site", "h2", "websocket", "model"]
# What a user reads of a refusal: its reason, its status, or neither. Of a refused CONNECT no client
# shows the body, some the status line.
type Shows = Literal["why", "403", ""]

# Where the workspace lies for the agent; `programs` are copied into it.
PROGRAMS = "/workspace/merged/programs"
PYTHON = str(ROOT / ".venv/bin/python")
IDENTITY = "-c user.name=a -c user.email=a@example.org"
UNDICI = Path("/usr/lib/node_modules/npm/node_modules/undici")
CHAT = "hello" * 100


class Client(NamedTuple):
    """`command` is made of the base URL of an origin; `prints` is what it prints where it got
    through.

    `inside` and `tunnelled` are what it shows of a refusal of a request, and of a CONNECT.
    `missing` says why it can't be run here.
    """

    name: str
    command: Callable[[str], tuple[str, ...]]
    prints: str
    origin: Origin = "site"
    inside: Shows = "why"
    tunnelled: Shows = "403"
    missing: str = ""


def absent(program: str) -> str:
    """Why a program can't be run in a sandbox, which shows /usr and nothing of a home."""
    found = shutil.which(program)
    is_shown = found is not None and Path(found).resolve().is_relative_to("/usr")
    return "" if is_shown else f"`{program}` isn't installed below /usr"


def _curl(*options: str) -> Callable[[str], tuple[str, ...]]:
    return lambda url: ("curl", "-sS", "--fail-with-body", *options, url + "/")


def _curl_websocket(url: str) -> tuple[str, ...]:
    """The upgrade as people write it for curl, also one that speaks no WebSocket itself: what is
    said there comes as its frame."""
    asks = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    headers = (word for one in asks for word in ("-H", one))
    return (
        "curl",
        "-sS",
        "--fail-with-body",
        "--http1.1",
        "-N",
        "-o",
        "-",
        *headers,
        url + "/greeting",
    )


def _python(kind: str) -> Callable[[str], tuple[str, ...]]:
    return lambda url: (PYTHON, f"{PROGRAMS}/get.py", kind, url + "/")


def _bash(script: str) -> Callable[[str], tuple[str, ...]]:
    """`$1` is the URL."""
    return lambda url: ("bash", "-ec", script, "bash", url)


def _pip(url: str) -> tuple[str, ...]:
    options = (
        "--disable-pip-version-check",
        "download",
        "--no-deps",
        "--retries",
        "0",
        "-d",
        "/tmp/wheels",
    )
    # As a client of an index, not as what Gatehouse carries out.
    return (
        "env",
        "-u",
        "PIP_PYTHON",
        PIP,
        "-m",
        "pip",
        *options,
        "--index-url",
        f"{url}/simple",
        "gatehouse-demo",
    )


def _node(url: str) -> tuple[str, ...]:
    return ("node", f"{PROGRAMS}/get.mjs", url + "/", *([] if _NODE_READS_PROXY else [str(UNDICI)]))


def _claude(url: str) -> tuple[str, ...]:
    """With the address of its model as a user's own settings have it. It would try again for
    minutes."""
    settings = (
        f'{{"env": {{"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "none",'
        ' "CLAUDE_CODE_MAX_RETRIES": "0"}}'
    )
    options = (
        "--output-format",
        "json",
        "--dangerously-skip-permissions",
        "--no-session-persistence",
    )
    return (str(_CLAUDE), "-p", "Say something.", *options, "--settings", settings)


def _go(url: str) -> tuple[str, ...]:
    """A program of the workspace: there is none of this name on the host's PATH. It speaks
    whatever the origin offers."""
    return ("programs/get-go", url + "/")


def _node_reads_proxy() -> bool:
    if absent("node"):
        return False
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.lstrip("v").split(".")[0]) >= 24


PIP = python_with_pip()
_CLAUDE = claude_binary()
_NODE_READS_PROXY = _node_reads_proxy()
_NO_UNDICI = "" if UNDICI.is_dir() else "npm brings no undici here"
_CLONE = 'cd /tmp && git clone -q "$1/project.git" clone && cat clone/code.py'
_PUSH = (
    "cd /tmp && git init -q here && cd here && git commit -q --allow-empty -m new && "
    'git push "$1/project.git" "HEAD:refs/heads/$(cat /proc/sys/kernel/random/uuid)" 2>&1'
).replace("git commit", f"git {IDENTITY} commit")
_NPM = (
    'cd /tmp && npm pack --no-update-notifier --fetch-retries 0 --registry "$1/npm/" gatehouse-demo'
)

CLIENTS = (
    Client("curl", _curl("--http1.1"), "hello from outside"),
    Client("curl h2", _curl("--http2"), "hello over h2", origin="h2"),
    Client("curl websocket", _curl_websocket, CHAT, origin="websocket"),
    # On most systems by GnuTLS, which reads none of the variables that name authorities.
    Client("wget", lambda url: ("wget", "-nv", "-O", "-", "--tries=1", url + "/"),
    "hello from outside", tunnelled="why", missing=absent("wget")),
    Client("git clone", _bash(_CLONE), "print('cloned')", inside="403"),
    Client("git push", _bash(_PUSH), "[new branch]", inside="403"),
    Client("pip", _pip, f"Saved /tmp/wheels/{WHEEL}", inside="", tunnelled="",
    missing="" if PIP else "no Python has pip"),
    Client("npm", _bash(_NPM), "gatehouse-demo-1.0.0.tgz", tunnelled="why", missing=absent("npm")),
    Client("requests", _python("requests"), "hello from outside", tunnelled="why"),
    Client("httpx", _python("httpx"), "hello from outside", tunnelled="why"),
    Client("httpx h2", _python("httpx_h2"), "hello over h2", origin="h2", tunnelled="why"),
    Client("aiohttp", _python("aiohttp"), "hello from outside", tunnelled="why"),
    Client("urllib", _python("urllib"), "hello from outside", tunnelled="why"),
    Client("node fetch", _node, "hello from outside", tunnelled="",
    missing=absent("node") or ("" if _NODE_READS_PROXY else _NO_UNDICI)),
    Client("java", lambda url: ("java", "-cp", PROGRAMS, "Get", url + "/"), "hello from outside",
    missing=absent("javac")),
    Client("go", _go, "hello from outside", tunnelled="why", missing=absent("go")),
    Client("go h2", _go, "hello over h2", origin="h2", tunnelled="why", missing=absent("go")),
    Client("websockets", lambda url: _python("websockets")(url.replace("https", "wss")), CHAT,
    origin="websocket"),
    Client(
        "node websocket",
        lambda url: ("node", f"{PROGRAMS}/chat.mjs", url.replace("https", "wss") + "/",
        str(UNDICI)),
        CHAT, origin="websocket", inside="", tunnelled="", missing=absent("node") or _NO_UNDICI,
    ),
    Client("claude code", _claude, "hello from the model", origin="model", tunnelled="",
    missing="" if _CLAUDE else "claude-agent-sdk has no CLI for this platform"),
)  # fmt: skip


def build_programs(folder: Path) -> None:
    """Put the programs into `folder`, built where they must be."""
    shutil.copytree(Path(__file__).with_name("programs"), folder)
    if not absent("javac"):
        subprocess.run(["javac", "-d", str(folder), str(folder / "Get.java")], check=True)
    if not absent("go"):
        subprocess.run(
            ["go", "build", "-o", str(folder / "get-go"), str(folder / "get.go")], check=True
        )
