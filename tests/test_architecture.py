"""Holds the architecture: who may import whom, and who may touch the outside.

It reads the sources and never imports them, so that it also judges imports inside functions and under
TYPE_CHECKING. A rule that must be bent is bent here, in `EXCEPTIONS`, with a reason that a reviewer sees.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What one test read, the others keep.
pytestmark = pytest.mark.xdist_group("architecture")

# Part -> the parts it may import. `BASE` may be used by every part but the two that it stands on.
BASE = {"errors", "settings", "clock", "process", "plain_files", "whole_files", "slices"}
CORE = {"errors", "core"}
RECORDS = {"audit", "audit_chain", "kill_switch", "policy_files", "approval_queue"}
# What model calls spent and sessions sent, kept beside the records: the channel asks it before a call goes out, and the pages show it.
LEDGER = {"spending", "traffic"}
CHANNELS = {"brokers", "workspace"}
BELOW_SERVER = (
    CORE
    | BASE
    | RECORDS
    | LEDGER
    | CHANNELS
    | {"store", "gate", "repeats", "sandbox", "session_manager", "start_session", "network_log"}
)
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "settings": {"errors"},
    "clock": {"errors"},
    "process": {"errors"},
    "plain_files": {"errors"},
    "whole_files": {"errors"},
    "slices": set(),
    "store": BASE | {"core"},
    "rule_ends": BASE | {"core"},
    **{part: BASE | {"core", "store"} for part in RECORDS},
    # The log is written by `audit` alone. What is signed of it lies beside it, and in the database.
    "audit_chain": BASE,
    "audit_heads": BASE | {"core", "store", "audit_chain"},
    "audit_check": BASE | {"core", "store", "audit_chain", "audit_heads"},
    # Part of the composition root: it wakes those that read the person's files.
    "file_watch": BASE,
    "saved_files": BASE | {"file_watch", "credentials", "policy_sets", "spending", "surroundings"},
    "audit_watch": BASE | {"audit"},
    "audit": BASE | {"core", "store", "audit_chain", "audit_heads", "audit_check"},
    # It knows when a rule's time is over, which files don't.
    "policy_files": BASE | {"core", "store", "rule_ends"},
    "grants": BASE | {"core"},
    "handlers": BASE | {"core"},
    "own_files": BASE | {"core"},
    "unwritten": BASE | {"core", "approval_queue"},
    "audit_lines": BASE | {"core", "grants"},
    "repeats": BASE | {"core", "approval_queue", "grants"},
    "request_terms": BASE | {"core"},
    "policy_sets": BASE | {"core", "policy_files"},
    "rulings": BASE | {"core", "own_files", "kill_switch", "policy_files", "policy_sets"},
    # What only shows what passed: the gate never reads it.
    "network_log": BASE | {"core"},
    # What the gate writes of verdicts, which for connections is kept as it was written.
    "verdict_lines": BASE | {"core", "audit", "audit_lines"},
    "answering": BASE | {"core", "audit", "audit_lines", "approval_queue", "handlers"},
    "gate": BASE
    | {"core", "answering", "audit_lines", "grants", "handlers", "repeats", "request_terms"}
    | {"rulings", "unwritten", "verdict_lines"}
    | RECORDS,
    "sandbox": BASE | {"core"},
    "traffic": BASE | {"core", "store"},
    "spending": BASE | {"core", "store", "audit", "traffic"},
    # Part of the composition root: it reads the values of named secrets, and hands them to egress and the redactor.
    "credentials": BASE | {"core"},
    "brokers": BASE | LEDGER | {"core", "gate", "sandbox", "network_log"},
    "workspace": BASE | {"core", "gate", "sandbox"},
    "session_output": BASE,
    "start_session": BASE | {"core"},
    "session_manager": BASE | {"core", "store", "sandbox", "audit", "workspace", "session_output", "start_session"},
    "egress": BASE | {"core"},
    "server": BELOW_SERVER,
    # The composition root: `app` builds the parts, `surroundings` those of one session. Nobody else imports them.
    "app": BELOW_SERVER
    | {"egress", "server", "surroundings", "credentials", "audit_lines", "audit_heads", "audit_watch", "saved_files"},
    "surroundings": BELOW_SERVER | {"egress", "server", "credentials", "session_sandboxes", "workspace_git"},
    "session_sandboxes": BASE | {"core", "sandbox", "credentials"},
    "workspace_git": BASE,
    # The CLI and what it is split into, each imported by the verbs that need it.
    "client": BASE,
    "terminal": BASE | {"core", "client", "audit_chain", "audit_check"},
    "telling": BASE | {"core"},
    "own_terminal": BASE | {"client"},
    "following": BASE | {"core", "client", "telling", "own_terminal"},
    "lab": BASE | {"core", "workspace"},
    "doctor": BELOW_SERVER | {"server"},
    "foreground": BELOW_SERVER | {"egress", "server", "app", "client", "terminal", "telling", "following"},
    "card_verbs": BASE | {"core", "client", "terminal"},
    "undo_verb": BASE | {"core", "app", "client", "server"},
    "verbs": BELOW_SERVER
    | {
        "egress",
        "server",
        "app",
        "client",
        "terminal",
        "doctor",
        "foreground",
        "lab",
        "card_verbs",
        "undo_verb",
        "audit_check",
    },
    "cli": BASE | {"core", "verbs"},
}

# Third-party packages that only some parts may import. What isn't listed here, any part but CORE may.
ONLY_IN: dict[str, set[str]] = {
    "litestar": {"server"},
    "uvicorn": {"server", "app"},
    "jinja2": {"server"},
    "mitmproxy": {"egress"},
    "OpenSSL": {"egress"},
    "dns": {"egress"},
    "sqlalchemy": {"store"},
    "alembic": {"store"},
    "anthropic": {"agent_image"},
    "claude_agent_sdk": set(),
    "mcp": {"server"},
    "pyseccomp": {"sandbox"},
}
# Types that name what is handed through a part; they hold no query.
FOR_ALL = {"sqlalchemy.Connection", "sqlalchemy.Engine"}
# CORE is pure: text to data, text to trees, tables of names. Of the standard library, nothing that acts.
CORE_THIRD_PARTY = {"msgspec", "yaml", "tree_sitter", "tree_sitter_bash", "publicsuffixlist", "idna"}
IMPURE_STDLIB = {
    "asyncio", "ctypes", "fcntl", "ftplib", "getpass", "glob", "http", "importlib", "io", "locale", "logging",
    "mmap", "multiprocessing", "platform", "pty", "random", "resource", "runpy", "sched", "secrets", "select",
    "selectors", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "tkinter", "urllib.request", "uuid", "webbrowser",
}  # fmt: skip
# Names and types in `os` that only turn text into bytes or describe a value.
PURE_OF_OS = {"os", "os.fsencode", "os.fsdecode", "os.fspath", "os.PathLike", "os.stat_result"}
IMPURE_BUILTINS = {"open", "input", "print", "exec", "eval", "compile", "__import__"}

PROCESS_STARTERS = re.compile(
    r"^(subprocess(\..*)?|multiprocessing(\..*)?|pty\.(spawn|fork)|asyncio\.(subprocess\.)?create_subprocess_\w+|concurrent\.futures\.ProcessPoolExecutor"
    r"|os\.(fork\w*|exec[lv]\w*|spawn\w+|posix_spawnp?|system|popen|startfile))$"
)
CLOCK_READERS = re.compile(
    r"^(time\.(time|monotonic|perf_counter|process_time|clock_gettime|thread_time)(_ns)?"
    r"|datetime\.(datetime\.)?(now|utcnow|today)|datetime\.date\.today)$"
)
ENVIRONMENT = re.compile(r"^os\.(environb?|getenvb?|putenv|unsetenv)(\..*)?$")
BARE_TASKS = re.compile(r"^asyncio\.(create_task|ensure_future)$")
DYNAMIC_IMPORTS = re.compile(r"^(importlib\.(import_module|util\..*|machinery\..*)|runpy\..*|pkgutil\..*|__import__)$")
RUNS_TEXT = re.compile(
    r"^(eval|exec|os\.system|os\.popen|asyncio\.create_subprocess_shell|pickle\..*|marshal\..*|shelve\..*)$"
)

# (module, what it uses): why. An entry that is no longer needed fails the test that would have needed it.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("supervisor.settings", "import supervisor.core.duration"): "MAX_UPTIME has one parser, and it is pure",
    ("supervisor.core.exec_tables", "pure import pathlib.Path"): "reads the tables of data beside it, once, at import",
    ("supervisor.core.tables", "pure import pathlib.Path"): "reads the tables of data beside it, once, at import",
    (
        "supervisor.sandbox.port_opener",
        "process os.fork",
    ): "entering a namespace takes a process: this is one of its own",
    (
        "supervisor.sandbox.overlay_mounter",
        "process os.fork",
    ): "the users of a namespace are set from outside: by a process that stays there",
}


class Module(NamedTuple):
    """One source file: its dotted name, the part that it belongs to, and its tree."""

    name: str
    part: str
    path: Path
    tree: ast.Module
    is_package: bool


@cache
def sources() -> tuple[Module, ...]:
    found = []
    for path in sorted([*(ROOT / "supervisor").rglob("*.py"), *(ROOT / "agent_image").rglob("*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        parts = parts[:-1] if is_package else parts
        part = parts[1] if parts[0] == "supervisor" and len(parts) > 1 else parts[0]
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        found.append(Module(".".join(parts), part, path, tree, is_package))
    return tuple(found)


@cache
def imported(module: Module) -> tuple[str, ...]:
    """Every dotted name that a module imports, relative ones resolved; `from a import b` gives `a.b`."""
    return tuple(_imported(module))


def _imported(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.name.split(".")
            up = node.level - (1 if module.is_package else 0)
            prefix = ".".join(base[: len(base) - up]) if node.level else ""
            start = ".".join(filter(None, (prefix, node.module)))
            yield from (f"{start}.{alias.name}" for alias in node.names)


@cache
def used(module: Module) -> frozenset[str]:
    """Every name that a module uses, as the dotted name it was imported by (`t.time` -> `time.time`)."""
    return frozenset(_used(module))


def _used(module: Module) -> Iterator[str]:
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(module.tree):
        dotted = _dotted(node)
        if dotted:
            head, _, rest = dotted.partition(".")
            yield ".".join(filter(None, (names.get(head, head), rest)))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def part_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def judged(found: Iterator[tuple[str, str]], kind: str) -> list[str]:
    """The findings (module, what) of one kind that no exception covers, and the exceptions of it that cover nothing."""
    seen = set(found)
    excused = {key for key in EXCEPTIONS if key[1].startswith(kind)}
    return sorted(f"{module}: {what}" for module, what in seen - excused) + sorted(
        f"{module}: {what}: the exception is no longer needed" for module, what in excused - seen
    )


def supervisor_sources() -> Iterator[Module]:
    return (module for module in sources() if module.name.startswith("supervisor"))


@pytest.mark.parametrize(
    ("text", "pattern", "name"),
    [
        ("import os as o\no.environ['A']", ENVIRONMENT, "os.environ"),
        ("from os import environ as e\ne.get('A')", ENVIRONMENT, "os.environ"),
        ("def f():\n    import os\n    return os.getenv('A')", ENVIRONMENT, "os.getenv"),
        ("import subprocess", PROCESS_STARTERS, "subprocess"),
        ("from os import posix_spawn", PROCESS_STARTERS, "os.posix_spawn"),
        (
            "import asyncio.subprocess as s\ns.create_subprocess_exec()",
            PROCESS_STARTERS,
            "asyncio.subprocess.create_subprocess_exec",
        ),
        ("import time as t\nt.monotonic_ns()", CLOCK_READERS, "time.monotonic_ns"),
        ("import datetime\ndatetime.datetime.now()", CLOCK_READERS, "datetime.datetime.now"),
        ("from datetime import datetime as d\nd.now()", CLOCK_READERS, "datetime.datetime.now"),
        ("import asyncio\nasyncio.create_task(f())", BARE_TASKS, "asyncio.create_task"),
        ("__import__('os')", DYNAMIC_IMPORTS, "__import__"),
        ("eval('1')", RUNS_TEXT, "eval"),
    ],
)
def test_this_reader_sees_through_other_names(text: str, pattern: re.Pattern[str], name: str) -> None:
    module = Module("supervisor.core.x", "core", ROOT, ast.parse(text), is_package=False)
    assert name in {found for found in {*used(module), *imported(module)} if pattern.match(found)}


def test_this_reader_resolves_relative_imports() -> None:
    tree = ast.parse("from . import a\nfrom ..gate import Gate\nif TYPE_CHECKING:\n    from ..server.app import x")
    assert set(imported(Module("supervisor.core.x", "core", ROOT, tree, is_package=False))) == {
        *["supervisor.core.a", "supervisor.gate.Gate", "supervisor.server.app.x"]
    }
    package = Module("supervisor.core", "core", ROOT, ast.parse("from .. import gate"), is_package=True)
    assert list(imported(package)) == ["supervisor.gate"]


def test_every_part_of_the_supervisor_is_in_the_import_table() -> None:
    unknown = {
        module.name for module in supervisor_sources() if module.part not in {*MAY_IMPORT, "supervisor", "__main__"}
    }
    assert not unknown, "give these a row in MAY_IMPORT, or move them into a part that has one"


def test_imports_follow_the_table() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            allowed = MAY_IMPORT["cli"] | {"cli"} if module.part == "__main__" else MAY_IMPORT.get(module.part, set())
            for name in imported(module):
                part = part_of(name)
                if name.startswith("supervisor.") and part in MAY_IMPORT and part not in {*allowed, module.part}:
                    yield module.name, f"import {name.rsplit('.', 1)[0] if _is_member(name) else name}"

    assert not judged(found(), "import supervisor")


def _is_member(name: str) -> bool:
    """Whether a dotted name is something in a module, rather than a module itself."""
    path = ROOT.joinpath(*name.split("."))
    return not (path.is_dir() or path.with_suffix(".py").is_file())


def test_the_agent_and_the_supervisor_never_import_each_other() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in sources():
            other = "agent_image" if module.name.startswith("supervisor") else "supervisor"
            yield from ((module.name, name) for name in imported(module) if name.split(".")[0] == other)

    assert not list(found())


def test_each_third_party_package_stays_in_its_part() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in sources():
            part = "agent_image" if module.name.startswith("agent_image") else module.part
            for name in imported(module):
                top = name.split(".")[0]
                if part not in ONLY_IN.get(top, {part}) and name not in FOR_ALL:
                    yield module.name, f"import {top}"

    assert not judged(found(), "import third-party")


def test_core_and_errors_are_pure() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            if module.part not in CORE:
                continue
            for name in imported(module):
                top = name.split(".")[0]
                is_impure = any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE_STDLIB)
                is_foreign = top not in {*sys.stdlib_module_names, *CORE_THIRD_PARTY, "supervisor"}
                if is_impure or is_foreign or (top == "pathlib" and not name.startswith("pathlib.Pure")):
                    yield module.name, f"pure import {name}"
            for name in {*used(module), *imported(module)}:
                if name.split(".")[0] == "os" and ".".join(name.split(".")[:2]) not in PURE_OF_OS:
                    yield module.name, f"pure {name}"
            for node in ast.walk(module.tree):
                if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                    yield module.name, "pure async"
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
                    yield module.name, f"pure {node.func.id}()"

    assert not judged(found(), "pure ")


@pytest.mark.parametrize(
    ("kind", "pattern", "owner"),
    [
        ("environment", ENVIRONMENT, "supervisor.settings"),
        ("process", PROCESS_STARTERS, "supervisor.process"),
        ("clock", CLOCK_READERS, "supervisor.clock"),
        ("task", BARE_TASKS, "nobody: tasks live in an asyncio.TaskGroup"),
        ("dynamic import", DYNAMIC_IMPORTS, "supervisor.cli"),
        ("text as code", RUNS_TEXT, "nobody"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_one_module_touches_it(kind: str, pattern: re.Pattern[str], owner: str) -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            if module.name != owner:
                for name in {*used(module), *imported(module)}:
                    if pattern.match(name):
                        yield module.name, f"{kind} {name}"

    assert not judged(found(), f"{kind} "), f"this belongs to {owner}"


def test_only_the_gate_makes_a_grant() -> None:
    """A constructor call anywhere else would be a way around the rules."""
    makers = [
        module.name
        for module in supervisor_sources()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] == "Grant"
    ]
    assert set(makers) <= {"supervisor.gate"}


def modules() -> list[Path]:
    """The product's, and those that hold it to what it says."""
    return [*(module.path for module in sources()), *sorted((ROOT / "tests").rglob("*.py"))]


def test_every_module_says_what_it_is() -> None:
    read = {module.path: module.tree for module in sources()}
    trees = {path: read.get(path) or ast.parse(path.read_text(encoding="utf-8")) for path in modules()}
    silent = [str(path.relative_to(ROOT)) for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    assert not silent, (
        "a module docstring says what it decides, why it is separate, what it must never do; a test's, what it tries to break"
    )


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert not {name: lines for name, lines in lengths.items() if lines > 500}, "look for the seam"


def test_the_map_of_egress_is_complete_and_tells_what_imports_mitmproxy() -> None:
    every = {one.path.stem: one for one in sources() if one.path.parent == ROOT / "supervisor" / "egress"}
    (document,) = (ast.get_docstring(every.pop("__init__").tree) or "",)
    before, marker, after = document.partition("Only these import mitmproxy")
    assert marker
    mapped = [re.findall(r"^ {4}(\w+) ", text, flags=re.MULTILINE) for text in (before, after)]
    imports = {stem: "mitmproxy" in {name.partition(".")[0] for name in imported(one)} for stem, one in every.items()}
    assert sorted(mapped[0]) == sorted(stem for stem, does in imports.items() if not does and stem != "__main__")
    assert sorted(mapped[1]) == sorted(stem for stem, does in imports.items() if does)
