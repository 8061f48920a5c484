"""The words of what no policy decides: Gatehouse itself refuses, or asks, whatever rules and modes
say.

Apart from those who say them, so that whoever reads the record (`history`) knows such a verdict
from one of a policy by the very words.
"""

import re

from supervisor.core.policy.evaluate import NOTHING_IN_FORCE

STOPPED = "everything is stopped"
SESSION_ENDED = "the session has ended"
INBOX_FULL = "too many requests of this session wait already"
NOT_EVALUATED = "the rules could not be evaluated"
OWN_FILE = (
    "Gatehouse itself reads this file (its policy, code or pages): a change of it is always asked"
)

_OWN = re.compile(
    rf"{STOPPED}: .*|{NOT_EVALUATED}: \w+|`[^`]*` port [0-9]+ is Gatehouse itself, which is never"
    r" reached"
    rf"|{'|'.join(map(re.escape, (SESSION_ENDED, INBOX_FULL, OWN_FILE, NOTHING_IN_FORCE)))}",
    re.DOTALL,
)


def is_by_policy(rule: str | None, why: str) -> bool:
    """Whether rules or modes made the verdict that is explained so: it may be another under
    another policy."""
    return rule is not None or _OWN.fullmatch(why) is None
