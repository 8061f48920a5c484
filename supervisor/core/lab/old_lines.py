"""Facts of audit lines that were written before they had a field of their own.

Only records of before are read so, and the texts are those of then: they never change.
"""

import re

_OWN = re.compile(
    r"everything is stopped: .*"
    r"|the rules could not be evaluated: \w+"
    r"|`[^`]*` port [0-9]+ is Gatehouse itself, which is never reached"
    r"|the session has ended"
    r"|too many requests of this session wait already"
    r"|Gatehouse itself reads this file \(its policy, code or pages\):"
    r" a change of it is always asked"
    r"|no policy could be read, so everything is denied",
    re.DOTALL,
)


def was_by_policy(rule: str | None, why: str) -> bool:
    """Return whether rules or modes made the verdict that was explained so."""
    return rule is not None or _OWN.fullmatch(why) is None
