"""What holds where several say something: precedence, ceilings, sources."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.packages.updates import FILES, parse_updates
from supervisor.reviews.core.config import shapes
from supervisor.reviews.core.config.effective import (
    DEFAULT_TOOLS,
    ConfigLayer,
    EffectiveConfig,
    JobPlan,
    Sourced,
    canonical,
    combine,
    config_digest,
    config_rows,
    model_of,
    review_model,
)
from supervisor.reviews.core.config.reader import read_reviewerc
from supervisor.reviews.core.config.shapes import (
    CATEGORIES,
    OTHER_CATEGORIES,
    UPDATES,
    Reviewerc,
)
from tests.tables import each_row

# Strongest first, as the service gives them.
ORDER = ("operator", "inputs", "dashboard", "owner's dashboard", ".reviewerc", "central")


def layer(name: str, text: str) -> ConfigLayer:
    found = read_reviewerc(f"version: 1\n{text}".encode(), {"UTC", "Europe/Berlin"})
    assert found.config is not None, found.faults
    return ConfigLayer(name, found.config, found.lines)


def of(text: str) -> EffectiveConfig:
    return combine([layer("file", text)])


def test_built_in() -> None:
    config = combine([])
    assert config.tools == Sourced(DEFAULT_TOOLS, "built-in")
    assert "repo.write" not in DEFAULT_TOOLS
    assert config.strictness == Sourced("balanced", "built-in")
    assert config.timezone == Sourced("UTC", "built-in")
    assert {config.model, config.provider, config.reasoning, config.temperature, config.cron} == {
        Sourced(None, "built-in")
    }
    assert config.scheduled == Sourced(False, "built-in")
    assert (config.prompts, config.ignore, config.checklist, config.jobs) == ((), (), (), ())


SCALARS = {
    "strictness": ("review: {{strictness: {}}}", ("lenient", "balanced", "strict")),
    "model": ("review: {{defaults: {{model: {}}}}}", ("m0", "m1", "m2")),
    "provider": ("review: {{defaults: {{provider: {}}}}}", ("p0", "p1", "p2")),
    "reasoning": ("review: {{defaults: {{reasoning: {}}}}}", ("off", "low", "high")),
    "temperature": ("review: {{defaults: {{temperature: {}}}}}", (0.0, 1.5, 2.0)),
    "cron": ("schedule: {{cron: '{}'}}", ("0 1 * * *", "0 2 * * *", "0 3 * * *")),
    "timezone": ("schedule: {{timezone: {}}}", ("UTC", "Europe/Berlin", "UTC")),
}


@each_row("key", SCALARS)
@each_row("strong", range(len(ORDER)))
def test_a_scalar_is_the_first_that_is_set(key: str, strong: int) -> None:
    form, values = SCALARS[key]
    said: list[ConfigLayer] = [layer(name, "") for name in ORDER[:strong]]
    said.append(layer(ORDER[strong], form.format(values[0])))
    said += [
        layer(name, form.format(values[1 + at % 2])) for at, name in enumerate(ORDER[strong + 1 :])
    ]
    assert getattr(combine(said), key) == Sourced(values[0], f"{ORDER[strong]}, line 2")


@pytest.mark.parametrize(
    ("key", "form"),
    [("ignore", "ignore: ['{}/**', 'both/**']"), ("checklist", "checklist: ['{}/**', 'both/**']")],
)
def test_lists_add_strongest_first_and_once(key: str, form: str) -> None:
    said = [layer(name, "review: {" + form.format(name[:3]) + "}") for name in ORDER]
    found = getattr(combine(said), key)
    assert [one.value for one in found] == [
        "ope/**", "both/**", "inp/**", "das/**", "own/**", ".re/**", "cen/**",
    ]  # fmt: skip
    assert found[1].source == "operator, line 2"


def test_prompts_commands_and_jobs_add_and_the_stronger_of_two_with_one_id_holds() -> None:
    text = """commands: [{id: c, prompt: P}, {id: P, prompt: x}]
review: {prompts: [{id: p, prompt: P}]}
schedule: {jobs: [{id: j, prompt: P, output: {mode: issue, issue: {}}}]}"""
    strong = layer("strong", text.replace("P", "strong"))
    weak = layer("weak", text.replace("P", "weak"))
    config = combine([strong, weak])
    assert [(one.value.id, one.source) for one in config.commands] == [
        ("c", "strong, line 2"),
        ("strong", "strong, line 2"),
        ("weak", "weak, line 2"),
    ]
    assert [one.value.prompt for one in config.prompts] == ["strong"]
    assert [one.value.prompt for one in config.jobs] == ["strong"]


def test_a_prompt_takes_its_own_files_command() -> None:
    text = "commands: [{{id: c, prompt: {0}}}]\nreview: {{prompts: [{{id: {0}, commandRef: c}}]}}"
    config = combine([layer("a", text.format("one")), layer("b", text.format("two"))])
    assert [one.value.prompt for one in config.prompts] == ["one", "two"]


def test_docs_drift_is_a_job_that_every_repository_has_unless_its_file_has_another() -> None:
    text = """
schedule: {jobs: [{id: j, commandRef: docs-drift, output: {mode: pr_create, pr: {title: T}}}]}"""
    (job,) = (one.value for one in of(text).jobs)
    assert job.title == "Docs drift"
    assert "never the code" in job.prompt
    assert job.write_scope is not None
    assert "docs/**" in (job.write_scope.include or ())
    (other,) = (one.value for one in of(f"commands: [{{id: docs-drift, prompt: mine}}]{text}").jobs)
    assert (other.prompt, other.write_scope) == ("mine", None)
    prompt = "review: {prompts: [{id: p, commandRef: docs-drift}]}"
    assert read_reviewerc(f"version: 1\n{prompt}".encode(), {"UTC"}).config is None


def test_updates_of_dependencies_are_a_built_in_job() -> None:
    def job(more: str, before: str = "") -> JobPlan:
        output = "output: {mode: pr_create, pr: {title: T}}"
        (found,) = of(f"{before}\nschedule: {{jobs: [{{id: j, {output}, {more}}}]}}").jobs
        return found.value

    plan = job("commandRef: dependency-updates")
    assert (plan.updates, plan.min_age, plan.title) == ("all", "", "Dependency updates")
    plan = job('commandRef: dependency-updates, updates: "npm:a,b", minAge: 7d')
    assert (plan.updates, plan.min_age) == ("npm:a,b", "7d")
    own = "commands: [{id: dependency-updates, prompt: mine}]"
    assert job("commandRef: dependency-updates", own).updates == ""


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        *((one, True) for one in ("all", *FILES, ",".join(FILES), "npm:@a/b,c-d.e")),
        *((one, False) for one in ("", "gem", "npm,", "all,npm", "npm:", "npm,pip:six", "npm:a b")),
    ],
)
def test_a_file_s_updates_are_those_that_the_managers_know(text: str, is_read: bool) -> None:
    assert bool(re.search(UPDATES, text)) is is_read
    if is_read:
        parse_updates(text, 1.0)


def test_ceilings_only_narrow() -> None:
    config = combine(
        [
            layer("operator", "tools: {allowlist: [filesystem, git.read, forge.read]}"),
            layer("inputs", ""),
            layer("file", "tools: {allowlist: [git.read, github.read, repo.write]}"),
        ]
    )
    assert config.tools == Sourced(("git.read", "github.read"), "operator, line 2 and file, line 2")


def test_what_a_prompt_says_its_command_and_the_defaults() -> None:
    config = of("""
commands:
  - id: c
    prompt: look
    title: A look
    tools: {allow: [filesystem, git.read]}
    limits: {maxFiles: 3, maxFindings: 4}
    output: {format: checklist, severityFloor: high}
    comment: {type: review}
    files: {include: [a/**], exclude: [a/b]}
review:
  defaults: {provider: anthropic, model: m, reasoning: low, temperature: 0.5}
  prompts:
    - {id: plain, commandRef: c}
    - id: own
      commandRef: c
      title: Other
      mode: both
      tools: {allow: [git.read, git.history]}
      limits: {maxFiles: 9, maxDiffLines: 5}
      output: {format: narrative}
      comment: {type: issue}
      files: {include: [b/**]}
      reasoning: off
      temperature: 0
""")
    plain, own = (one.value for one in config.prompts)
    assert (plain.title, plain.prompt, plain.mode, plain.comment, plain.command) == (
        "A look", "look", "separate_comment", "review", "c",
    )  # fmt: skip
    assert (plain.format, plain.severity_floor) == ("checklist", "high")
    assert plain.tools == ("filesystem", "git.read")
    assert plain.limits == shapes.PromptLimits(max_files=3, max_findings=4)
    assert plain.files == shapes.GlobSet(include=("a/**",), exclude=("a/b",))
    assert (plain.asked.model, plain.asked.reasoning, plain.asked.temperature) == ("m", "low", 0.5)
    assert (own.title, own.mode, own.comment) == ("Other", "both", "issue")
    assert (own.format, own.severity_floor) == ("narrative", "high")
    assert own.tools == ("git.read",)
    assert own.limits == shapes.PromptLimits(max_files=9, max_findings=4, max_diff_lines=5)
    assert own.files == shapes.GlobSet(include=("b/**",), exclude=("a/b",))
    assert (own.asked.model, own.asked.reasoning, own.asked.temperature) == ("m", "off", 0.0)


def test_a_prompt_of_its_own_is_called_by_its_id() -> None:
    (prompt,) = of("review: {prompts: [{id: p, prompt: x}]}").prompts
    assert (prompt.value.title, prompt.value.command) == ("p", "")
    assert prompt.value.tools == DEFAULT_TOOLS


def test_what_a_run_cannot_have_is_narrowed_and_said() -> None:
    config = of("""
tools: {allowlist: [filesystem, git.read, github.read, repo.write, agent.subagent]}
commands:
  - {id: c, prompt: x, tools: {allow: [filesystem, git.history, repo.write, agent.subagent]},
     comment: {type: both}}
""")
    (command,) = (one.value for one in config.commands)
    assert (command.tools, command.comment) == (("filesystem",), "review")
    what = "command `c` (file, line 5)"
    assert config.notes == (
        f"{what}: comments of both types become one of the type review",
        f"{what}: no `git.history`, since the ceiling has none",
        f"{what}: no `repo.write`, since a review changes nothing",
        f"{what}: `agent.subagent` gives nothing here",
    )


def test_a_job_has_no_pull_request() -> None:
    config = of("""
tools: {allowlist: [filesystem, git.read, github.read, github.write, repo.write]}
schedule:
  enabled: false
  jobs:
    - {id: j, prompt: x, title: T, tools: {allow: [filesystem, git.read, github.read, repo.write]},
       output: {mode: issue, issue: {}}, limits: {maxFiles: 2}, writeScope: {include: [a/**]},
       conditions: {branch: {include: [main]}}}
    - {id: k, prompt: y, output: {mode: pr_create, pr: {title: T}}}
""")
    job, other = (one.value for one in config.jobs)
    assert job.tools == ("filesystem", "repo.write")
    assert other.tools == ("filesystem", "github.write", "repo.write")
    assert job.limits.max_files == 2
    assert job.write_scope == shapes.GlobSet(include=("a/**",))
    assert job.conditions.branch == shapes.GlobSet(include=("main",))
    assert (job.title, other.title) == ("T", "k")
    assert config.notes == (
        "job `j` (file, line 7): no `git.read`, since a job has no pull request",
        "job `j` (file, line 7): no `github.read`, since a job has no pull request",
    )
    assert config.scheduled == Sourced(False, "file, line 5")


@pytest.mark.parametrize(
    ("provider", "model", "notes"), [("anthropic", "anthropic:m", 0), ("openrouter", "", 1)]
)
def test_a_provider_that_there_is_none_of_is_not_asked_for_its_model(
    provider: str, model: str, notes: int
) -> None:
    config = of(f"review: {{defaults: {{provider: {provider}, model: m}}}}")
    assert review_model(config) == model
    assert len(config.notes) == notes
    assert all(f"provider {provider} (file, line 2)" in one for one in config.notes)
    assert review_model(combine([])) == ""


def test_a_model_of_another_provider_is_named_as_the_setting_does() -> None:
    assert model_of("openai", "gpt-5.5") == "openai:gpt-5.5"
    assert model_of("anthropic", "claude") == model_of(None, "claude") == "anthropic:claude"
    # One model, of the provider that stands there.
    assert model_of("anthropic", "openai:gpt-5.5, x") == "anthropic:openai:gpt-5.5"
    assert model_of(None, "recorded") == "anthropic:recorded"
    assert model_of("other", "x") == model_of("openai", None) == ""


def test_notes_are_kept_and_each_told_once() -> None:
    assert combine([], ["a", "a", "b"]).notes == ("a", "b")


def test_the_digest_is_of_the_values_alone() -> None:
    text = "review: {strictness: strict, prompts: [{id: p, prompt: x}]}"
    same = [of(text), combine([layer("other", "\n\n" + text)], ["a note"])]
    assert len({config_digest(one) for one in same}) == 1
    assert config_digest(same[0]) != config_digest(of(text.replace("x", "y")))
    assert config_digest(of("review: {strictness: lenient}")) != config_digest(combine([]))


def test_rows_say_each_value_and_its_source() -> None:
    config = of("""
review:
  defaults: {temperature: 0.4}
  ignore: [a/**, b/**]
  prompts: [{id: p, prompt: x, tools: {allow: []}}]
schedule: {jobs: [{id: j, prompt: y, output: {mode: issue, issue: {}}}]}
""")
    rows = [(one.key, one.value, one.source) for one in config_rows(config)]
    assert ("strictness", "balanced", "built-in") in rows
    assert ("temperature", "0.4", "file, line 4") in rows
    assert ("model", "not set", "built-in") in rows
    assert ("ignore", "b/**", "file, line 5") in rows
    assert ("prompt", "p: separate_comment, issue; tools none", "file, line 6") in rows
    assert ("schedule", "on", "file") in rows
    assert rows[-1] == ("job", "j: issue; tools filesystem, git.history, github.write",
                        "file, line 7")  # fmt: skip


# -- tools never widen ----------------------------------------------------------------------------

SPELLED = st.lists(st.sampled_from([*CATEGORIES, *OTHER_CATEGORIES]), max_size=6)
ALLOWED = st.none() | SPELLED


@st.composite
def layers(draw: st.DrawFn) -> list[ConfigLayer]:
    made = []
    for name in draw(st.lists(st.sampled_from(ORDER), max_size=4, unique=True)):
        ceiling, command, prompt = draw(ALLOWED), draw(ALLOWED), draw(ALLOWED)

        def allowed(found: list[Any] | None) -> shapes.ToolsAllowed | None:
            return None if found is None else shapes.ToolsAllowed(allow=tuple(found))

        number = len(made)
        config = Reviewerc(
            version=1,
            tools=None if ceiling is None else shapes.ToolsCeiling(allowlist=tuple(ceiling)),
            commands=(shapes.CommandSpec(id=f"c{number}", prompt="x", tools=allowed(command)),),
            review=shapes.ReviewSection(
                prompts=(
                    shapes.PromptSpec(
                        id=f"p{number}", command_ref=f"c{number}", tools=allowed(prompt)
                    ),
                )
            ),
            schedule=shapes.ScheduleSection(
                jobs=(
                    shapes.JobSpec(
                        id=f"j{number}",
                        command_ref=f"c{number}",
                        tools=allowed(prompt),
                        output=shapes.JobOutput(mode="issue", issue=shapes.IssueOutput()),
                    ),
                )
            ),
        )
        made.append(ConfigLayer(name, config))
    return made


@given(layers())
def test_tools_never_widen(said: list[ConfigLayer]) -> None:
    config = combine(said)
    ceilings = [
        set(canonical(one.config.tools.allowlist or ()))
        for one in said
        if one.config.tools is not None
    ]
    for plan in (*config.prompts, *config.jobs, *config.commands):
        tools, number = set(plan.value.tools), int(plan.value.id[1:])
        assert tools <= set(config.tools.value)
        assert all(tools <= one for one in ceilings)
        if not ceilings:
            assert "repo.write" not in tools
        file = said[number].config
        command = file.commands[0].tools
        assert file.review is not None
        own = file.review.prompts[0].tools
        for named in (command,) if plan.value.id[0] == "c" else (command, own):
            assert named is None or tools <= set(canonical(named.allow or ()))
    for plan in (*config.prompts, *config.commands):
        assert "repo.write" not in plan.value.tools
    for job in config.jobs:
        assert not {"git.read", "github.read"} & set(job.value.tools)
    if ceilings:
        fewer = combine([one for one in said if one.config.tools is not None][1:])
        if len(ceilings) > 1:
            assert set(config.tools.value) <= set(fewer.tools.value)
