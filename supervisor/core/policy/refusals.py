"""The words in which Gatehouse itself refuses, or asks, whatever rules and modes say.

`Verdict.by_policy` tells such a verdict from one of a policy; these are only its why.
"""

STOPPED = "everything is stopped"
SESSION_ENDED = "the session has ended"
INBOX_FULL = "too many requests of this session wait already"
NOTHING_IN_FORCE = "no policy could be read, so everything is denied"
NOT_EVALUATED = "the rules could not be evaluated"
OWN_FILE = (
    "Gatehouse itself reads this file (its policy, code or pages): a change of it is always asked"
)
OUT_OF_SCOPE = "it is outside the scope of this job, so it is always asked, and by itself"
