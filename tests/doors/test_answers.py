"""`approve`, `deny`, `undo`, `rules`, `audit` and the policy's laboratory in their options, on one
session after the other beside one supervisor."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.doors.conftest import House, one_line, until
from tests.fakes import registry

pytestmark = [pytest.mark.timeout(300)]

STRICT = ROOT / "policy/examples/strict.yaml"


def rules(house: House) -> list[str]:
    return [one["rule"] for one in house.http("GET", "/api/rules")[1] if one["can_remove"]]


def test_an_answer_saves_a_rule_for_as_long_as_it_says(house: House) -> None:
    house.up()
    begun, _ = house.begin("for n in a b c d e; do echo $n > $n.txt; done")
    waiting = house.until_all_wait(*(f"write {one}.txt" for one in "abcde"))
    place = house.workspace
    assert "saved: allow" in house.ok("approve", waiting["write a.txt"], "--always")
    assert "for 15m" in house.ok("approve", waiting["write b.txt"], "--for", "15m")
    assert "for this session" in house.ok("deny", waiting["write c.txt"], "--for", "session")
    given = ("--rule", "filesystem(d.*)", "--reason", "as ever")
    assert "filesystem(d.*)" in house.ok("deny", waiting["write d.txt"], *given)
    one_line(house.run("approve", waiting["write e.txt"], "--rule", "nonsense("), "nonsense(")
    one_line(house.run("approve", waiting["write e.txt"], "--for", "ever"), "ever")
    one_line(house.run("approve", waiting["write e.txt"], "--below", "x"), "--changes")
    assert "applied" in house.ok("approve", waiting["write e.txt"])
    assert begun.ended() == 0
    assert {one.name for one in place.glob("*.txt")} == {"a.txt", "b.txt", "e.txt"}
    assert "as ever" in house.ok("audit")

    # What was saved answers the next session; what was for that session holds no more.
    (place / "a.txt").unlink()
    (place / "b.txt").unlink()
    begun, _ = house.begin("for n in a b c d; do echo new > $n.txt; done")
    until(lambda: (place / "a.txt").exists() and (place / "b.txt").exists(), "what is allowed")
    assert house.waiting().keys() == {"write c.txt"}
    house.ok("deny", house.waiting()["write c.txt"])
    assert begun.ended() == 0
    listed = house.ok("rules", "list")
    for rule in ("filesystem(a.txt)", "filesystem(b.txt)", "filesystem(d.*)"):
        assert rule in listed


def test_what_was_denied_may_be_asked_again_at_once(house: House) -> None:
    house.up()
    asks = "curl -s -m 50 -o /dev/null -w 'code-%{http_code}\\n' http://example.org/"
    place = ("--workspace", str(house.workspace))
    script = f"{asks}; {asks}; until [ -e go ]; do sleep 0.1; done; {asks}; echo THE-END"
    run = house.start("run", *place, "--", "sh", "-c", script)
    first = house.until_told(house.requests, "the connection")[0]["id"]
    house.ok("deny", first)
    until(lambda: run.printed.count("code-") == 2, "the second, unasked")
    assert not house.requests()
    assert "may be asked again" in house.ok("deny", first, "--lift")
    (house.workspace / "go").write_text("")
    (again,) = house.until_told(house.requests, "the connection, asked again")
    house.ok("deny", again["id"])
    run.until_printed("THE-END")


@pytest.mark.many
def test_changes_are_undone(house: House) -> None:
    house.up()
    begun, session = house.begin("mkdir d; for n in 1 2 3; do echo $n > d/$n.txt; done")
    files = [f"write d/{number}.txt" for number in (1, 2, 3)]
    waiting = {title: house.until_waiting(title) for title in files}
    for title in waiting:
        house.ok("approve", waiting[title])
    folder = house.workspace / "d"
    assert begun.ended() == 0, house.waiting()
    assert "1.txt" in house.run("undo", waiting["write d/1.txt"], given="n\n").stdout
    assert (folder / "1.txt").exists()
    house.ok("undo", waiting["write d/1.txt"], "--yes")
    assert not (folder / "1.txt").exists()
    house.ok("undo", "--to", "5m ago", "--yes", "--session", session)
    assert not list(folder.glob("*.txt"))
    timeline = house.http("GET", f"/api/sessions/{session}/timeline?limit=50")[1]
    assert "undo" in json.dumps(timeline)
    one_line(house.run("undo", "0" * 32, "--yes"))


@pytest.fixture
def index() -> Iterator[registry.Registry]:
    with registry.serving() as serving:
        yield serving


@pytest.mark.parametrize(
    "has_scripts", [pytest.param(False, marks=pytest.mark.many), pytest.param(True)]
)
def test_an_install_runs_its_scripts_where_the_person_says_so(
    house: House, index: registry.Registry, has_scripts: bool
) -> None:
    index.add_npm("tiny-one", "1.0.0", scripts={"postinstall": "echo ran > ../../ran.txt"})
    (house.workspace / "package.json").write_text('{"name": "app", "version": "1.0.0"}\n')
    (house.workspace / ".npmrc").write_text(f"registry={index.url}/\n")
    house.up()
    house.ok("rules", "add", "allow", f"network(127.0.0.1:{index.port})")
    session = house.agent(
        'curl -s "$GATEHOUSE_URL/v1/packages" -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H'
        ' "Content-Type: application/json" -d \'{"command": "npm install tiny-one"}\''
    )
    (install,) = house.until_told(house.requests, "the install")
    options = ("--with-scripts",) if has_scripts else ()
    shown = house.ok("show", install["id"])
    assert "tiny-one" in shown
    house.ok("approve", install["id"], *options)
    house.until_told(lambda: "package.json" in str(house.waiting()), "the changes")
    assert ("write ran.txt" in house.waiting()) == has_scripts
    house.stop(session)


@pytest.mark.many
def test_the_record_and_the_policys_laboratory(house: House) -> None:
    house.up()
    begun, session = house.begin("echo a > a.txt; mkdir docs; echo b > docs/b.md")
    waiting = house.until_all_wait("write a.txt", "write docs/b.md")
    house.ok("approve", waiting["write docs/b.md"])
    house.ok("deny", waiting["write a.txt"])
    assert begun.ended() == 0
    lines = [json.loads(line) for line in house.ok("audit", "--json").splitlines()]
    assert {one["session"] for one in lines if one.get("session")} == {session}
    assert re.search(r"^head \d+ [0-9a-f]+$", house.ok("audit", "--verify"), re.MULTILINE)
    learned = house.ok("policy", "learn")
    assert "docs/" in learned
    assert "a.txt" not in learned
    replayed = json.loads(house.ok("policy", "replay", "--against", str(STRICT), "--json"))
    assert replayed
    explained = house.ok("policy", "explain", "git", "push", "origin", "main")
    assert "git(push main)" in explained
    assert json.loads(house.ok("policy", "explain", "--json", "exec", "ls"))
    assert json.loads(house.ok("policy", "lint", "--policy", str(STRICT), "--json"))
    import_file = house.folder / "settings.json"
    import_file.write_text('{"permissions": {"deny": ["WebFetch(domain:example.org)"]}}')
    imported = house.folder / "imported.yaml"
    imported.write_text(house.ok("policy", "import", "claude", str(import_file)))
    assert "deny" in house.ok(
        "policy", "explain", "--policy", str(imported), "network", "example.org:443"
    )
