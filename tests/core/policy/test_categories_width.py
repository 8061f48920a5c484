"""How wide a rule is, in words: a table of every form of every category, and that whatever is a
rule has words."""

from hypothesis import given

from supervisor.core.policy.categories import width
from supervisor.core.policy.policy_text import parse_rule
from supervisor.errors import PolicyError
from tests.fakes.law_worlds import RULES
from tests.tables import each_row

WIDTHS = {
    "network(*)": "every host",
    "network(*:8443)": "every host, port 8443",
    "network(*.com)": "every host below .com",
    "network(api.example.com)": "the host api.example.com",
    "network(api.example.com:8443)": "the host api.example.com, port 8443",
    "network(192.0.2.7)": "the address 192.0.2.7",
    "network(192.0.2.0/24)": "every address of 192.0.2.0/24: 256 addresses",
    "network(GET,HEAD https://api.example.com/v1/**)": (
        "GET, HEAD requests of every path like /v1/** at the host api.example.com"
    ),
    "network(* https://*.example.com/**)": (
        "requests of every method of every path at every host below .example.com"
    ),
    "network(POST https://api.example.com/v1)": (
        "POST requests of the path /v1 at the host api.example.com"
    ),
    "filesystem": "every file in the workspace",
    "filesystem(**)": "every file in the workspace",
    "filesystem(src/**)": "every file below src/",
    "filesystem(src/*)": "every file right in src",
    "filesystem(./*)": "every file right in the top folder",
    "filesystem(src/a.py)": "the one path src/a.py",
    "filesystem(**/*.py)": "every path like **/*.py",
    "filesystem(src/**/x)": "every path like src/**/x",
    "exec(*)": "any command",
    "exec(git *)": "any command that begins with git",
    "exec(npm run build)": "exactly the command npm run build",
    "exec(make test-*)": "any command like make test-*",
    "exec(npm run b* *)": "any command like npm run b* *",
    "exec(rm {workspace})": "any command that begins with rm, on what lies in the workspace",
    "git(*)": "every operation of git that reaches a remote",
    "git(main)": "plain pushes to the branch main",
    "git(feature/*)": "plain pushes to every branch like feature/*",
    "git(push origin feature/*)": "whatever of git fits push origin feature/*",
    "git(push origin main)": "exactly git push origin main",
    "packages(*)": "every operation of every package manager",
    "packages(npm:left-pad)": "any operation of npm, for the package left-pad, in any version",
    "packages(npm install left-pad@1.3.0)": "npm install, for the package left-pad@1.3.0",
    "packages(npm install *)": "npm install, for every package",
    "packages(npm ci)": "npm ci, without a package's name",
    "packages(npm install @team/*)": "npm install, for every package like @team/*, in any version",
    "packages(* install zod)": "any package manager install, for the package zod, in any version",
    "packages(pip install -r requirements.txt)": "pip install, for the file requirements.txt",
}


@each_row(("rule", "said"), WIDTHS.items(), ids=WIDTHS)
def test_every_form_has_its_words(rule: str, said: str) -> None:
    assert width(parse_rule(rule, "deny")) == said


def test_what_an_allow_rule_lets_through_besides_is_said_too() -> None:
    assert width(parse_rule("exec(python3 *)", "allow")).endswith(
        "; it lets `*` stand for any script"
    )
    assert "hosts of strangers" in width(parse_rule("network(*.amazonaws.com)", "allow"))
    assert width(parse_rule("filesystem(**)", "allow")) == "every file in the workspace"


@given(RULES)
def test_whatever_can_be_saved_has_words(entry: object) -> None:
    text = entry["rule"] if isinstance(entry, dict) else entry
    try:
        rule = parse_rule(str(text), "deny")
    except PolicyError:
        return
    assert width(rule)
