"""The last word `{workspace}` of an exec rule: what certainly lies inside of the workspace."""

from supervisor.core.shell.exec_patterns import compile_pattern
from supervisor.core.shell.exec_places import outside_words
from supervisor.core.shell.exec_rules import Judgement, judge
from supervisor.core.shell.shell import parse
from tests.tables import each_row

RULES = ("rm {workspace}", "find *", "xargs *", "cd *", "pushd *", "command *", "builtin *")


def judged(
    line: str, *rules: str, cwd: str = ".", roots: tuple[str, ...] = ("/w",)
) -> Judgement[str]:
    allow = [(rule, compile_pattern(rule)) for rule in rules or RULES]
    return judge(line, cwd, allow=allow, ask=(), deny=(), workspace_roots=roots)


@each_row(
    "line",
    [
        "rm",
        "rm a",
        "rm -rf a b/c .cache",
        "rm -v /w/a /w/b/c",
        "rm 'a b' ''",
        "rm a..b ...",
        "rm *.o",
        "rm ?",
        "rm [ab]*",
        "rm ./*",
        "rm -rf build/* /w/*",
        "rm -f a{b,c}",
        "rm -- a -b",
        "cd src && rm x",
        "cd /w/src && rm x",
        "timeout 5 rm a",
        "if rm a; then rm b; fi",
        "find . -name x -exec rm a ';'",
    ],
)
def test_inside(line: str) -> None:
    assert judged(line).decision == "allow"


@each_row(
    "line",
    [
        "rm .",
        "rm ./",
        "rm .//.",
        "rm ..",
        "rm ../x",
        "rm src/../x",
        "rm a/../../b",
        "rm /",
        "rm /w",
        "rm /w/",
        "rm /w/.",
        "rm /w/../x",
        "rm //w/x/../../y",
        "rm /w2/x",
        "rm /w*",
        "rm /etc/x",
        "rm a /etc/x",
        "rm ~",
        "rm ~/x",
        "rm ~root/x",
        "rm ~/*",
        "rm $x",
        'rm "$x"',
        "rm a/$x",
        'rm "a/$x"',
        "rm $x/*",
        "rm .*",
        "rm .?/x",
        "rm a/.?/b",
        "rm .[.]/x",
        "rm */../..",
        "rm {a,/etc}",
        "rm *{a,/etc}",
        "rm a{b,/../../c}",
        "rm a{b,..}/x",
        "rm -- -a/../../b",
        "rm --x=/etc",
        "rm --x=../y",
        "rm -t/etc a",
        "rm -t~ a",
        "cd / && rm x",
        "cd /tmp; rm x",
        "cd - && rm x",
        "pushd / && rm x",
        "command cd / && rm x",
        "builtin cd / && rm x",
        "for x in a b; do cd ..; rm x; done",
        "for x in a b; do cd a/..; done; rm x",
        "cd $x && rm x",
        "cd src || rm x; cd ../.. && rm x",
        "find . -exec rm {} +",
        "find . -execdir rm x +",
        "find . -okdir rm x ';'",
        "ls | xargs rm",
        "xargs -I% rm % < names",
    ],
)
def test_not_surely_inside(line: str) -> None:
    assert judged(line, *RULES, "ls").decision is None


def test_without_a_known_folder_nothing_is_inside() -> None:
    assert judged("rm a", cwd="/elsewhere").decision is None
    assert judged("rm a", roots=()).decision is None
    (command,) = parse("rm a b").commands
    assert outside_words(command.words, (), ("/w",)) == {1, 2}


def test_words_before_it_are_matched_as_ever() -> None:
    assert judged("rm /tmp/a b", "rm /tmp/* {workspace}").decision == "allow"
    assert judged("rm /tmp/a /b", "rm /tmp/* {workspace}").decision is None
    assert judged("rm -rf x", "rm -rf {workspace}").decision == "allow"
    assert judged("rm x", "rm -rf {workspace}").decision is None


def test_a_rule_that_ends_in_a_star_reaches_anywhere() -> None:
    assert judged("rm /etc/x $y", "rm *").decision == "allow"


def test_it_is_bare_where_a_star_would_be() -> None:
    assert compile_pattern("* {workspace}").is_bare
    assert compile_pattern("** * {workspace}").is_bare
    assert not compile_pattern("{workspace}").stays_inside


def test_in_deny_and_ask_rules_it_is_any_further_word() -> None:
    found = judge(
        "rm /etc/x",
        ".",
        allow=(),
        ask=(),
        deny=[("x", compile_pattern("rm {workspace}"))],
        workspace_roots=("/w",),
    )
    assert found.decision == "deny"


def test_an_opaque_argument_is_not_covered_either() -> None:
    assert judged("sort -o x y", "sort {workspace}").decision is None
    assert judged("cat .env", "cat {workspace}").decision is None


def test_a_program_of_the_workspace_is_not_known_where_execdir_runs_it() -> None:
    assert judged("find . -exec ./run a ';'", "find *", "./run *").decision == "allow"
    assert judged("find . -execdir ./run a ';'", "find *", "./run *").decision is None


def test_of_more_folders_than_can_be_told_apart_none_is_known() -> None:
    many = "; ".join(f"cd d{n}" for n in range(60))
    assert judged(f"{many}; rm a").decision is None
    assert judged("cd d0; cd d1; rm a").decision == "allow"


def test_a_command_that_runs_elsewhere_is_never_allowed_and_deny_rules_know_where() -> None:
    found = judged("cd /opt && rm a", "cd *", "rm *")
    assert (found.decision, found.never_allow) == (None, True)
    assert "may lie outside of the workspace" in found.why
    deny = [("tools", compile_pattern("/opt/tools/* *"))]
    for line in (
        "cd /opt/tools && ./x y",
        "cd /opt; cd tools && ./x y",
        "cd /opt && tools/x y",
        "cd /opt && tools/../tools/x y",
    ):
        told = judge(line, ".", allow=(), ask=(), deny=deny, workspace_roots=("/w",))
        assert told.decision == "deny", line
    assert (
        judge(
            "cd /opt/other && ./x y", ".", allow=(), ask=(), deny=deny, workspace_roots=("/w",)
        ).decision
        is None
    )
