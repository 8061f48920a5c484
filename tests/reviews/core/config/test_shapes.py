"""The shapes of `.reviewerc`: the JSON Schema in docs/ is theirs, and every key of it counts.

The second part takes one key after the other out of a file that has them all, and looks at what is
done then: which prompts run on what, what their readers are told, what they post, what jobs there
are. A key that changes nothing is enforced by nothing.
"""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from supervisor.core.orders import Order
from supervisor.reviews.core.config import shapes
from supervisor.reviews.core.config.effective import ConfigLayer, PromptPlan, combine
from supervisor.reviews.core.config.reader import read_refinery, read_reviewerc
from supervisor.reviews.core.diffs import ChangedFile, ShownLines
from supervisor.reviews.core.posts import PullTarget
from supervisor.reviews.core.prompt_posts import prompt_act
from supervisor.reviews.core.prompts import (
    ChosenPrompt,
    PromptSubject,
    choose,
    ignored,
    is_fed,
    is_posted,
    prompt_order,
    report_of,
)
from tests.tables import each_row

SCHEMA = Path("docs/reviewerc.schema.json")
COMMAND: dict[str, Any] = {
    "id": "c",
    "prompt": "Look at it",
    "title": "A command",
    "tools": {"allow": ["filesystem", "git.read", "github.read", "repo.write"]},
    "limits": {"maxFiles": 3, "maxFindings": 2, "maxDiffLines": 100},
    "output": {"format": "checklist", "severityFloor": "medium"},
    "comment": {"type": "review"},
    "files": {"include": ["src/**"], "exclude": ["src/x*"]},
}
PROMPT: dict[str, Any] = {
    "id": "p",
    "commandRef": "c",
    "mode": "both",
    "title": "A prompt",
    "tools": {"allow": ["filesystem"]},
    "limits": {"maxFiles": 2, "maxFindings": 1, "maxDiffLines": 60},
    "output": {"format": "narrative", "severityFloor": "high"},
    "comment": {"type": "issue"},
    "files": {"include": ["**/*.py"], "exclude": ["docs/**"]},
    "conditions": {
        "draft": True,
        "labels": {"include": ["bug"], "exclude": ["wip"]},
        "authors": {"include": ["ada", "bob"], "exclude": ["bob"]},
        "paths": {"changed": ["src/**"]},
    },
    "provider": "anthropic",
    "model": "m1",
    "reasoning": "low",
    "temperature": 0.5,
}
FIRST: dict[str, Any] = {
    "version": 1,
    "tools": {"allowlist": ["filesystem", "git.read", "github.read", "github.write", "repo.write"]},
    "commands": [COMMAND],
    "review": {
        "defaults": {"provider": "p0", "model": "m0", "reasoning": "high", "temperature": 1},
        "strictness": "strict",
        "ignore": ["gen/**"],
        "checklist": ["Is it tested?"],
        "prompts": [
            PROMPT,
            {"id": "plain", "commandRef": "c", "provider": "anthropic"},
            {"id": "own", "prompt": "By itself", "provider": "nobody"},
            {"id": "default", "commandRef": "c"},
        ],
    },
    "schedule": {
        "enabled": False,
        "cron": "17 3 * * 1-5",
        "timezone": "Europe/Berlin",
        "jobs": [
            {
                "id": "j",
                "commandRef": "c",
                "title": "A job",
                "tools": {"allow": ["filesystem"]},
                "limits": {"maxFiles": 1, "maxFindings": 1, "maxDiffLines": 1},
                "conditions": {
                    "paths": {"include": ["a/**"], "exclude": ["b/**"]},
                    "branch": {"include": ["main"], "exclude": ["old"]},
                },
                "writeScope": {"include": ["c/**"], "exclude": ["d/**"]},
                "tests": "make test",
                "updates": "npm",
                "minAge": "7d",
                "output": {"mode": "pr_create", "pr": {"base": "x", "title": "T", "body": "B"}},
            },
            {
                "id": "k",
                "prompt": "Tell",
                "output": {"mode": "issue", "issue": {"title": "T", "body": "B"}},
            },
        ],
    },
}
LATER: dict[str, Any] = {
    "version": 1,
    "tools": {"allowlist": ["filesystem", "git.read"]},
    "commands": [
        COMMAND | {"comment": {"type": "issue"}},
        {"id": "d", "prompt": "Mend", "tools": {"allow": ["repo.write"]}, "title": "Mend it"},
    ],
    "review": {
        "defaults": FIRST["review"]["defaults"] | {"provider": "anthropic"},
        "strictness": "strict",
        "ignore": ["gen/**"],
        "checklist": ["Is it tested?"],
        "run": ["c", "d"],
    },
    "schedule": {
        "enabled": False,
        "cron": "17 3 * * 1-5",
        "timezone": "Europe/Berlin",
        "runs": {"nightly": ["d"]},
        "output": {"mode": "pr_create", "pr": {"base": "x", "title": "T", "body": "B"}},
        "limits": {"maxFiles": 1, "maxFindings": 1, "maxDiffLines": 1},
        "conditions": {
            "paths": {"include": ["a/**"], "exclude": ["b/**"]},
            "branch": {"include": ["main"], "exclude": ["old"]},
        },
        "writeScope": {"include": ["c/**"], "exclude": ["d/**"]},
    },
    "output": {"commentType": "both"},
}
REFINERY: dict[str, Any] = {
    "strictness": "lenient",
    "ignore": ["gen/**"],
    "checklist": ["Is it tested?"],
}
# What the first document can't have beside the rest: the other output of a job.
LATER_ISSUE = LATER["schedule"] | {
    "output": {"mode": "issue", "issue": {"title": "T", "body": "B"}}
}


def test_the_schema_in_docs_is_that_of_the_shapes() -> None:
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(shapes.json_schema())), (
        "write it anew: .venv/bin/python scripts/reviewerc_schema.py"
    )


def test_nothing_in_the_schema_may_be_null_or_be_unknown() -> None:
    for name, one in shapes.json_schema()["$defs"].items():
        assert one["additionalProperties"] is False, name
    assert '"null"' not in SCHEMA.read_text()


# -- every key ------------------------------------------------------------------------------------


def keys(wanted: inspect.Type, path: str = "") -> Iterator[str]:
    """Every key of a shape: `commands[].limits.maxFiles`."""
    match wanted:
        case inspect.StructType():
            for field in wanted.fields:
                below = f"{path}.{field.encode_name}".lstrip(".")
                yield below
                yield from keys(field.type, below)
        case inspect.UnionType():
            for one in wanted.types:
                yield from keys(one, path)
        case inspect.VarTupleType():
            yield from keys(wanted.item_type, f"{path}[]")


def without(document: Any, path: str) -> Any:
    """A document without a key, wherever it stands."""
    changed = copy.deepcopy(document)
    *above, last = path.split(".")
    places = [changed]
    for name in above:
        found = [one[name.removesuffix("[]")] for one in places if name.removesuffix("[]") in one]
        places = [each for one in found for each in (one if name.endswith("[]") else [one])]
    for place in places:
        place.pop(last, None)
    return changed


def file(path: str, added: int = 10) -> ChangedFile:
    return ChangedFile(path, path, "M", added, 0, (ShownLines(1, 50),))


SOME = [file("src/a.py"), file("src/b.go"), file("docs/a.py")]
SUBJECTS = [
    PromptSubject(draft, labels, author, files)
    for draft in (False, True)
    for labels in (["bug"], ["bug", "wip"], [])
    for author in ("ada", "bob", "eve")
    for files in (
        SOME,
        [file("src/a.py", added=70)],
        [file("src/a.py", added=110)],
        [file(f"src/{n}.py") for n in "abc"],
        [file(f"src/{n}.py") for n in "abcd"],
        [file("lib/a.py")],
        [file("src/x.py")],
    )
]
FINDINGS = [
    {"path": path, "line": 5, "severity": severity, "title": severity, "body": "b"}
    for severity in ("critical", "high", "medium", "low")
    for path in ((".",) if severity == "critical" else ("src/a.py",))
]
TARGET = PullTarget(forge="github", repository="a/b", number=1, head="a")


def done(chosen: ChosenPrompt) -> list[Any]:
    """What running a prompt comes to."""
    plan = chosen.plan
    answer = {"summary": "s", "findings": FINDINGS}
    report = report_of(chosen, answer, SOME, lambda _: [""] * 50)
    order = prompt_order(chosen, Order(title="T", body="B"))
    act = prompt_act(TARGET, report, run_id="a", recorded=False)
    return [is_fed(plan), is_posted(plan), order, act, plan.asked.model]


def effects(plans: list[PromptPlan]) -> list[Any]:
    found: list[Any] = []
    for subject in SUBJECTS:
        chosen, others = choose(plans, subject)
        found.append([[done(one) for one in chosen], others])
    return found


def observed(document: Any) -> Any:
    """All that a file comes to; its faults where it can't be used."""
    return read_as(json.dumps(document))


@cache
def read_as(text: str) -> Any:
    read = read_reviewerc(text.encode(), {"UTC", "Europe/Berlin"})
    if read.config is None:
        return [one.message for one in read.faults]
    config = combine([ConfigLayer("file", read.config)])
    return msgspec.to_builtins(
        [
            effects([one.value for one in config.prompts]),
            [done(ChosenPrompt(one.value, ())) for one in config.commands],
            [one.value for one in config.jobs],
            [config.scheduled.value, config.cron.value, config.timezone.value],
            [config.strictness.value, config.checklist],
            ignored([file("gen/a.py")], [one.value for one in config.ignore]),
        ]
    )


@each_row(
    ("shape", "path"),
    [
        (shape, path)
        for shape in (shapes.Reviewerc, shapes.LaterReviewerc)
        for path in keys(inspect.type_info(shape))
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_key_that_is_taken_out_makes_a_difference(shape: Any, path: str) -> None:
    document = FIRST if shape is shapes.Reviewerc else LATER
    if path.startswith("schedule.output.issue") and shape is shapes.LaterReviewerc:
        document = LATER | {"schedule": LATER_ISSUE}
    less = without(document, path)
    assert less != document, "the document has no such key: add it"
    assert not isinstance(observed(document)[0], str), observed(document)
    assert observed(less) != observed(document)


@pytest.mark.parametrize(
    "key", [one.encode_name for one in msgspec.structs.fields(shapes.RefineryFile)]
)
def test_every_key_of_code_refinery(key: str) -> None:
    whole, less = (
        read_refinery(json.dumps(one).encode()) for one in (REFINERY, without(REFINERY, key))
    )
    assert whole.config is not None
    assert less.config != whole.config
