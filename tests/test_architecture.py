"""Holds the architecture: who may import whom, and who may touch the outside.

It reads the sources and never imports them, so that it also judges imports inside functions and
under TYPE_CHECKING. A rule that must be bent is bent here, in `EXCEPTIONS`, with a reason that a
reviewer sees.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests import hostile_readers
from tests.import_table import MAY_IMPORT
from tests.source_reader import ROOT, Module, dotted, imported, sources, used

# What one test read, the others keep.
pytestmark = pytest.mark.xdist_group("architecture")

# Third-party packages that only some of our packages may import. What isn't listed here, any but
# `core` may.
ONLY_IN: dict[str, set[str]] = {
    "litestar": {"server", "reviews.pages"},
    "uvicorn": {"server", "app"},
    "jinja2": {"server", "reviews.demo"},
    "mitmproxy": {"egress.mitm"},
    "OpenSSL": {"egress"},
    "dns": {"egress"},
    "sqlalchemy": {"store", "reviews.store"},
    "alembic": {"store", "reviews.store"},
    "anthropic": {"agent_image"},
    "claude_agent_sdk": {"agent_image"},
    "mcp": {"server", "agent_image", "reviews.cli"},
    "cronsim": {"sessions", "reviews.core", "reviews.core.config"},
    "pyseccomp": {"sandbox"},
    "gidgethub": {"reviews.forges"},
    "httpx2": {"reviews.forges", "app", "agent_image"},
    "httpcore": {"channels"},
    "prometheus_client": {"reviews.pages"},
    "pyte": {"core.text"},
}
# Types that name what is handed through a part; they hold no query.
FOR_ALL = {"sqlalchemy.Connection", "sqlalchemy.Engine"}
PURE = ("supervisor.core", "supervisor.reviews.core", "supervisor.errors")
# CORE is pure: text to data, text to trees, tables of names. Of the standard library, nothing that
# acts.
CORE_THIRD_PARTY = {
    "msgspec",
    "yaml",
    "tree_sitter",
    "tree_sitter_bash",
    "publicsuffixlist",
    "idna",
    "cronsim",
    "pyte",
}
IMPURE_STDLIB = {
    "asyncio", "ctypes", "fcntl", "ftplib", "getpass", "glob", "http", "importlib", "io", "locale",
    "logging",
    "mmap", "multiprocessing", "platform", "pty", "random", "resource", "runpy", "sched", "secrets",
    "select",
    "selectors", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "sys",
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
DYNAMIC_IMPORTS = re.compile(
    r"^(importlib\.(import_module|util\..*|machinery\..*)|runpy\..*|pkgutil\..*|__import__)$"
)
RUNS_TEXT = re.compile(
    r"^(eval|exec|os\.system|os\.popen|asyncio\.create_subprocess_shell|pickle\..*|marshal\..*|shelve\..*)$"
)

# (module, what it uses): why. An entry that is no longer needed fails the test that would have
# needed it.
EXCEPTIONS: dict[tuple[str, str], str] = {
    (
        "supervisor.core.text.data_tables",
        "pure import pathlib.Path",
    ): "reads the tables of data beside it, once, at import",
    (
        "supervisor.sandbox.port_opener",
        "process os.fork",
    ): "entering a namespace takes a process: this is one of its own",
    (
        "supervisor.sandbox.overlay_mounter",
        "process os.fork",
    ): "the users of a namespace are set from outside: by a process that stays there",
}


def judged(found: Iterator[tuple[str, str]], kind: str) -> list[str]:
    """The findings (module, what) of one kind that no exception covers, and the exceptions of it
    that cover nothing."""
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
def test_this_reader_sees_through_other_names(
    text: str, pattern: re.Pattern[str], name: str
) -> None:
    module = Module("supervisor.core.x", "core", ROOT, ast.parse(text), is_package=False)
    assert name in {found for found in {*used(module), *imported(module)} if pattern.match(found)}


def test_this_reader_resolves_relative_imports() -> None:
    tree = ast.parse(
        "from . import a\nfrom ..gate import Gate\nif TYPE_CHECKING:\n    from ..server.app"
        " import x"
    )
    assert set(imported(Module("supervisor.core.x", "core", ROOT, tree, is_package=False))) == {
        *["supervisor.core.a", "supervisor.gate.Gate", "supervisor.server.app.x"]
    }
    package = Module(
        "supervisor.core", "core", ROOT, ast.parse("from .. import gate"), is_package=True
    )
    assert list(imported(package)) == ["supervisor.gate"]


@cache
def package_of(name: str) -> str:
    """The package that a dotted name of ours lies in: the row of the table that it falls under,
    or its own folder."""
    below = name.removeprefix("supervisor.")
    parts = below.split(".")
    if parts[0] in ("errors", "parts", "settings"):
        return parts[0]
    # A folder that went may still be there for what Python cached in it.
    while parts and not any(ROOT.joinpath("supervisor", *parts).glob("*.py")):
        parts.pop()
    return ".".join(parts)


def may_import(package: str) -> set[str]:
    """The packages that a row names, `core.*` written out."""
    named = MAY_IMPORT.get(package, set())
    below = {
        one for row in named if row.endswith(".*") for one in MAY_IMPORT if one.startswith(row[:-1])
    }
    return {package} | {row.removesuffix(".*") for row in named} | below


def test_every_package_of_the_supervisor_is_in_the_import_table() -> None:
    packages = {package_of(module.name) for module in supervisor_sources()}
    rows = {one for one in packages if one and not one.endswith("migrations.versions")}
    assert rows == set(MAY_IMPORT), "each package has a row in MAY_IMPORT, and each row a package"


def test_imports_follow_the_table() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            package = package_of(module.name).removesuffix(".versions")
            for name in imported(module):
                if name.startswith("supervisor.") and package_of(name) not in {
                    *may_import(package),
                    "",
                }:
                    yield (
                        module.name,
                        f"import {name.rsplit('.', 1)[0] if _is_member(name) else name}",
                    )

    assert not judged(found(), "import supervisor")


def test_only_the_composition_root_and_the_command_line_import_the_review_service() -> None:
    users = {
        row
        for row in MAY_IMPORT
        if any(one.split(".")[0] == "reviews" for one in MAY_IMPORT[row])
        and row.split(".")[0] != "reviews"
    }
    assert users == {"app", "cli"}


def test_no_import_goes_round_in_a_circle() -> None:
    """Neither between packages nor between modules, imports inside functions included."""
    modules = {module.name: module for module in supervisor_sources()}
    targets = {
        name: (
            {one if one in modules else one.rpartition(".")[0] for one in imported(module)}
            & set(modules) - {name}
        )
        for name, module in modules.items()
    }
    packages: dict[str, set[str]] = {}
    for name, others in targets.items():
        packages.setdefault(package_of(name), set()).update(map(package_of, others))
    for graph in (targets, {one: others - {one} for one, others in packages.items()}):
        list(TopologicalSorter(graph).static_order())  # raises CycleError with the circle


def test_each_package_says_what_lives_there_and_where_to_start() -> None:
    """In under ten lines."""
    wrong = []
    for module in supervisor_sources():
        text = ast.get_docstring(module.tree) or ""
        if module.is_package and module.name not in {"supervisor", "supervisor.store.migrations"}:
            wrong += (
                [module.name] if "Start with `" not in text or len(text.splitlines()) >= 10 else []
            )
    assert not wrong


def test_a_test_file_is_named_after_its_module() -> None:
    """`test_MODULE[_topic].py` in the folder of that module; what names no module is a scenario,
    or tries a client."""
    beside = {
        "fakes",
        "golden",
        "scenarios",
        "doors",
        "escape",
        "browser",
        "clients",
        "chaos",
        "compose",
        "fuzz",
        "agent_image",
        "bench",
    }
    lost = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts and folder.parts[0] not in beside:
            words = path.stem.removeprefix("test_").split("_")
            names = ["_".join(words[:end]) for end in range(1, len(words) + 1)]
            if not any(
                (ROOT / "supervisor" / folder / one).exists()
                for name in names
                for one in (f"{name}.py", name)
            ):
                lost.append(str(path.relative_to(ROOT)))
    assert not lost


def _is_member(name: str) -> bool:
    """Whether a dotted name is something in a module, rather than a module itself."""
    path = ROOT.joinpath(*name.split("."))
    return not (path.is_dir() or path.with_suffix(".py").is_file())


def test_the_agent_and_the_supervisor_never_import_each_other() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in sources():
            other = "agent_image" if module.name.startswith("supervisor") else "supervisor"
            yield from (
                (module.name, name) for name in imported(module) if name.split(".")[0] == other
            )

    assert not list(found())


def test_each_third_party_package_stays_in_its_place() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in sources():
            parts = module.name.removeprefix("supervisor.").split(".")
            places = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            for name in imported(module):
                top = name.split(".")[0]
                if not places & ONLY_IN.get(top, places) and name not in FOR_ALL:
                    yield module.name, f"import {top}"

    assert not judged(found(), "import third-party")


def test_core_and_errors_are_pure() -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            if not module.name.startswith(PURE):
                continue
            for name in imported(module):
                top = name.split(".")[0]
                is_impure = any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE_STDLIB)
                is_foreign = top not in {*sys.stdlib_module_names, *CORE_THIRD_PARTY, "supervisor"}
                if (
                    is_impure
                    or is_foreign
                    or (top == "pathlib" and not name.startswith("pathlib.Pure"))
                ):
                    yield module.name, f"pure import {name}"
            for name in {*used(module), *imported(module)}:
                if name.split(".")[0] == "os" and ".".join(name.split(".")[:2]) not in PURE_OF_OS:
                    yield module.name, f"pure {name}"
            for node in ast.walk(module.tree):
                if isinstance(
                    node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
                ):
                    yield module.name, "pure async"
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in IMPURE_BUILTINS
                ):
                    yield module.name, f"pure {node.func.id}()"

    assert not judged(found(), "pure ")


@pytest.mark.parametrize(
    ("kind", "pattern", "owner"),
    [
        ("environment", ENVIRONMENT, "supervisor.settings"),
        ("process", PROCESS_STARTERS, "supervisor.base.process"),
        ("clock", CLOCK_READERS, "supervisor.base.clock"),
        ("task", BARE_TASKS, "nobody: tasks live in an asyncio.TaskGroup"),
        ("dynamic import", DYNAMIC_IMPORTS, "supervisor.cli.cli"),
        ("text as code", RUNS_TEXT, "nobody"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_one_module_touches_it(kind: str, pattern: re.Pattern[str], owner: str) -> None:
    def found() -> Iterator[tuple[str, str]]:
        for module in supervisor_sources():
            # The demo's forge is a program of its own.
            if module.name != owner and not module.name.startswith("supervisor.reviews.demo"):
                for name in {*used(module), *imported(module)}:
                    if pattern.match(name):
                        yield module.name, f"{kind} {name}"

    assert not judged(found(), f"{kind} "), f"this belongs to {owner}"


def _starts_programs(module: Module) -> bool:
    starters = {"supervisor.base.process.run", "supervisor.base.process.spawn"}
    return not starters.isdisjoint(used(module)) or "supervisor.git.run_git.run_git" in used(module)


def test_whoever_starts_a_program_outside_is_on_the_page_of_laws() -> None:
    """Law 12: with what it reads of an agent's or a stranger's, and what fences that."""
    page = (ROOT / "docs/laws.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(supervisor\.[\w.]+)` \| .+ \| .+ \|$", page, re.MULTILINE)
    # The demo's forge is a program of its own.
    starters = {
        module.name
        for module in supervisor_sources()
        if _starts_programs(module) and not module.name.startswith("supervisor.reviews.demo")
    }
    assert starters == set(listed)
    assert len(listed) == len(set(listed))


def test_only_one_function_makes_a_command_of_git() -> None:
    """Law 12: whoever starts git another way opens what an agent or a stranger wrote."""
    makers = {
        module.name
        for module in supervisor_sources()
        if not module.name.startswith(("supervisor.reviews.demo", "supervisor.core"))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.List | ast.Tuple)
        and len(node.elts) > 1
        and isinstance(node.elts[0], ast.Constant)
        and str(node.elts[0].value).rpartition("/")[2] == "git"
    }
    assert makers == {"supervisor.git.run_git"}


def test_only_the_gate_makes_a_proof() -> None:
    """A constructor call anywhere else would be a way around the rules."""
    makers = [
        module.name
        for module in supervisor_sources()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"Grant", "Lease"}
    ]
    assert set(makers) <= {"supervisor.gate.gate"}


def test_a_plan_of_an_install_gets_a_way_to_an_index_by_one_function() -> None:
    """Law 11: a program that starts before the answer reads at an index, by `plan` alone. Without
    what bounds a plan (`own` is None) only `install` lends a way, and it uses a grant for it."""
    lenders, calls = set(), []
    for module in supervisor_sources():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr.strip("_") == "open_reach":
                lenders.add(module.name)
            if isinstance(node, ast.AsyncFunctionDef):
                words = [dotted(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)]
                calls += [
                    (module.name, node.name, ast.unparse(one.args[3]), "grant.use" in words)
                    for one in ast.walk(node)
                    if isinstance(one, ast.Call) and dotted(one.func) == "self._reaching"
                ]
    sandbox = "supervisor.channels.install_sandbox"
    assert lenders == {
        "supervisor.parts",  # hands it over
        sandbox,
        "supervisor.channels.registry_client",  # our own client: it sends GET alone
    }
    assert calls == [(sandbox, "plan", "own", False), (sandbox, "install", "None", True)]


def modules() -> list[Path]:
    """The product's, and those that hold it to what it says."""
    return [*(module.path for module in sources()), *sorted((ROOT / "tests").rglob("*.py"))]


def test_every_module_says_what_it_is() -> None:
    read = {module.path: module.tree for module in sources()}
    trees = {
        path: read.get(path) or ast.parse(path.read_text(encoding="utf-8")) for path in modules()
    }
    silent = [
        str(path.relative_to(ROOT))
        for path, tree in trees.items()
        if tree.body and not ast.get_docstring(tree)
    ]
    assert not silent, (
        "a module docstring says what it does and what it must never do; a test's, what it tries"
        " to break"
    )


def test_a_public_class_has_its_name_to_itself() -> None:
    """Whoever reads a name knows which class is meant; type aliases count as well."""
    places: dict[str, set[str]] = {}
    for module in supervisor_sources():
        for node in module.tree.body:
            name = ""
            if isinstance(node, ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.TypeAlias):
                name = node.name.id
            if name and not name.startswith("_"):
                places.setdefault(name, set()).add(module.name)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_each_expression_loader_and_decompressor_is_listed_with_who_writes_what_it_reads() -> None:
    """Law 14: a new one is fed by `test_worst_cases`, or it reads nothing that a stranger wrote."""
    there = Counter({one.key: 1 for one in hostile_readers.found()})
    listed = Counter(key for keys in hostile_readers.listed().values() for key in keys)
    assert not there - listed, "list it in tests/hostile_readers.yaml"
    assert not listed - there, "it is gone, or listed twice"
