"""Explain an act on a forge: what a rule would have to spell, and where it differs.

Decides nothing (see `explain`): whether a rule fits is told by `review_rules`.
"""

from supervisor.core.act import Act
from supervisor.core.actions import Action, title
from supervisor.core.lab.explanation import FAR, NEAR, RuleLook, Topic, excepted, miss
from supervisor.core.policy.review_rules import ReviewJudge, SeenAct, compile_pattern, forced
from supervisor.core.verdicts import Forced, Rule


class ReviewReading:
    """An `Act` as it was understood. No topic where its repository is none."""

    def __init__(self, action: Action) -> None:
        assert isinstance(action, Act)
        seen = ReviewJudge.canonical(action)
        self.left_out = 0
        self.facts: list[tuple[str, str]] = [("repository", f"{action.forge}:{action.repository}")]
        self.forced: list[Forced] = []
        self.topics: list[Topic] = []
        if isinstance(seen, SeenAct):
            self._seen = seen
            notes = tuple(f"a rule has to spell {one}" for one in sorted(seen.flags))
            self.topics = [Topic("act", title(action), notes, forced(action), alone=action)]

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of the act."""
        pattern, seen = compile_pattern(rule.pattern), self._seen
        broad = rule.effect != "allow"
        if (seen.is_touched if broad else seen.is_covered)(pattern):
            takes_out = seen.is_covered if broad else seen.is_touched
            for exception in rule.exceptions:
                if takes_out(compile_pattern(exception)):
                    return excepted(exception)
            return RuleLook(True, f"`{rule.pattern}` covers `{self.topics[at].text}`")
        if not seen.is_at(pattern):
            return miss("it is about another operation or repository", FAR)
        lacking = sorted(seen.flags - pattern.flags)
        if lacking and not broad:
            return miss(f"it doesn't spell {' '.join(lacking)}", NEAR)
        return miss("its options leave this act out", NEAR)
