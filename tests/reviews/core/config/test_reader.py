"""`.reviewerc` version 1: what can stand in it, and everything that is wrong with one."""

from pathlib import Path
from typing import Any

import pytest

from supervisor.core.text.strict_yaml import MOST_BYTES
from supervisor.errors import UserError
from supervisor.reviews.core.config import shapes
from supervisor.reviews.core.config.effective import ConfigLayer, combine
from supervisor.reviews.core.config.reader import (
    fault_words,
    glob_problem,
    read_refinery,
    read_reviewerc,
    read_settings,
)
from supervisor.reviews.core.config.shapes import Reviewerc

ZONES = {"UTC", "Europe/Berlin"}
COMMAND = "commands: [{id: look, prompt: Look}]\n"
BAD = b"""version: "1"
tols: {}
commands:
  - prompt: x
    id: A
  - id: a
    prompt: &x y
    limits: {maxFiles: 0, maxFindings: two}
    limits: {}
review:
  prompts:
    - id: q
      mode: bot
      commandRef: b
      prompt: z
    - id: q
schedule:
  cron: "17 3 * *"
  timezone: Mars
  jobs:
    - {id: j, commandRef: c, output: {mode: issue, pr: {title: x}}}
    - {id: k, commandRef: a, output: {mode: pr_create}, writeScope: {include: ["/a", "b/"]}}
"""


def good(text: str) -> Reviewerc:
    found = read_reviewerc(f"version: 1\n{text}".encode(), ZONES)
    assert found.faults == ()
    assert found.config is not None
    return found.config


def faults(text: str) -> list[tuple[int, str]]:
    found = read_reviewerc(f"version: 1\n{text}".encode(), ZONES)
    assert found.config is None
    return [(one.line, one.message) for one in found.faults]


def test_the_example_in_the_documents_can_be_used() -> None:
    example = Path("docs/reviewerc.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    found = read_reviewerc(example.encode(), ZONES)
    assert found.faults == ()
    assert found.config is not None
    assert combine([ConfigLayer("file", found.config)]).notes == ()


def test_every_fault_at_once_with_its_line() -> None:
    found = read_reviewerc(BAD, ZONES)
    assert found.config is None
    assert [fault_words(".reviewerc", one).split("; ")[0] for one in found.faults] == [
        '.reviewerc:1: `version: "1"` is not the number 1',
        ".reviewerc:2: unknown key `tols`",
        ".reviewerc:5: `commands[0].id: A` is no id",
        ".reviewerc:7: the anchor `&x`",
        ".reviewerc:8: `commands[1].limits.maxFiles: 0` is too small",
        ".reviewerc:8: `commands[1].limits.maxFindings: two` is no whole number",
        ".reviewerc:9: the key `limits` stands here twice",
        ".reviewerc:13: `review.prompts[0].mode: bot` is not known",
        ".reviewerc:14: `review.prompts[0]` has both `prompt` and `commandRef`",
        ".reviewerc:16: `review.prompts[1]` has neither `commandRef` nor `prompt`",
        ".reviewerc:16: the id `q` is taken already in `review.prompts`",
        '.reviewerc:18: `schedule.cron: "17 3 * *"` is no cron line: Wrong number of fields',
        ".reviewerc:19: `schedule.timezone: Mars` is no time zone",
        ".reviewerc:21: `schedule.jobs[0].commandRef: c` is no command",
        ".reviewerc:21: `schedule.jobs[0].output` has `pr`, and its mode is issue",
        ".reviewerc:21: `schedule.jobs[0].output` has no `issue`, and its mode is issue",
        ".reviewerc:22: `schedule.jobs[1].output` has no `pr`, and its mode is pr_create",
        '.reviewerc:22: `schedule.jobs[1].writeScope.include[0]: "/a"` starts with `/`',
        '.reviewerc:22: `schedule.jobs[1].writeScope.include[1]: "b/"` ends in a slash',
    ]
    assert all(one.remedy for one in found.faults)


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"", 1, "`the file` has no `version`"),
        (b"# nothing\n", 1, "`the file` has no `version`"),
        (b"\n\ncommands: []\n", 3, "`the file` has no `version`"),
        (b"[version]", 1, "`the file` is not a mapping"),
        (b"version: 1\nreview: [", 2, "did not find expected node content"),
        (b"#" * (MOST_BYTES + 1), 1, "longer than 64 kB"),
    ],
)
def test_files_that_are_none(data: bytes, line: int, message: str) -> None:
    (fault,) = read_reviewerc(data, ZONES).faults
    assert (fault.line, fault.message) == (line, message)


def test_a_bare_off_is_text() -> None:
    config = good("review: {defaults: {reasoning: off}}")
    assert config.review is not None
    assert config.review.defaults is not None
    assert config.review.defaults.reasoning == "off"


def test_a_missing_key_is_told_at_its_parents_line() -> None:
    assert faults("commands:\n  - title: x\n    id: a") == [(3, "`commands[0]` has no `prompt`")]


def test_a_prompt_that_is_wrong_is_not_missing() -> None:
    """One fault, not two: the key is there."""
    assert [message for _, message in faults("review: {prompts: [{id: a, prompt: [x]}]}")] == [
        "`review.prompts[0].prompt` is not one value"
    ]
    assert [message for _, message in faults("review: {prompts: [{id: a, commandRef: B}]}")] == [
        "`review.prompts[0].commandRef: B` is no id"
    ]


def test_what_a_command_is_called_is_suggested() -> None:
    text = f"version: 1\n{COMMAND}review: {{prompts: [{{id: a, commandRef: lok}}]}}"
    (fault,) = read_reviewerc(text.encode(), ZONES).faults
    assert fault.remedy == "did you mean `look`?"
    (fault,) = read_reviewerc(
        b"version: 1\nreview: {prompts: [{id: a, commandRef: lok}]}", ZONES
    ).faults
    assert fault.remedy == "define it below `commands:`"


def test_ids_are_taken_once_in_each_list() -> None:
    text = "commands:\n- {id: a, prompt: x}\n- {id: a, prompt: x}\n- {id: a, prompt: y}"
    assert [line for line, _ in faults(text)] == [4, 5]
    good("commands: [{id: a, prompt: x}]\nreview: {prompts: [{id: a, prompt: x}]}")


@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("/a", "starts with `/`"),
        ("~/a", "starts with `~`"),
        ("!a", "starts with `!`"),
        ("a/", "ends in a slash"),
        ("a//b", "holds an empty part, `.` or `..`"),
        ("./a", "holds an empty part, `.` or `..`"),
        ("a/../b", "holds an empty part, `.` or `..`"),
        ("**.py", "`**` beside other characters in `**.py`"),
        ("a[b", "`[` without `]` in `a[b`"),
    ],
)
def test_globs_that_are_none(glob: str, why: str) -> None:
    problem = glob_problem(glob)
    assert problem is not None
    assert problem[0].replace("'", "`") == why


@pytest.mark.parametrize("glob", ["**", "*", "**/*.py", "docs/**", ".github/**", "a[[]b"])
def test_globs(glob: str) -> None:
    assert glob_problem(glob) is None


# -- the later shape ------------------------------------------------------------------------------

LATER = """commands:
  - {id: look, prompt: Look, title: A look, tools: {allow: [filesystem, github.pr.read]}}
  - {id: drift, prompt: Mend, tools: {allow: [repo.write, github.pr.manage]}, comment: {type: both}}
review: {run: [look, look], strictness: strict, checklist: [a], ignore: [b]}
schedule:
  enabled: true
  cron: "0 3 * * *"
  runs: {nightly: [drift], weekly: [look, drift]}
  limits: {maxFiles: 5}
  conditions: {branch: {include: [main]}}
  writeScope: {include: ["docs/**"]}
output: {commentType: review}
"""


def test_the_later_shape_becomes_the_first() -> None:
    config = good(LATER)
    look, drift = config.commands
    assert (look.comment, drift.comment) == (
        shapes.CommentSpec(type="review"),
        shapes.CommentSpec(type="both"),
    )
    assert config.review == shapes.ReviewSection(
        strictness="strict",
        checklist=("a",),
        ignore=("b",),
        prompts=(shapes.PromptSpec(id="look", command_ref="look"),),
    )
    assert config.schedule is not None
    assert config.schedule.cron == "0 3 * * *"
    jobs = {one.id: one for one in config.schedule.jobs}
    assert list(jobs) == ["nightly", "weekly-look", "weekly-drift"]
    assert jobs["nightly"].output == shapes.JobOutput(
        mode="pr_create", pr=shapes.PullOutput(title="drift")
    )
    assert jobs["weekly-look"].output == shapes.JobOutput(
        mode="issue", issue=shapes.IssueOutput(title="A look")
    )
    for job in jobs.values():
        assert job.limits == shapes.PromptLimits(max_files=5)
        assert job.write_scope == shapes.GlobSet(include=("docs/**",))
        assert job.conditions is not None
        assert job.conditions.branch == shapes.GlobSet(include=("main",))


def test_the_later_shape_with_an_output_of_its_own() -> None:
    config = good(
        COMMAND + "schedule: {runs: {a: [look]}, output: {mode: issue, issue: {title: T}}}"
    )
    assert config.schedule is not None
    assert config.schedule.jobs[0].output.issue == shapes.IssueOutput(title="T")
    assert good(COMMAND + "review: {run: [look]}").schedule is None
    assert good(COMMAND + "output: {}\nreview: {strictness: strict}").commands[0].comment is None


def test_commands_alone_are_either_shape() -> None:
    assert good(COMMAND).commands[0].id == "look"
    assert good("tools: {allowlist: [github.pr.read]}").tools is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("review:\n  run: [look]\n  prompts: []", [
            (4, "`review.run` is of the later shape, and `review.prompts` in line 5 of the first"),
        ]),
        ("review: {prompts: []}\noutput: {commentType: issue}\n"
         "tools: {allowlist: [agent.subagent]}",
         [
            (4, "`output` is of the later shape, and `review.prompts` in line 3 of the first"),
            (5, "`agent.subagent` is of the later shape, and `review.prompts` in line 3 of the"
                " first"),
        ]),
        ("schedule:\n  jobs: []\n  runs: {}\n  limits: {maxFils: 1}", [
            (5, "`schedule.runs` is of the later shape, and `schedule.jobs` in line 4 of the"
                " first"),
            (6, "`schedule.limits` is of the later shape, and `schedule.jobs` in line 4 of the"
                " first"),
        ]),
        ("review: {prompts: []}\ncomands: []\nx: [{comment: {type: both}}]", [
            (4, "unknown key `comands`"),
            (5, "`comment.type: both` is of the later shape, and `review.prompts` in line 3 of the"
                " first"),
        ]),
    ],
)  # fmt: skip
def test_a_mixture_is_an_error(text: str, found: list[tuple[int, str]]) -> None:
    assert faults(COMMAND + text) == found


def test_a_command_cannot_have_the_name_of_what_mentions_have_built_in() -> None:
    text = "commands: [{id: review, prompt: x}, {id: why, prompt: y}, {id: reviews, prompt: z}]"
    assert faults(text) == [
        (2, "the mention `review` is built in"),
        (2, "the mention `why` is built in"),
    ]


def test_runs_name_commands() -> None:
    assert faults(COMMAND + "review: {run: [lock]}\nschedule: {runs: {a: [look, b]}}") == [
        (3, "`review.run[0]: lock` is no command"),
        (4, "`schedule.runs.a[1]: b` is no command"),
    ]


def test_two_runs_that_make_the_same_job() -> None:
    text = "commands: [{id: c, prompt: x}, {id: b-c, prompt: y}]\nschedule:\n  runs:\n"
    assert faults(f"{text}    a-b: [c, b-c]\n    a: [b-c, c]\n") == [
        (5, "two jobs of `a-b` are one"),
        (6, "two jobs of `a` are one"),
    ]


# -- the smaller files ----------------------------------------------------------------------------


def test_code_refinery_holds_three_keys_alone() -> None:
    found = read_refinery(b"strictness: lenient\nignore: [a/**]\nchecklist: [x]\n")
    assert found.config == Reviewerc(
        version=1,
        review=shapes.ReviewSection(strictness="lenient", ignore=("a/**",), checklist=("x",)),
    )
    assert found.lines["review.ignore[0]"] == 2
    assert read_refinery(b"").config == Reviewerc(version=1)
    assert read_refinery(b"a: [").config is None
    (fault,) = read_refinery(b"prompts: []").faults
    assert fault.message == "unknown key `prompts`"


def test_settings_of_the_operator() -> None:
    assert read_settings({"ignore": ["a/**"]}).review == shapes.ReviewSection(ignore=("a/**",))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"prompts": []}, "these settings can't be used"),
        ({"strictness": "hard"}, "these settings can't be used"),
        ({"ignore": ["/a"]}, "ignore: `/a` starts with `/`"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why.replace("/", "/")):
        read_settings(settings)
