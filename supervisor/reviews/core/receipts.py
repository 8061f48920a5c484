"""Receipts: the outcome of one head, as a text that can be signed and shown.

Pure. There is one for each head that somebody wanted reviewed: clean, found, skipped, held or
failed, so that nothing can be mistaken for a pass.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from supervisor.core.review_markdown import plain
from supervisor.reviews.core.allowances import CapScope

Outcome = Literal["clean", "found", "skipped", "held", "failed"]
# The conclusion of a check that is neither success nor failure, by a setting.
type Neutral = Literal["neutral", "action_required"]
type Conclusion = Literal["success", "failure"] | Neutral

CHECK_NAME = "Gatehouse review"
# A neutral check satisfies a required one; only a failed review is a failure.
CONCLUSIONS: dict[Outcome, Conclusion] = {
    "clean": "success",
    "found": "neutral",
    "skipped": "neutral",
    "held": "neutral",
    "failed": "failure",
}
_NAMED_LEFT = 50
BASE_CHANGED = "base-changed"
HEAD_MOVED = "head-moved"
CALLED_OFF = "called-off"
# The codes of reasons, and their texts for people.
REASONS = {
    "": "",
    "draft": "the pull request is a draft",
    "disabled": "reviews are switched off for this repository",
    "closed": "the pull request was closed",
    "own": "it is Gatehouse's own pull request",
    "too-many": "more than 50 reviews of this repository were wanted within an hour",
    "waits-for-writer": "it comes from a fork: the first review waits until somebody who may write"
    " here mentions us with `review`, or at GitHub sets the label `gatehouse:review`",
    "paused": "reviews of this pull request are paused; the mention `resume` goes on with them",
    CALLED_OFF: "somebody who may write called the review of this head off; the mention `review`"
    " has it done after all",
    HEAD_MOVED: "the head moved on before the review could be posted",
    BASE_CHANGED: "it is to go into another branch by now, and is reviewed again for that one",
    "denied": "a person denied the review",
    "not-posted": "the forge refused the review",
    "empty": "nothing in the change can be reviewed",
    "lease over": "the run stopped answering",
    "not-begun": "no review may start now; it is wanted again",
    "stopped": "everything was stopped; the review is wanted again",
    "ended": "Gatehouse ended; the review is wanted again",
}
MOST_NOTES, MOST_NOTE_CHARS = 20, 500
# The reason code for each cap that has nothing left.
NO_BUDGET: dict[CapScope, str] = {
    "run": "no-budget-run",
    "pull": "no-budget-pull",
    "repository": "no-budget-repository",
    "owner": "no-budget-owner",
    "all": "no-budget-all",
}
REASONS |= {
    NO_BUDGET["run"]: "held: no budget is left of the run, and a new one takes its place",
    NO_BUDGET["pull"]: "held: no budget is left for this pull request; it is reviewed when the"
    " limit is raised",
    NO_BUDGET["repository"]: "held: no budget is left for this repository today; it is reviewed"
    " after midnight UTC",
    NO_BUDGET["owner"]: "held: no budget is left for this owner's repositories this month; it is"
    " reviewed next month",
    NO_BUDGET["all"]: "held: no budget is left for reviews today; it is reviewed after midnight"
    " UTC",
}
LABEL = "gatehouse:review"


class ReceiptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a receipt. Times are seconds since the epoch, `cost` is in pico-dollars."""

    forge: str
    repository: str
    number: int
    head: str
    base: str = ""
    run: str = ""
    outcome: Outcome
    reason: str = ""
    model: str = ""
    findings: dict[str, int] = {}
    files: int = 0
    skipped: Sequence[str] = ()
    # Whose configuration applied (`head` or `base`), its commit, and the configuration files that
    # the change itself changes.
    trust: str = ""
    config_revision: str = ""
    configuration: Sequence[str] = ()
    # The parts of the configuration that were narrowed or not used; the outcome of each prompt.
    config_notes: Sequence[str] = ()
    prompts: Sequence[str] = ()
    cost: int = 0
    # Why the review is partial, in words.
    partial: str = ""
    at: float


def receipt_text(facts: ReceiptFacts) -> str:
    """Return the text that is signed: JSON, its keys in order."""
    return msgspec.json.encode(facts, order="deterministic").decode()


def check_id(number: int, head: str) -> str:
    """Return the id by which a head's check is found again."""
    return f"gatehouse:{number}:{head[:12]}"


def receipt_facts(text: str) -> ReceiptFacts:
    """Return the facts of a receipt's text."""
    return msgspec.json.decode(text, type=ReceiptFacts)


def conclusion(facts: ReceiptFacts, neutral: Neutral = "neutral") -> Conclusion:
    """Return the check's conclusion: a review that is partial, or left files out, is no success."""
    found = CONCLUSIONS[facts.outcome]
    is_part = found == "success" and (facts.partial or facts.skipped)
    return neutral if is_part or found == "neutral" else found


def partial_words(why: str, left_out: Sequence[str], files: Sequence[str]) -> str:
    """Return why a review is partial and which files it left out, in words; "" for a whole one."""
    if not why:
        return ""
    left = [one for one in files if one in frozenset(left_out)]
    more = f" and {len(left) - _NAMED_LEFT} more" if len(left) > _NAMED_LEFT else ""
    names = f"not looked at: {', '.join(left[:_NAMED_LEFT])}{more}"
    return f"{why}; {names if left else 'which files it left is not known'}"


def reason_words(reason: str) -> str:
    """Return the words of a reason code; other texts are returned as they are."""
    return REASONS.get(reason, reason)


def is_held(words: str) -> bool:
    """Return whether these are a reason's words, and it is that there is no money."""
    return words.startswith("held: ")


def check_summary(facts: ReceiptFacts) -> str:
    """Return the text of the head's check."""
    lines = [_outcome_words(facts)]
    if facts.findings:
        counts = ", ".join(f"{count} {name}" for name, count in facts.findings.items())
        lines.append(f"Findings: {counts}.")
    if facts.files:
        lines.append(f"{facts.files} files were looked at.")
    if facts.skipped:
        names = "; ".join(plain(one, one_line=True) for one in facts.skipped[:50])
        more = f" and {len(facts.skipped) - 50} more" if len(facts.skipped) > 50 else ""
        lines.append(f"Left out: {names}{more}.")
    if facts.configuration:
        names = ", ".join(plain(one, one_line=True) for one in facts.configuration[:20])
        held = "read as changed" if facts.trust == "head" else "not followed: the base's held"
        lines.append(f"The change touches what steers reviews ({names}); it was {held}.")
    for said, what in (("Configuration", facts.config_notes), ("Prompts", facts.prompts)):
        if what:
            notes = [plain(one[:MOST_NOTE_CHARS], one_line=True) for one in what[:MOST_NOTES]]
            lines.append(f"{said}: {'; '.join(notes)}.")
    if facts.partial:
        lines.append(f"This review is partial: {plain(facts.partial, one_line=True)}.")
    if facts.model == "recorded":
        lines.append("A recorded model played this review: no model looked at the code.")
    return "\n\n".join(lines)


def _outcome_words(facts: ReceiptFacts) -> str:
    why = plain(reason_words(facts.reason), one_line=True)
    because = f": {why}" if why else ""
    return {
        "clean": "The change was reviewed in part, and nothing was found in it."
        if facts.partial or facts.skipped
        else "The change was reviewed, and nothing was found.",
        "found": "The change was reviewed, and something was found. It stands on the pull request"
        " once a rule or a person allows it.",
        "skipped": f"The change was not reviewed{because}.",
        "held": f"The review waits{because}.",
        "failed": f"The review failed{because}.",
    }[facts.outcome]
