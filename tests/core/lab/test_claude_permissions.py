"""Claude Code's permission lists as a policy: every form of a rule, and that meaning is never
widened. Paths have a file of their own.

The reference here is written from the documentation alone: text and `*` for commands.
"""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Exec, FileChange
from supervisor.core.lab.claude_permissions import Imported, SettingsPlace, policy_text, translate
from supervisor.core.lab.lint import lint
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.policy.rules import Policy
from supervisor.errors import UserError
from tests.tables import each_row

NOW = 1_790_000_000.0
PROJECT = SettingsPlace(root="/home/me/work", home="/home/me")


def read(place: SettingsPlace = PROJECT, /, **permissions: Any) -> Imported:
    return translate(json.dumps({"permissions": permissions}), "settings.json", place)


def rules(effect: str, rule: str, place: SettingsPlace = PROJECT) -> list[str]:
    return [one.rule for one in read(place, **{effect: [rule]}).rules]


def reasons(effect: str, rule: str, place: SettingsPlace = PROJECT) -> list[str]:
    return [one.reason for one in read(place, **{effect: [rule]}).left]


def policy(imported: Imported) -> Policy:
    return parse_policy(policy_text(imported, "settings.json"), "made.yaml")


def command(made: Policy, text: str) -> str:
    return evaluate(made, Exec(command=text), now=NOW).decision


def change(made: Policy, path: str) -> str:
    return evaluate(made, FileChange(operation="edit", path=path), now=NOW).decision


# -- commands: allow ------------------------------------------------------------------------------

ALLOWED = [
    ("Bash(npm run build)", "exec(npm run build)"),
    ("Bash(npm run test:*)", "exec(npm run test *)"),
    ("Bash(npm run test *)", "exec(npm run test *)"),
    ("Bash(git diff *)", "exec(git diff *)"),
    ("Bash( git status )", "exec(git status)"),
    ("Bash(ls*)", "exec(ls *)"),
    ("Bash(npm run lint*)", "exec(npm run lint *)"),
    ("Bash(make docker-*)", "exec(make docker-*)"),
    ("Bash(cat src/*)", "exec(cat src/*)"),
    ("Bash(git log * main)", "exec(git log * main)"),
    ("Bash(git log * main *)", "exec(git log * main * *)"),
    ("Bash(npm run *:prod)", "exec(npm run *:prod)"),
    ("Bash(find:*)", "exec(find *)"),
    ("Bash(git **)", "exec(git *)"),
    ('Bash(git commit -m "a b")', 'exec(git commit -m "a b")'),
    ("Bash(bash -c *)", "exec(bash -c *)"),
    ("Bash(uv run *)", "exec(uv run *)"),
]


@each_row(("there", "here"), ALLOWED)
def test_an_allow_rule_about_a_command(there: str, here: str) -> None:
    assert rules("allow", there) == [here]


def test_a_rule_for_a_shell_that_is_given_a_command_line_does_not_bring_in_that_line() -> None:
    imported = read(PROJECT, allow=["Bash(bash -c *)", "Bash(git log *)"])
    assert [one.note for one in imported.rules] == [
        "narrower: what it runs needs a rule of its own",
        "",
    ]
    assert command(policy(imported), "bash -c 'git log -3'") == "allow"
    assert command(policy(imported), "bash -c 'git push'") == "ask"


NOT_ALLOWED = [
    ("Bash", "allows nothing here"),
    ("Bash(*)", "allows nothing here"),
    ("Bash(:*)", "allows nothing here"),
    ("Bash()", "allows nothing here"),
    ("Bash(* --version)", "stands for the program"),
    ("Bash(*sudo*)", "stands for the program"),
    ("Bash(git * main)", "stands for the subcommand"),
    ("Bash(git lo* main)", "stands for the subcommand"),
    ("Bash(python:*)", "any script"),
    ("Bash(python3 -m *)", "as a module"),
    ("Bash(bash *)", "any script"),
    ("Bash(npx *)", "as a package"),
    ("Bash(sudo *)", "as another user"),
    ("Bash(docker exec *)", "as a container"),
    ("Bash(devbox run *)", "any program"),
    ("Bash(source .env)", "no rule may allow"),
    ("Bash(eval *)", "no rule may allow"),
    ("Bash(timeout 5 npm test *)", "takes `timeout` off"),
    ("Bash(xargs grep *)", "takes `xargs` off"),
    ("Bash(FOO=1 npm test)", "starts with an assignment"),
    ("Bash(cd x && npm test)", "holds `&&`"),
    ("Bash(curl * | bash)", "holds `|`"),
    ("Bash(cat $HOME/*)", "holds the expansion"),
    ("Bash(echo `id`)", "holds"),
    ("Bash(ls > x)", "holds `>`"),
    ("Bash(rm {a,b})", "a brace expansion"),
    ('Bash(git commit -m "*")', "in quotes"),
    (r"Bash(find . -name \*.py)", "a backslash"),
    ("Bash(run_in_background:true)", "about a parameter"),
    ("Bash(git:* push)", "stands for the program"),
    ("Bash(ls 'x)", "an unclosed quote"),
    ("Bash(x", "can't be read"),
]


@each_row(("there", "why"), NOT_ALLOWED)
def test_an_allow_rule_that_would_allow_more_is_named(there: str, why: str) -> None:
    assert rules("allow", there) == []
    assert any(why in reason for reason in reasons("allow", there)), reasons("allow", there)


# -- commands: ask and deny -----------------------------------------------------------------------

DENIED = [
    ("Bash", ["exec(*)"]),
    ("Bash(*)", ["exec(*)"]),
    ("Bash(rm -rf /)", ["exec(rm -rf /)"]),
    ("Bash(rm *)", ["exec(rm *)"]),
    ("Bash(rm:*)", ["exec(rm *)"]),
    ("Bash(ls*)", ["exec(ls* *)"]),
    ("Bash(git pu*)", ["exec(git pu* *)", "git(pu*)"]),
    ("Bash(git * --force)", ["exec(git --force *)", "git(push --force *)"]),
    ("Bash(* --no-verify*)", ["exec(* --no-verify* *)"]),
    ("Bash(rm -rf $HOME/*)", ["exec(rm -rf *)"]),
    ('Bash(git commit -m "*")', ["exec(git commit -m *)"]),
    ("Bash(kubectl delete * prod)", ["exec(kubectl delete *)"]),
    ("Bash(FOO=1 rm *)", ["exec(rm *)"]),
    ("Bash(timeout 5 rm *)", ["exec(timeout 5 rm *)"]),
    ("Bash(git push *)", ["exec(git push *)", "git(push *)"]),
    (
        "Bash(git push --force origin main)",
        ["exec(git push --force origin main)", "git(push --force origin main)"],
    ),
    ("Bash(git push origin a b)", ["exec(git push origin a b)", "git(push origin a)"]),
    ("Bash(git *)", ["exec(git *)", "git(*)"]),
    ("Bash(git log *)", ["exec(git log *)"]),
    ("Bash(npm install *)", ["exec(npm install *)", "packages(npm install *)"]),
    (
        "Bash(npm install left-pad:*)",
        ["exec(npm install left-pad *)", "packages(npm install left-pad)"],
    ),
    ("Bash(npm *)", ["exec(npm *)", "packages(npm *)"]),
    ("Bash(npm ins*)", ["exec(npm ins* *)", "packages(npm ins*)"]),
    ("Bash(npm install left*)", ["exec(npm install left* *)", "packages(npm install left*)"]),
    ("Bash(npm install -D *)", ["exec(npm install -D *)", "packages(npm install *)"]),
    ("Bash(npm install)", ["exec(npm install)", "packages(npm install)"]),
    ("Bash(git push origin feat*)", ["exec(git push origin feat* *)", "git(push origin feat*)"]),
    ("Bash(git push -o x *)", ["exec(git push -o x *)", "git(push *)"]),
    ("Bash(git)", ["exec(git)"]),
    ("Bash(npm run *)", ["exec(npm run *)"]),
    ('Bash(git commit -m "a b"*)', ["exec(git commit -m *)"]),
    ("Bash(uv pip *)", ["exec(uv pip *)", "packages(uv pip*)"]),
    ("Bash(uv pip install x)", ["exec(uv pip install x)", "packages(uv pip install x)"]),
]


@each_row("effect", ["deny", "ask"])
@each_row(("there", "here"), DENIED)
def test_a_stricter_rule_about_a_command(effect: str, there: str, here: list[str]) -> None:
    assert rules(effect, there) == here
    assert reasons(effect, there) == []


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("Bash(curl * | bash)", "matches nothing there either"),
        ("Bash(run_in_background:true)", "a parameter of the tool"),
        ("Bash(git * main)", "short of all that `git` does"),
        ("Bash(*secret*)", "can't be said of words"),
        ("Bash($X *)", "can't be said of words"),
        ("Bash(rm \u200b)", "a hidden character"),
        ("Edit(a\u00a0b/)", "a character that nobody sees"),
    ],
)
def test_a_stricter_rule_that_cant_be_said_is_named(there: str, why: str) -> None:
    assert rules("deny", there) == []
    assert why in reasons("deny", there)[0]


def test_an_allow_rule_with_a_character_that_nobody_sees_is_left_alone() -> None:
    made = read(allow=["Edit(a\u00a0b/)", "Edit(src/**)"])
    assert [one.rule for one in made.rules] == ["filesystem(src/**)"]
    assert [str(one).rpartition(": ")[2] for one in made.left] == [
        "holds a character that nobody sees"
    ]


def test_an_allow_rule_falls_with_what_restricts_it() -> None:
    made = read(allow=["Bash(git log *)", "Bash(ls *)", "Edit(src/**)"], deny=["Bash(git * main)"])
    assert [one.rule for one in made.rules] == ["exec(ls *)", "filesystem(src/**)"]
    assert (
        str(made.left[-1])
        == "allow Bash(git log *): `Bash(git * main)` takes something out of it, and can't be"
        " carried over"
    )
    everything = read(
        allow=["Bash(git log *)", "Bash(ls *)", "Edit(src/**)"], ask=["Bash(*secret*)"]
    )
    assert [one.rule for one in everything.rules] == ["filesystem(src/**)"]
    for restricted, by in (("./a/git x", "./a/git *t"), ("grep x", "env * y")):
        assert read(allow=[f"Bash({restricted})"], deny=[f"Bash({by})"]).rules == ()
    assert [one.rule for one in read(allow=["Edit(src/**)"], deny=["Write"]).rules] == []
    assert [
        one.rule
        for one in read(
            allow=["WebFetch(domain:a.example)"], deny=["WebFetch(domain:evil.*)"]
        ).rules
    ] == []


# -- commands: the law ----------------------------------------------------------------------------

WORDS = ["git", "log", "push", "main", "npm", "run", "test", "test:unit", "tests", "ls", "lsof",
"-la", "--force", "-f", "src/a", "src/",
         "rm", "-rf", "build", "origin", "x", "--output=x", "python", "a.py"]  # fmt: skip
COMMANDS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
SPECS = st.lists(st.sampled_from([*WORDS, "*", "*", "test*", "ls*", "src/*", "*t", "-*", "--fo*",
"l*s"]), min_size=1, max_size=4).flatmap(
    lambda words: st.sampled_from([" ".join(words), f"{' '.join(words)}:*", f"{' '.join(words)} *",
    f"{' '.join(words)}*"])
)  # fmt: skip


def matches_there(spec: str, text: str) -> bool:
    """Whether `Bash(spec)` matches a simple command, by the documentation's table and three
    rules."""
    spec = re.sub(r":\*\Z", " *", spec)
    if re.fullmatch(".*".join(map(re.escape, spec.split("*"))), text, re.DOTALL):
        return True
    return spec.endswith(" *") and spec.count("*") == 1 and text == spec[:-2]


@pytest.mark.parametrize(
    ("spec", "yes", "no"),
    [
        ("npm run *", ["npm run build", "npm run test --watch", "npm run"], ["npm install"]),
        (
            "git log * main",
            ["git log --oneline main", "git log -5 main"],
            ["git log main", "git push origin main"],
        ),
        ("ls*", ["ls -la", "lsof"], []),
        ("ls:*", ["ls -la", "ls"], ["lsof"]),
        ("* --help *", ["npm --help x"], ["npm --help"]),
    ],
)
def test_the_reference_is_the_documentations_table(
    spec: str, yes: list[str], no: list[str]
) -> None:
    assert all(matches_there(spec, text) for text in yes)
    assert not any(matches_there(spec, text) for text in no)


@given(st.lists(SPECS, min_size=1, max_size=3), st.lists(COMMANDS, min_size=1, max_size=8))
def test_what_is_allowed_here_was_allowed_there(specs: list[str], texts: list[str]) -> None:
    made = policy(read(allow=[f"Bash({spec})" for spec in specs]))
    for text in texts:
        if command(made, text) == "allow":
            assert any(matches_there(spec, text) for spec in specs), text


@given(SPECS, st.sampled_from(["deny", "ask"]), st.lists(COMMANDS, min_size=1, max_size=8))
def test_what_was_denied_or_asked_there_is_so_here(
    spec: str, effect: str, texts: list[str]
) -> None:
    imported = read(**{effect: [f"Bash({spec})"]})
    made = policy(imported)
    for text in texts:
        if matches_there(spec, text) and not imported.left:
            assert command(made, text) == effect, text


@given(
    st.fixed_dictionaries(
        {effect: st.lists(SPECS, max_size=3) for effect in ("allow", "ask", "deny")}
    ),
    st.lists(COMMANDS, min_size=1, max_size=8),
)
def test_the_lists_together_allow_nothing_that_they_didnt(
    lists: dict[str, list[str]], texts: list[str]
) -> None:
    made = policy(
        read(**{effect: [f"Bash({spec})" for spec in specs] for effect, specs in lists.items()})
    )
    for text in texts:
        if command(made, text) == "allow":
            answer = next(
                (
                    e
                    for e in ("deny", "ask", "allow")
                    if any(matches_there(spec, text) for spec in lists[e])
                ),
                None,
            )
            assert answer == "allow", text


# -- other tools ----------------------------------------------------------------------------------


def test_reading_is_free_but_a_file_that_mustnt_be_read_mustnt_be_changed_either() -> None:
    made = read(
        deny=["Read(./.env)", "Read"], ask=["Read(x)"], allow=["Read(**)", "Grep", "Glob(src/**)"]
    )
    assert [(one.effect, one.rule, one.note) for one in made.rules] == [
        ("deny", "filesystem(**/.env/**)", "for changes only"),
        ("deny", "filesystem(**)", "for changes only"),
    ]
    assert [one.origin for one in made.left] == [
        "deny Read(./.env)", "deny Read", "ask Read(x)", "allow Read(**)", "allow Grep",
        "allow Glob(src/**)",
    ]  # fmt: skip
    assert change(policy(made), "pkg/.env") == "deny"


@pytest.mark.parametrize(
    ("effect", "there", "here"),
    [
        ("allow", "WebFetch(domain:example.com)", ["network(GET https://example.com/**)"]),
        ("allow", "WebFetch(domain:Example.COM.)", ["network(GET https://example.com/**)"]),
        ("allow", "WebFetch(domain:*.example.com)", ["network(GET https://*.example.com/**)"]),
        ("deny", "WebFetch(domain:example.com)", ["network(example.com)"]),
        ("ask", "WebFetch(domain:*.example.com)", ["network(*.example.com)"]),
        ("deny", "WebFetch(domain:*)", ["network(*)"]),
        ("deny", "WebFetch", ["network(*)"]),
        ("deny", "Web*", ["network(*)"]),
        ("deny", "*", ["exec(*)", "filesystem(**)", "network(*)", "git(*)", "packages(*)"]),
    ],
)
def test_rules_about_other_tools(effect: str, there: str, here: list[str]) -> None:
    assert rules(effect, there) == here


@each_row(
    ("effect", "there", "why"),
    [
        ("allow", "WebFetch", "every host"),
        ("allow", "WebFetch(domain:*)", "every host"),
        ("allow", "WebFetch(domain:*.com)", "public suffix"),
        ("allow", "WebFetch(domain:example.*)", "inside of a name"),
        ("deny", "WebFetch(domain:example.*)", "inside of a name"),
        ("deny", "WebFetch(https://example.com)", "names no domain"),
        ("deny", "WebSearch", "model provider"),
        ("allow", "mcp__server__tool", "MCP server"),
        ("deny", "mcp__*", "no tool of that name"),
        ("allow", "*", "a wildcard in the tool's name"),
        ("deny", "Agent(Explore)", "agents within the agent"),
        ("allow", "Task", "agents within the agent"),
        ("allow", "PowerShell(ls *)", "read by bash"),
        ("allow", "Cd(~/x)", "aren't in the sandbox"),
        ("deny", "Skill(deploy *)", "no such thing here"),
        ("deny", "", "can't be read"),
    ],
)
def test_what_has_no_counterpart_is_named(effect: str, there: str, why: str) -> None:
    assert rules(effect, there) == []
    assert why in reasons(effect, there)[0]


# -- the settings as a whole ----------------------------------------------------------------------


def test_dont_ask_is_a_policy_that_denies_what_isnt_allowed() -> None:
    made = read(defaultMode="dontAsk", allow=["Bash(ls *)"], ask=["Bash(git push *)"])
    assert set(made.modes.values()) == {"deny"}
    assert [command(policy(made), text) for text in ("ls", "git push", "id")] == [
        "allow",
        "deny",
        "deny",
    ]


@pytest.mark.parametrize("mode", ["acceptEdits", "plan", "auto", "bypassPermissions", "other"])
def test_other_modes_are_named(mode: str) -> None:
    made = read(defaultMode=mode)
    assert [one.origin for one in made.left] == [f"defaultMode {mode}"]
    assert not made.modes


def test_the_usual_mode_needs_no_word() -> None:
    assert (
        read(defaultMode="default") == read(defaultMode="manual") == read() == Imported((), (), {})
    )


def test_settings_beside_the_lists_are_named() -> None:
    made = read(additionalDirectories=["../docs"], disableBypassPermissionsMode="disable")
    assert [str(one) for one in made.left] == [
        "additionalDirectories ../docs: a session has one workspace",
        "disableBypassPermissionsMode: there is no such setting here",
    ]


def test_comments_in_the_settings_are_passed_over() -> None:
    text = (
        '// mine\n{"permissions": /* all */ {"deny": ["Edit(//**/x)", "Bash(echo \\"//\\")"] //'
        " more\n}}"
    )
    made = translate(text, "s.json", PROJECT)
    assert [one.origin for one in made.rules] == ["Edit(//**/x)", 'Bash(echo "//")']


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "s.json:1: not JSON"),
        ("{\n  'a': 1}", "s.json:2: not JSON"),
        ("[" * 100_000, "s.json"),
        ("[]", "s.json: holds no permissions"),
        ('{"permissions": {}} /* open', "s.json:1: not JSON"),
        ('{"permissions": []}', "s.json: holds no permissions"),
        ('{"permissions": {"deny": "Bash"}}', "s.json: `permissions.deny` is not a list of texts"),
        ('{"permissions": {"deny": [1]}}', "s.json: `permissions.deny` is not a list of texts"),
        (
            '{"permissions": {"deny": ["Bash(rm *)"], "deny": []}}',
            "s.json: the key `deny` stands twice in one place",
        ),
    ],
)
def test_settings_that_cant_be_read_are_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        translate(text, "s.json", PROJECT)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_without_permissions_make_an_empty_policy() -> None:
    assert policy(translate("{}", "s.json", PROJECT)).rules == ()


def test_every_rule_says_where_it_comes_from_and_what_two_became_is_one() -> None:
    made = policy(read(allow=["Bash(ls:*)", "Bash(ls *)", "Bash(ls*)"]))
    assert [(rule.text, rule.why) for rule in made.rules] == [
        (
            "exec(ls *)",
            "imported from Bash(ls:*), Bash(ls *), Bash(ls*) (narrower: only as a whole word)",
        )
    ]


def test_what_isnt_carried_over_stands_in_the_policy_as_a_comment() -> None:
    text = policy_text(read(allow=["Bash\n(x", "WebSearch"]), "a\nb.json")
    assert "from a\\nb.json." in text
    assert (
        "#   allow Bash\\n(x: can't be read, so it says nothing there either\n#   allow WebSearch: "
        in text
    )


@given(st.fixed_dictionaries({effect: st.lists(st.text(max_size=30) | SPECS.map(lambda s: f"Bash({s})"), max_size=4) for effect in ("allow", "ask", "deny")}))  # fmt: skip  # noqa: E501
def test_whatever_is_read_makes_a_policy_that_loads(lists: dict[str, list[str]]) -> None:
    made = policy(read(**lists))
    assert not made.warnings
    assert {
        one.kind for one in lint(made, None, NOW).findings if one.kind == "never" and not one.by
    } == set()


@given(
    st.sampled_from(["Bash", "Edit", "Read", "WebFetch", "Write"]),
    st.text(max_size=20) | st.text(alphabet="a*/.!~[]\\ '\"$:", max_size=12),
    st.sampled_from(["allow", "ask", "deny"]),
)
def test_no_rule_however_strange_breaks_it(tool: str, spec: str, effect: str) -> None:
    imported = read(**{effect: [f"{tool}({spec})"]})
    policy(imported)
    assert imported.rules or imported.left
