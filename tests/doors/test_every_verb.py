"""Every verb in each state that a user's Gatehouse has, under the shipped default policy: the exit
code that docs/cli.md says, and never a bug of ours."""

import re
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.doors.conftest import Door, House, no_bug

pytestmark = [pytest.mark.timeout(300)]
# Each verb once as a person starts it, with nothing imported.
REALLY_STARTED = True

STATES = ("nothing", "fresh", "running", "ended", "restarted")
NOBODY = "0" * 32
ASKS = """
for n in 1 2 3 4; do echo $n > $n.txt; done
git checkout -q -b night; git add -A
git -c user.name=A -c user.email=a@b.example commit -qm work
"""


class Row(NamedTuple):
    """A verb with words, and its exit code in each of `STATES`. REQUEST, SESSION, RULE: of one that
    is there, or of none."""

    words: str
    codes: str
    given: str = ""


# What only reads first, as what follows changes what there is.
ROWS = (
    Row("approvals", "10000"),
    Row("approvals --json", "10000"),
    Row("status", "00000"),
    Row("sessions", "10000"),
    Row("show REQUEST", "11000"),
    Row("rules list", "00000"),
    Row("url", "10000"),
    Row("audit", "00000"),
    Row("audit --json", "00000"),
    Row("audit --verify", "00000"),
    Row("policy check", "00000", '{"category": "exec", "command": "ls"}\n'),
    Row("policy explain exec ls", "00000"),
    Row("policy test cases", "00000"),
    Row("policy lint", "00000"),
    Row("policy replay --against POLICY", "00000"),
    Row("policy learn", "00000"),
    Row("policy import claude claude.json", "00000"),
    Row("reviewerc check reviewerc", "00000"),
    Row("reviewerc check -", "11111", "strictness: nonsense\n"),
    Row("doctor", "00000"),
    Row("holds", "11111"),
    Row("hold --all", "11111"),
    Row("release --all", "11111"),
    Row("repos list", "11111"),
    Row("repos enable o/r", "11111"),
    Row("repos disable o/r", "11111"),
    Row("review-pr o/r#1", "11111"),
    Row("reviews list", "11111"),
    Row("reviews show 1", "11111"),
    Row("reviews receipt 1", "11111"),
    Row("reviews trace 1", "11111"),
    Row("reviews requeue 1", "11111"),
    Row("reviews undo 1", "11111"),
    Row("jobs list", "11111"),
    Row("jobs run o/r j", "11111"),
    Row("jobs log o/r j", "11111"),
    Row("jobs pause o/r j", "11111"),
    Row("jobs resume o/r j", "11111"),
    Row("deliveries list", "11111"),
    Row("deliveries again 1", "11111"),
    Row("app create --url nonsense", "11111"),
    Row("run --workspace nowhere -- true", "11111"),
    Row("run --workspace empty -- false", "11111"),
    Row("review --workspace nowhere", "11111"),
    Row("maintain --workspace nowhere --prompt x", "11111"),
    Row("quarantine --workspace empty", "11111"),
    # Without a key.
    Row("claude --workspace empty", "11111"),
    Row("codex --workspace empty", "11111"),
    Row("opencode --workspace empty", "11111"),
    Row("agents forget", "00000"),
    Row("agents forget claude", "00000"),
    Row("up --max-uptime never", "11111"),
    Row("demo --port never", "11111"),
    # In no job of a workflow.
    Row("action", "11111"),
    Row("pause SESSION", "11111"),
    Row("unpause SESSION", "11111"),
    Row("rename SESSION night", "11000"),
    Row("rules add allow filesystem(3.txt)", "00000"),
    Row("rules remove RULE", "00000"),
    Row("take SESSION", "11000"),
    Row("approve REQUEST", "11000"),
    Row("deny REQUEST", "11111"),
    Row("undo --all --yes", "11000"),
    Row("drop SESSION", "11100"),
    Row("resume SESSION -- rm 4.txt", "11100"),
    Row("stop SESSION", "11000"),
)


def test_the_walk_has_every_verb(door: Door) -> None:
    def verbs(*words: str) -> list[str]:
        printed = door.run(*words, "--help").stdout
        names = re.findall(r"^    ([a-z-]+)(?: |$)", printed, re.MULTILINE)
        return [one for one in names if one != "VERB"]

    missing = set()
    for verb in verbs():
        is_group = "|" in door.run(verb, "--help").stdout.partition("\n")[0]
        for words in [f"{verb} {one}" for one in verbs(verb)] if is_group else [verb]:
            if not any(f"{row.words} ".startswith(f"{words} ") for row in ROWS):
                missing.add(words)
    assert not missing


def in_state(house: House, state: str) -> str:
    """Bring it there; the id of the session that is there."""
    if state != "nothing":
        house.up()
    if state in ("nothing", "fresh"):
        return NOBODY
    session = house.agent(ASKS)
    house.ok("approve", house.until_waiting("write 1.txt"))
    if state != "running":
        house.stop(session)
    if state == "restarted":
        house.end()
        house.up()
    return session


def waiting_in(house: House, session: str) -> str:
    if session == NOBODY:
        return NOBODY
    return str(
        next(
            one["id"]
            for one in house.requests()
            if one["session_id"] == session and one["title"] == "write 2.txt"
        )
    )


@pytest.mark.parametrize(
    "state",
    [pytest.param(one, marks=() if one == "running" else pytest.mark.many) for one in STATES],
)
def test_every_verb_does_as_documented(house: House, state: str) -> None:
    session = in_state(house, state)
    (house.folder / "empty").mkdir()
    (house.folder / "cases").mkdir()
    case = "{name: main, category: git, command: git push origin main, verdict: ask}"
    (house.folder / "cases/one.yaml").write_text(f"- {case}\n")
    (house.folder / "claude.json").write_text('{"permissions": {"allow": ["Bash(ls)"]}}')
    (house.folder / "reviewerc").write_text("version: 1\n")
    known = {
        "SESSION": session,
        "REQUEST": waiting_in(house, session),
        "POLICY": str(ROOT / "policy/examples/strict.yaml"),
        "RULE": NOBODY,
    }
    wrong = []
    for row in ROWS:
        words = [known.get(word, word) for word in row.words.split()]
        done = house.run(*words, given=row.given)
        if saved := re.search(r"saved with id (\S+);", done.stdout):
            known["RULE"] = saved[1]
        no_bug(done)
        if done.returncode != int(row.codes[STATES.index(state)]):
            wrong.append((row.words, done.returncode, (done.stdout + done.stderr)[-300:]))
        elif done.returncode and not done.stdout:
            assert done.stderr.startswith("gatehouse: "), (row.words, done.stderr)
    assert not wrong, "\n".join(map(str, wrong))
