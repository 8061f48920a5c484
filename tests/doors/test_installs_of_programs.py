"""Package managers as people type them in a supervised shell: their words become a card, and what
comes of it is the manager's own output and exit code."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.settings import ROOT
from tests.channels.test_packages import use_cargo
from tests.doors.conftest import House, Started
from tests.fakes import registry
from tests.fakes.registry import Registry


@pytest.fixture(scope="module")
def index() -> Iterator[Registry]:
    with registry.serving() as serving:
        serving.add_npm("tiny-one", "1.0.0", bin={"tiny-one": "index.js"})
        serving.add_wheel("tiny-wheel", "1.0.0")
        serving.add_crate("tinycrate", "1.2.3")
        yield serving


@pytest.fixture
def shop(house: House, index: Registry) -> House:
    """A workspace of npm and pip, supervised, whose person uses the index."""
    (house.workspace / "package.json").write_text(
        '{"name": "app", "version": "1.0.0", "scripts": {"test": "echo TESTED"}}\n'
    )
    (house.workspace / ".gitignore").write_text("node_modules\n.venv\nother\n")
    (house.workspace / "requirements.txt").write_text("tiny-wheel==1.0.0\n")
    house.up(npm_config_registry=f"{index.url}/", PIP_INDEX_URL=f"{index.url}/simple/")
    house.ok("rules", "add", "allow", f"network(127.0.0.1:{index.port})")
    return house


def begun(house: House, script: str, *words: str) -> Started:
    place = ("--workspace", str(house.workspace))
    return house.start("run", *place, *words, "--", "bash", "-c", f"{script}\necho ENDED $?")


def ended(started: Started, code: int = 0) -> str:
    """All that was printed, once the script has ended so."""
    printed = started.until_printed("ENDED ")
    assert f"ENDED {code}" in printed, printed
    return printed


def install_of(house: House, command: str) -> dict[str, Any]:
    """The install with this title, once it waits."""

    def found() -> dict[str, Any] | None:
        assert not [one for one in house.started if one.poll() is not None], "a verb ended"
        return next((one for one in house.requests() if one["title"] == command), None)

    try:
        return house.until_told(found, f"`{command}` to wait")
    except AssertionError as error:
        logs = [one.read_text() for one in house.folder.glob("log-*.txt")]
        raise AssertionError("\n".join([str(error), *logs])) from error


def approved(house: House, started: Started, command: str) -> dict[str, Any]:
    """Approve the install that a program waits for, as the terminal says."""
    asked = install_of(house, command)
    assert asked["origin"] == "agent_tool"
    started.until_printed(f"(gatehouse approve {asked['id'][:8]})")
    house.ok("approve", asked["id"][:8])
    return asked


@pytest.mark.parametrize("copy", ["copy", pytest.param("overlay", marks=pytest.mark.many)])
def test_npm_install_typed_in_a_shell_is_a_card_and_ends_as_npm_does(
    shop: House, copy: str
) -> None:
    line = "npm install tiny-one && node -p 'require(\"tiny-one/package.json\").version'"
    started = begun(shop, line, "--copy", copy)
    approved(shop, started, "npm install tiny-one")
    printed = ended(started)
    assert "waiting for an answer: npm install tiny-one (1 package)" in printed
    assert "added 1 package" in printed
    assert "1.0.0\n" in printed
    assert [one["category"] for one in shop.requests() if one["origin"] == "egress"] == []


def test_a_denied_install_is_one_line_with_its_reason(shop: House) -> None:
    started = begun(shop, "npm install tiny-one")
    asked = install_of(shop, "npm install tiny-one")
    shop.ok("deny", asked["id"], "--reason", "use left-pad")
    printed = ended(started, 1)
    (line,) = [one for one in printed.splitlines() if "use left-pad" in one]
    assert line.startswith("gatehouse: denied by operator (cli): use left-pad; ask again after ")


def test_an_install_is_answered_after_the_session_s_end(shop: House) -> None:
    started = begun(shop, "npm install tiny-one")
    asked = install_of(shop, "npm install tiny-one")
    shop.stop(asked["session_id"])
    started.ended()
    assert "left to answer: 1 " in started.printed
    shop.ok("approve", asked["id"])
    change = shop.until_waiting("write package.json")
    shop.ok("approve", change)
    assert '"tiny-one":"^1.0.0"' in (shop.workspace / "package.json").read_text()


def test_an_interrupted_install_withdraws_its_card(shop: House) -> None:
    (shop.workspace / "interrupt.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "install = subprocess.Popen(['npm', 'install', 'tiny-one'])\n"
        "while not os.path.exists('/workspace/lower/go'):\n    time.sleep(0.05)\n"
        "install.send_signal(signal.SIGINT)\nprint('CODE', install.wait())\n"
    )
    started = begun(shop, "python3 interrupt.py; sleep 100")
    asked = install_of(shop, "npm install tiny-one")
    (shop.workspace / "go").write_text("")
    printed = started.until_printed("CODE 130")

    def withdrawn() -> bool:
        now = shop.http("GET", f"/api/requests/{asked['id']}")[1]["request"]
        return bool(now["why"] == "the program that asked has gone")

    shop.until_told(withdrawn, "the card to be withdrawn")
    assert "Traceback" not in printed
    shop.stop(asked["session_id"])


def test_parts_of_lines_scripts_and_make_are_asked_when_it_comes_to_them(shop: House) -> None:
    (shop.workspace / "Makefile").write_text("all:\n\tnpm install tiny-one\n\tnpm test\n")
    (shop.workspace / "install.py").write_text(
        "import subprocess, sys\nsys.exit(subprocess.call(['npm', 'uninstall', 'tiny-one']))\n"
    )
    started = begun(shop, "echo begun && make all && python3 install.py && npm ci && npm test")
    approved(shop, started, "npm install tiny-one")
    approved(shop, started, "npm uninstall tiny-one")
    approved(shop, started, "npm ci")
    printed = ended(started)
    assert printed.count("TESTED") == 4  # npm shows the line, too
    assert "removed 1 package" in printed


@pytest.mark.many
def test_a_command_that_the_agent_asks_for_has_its_parts_asked(shop: House) -> None:
    call = (
        'curl -s -m 60 "$GATEHOUSE_URL/v1/exec" -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H'
        ' "Content-Type: application/json" -d \'{"command": "npm install tiny-one && npm test"}\''
        '; while sleep 0.1; do curl -s -H "Authorization: Bearer $GATEHOUSE_TOKEN"'
        ' "$GATEHOUSE_URL/v1/requests" | grep TESTED && break; done'
    )
    started = begun(shop, call)
    asked = install_of(shop, "npm install tiny-one")
    shop.ok("approve", asked["id"])
    started.until_printed("TESTED")
    assert "added 1 package" in ended(started)


def test_a_line_with_a_denied_part_does_not_start(shop: House) -> None:
    shop.ok("rules", "add", "deny", "packages(npm:tiny-one)")
    call = (
        'curl -s -m 60 "$GATEHOUSE_URL/v1/exec" -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H'
        ' "Content-Type: application/json" -d \'{"command": "echo a > a; npm install tiny-one"}\''
    )
    started = begun(shop, f"{call}; ls a; npm install tiny-one")
    printed = ended(started, 1)
    assert '"status":"denied"' in printed
    assert "cannot access 'a'" in printed
    (line,) = [one for one in printed.splitlines() if one.startswith("gatehouse: denied")]
    assert "packages(npm:tiny-one)" in line
    assert "ask the operator for a rule, or do without it" in line


@pytest.mark.many
def test_words_that_fetch_nothing_are_the_manager_s_own(shop: House) -> None:
    lines = "npm test; npm --version; npm help install | head -1; pip3 list; npm install --help"
    started = begun(shop, f"{lines}; command -v npm no-manager yarn; no-manager")
    printed = ended(started, 127)
    assert printed.count("TESTED") == 2
    assert "gatehouse: " not in printed.partition("TESTED")[2].partition("ENDED")[0]
    assert "/opt/gatehouse/managers/npm" in printed
    assert "managers/yarn" not in printed  # there is none
    assert not [one for one in shop.requests() if one["category"] == "packages"]


def test_pip_in_an_environment_is_a_card_however_it_is_started(shop: House) -> None:
    started = begun(
        shop,
        "python3 -m venv .venv && python3 -m venv other && pip install -r requirements.txt"
        " && .venv/bin/python -c 'import tiny_wheel; print(\"FIRST\", tiny_wheel.VERSION)'"
        " && .venv/bin/python -m pip uninstall -qy tiny-wheel"
        " && .venv/bin/python -m pip install tiny-wheel"
        " && . other/bin/activate && pip list && pip install -r requirements.txt"
        " && python -c 'import tiny_wheel; print(\"LAST\", tiny_wheel.__file__)'",
    )
    approved(shop, started, "pip install -r requirements.txt")
    started.until_printed("FIRST 1.0.0")
    approved(shop, started, "pip install tiny-wheel")
    approved(shop, started, "pip --python other install -r requirements.txt")
    printed = ended(started)
    assert "LAST /workspace/merged/other/lib/" in printed
    assert "Successfully installed tiny-wheel-1.0.0" in printed


def test_npm_ci_of_many_packages_is_one_card(shop: House, index: Registry) -> None:
    names = [f"many-{number}" for number in range(300)]
    entries: dict[str, Any] = {"": {"name": "app", "dependencies": dict.fromkeys(names, "1.0.0")}}
    for name in names:
        index.add_npm(name, "1.0.0")
        url = f"{index.url}/{name}/-/1.0.0.tgz"
        known = {"version": "1.0.0", "resolved": url, "integrity": index.integrity(name, "1.0.0")}
        entries[f"node_modules/{name}"] = known
    lock = {"name": "app", "lockfileVersion": 3, "requires": True, "packages": entries}
    manifest = {"name": "app", "dependencies": dict.fromkeys(names, "1.0.0")}
    (shop.workspace / "package.json").write_text(json.dumps(manifest))
    (shop.workspace / "package-lock.json").write_text(json.dumps(lock))
    started = begun(shop, "npm ci")
    asked = approved(shop, started, "npm ci")
    printed = ended(started)
    assert "npm ci (300 packages)" in printed
    assert "added 300 packages" in printed
    others = {one["category"] for one in shop.requests()} - {"packages"}
    assert not others, asked


@pytest.mark.many
def test_a_manager_started_around_ours_is_told_how_to_ask(shop: House) -> None:
    lines = "/usr/bin/npm install tiny-one; npm config get registry; /usr/bin/npm test"
    started = begun(shop, lines)
    printed = ended(started)
    assert "packages come by a request" in printed
    assert "start it by its plain name with /opt/gatehouse/managers first on PATH" in printed
    assert "3702" not in printed.partition("TESTED")[0].splitlines()[-1]
    assert not [one for one in shop.requests() if one["category"] in ("packages", "network")]


def test_what_is_said_at_the_door_gets_what_the_agent_s_own_door_gives(shop: House) -> None:
    shop.ok("rules", "add", "deny", "packages(npm:event-stream)")
    calls: list[Any] = [
        {"words": ["npm", "install", "event-stream"], "cwd": "/workspace/merged"},
        {"words": ["npm", "install", "tiny-one"], "cwd": "/workspace/merged/../../etc"},
        {"words": ["pip", "install", "tiny-wheel"], "cwd": ".", "environment": "/usr"},
        {"words": ["npm", "install", "tiny-one"], "cwd": ".", "approved": True},
        {"words": ["/tmp/npm", "install", "tiny-one"], "cwd": "."},
        {"words": ["bash", "-c", "npm install tiny-one"], "cwd": "."},
        {"words": [], "cwd": "."},
        {"words": ["npm", "install", "tiny-one", "--note=\x01"], "cwd": "."},
        {"words": ["npm", "test", *["x" * 1000] * 11], "cwd": "."},
        {"words": ["npm", "--loglevel", "warn", "-g", "install", "event-stream"], "cwd": "."},
        {"words": ["npm", "install", "event-stream", "--cache", "-h"], "cwd": "."},
        {"words": ["npm", "init", "tiny-one"], "cwd": "."},
        {"words": ["npm", "run", "install"], "cwd": "."},
    ]
    bodies = " ".join(f"'{json.dumps(one)}'" for one in calls)
    url = "http://127.0.0.1:3702"
    started = begun(
        shop,
        f"for body in {bodies}; do curl -s -m 60 {url}/v1/run-package -H 'Content-Type:"
        ' application/json\' -d "$body"; echo; done; '
        f"for path in v1/requests v1/exec v1/packages api/requests; do curl -s {url}/$path; echo;"
        " done",
    )
    printed = ended(started).partition("ENDED")[0]
    answers = [one for one in printed.splitlines() if one.startswith("{")]
    denied, outside, environment, unknown, path, program, nothing, *answers = answers
    hidden, long, late, value, init, plain, *routes = answers
    assert "holds a line break or a hidden character" in hidden
    assert "more than 10000 characters" in long
    assert "packages(npm:event-stream)" in late
    assert "packages(npm:event-stream)" in value
    assert "`npm init` fetches packages" in init
    assert plain == '{"plain": true, "exit": 0}'
    assert "packages(npm:event-stream)" in denied
    assert "is outside the workspace" in outside
    assert "is outside the workspace" in environment
    assert "approved" in unknown
    assert "words" in nothing
    assert "this is not the command of a known package manager" in path
    assert "this is not the command of a known package manager" in program
    assert len(routes) == 4
    assert all("not found" in one.lower() for one in routes), routes
    assert not [one for one in shop.requests() if one["category"] == "packages"]


@pytest.fixture
def toolchain(monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of cargo's programs."""
    use_cargo(monkeypatch)
    done = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True, check=True)
    return str(Path(done.stdout.strip()).parents[1])


def test_a_build_asks_for_the_crates_that_are_missing_and_then_for_none(
    toolchain: str, shop: House, index: Registry
) -> None:
    (shop.workspace / "src").mkdir()
    (shop.workspace / "src/main.rs").write_text('fn main() { println!("BUILT") }\n')
    (shop.workspace / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n'
        '[dependencies]\ntinycrate = "1"\n'
    )
    (shop.workspace / ".cargo").mkdir()
    (shop.workspace / ".cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "own"\n'
        f'[source.own]\nregistry = "sparse+{index.url}/index/"\n'
    )
    started = begun(shop, "cargo run && cargo test && cargo run", "--bind", toolchain)
    approved(shop, started, "cargo fetch")
    printed = ended(started)
    assert printed.count("BUILT") == 2


def test_npx_asks_for_a_command_that_is_missing_and_then_for_none(
    shop: House, index: Registry
) -> None:
    code = "#!/usr/bin/env node\nconsole.log('SAID', ...process.argv.slice(2))\n"
    index.add_npm("says", "1.2.0", code=code, bin={"says": "index.js"})
    started = begun(
        shop, "cd /tmp && npx says one && npx says two && npx -y says three && npm exec says four"
    )
    approved(shop, started, "npm install -g says")
    printed = ended(started)
    for word in ("one", "two", "three", "four"):
        assert f"SAID {word}" in printed


@pytest.mark.many
def test_what_runs_a_package_once_installs_it_by_npm(shop: House, index: Registry) -> None:
    """Under a name that isn't its program's, with a version, with words for its program."""
    code = "#!/usr/bin/env node\nconsole.log('TOLD', ...process.argv.slice(2))\n"
    index.add_npm("@own/tells", "1.2.0", code=code, bin={"teller": "index.js"})
    for name in ("tells-too", "create-tells"):
        index.add_npm(name, "1.0.0", code=code, bin={name: "index.js"})
    run = "pnpm dlx" if shutil.which("pnpm") else "npx"
    started = begun(
        shop,
        f"{run} @own/tells@1.2.0 --help && npx @own/tells install && npm exec -- @own/tells a b"
        f" && npx -p tells-too tells-too c && npm create tells d -- --e; {run} tiny-one;"
        " npx no-such-package",
    )
    approved(shop, started, "npm install -g @own/tells@1.2.0")
    approved(shop, started, "npm install -g tells-too")
    approved(shop, started, "npm install -g create-tells")
    approved(shop, started, "npm install -g tiny-one")
    missing = install_of(shop, "npm install -g no-such-package")
    assert "404 Not Found" in str(shop.http("GET", f"/api/requests/{missing['id']}")[1])
    shop.run("approve", missing["id"])
    printed = ended(started, 1)
    for words in ("--help", "install", "a b", "c", "d --e"):
        assert f"TOLD {words}\n" in printed, printed
    assert "npm error 404 Not Found" in printed
    assert "npm warn" not in printed
    assert not [one for one in shop.requests() if one["category"] == "network"]


@pytest.mark.many
@pytest.mark.skipif(not os.access("/usr/bin/go", os.X_OK), reason="there is no go here")
def test_go_asks_for_the_modules_that_are_missing_and_then_for_none(house: House) -> None:
    with registry.serving(name="host.gatehouse.internal") as index:
        _go_asks(house, index)


def _go_asks(house: House, index: Registry) -> None:
    index.add_go("example.org/told", "v1.0.0", 'package told\n\nconst Word = "GONE"\n')
    (house.workspace / "go.mod").write_text("module app\n\ngo 1.17\n")
    (house.workspace / "main.go").write_text(
        'package main\n\nimport (\n\t"fmt"\n\n\t"example.org/told"\n)\n\n'
        "func main() { fmt.Println(told.Word) }\n"
    )
    house.up(GOPROXY=index.url, GOSUMDB="off", GOFLAGS="")
    house.ok("rules", "add", "allow", f"network({index.host}:{index.port})")
    started = begun(house, "go get example.org/told && go run . && go build && go vet")
    approved(house, started, "go get example.org/told")
    assert "\nGONE\n" in ended(started)


@pytest.fixture
def uv_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with uv alone, which the person has on their PATH."""
    found = shutil.which("uv") or shutil.which(ROOT / ".tools/uv")
    if found is None:
        pytest.skip("there is no uv here")
    folder = tmp_path / "tools/bin"
    folder.mkdir(parents=True)
    shutil.copy(found, folder / "uv")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return str(folder)


@pytest.mark.many
def test_uv_asks_for_what_a_project_lacks_and_then_for_nothing(uv_folder: str, shop: House) -> None:
    (shop.workspace / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        'dependencies = ["tiny-wheel"]\n'
    )
    line = "uv run --no-project true && uv run python -c 'import tiny_wheel; print(\"GOT IT\")'"
    again = "uv run python -c 'print(\"AGAIN\")' && uv sync"
    started = begun(shop, f"{line} && {again}", "--bind", uv_folder)
    approved(shop, started, "uv sync")
    printed = ended(started)
    assert "GOT IT" in printed
    assert "AGAIN" in printed


@pytest.mark.many
def test_uv_runs_a_package_once_it_is_installed(
    uv_folder: str, shop: House, index: Registry
) -> None:
    index.add_wheel("told", "1.0.0", code="def main():\n    print('TOLD')\n", program="told:main")
    started = begun(shop, "uv tool run told && uv tool run told --help", "--bind", uv_folder)
    approved(shop, started, "uv tool install told")
    assert ended(started).count("TOLD") == 2
