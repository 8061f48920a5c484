"""Skills of a pull request's review: which are told, in which order."""

from agent_image.reviewer import prompts
from agent_image.reviewer.settings import parse
from agent_image.reviewer.skills import chosen, skills
from agent_image.reviewer.text import Quarantine
from agent_image.reviewer.tool_inputs import PULL_TOOLS, READING_TOOLS


def names(*files: str) -> list[str]:
    return [one.name for one in chosen(files)]


def test_each_is_told_for_its_files_and_in_the_order_of_its_priority() -> None:
    assert [(one.name, one.priority) for one in skills()] == [
        ("security-review", 10),
        ("bug-detection", 20),
        ("architecture-review", 30),
        ("code-quality", 40),
        ("data-flow-analysis", 50),
    ]
    assert names("README.md") == ["security-review", "bug-detection"]
    assert names("src/deep/a.go") == [one.name for one in skills()]
    assert names("main.rs")[-1] == "code-quality"
    assert "data-flow-analysis" in names("db/migrations/0001.txt")
    assert names() == []


def test_only_a_pull_request_is_told_of_them() -> None:
    quarantine = Quarantine()
    plain = prompts.system(quarantine, 20)
    pull = prompts.system(quarantine, 20, pull_files=["a.py"])
    assert "security-review" not in plain
    assert pull.startswith(plain)
    assert "- security-review: Ask of each new input" in pull
    assert '"quote"' in pull


def test_a_pull_request_changes_nothing_and_a_strangers_runs_nothing(tmp_path) -> None:
    reading = {"read_file", "list_files", "find_files", "search", "git_diff"}
    assert set(PULL_TOOLS) == {*reading, "run_command"}
    assert set(PULL_TOOLS) - set(READING_TOOLS) == {"run_command"}
    environ = {"GATEHOUSE_URL": "http://127.0.0.1:1", "GATEHOUSE_TOKEN": "t"}
    words = ["--workspace", str(tmp_path), "--pull", "--read-only"]
    settings = parse(words, dict(environ))
    assert (settings.is_pull, settings.reads_only) == (True, True)
    assert not parse(words[:2], dict(environ)).is_pull
