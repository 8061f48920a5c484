"""Holds the documents to the program: what they name exists, and what exists is named.

It checks facts (paths, settings, verbs), never wording.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from litestar import Litestar

from supervisor.records.audit import EVENTS
from supervisor.reviews.pages import jobs_page, metrics, reviews_page
from supervisor.server.agent import mcp_tools
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.settings import SETTINGS
from tests.fakes.parts import FakeParts
from tests.source_reader import run_as_root

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench/README.md",
    "data/README.md",
    "policy/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MOST_WORDS = {"README.md": 1200, "SECURITY.md": 1500}


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def names_that_run(path: str) -> set[str]:
    """The tests of a file that `make test` runs, some rows of each at least: as root only those of
    its share."""
    is_left_out = re.compile(
        r"mark\.many|EVERYTHING"
        if path.startswith(run_as_root("ROOT_SHARE"))
        else r"mark\.many|EVERYTHING|geteuid\(\) != 0"
    )
    body = ast.parse(text_of(path))
    texts = {one.name: one.decorator_list for one in ast.walk(body) if isinstance(one, FUNCTION)}
    of_all = [
        one.value
        for one in body.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"
    ]
    return {
        name
        for name, marks in texts.items()
        if name.startswith("test_")
        and not any(
            is_left_out.search(mark) and "parametrize" not in mark
            for mark in map(ast.unparse, [*of_all, *marks])
        )
    }


def test_every_claim_names_a_test_that_make_test_runs() -> None:
    claims = re.findall(
        r"^\| (?!claim)(?!-)(.+?) \| `(tests/[^`]+)` \|$", text_of("docs/claims.md"), re.MULTILINE
    )
    assert len(claims) > 20
    for claim, named in claims:
        path, _, name = named.partition("::")
        assert (ROOT / path).is_file(), f"{named}: {claim}"
        found = names_that_run(path)
        assert name in found if name else found, f"{named}: {claim}"


def test_every_row_of_claims_is_one_that_the_test_above_reads() -> None:
    """A row in another form would be a claim that nothing checks."""
    claims = text_of("docs/claims.md")
    rows = [
        line
        for line in claims.splitlines()
        if line.startswith("|") and line not in {"| claim | tried by |", "|---|---|"}
    ]
    assert [row for row in rows if not re.fullmatch(r"\| .+ \| `tests/[^`]+` \|", row)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_that_documents_name_exist(document: str) -> None:
    """Links, and names in backticks that begin with a folder of this repository."""
    text = text_of(document)
    links = [
        ROOT / document / ".." / link for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    ]
    folders = "supervisor|agent_image|policy|web|tests|bench|scripts|docs"
    named = [ROOT / name for name in re.findall(rf"`((?:{folders})/[\w./-]+)`", text)]
    missing = [str(path) for path in [*links, *named] if not path.resolve().exists()]
    assert missing == []


@pytest.mark.parametrize("document", MOST_WORDS)
def test_a_first_page_is_short(document: str) -> None:
    """Whoever looks at the project reads these first; everything else is a page in docs/."""
    assert len(text_of(document).split()) <= MOST_WORDS[document]


def test_every_setting_is_told_and_no_other() -> None:
    table = re.search(
        r"<!-- settings:.*?-->\n(.*?)<!-- end -->", text_of("docs/settings.md"), re.DOTALL
    )
    assert table
    rows = [re.split(r" *\| *", row)[1:-1] for row in table[1].splitlines()[2:]]
    assert all(len(row) == 3 and row[2] for row in rows), "a row is a name, a default, a meaning"
    assert [row[:2] for row in rows] == [
        [f"`{one.name}`", f"`{one.default}`" if one.default else "none"] for one in SETTINGS
    ]


def test_every_verb_is_told_and_no_other(gatehouse: Path) -> None:
    shown = subprocess.run(
        [str(gatehouse), "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    verbs = set(re.findall(r"^  ([a-z]+)(?: |$)", shown, re.MULTILINE))
    told = set(re.findall(r"^\| `gatehouse (\w+)", text_of("docs/cli.md"), re.MULTILINE))
    assert verbs
    assert told == verbs


@pytest.mark.parametrize("page", [one for one in DOCUMENTS if one.startswith("docs/")])
def test_every_page_is_linked_from_the_readme(page: str) -> None:
    assert f"]({page})" in text_of("README.md")


def test_every_make_target_that_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text_of(document), re.MULTILINE))
        assert named <= targets, document


def test_the_changelog_opens_with_what_is_unreleased() -> None:
    assert re.search(r"^## (Unreleased|\d+\.\d+\.\d+)", text_of("CHANGELOG.md"), re.MULTILINE)


def test_every_event_of_the_audit_log_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \|", text_of("docs/record.md"), re.MULTILINE)
    assert tuple(told) == EVENTS


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_is_recorded_somewhere(event: str) -> None:
    """An event that nothing writes would be a promise that nobody keeps."""
    sources = [path for path in (ROOT / "supervisor").rglob("*.py") if path.name != "audit.py"]
    written = any(f'"{event}"' in path.read_text(encoding="utf-8") for path in sources)
    assert written or event in ("audit_recovered", "audit_failed")  # by the audit log itself


def test_a_law_in_the_source_is_a_line_of_the_page_of_laws() -> None:
    laws = re.findall(r"^\| (\d+) \| .+ \|$", text_of("docs/laws.md"), re.MULTILINE)
    assert laws == [str(number) for number in range(1, 15)]
    sources = [*(ROOT / "supervisor").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    named = {
        number
        for path in sources
        for number in re.findall(r"\b[Ll]aw (\d+)", path.read_text(encoding="utf-8"))
    }
    assert named <= set(laws)
    assert len(named) > 5


def test_every_package_is_on_the_map_and_no_other() -> None:
    section = text_of("docs/architecture.md").partition("\n## Packages\n")[2].partition("\n## ")[0]
    mapped = re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)
    packages = {
        ".".join(path.parent.relative_to(ROOT / "supervisor").parts)
        for path in (ROOT / "supervisor").rglob("__init__.py")
    }
    assert set(mapped) == {one for one in packages if one and "migrations" not in one}
    assert len(mapped) == len(set(mapped))


# -- docs/api.md ----------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[FakeParts]:
    made = FakeParts(tmp_path / "data")
    yield made
    made.close()


def told_routes(section: str) -> dict[str, set[str]]:
    """The routes of a section's table, each with the fields of its query or body."""
    text = text_of("docs/api.md").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z]+ /[^`]*)` \|([^|]*)\|[^|]+\|$", text, re.MULTILINE)
    assert len({route for route, _ in rows}) == len(rows)
    return {route: set(re.findall(r"`(\w+)`", fields)) for route, fields in rows}


def served_routes(app: Litestar) -> set[str]:
    """What an app serves that no page of its own asks for."""
    found = set()
    for route in app.routes:
        methods = set(getattr(route, "methods", ())) - {"OPTIONS", "HEAD"}
        path = re.sub(
            r"/(requests|sessions|rules|repos|reviews|jobs|deliveries)/\{\w+\}",
            r"/\1/{id}",
            route.path_format,
        )
        if route.scope_type.name == "WEBSOCKET":
            methods = {"WS"}
        elif route.scope_type.name == "ASGI":
            methods = {"POST"}
        elif not re.match(r"/(api|v1|health|login|metrics)(/|$)", path):
            continue
        if not path.startswith("/static"):
            found |= {f"{method} {path}" for method in methods}
    return {one for one in found if not re.search(r"openapi\.json/.", one)}


def understood(app: Litestar) -> dict[str, set[str]]:
    """The fields of query and body of each route in the OpenAPI document."""
    document: Any = app.openapi_schema.to_schema()
    schemas = document["components"]["schemas"]
    found = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            fields = {
                one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
            }
            for name in re.findall(
                r"#/components/schemas/(\w+)", str(operation.get("requestBody"))
            ):
                fields |= set(schemas[name]["properties"])
            path = re.sub(
                r"/(requests|sessions|rules|repos|reviews|jobs|deliveries)/\{\w+\}",
                r"/\1/{id}",
                path,
            )
            found[f"{method.upper()} {path}"] = fields
    return found


def test_every_route_of_the_operator_is_told_and_no_other(parts: FakeParts) -> None:
    app = build_operator_app(parts, parts.new_auth(), (reviews_page, jobs_page, metrics))
    told = told_routes("The operator's API")
    assert set(told) == served_routes(app)
    for route, fields in understood(app).items():
        assert told[route] == fields, route


def test_every_route_of_the_agent_is_told_and_no_other(parts: FakeParts) -> None:
    app = build_agent_app(parts, "one")
    told = told_routes("The agent's API")
    assert set(told) == served_routes(app)
    for route, fields in understood(app).items():
        assert told[route] == fields, route


def test_every_tool_of_the_agent_is_told_and_no_other() -> None:
    text = text_of("docs/api.md").partition("\n### MCP tools\n")[2]
    told = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    calls: Any = SimpleNamespace()
    for name in ("exec", "write", "edit", "delete", "move", "packages", "git", "propose"):
        setattr(calls, name, None)
    assert told == list(mcp_tools.tools(calls))
