"""Standard streams that are closed, that nobody reads or that can't show a character; locales and
names that aren't UTF-8: one clear line, or none, and never a bug of ours."""

import os
import pty

import pytest

from tests.doors.conftest import Door, no_bug, one_line
from tests.tables import share

pytestmark = [pytest.mark.timeout(300)]

# As Python has it where the locale is POSIX and nothing tells it better.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
RUN = "gatehouse run --workspace workspace --"


@pytest.mark.parametrize("verb", ["--help", "--version", "policy explain exec ls", "doctor"])
def test_a_closed_output_is_one_clear_line(door: Door, verb: str) -> None:
    one_line(door.sh(f"gatehouse {verb} >&-"), "the output can't be written: Bad file descriptor")


@pytest.mark.parametrize("verb", ["policy check", "policy explain -", "reviewerc check -"])
def test_a_closed_input_is_one_clear_line(door: Door, verb: str) -> None:
    one_line(door.sh(f"gatehouse {verb} <&-"), "standard input is closed; give it")


def test_a_reader_that_has_enough_ends_a_verb_in_peace(door: Door) -> None:
    no_bug(door.run("run", "--workspace", "workspace", "--", "true"))
    one_line(door.sh("gatehouse audit >&-"), "the output can't be written: Bad file descriptor")
    log = door.data / "audit.log"
    log.write_bytes(log.read_bytes() * 300)  # more than a pipe holds
    done = door.sh("gatehouse audit | head -n 1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "| head -n 1")


@pytest.mark.many
@pytest.mark.parametrize("closed", share(CLOSED, "<&- >&- 2>&-", "| head -n 1"))
def test_a_session_goes_on_without_its_terminal(door: Door, closed: str) -> None:
    """And the exit code is the agent's."""
    agent = "sh -c 'seq 30000; exit 7'"
    done = door.sh(f"{RUN} {agent} {closed}; exit ${{PIPESTATUS[0]}}")
    assert "login" not in done.stdout, "nothing of ours is printed where output is read"
    assert (done.returncode, no_bug(done).count("Exception")) == (7, 0), done
    assert "exit_code=7" in door.run("audit").stdout


def test_beside_a_supervisor_a_session_goes_on_without_a_reader(door: Door) -> None:
    door.up()
    done = door.sh(f"{RUN} sh -c 'seq 30000; exit 7' | head -n 1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout) == (7, "1\n"), no_bug(done)


@pytest.mark.parametrize("locale", share([ASCII, {"PYTHONIOENCODING": "latin-1"}], ASCII))
def test_a_locale_that_lacks_a_character(door: Door, locale: dict[str, str]) -> None:
    done = door.run("policy", "explain", "exec", "echo → ä", **locale)
    assert done.returncode == 0, no_bug(done)
    done = door.run("run", "--workspace", "workspace", "--", "printf", "a → b\n", **locale)
    assert done.returncode == 0, no_bug(done)
    assert done.stdout in {"a → b\n", "a \\u2192 b\n"}


@pytest.mark.many
def test_names_of_files_mean_the_same_in_every_locale(door: Door) -> None:
    """Else a rule for a name would hold in one locale and not in another."""
    (door.workspace / "ä.txt").write_text("before\n")
    policy = door.folder / "policy.yaml"
    policy.write_text("version: 1\nmodes: {filesystem: allow}\ndeny: ['filesystem(ä.txt)']\n")
    words = ("run", "--workspace", "workspace", "--policy", str(policy), "--", "sh", "-c")
    done = door.run(*words, "echo now > ä.txt; echo now > ö.txt", **ASCII)
    assert done.returncode == 0, no_bug(done)
    kept = {path.name: path.read_text() for path in door.workspace.iterdir()}
    assert kept == {"ä.txt": "before\n", "ö.txt": "now\n"}


def test_bytes_that_are_not_utf8_are_said_in_one_line(door: Door) -> None:
    odd = door.folder / os.fsdecode(b"odd-\xff")
    odd.mkdir()
    run = ("run", "--workspace")
    words = "is not UTF-8 text"
    one_line(door.run(*run, os.fsencode(odd), "--", "true"), words)
    one_line(door.run(*run, "workspace", "--", b"printf", b"\xff"), words)
    one_line(door.run(*run, "workspace", "--data-dir", b"\xff", "--", "true"), words)
    one_line(door.run("rules", "add", "allow", b"exec(echo \xff)"), words)
    one_line(door.run("up", GATEHOUSE_POLICY=os.fsdecode(b"\xff.yaml")), "GATEHOUSE_POLICY", words)
    one_line(door.sh("cd odd-* && gatehouse run -- true"), words)
    one_line(door.sh("cd odd-* && gatehouse run --data-dir d --workspace .. -- true"), words)


def test_saved_rules_that_are_not_utf8_are_said_in_one_line(door: Door) -> None:
    door.data.mkdir()
    (door.data / "policy.yaml").write_bytes(b"version: 1\n# \xff\n")
    one_line(door.run("rules", "add", "allow", "exec(ls)"), "policy.yaml: is not UTF-8 text")


@pytest.mark.many
def test_beside_a_supervisor_odd_bytes_of_the_environment_stay_here(door: Door) -> None:
    door.up()
    odd = {"TERM": os.fsdecode(b"x\xff"), "PATH": os.fsdecode(b"/\xff:") + os.environ["PATH"]}
    done = door.run("run", "--workspace", "workspace", "--", "true", **odd)
    assert done.returncode == 0, no_bug(done)


def test_what_is_no_id_is_never_sent(door: Door) -> None:
    door.up()
    for verb in ("show", "stop", "reviews show", "deliveries again"):
        for word in ("a b", "../x", "ä"):
            one_line(door.run(*verb.split(), word), "is not an id")


def test_a_folder_that_is_gone_is_said_in_one_line(door: Door) -> None:
    gone = "mkdir gone; cd gone; rmdir ../gone"
    one_line(door.sh(f"{gone}; gatehouse sessions --data-dir d"), "folder that you are in is gone")


@pytest.mark.many
def test_the_end_of_input_at_a_question_is_a_no(door: Door) -> None:
    """^D at `Undo 1 path? [y/N]`."""
    (door.workspace / "a.txt").write_text("before\n")
    policy = door.folder / "all.yaml"
    policy.write_text("version: 1\nmodes: {filesystem: allow}\n")
    words = ("run", "--workspace", "workspace", "--policy", str(policy), "--")
    no_bug(door.run(*words, "sh", "-c", "echo after > a.txt"))
    assert (door.workspace / "a.txt").read_text() == "after\n"
    master, slave = pty.openpty()
    undo = door.start("undo", "--all", stdin=slave)
    os.close(slave)
    undo.until_printed("[y/N]")
    os.write(master, b"\x04")
    assert undo.ended() == 2, undo.printed
    assert "nothing was undone" in undo.printed
    assert "Traceback" not in undo.printed
    os.close(master)
    assert (door.workspace / "a.txt").read_text() == "after\n"


def test_policy_check_at_a_terminal_says_what_it_waits_for(door: Door) -> None:
    master, slave = pty.openpty()
    try:
        check = door.start("policy", "check", stdin=slave)
        check.until_printed("reading actions from the terminal")
        os.write(master, b"\x04")
        assert check.ended() == 0
    finally:
        os.close(master)
        os.close(slave)
