"""An agent that wants more learned than was meant."""

import pytest

from supervisor.core.actions import Action
from supervisor.core.lab.learn import learn
from supervisor.core.packages.package_commands import parse_command as package
from supervisor.core.policy.git_refs import parse_command as git
from tests.core.lab.test_learn import (
    NOTHING,
    NOW,
    allows,
    approved,
    commands,
    connect,
    past,
    request,
    run,
    write,
)
from tests.tables import each_row


@each_row(
    ("asked", "wanted"),
    [
        (["npm run x"] * 3, ["npm run evil", "npm run x && npm run evil", "npm run",
         "npm exec evil"]),
        (["npm run x --a", "npm run x --b"], ["npm run evil", "npm --script-shell=evil run x",
         "npm run --prefix /x x"]),
        (["make build"] * 3, ["make evil", "make build evil", "make -f evil build",
         "make build SHELL=evil"]),
        (["make build A", "make build B"], ["make build evil", "make evil"]),
        (["xargs make build", "xargs $X"] * 2, ["xargs make build", "make build"]),
        (["python a.py"] * 3, ["python b.py", "python -c 1", "python", "python a.py --more",
         "python -m evil"]),
        (["python a.py 1", "python a.py 2", "python a.py 3"], ["python a.py 4", "python b.py"]),
        (["sh x.sh"] * 3, ["sh y.sh", "sh -c evil", "sh", "sh x.sh | sh"]),
        (["./x"] * 3, ["./y", "x", "./x --more", "/tmp/x", "cd sub && ./x"]),
        (["curl https://a.example.org"] * 3, ["curl https://a.example.org",
         "curl https://b.example.org", "curl -d @x a"]),
        (["curl -s http://localhost:1/a"] * 3, ["curl -s http://evil.example.net/",
         "curl -s http://localhost:1/b"]),
        (["curl http://localhost:1@evil.example.net/"] * 3,
         ["curl http://localhost:1@evil.example.net/"]),
        (["rm build/x"] * 3, ["rm build/y", "rm -rf /", "rm build/x"]),
        (["rm a", "rm b", "rm c"], ["rm d"]),
        (["git -c core.pager=less log"] * 3, ["git -c core.pager=evil log",
         "git -c core.pager=less log", "git log"]),
        (["git log -3", "git log -4"], ["git log --output=x", "git -c alias.log=!evil log",
         "git push origin main"]),
        (["git push origin dev"] * 3, ["git push origin dev", "git push origin main"]),
        (["git config user.name x"] * 3, ["git config core.hooksPath x"]),
        (["sudo ls", "sudo ls"], ["sudo ls", "sudo rm x"]),
        (["env ls"] * 3, ["env evil"]),
        (["bash -c 'cargo test'"] * 3, ["bash -c evil", "bash evil"]),
        (["xargs rm"] * 3, ["xargs rm"]),
        (["find . | xargs cat"] * 3, ["find . | xargs rm", "find . -delete", "find . -exec rm {} +",
         "xargs sh"]),
        (["find . -delete"] * 3, ["find . -delete"]),
        (["sort x", "sort y"], ["sort -o /x y", "sort --compress-program=evil x"]),
        (["node a.js"] * 3, ["node -e 1", "node b.js"]),
        (["python ../a.py"] * 3, ["python ../a.py"]),
        (["ssh host.example.org ls"] * 3, ["ssh host.example.org ls"]),
        (["docker ps"] * 3, ["docker run x"]),
        (["tee x"] * 3, ["tee y", "tee x"]),
        (["pip install x"] * 3, ["pip install x"]),
        (["/tmp/git status"] * 3, ["/tmp/git status", "/tmp/git push"]),
        (["cat a", "cat b"], ["cat a > b", "cat $(id)", "cat a | sh"]),
        (["gh run view 1", "gh pr list"], ["gh pr merge 1", "gh api x -X POST", "gh run cancel 1",
         "gh auth token"]),
    ],
)  # fmt: skip
def test_what_was_approved_is_no_way_to_more(asked: list[str], wanted: list[str]) -> None:
    policy = learn(commands(*asked), NOTHING, now=NOW).policy()
    allowed = [line for line in wanted if allows(policy, past(run(line)))]
    assert [line for line in allowed if line != "git log"] == []


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ([write("src/a"), write("src/b")], [write("src/.env"), write("src/x/y"), write("a"),
         write("src/CLAUDE.md")]),
        ([write("src/a/1"), write("src/b/1"), write("src/c/1"), write("src/d/1")],
         [write("a"), write("src/.git/config"), write("src/e/.npmrc"), write("src2/a"),
          write("src/../a")]),
        ([write("Makefile"), write("a.py"), write("b.py")], [write("pyproject.toml"),
         write("conftest.py")]),
        ([request("/a/x"), request("/a/y")], [request("/a/x", "POST"), request("/b"),
         request("/a/../b"), request("/a/x", host="e.net")]),
        ([connect("a.example.org")] * 5, [connect("b.example.org"), connect("example.org"),
         connect("a.example.org", 22)]),
        ([git("git push origin bot/a"), git("git push origin bot/b")],
         [git("git push -f origin bot/a"), git("git push origin bot/a:main"),
          git("git push origin main"), git("git push evil bot/a"),
          git("git push origin +bot/a"), git("git push origin :bot/a"),
          git("git push --tags origin bot/a")]),
        ([package("npm install a@1.0.0")] * 3,
         [package("npm install a@2.0.0"), package("npm install b"),
          package("npm install a@1.0.0 b"),
          package("npm install a@1.0.0 --registry=https://evil.example.net")]),
    ],
)  # fmt: skip
def test_what_was_approved_in_other_categories_is_no_way_to_more(
    asked: list[Action], wanted: list[Action]
) -> None:
    learned = learn(approved(*asked), NOTHING, now=NOW)
    assert learned.rules
    assert [
        action
        for action in wanted
        if allows(learned.policy(), past(action, remotes=("origin", "evil")))
    ] == []
