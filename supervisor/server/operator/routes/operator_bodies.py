"""Bodies of the operator's API as types. None has a field for who answers: the door knows that."""

from typing import Annotated, Any

import msgspec

from supervisor.core.actions import Category, Effect
from supervisor.core.approvals import Answer
from supervisor.server.common.views import OperatorRequest
from supervisor.server.operator.rules_view import RulePreview

_Text = Annotated[str, msgspec.Meta(max_length=2000)]
_Rule = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
MOST_AT_ONCE = 1000
Seen = Annotated[str, msgspec.Meta(max_length=100)]
_Lasts = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class AnswerBody(_Body, frozen=True, kw_only=True):
    """`fingerprint` is that of the request as it was shown; without it nothing is answered.
    `always` is the text of a rule to save, without its list's name.

    `lasts` is how long that rule holds: `always`, `session`, or a duration such as `15m`.
    `with_scripts`: of an install that is approved, its install scripts may run. `seen`: the word
    that came with the whole of a changed file (`RequestDetail`); one that is folded is approved
    with it alone.
    """

    reason: _Text = ""
    fingerprint: str = ""
    always: _Rule | None = None
    lasts: _Lasts = "always"
    with_scripts: bool = False
    seen: Seen = ""


class BulkBody(_Body, frozen=True, kw_only=True):
    """`shown` maps the id of each request that was shown to its fingerprint: exactly these are
    answered, or none. `ids` alone say nothing of what was shown, so they answer nothing."""

    category: Category
    answer: Answer
    shown: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_AT_ONCE)] = {}
    ids: Annotated[list[str], msgspec.Meta(max_length=MOST_AT_ONCE)] = []
    reason: _Text = ""


class RuleBody(_Body, frozen=True, kw_only=True):
    """`lasts`: `always`, or a duration such as `15m`."""

    effect: Effect
    rule: _Rule
    why: _Text = ""
    lasts: _Lasts = "always"


class KeepBodiesBody(_Body, frozen=True, kw_only=True):
    keep: bool


class TakeBody(_Body, frozen=True, kw_only=True):
    """`branch` of the agent's copy; the one that it has checked out where it is empty."""

    branch: Annotated[str, msgspec.Meta(max_length=500)] = ""


class StopBody(_Body, frozen=True, kw_only=True):
    reason: _Text = ""


class AnsweredView(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are other waiting requests that the saved rule answered, the first of so many;
    `saved_in` is the rule's file."""

    request: OperatorRequest
    rule_id: str | None
    saved_in: str | None
    also: list[OperatorRequest]
    also_count: int


class RequestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`card` is what the workspace knows of a changed file: its diff, and whether it still
    applies. `preview` is of a proposed rule. `seen` goes back with the approval of a change that
    pages fold, as `is_folded` says: who has this answer has all of the change."""

    request: OperatorRequest
    card: Any
    preview: RulePreview | None
    seen: str
    is_folded: bool


class HeldDenied(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections were denied."""

    denied: int


class RuleSaved(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are the waiting requests that it answered: the first of so many."""

    id: str
    also: list[OperatorRequest]
    also_count: int


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Text from `offset` on, in bytes. Ask again with `next_offset`; `is_final` when nothing
    follows."""

    text: str
    next_offset: int
    is_final: bool


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    url: str


class Ok(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool = True
