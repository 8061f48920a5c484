"""Which policy judges which session: the supervisor's, or the file that the session was started
with.

A set is a policy file and the rules that were saved for it (`policy_files`). The supervisor's
rules are saved in its data folder, those of any other file apart from these, so that "always" in
one session loosens no session of another policy. It is separate from `judging`, which judges,
and must never let a session without a good policy of its own fall back to the supervisor's: such
a set denies everything.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from supervisor.base.clock import Clock
from supervisor.core.sessions import Session
from supervisor.errors import PolicyError, UserError
from supervisor.records.policy_files import PolicyFiles, check_policy

# The policies that come with Gatehouse.
SHIPPED = Path(__file__).resolve().parents[2] / "policy"


def saved_file(policy: Path, data_dir: Path) -> Path:
    """Where rules are saved that are made under a policy file other than the supervisor's: beside
    it, and of one that ships with Gatehouse in the data folder. What a version before saved beside
    such a one stays in force there."""
    beside = policy.with_name(f"saved-{policy.name}")
    is_shipped = policy.resolve().is_relative_to(SHIPPED) and not beside.exists()
    return data_dir / beside.name if is_shipped else beside


class PolicySets:
    """The supervisor's set, `main`, and those of open sessions that have another.

    `on_change(set, is_saved)` is called for these others as `PolicyFiles.on_change` is for the
    main one.
    """

    def __init__(self, main: PolicyFiles, clock: Clock) -> None:
        self.main = main
        self._clock = clock
        self._others: dict[tuple[str, str], PolicyFiles] = {}
        self.on_change: Callable[[PolicyFiles, bool], None] = lambda policies, is_saved: None

    def of(self, session: Session) -> PolicyFiles:
        """The set that judges a session."""
        key = self._key(session)
        if key == (str(self.main.file), str(self.main.saved_file)):
            return self.main
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = PolicyFiles(Path(key[0]), Path(key[1]), self._clock)
            found.on_change = lambda is_saved: self.on_change(found, is_saved)
        return found

    def keep_only(self, sessions: Iterable[Session]) -> None:
        """Forget the sets that judge none of these sessions."""
        used = {self._key(session) for session in sessions}
        self._others = {key: found for key, found in self._others.items() if key in used}

    def all(self) -> list[PolicyFiles]:
        """Every set in use, the supervisor's first."""
        return [self.main, *self._others.values()]

    @property
    def banner(self) -> str | None:
        """Return what is wrong with the policy files in use; None while all is well."""
        return "; ".join(filter(None, (one.banner for one in self.all()))) or None

    def wanted(self, policy: Path | None) -> dict[str, Any]:
        """The facts of a new session that wants this policy, or none in particular. `UserError`
        where it can't be used."""
        main = {"policy_file": str(self.main.file)}
        if policy is None:
            return main
        if not policy.is_absolute():
            raise UserError(
                f"the policy `{policy}` is not a whole path", "write the file from / on"
            )
        if policy.resolve() == self.main.file.resolve():
            return main
        check_policy(policy)
        saved = saved_file(policy, self.main.saved_file.parent)
        if (broken := PolicyFiles(policy, saved, self._clock).banner) is not None:
            raise PolicyError(broken, f"mend {saved}, or move it away")
        return {"policy_file": str(policy), "saved_rules_file": str(saved)}

    def _key(self, session: Session) -> tuple[str, str]:
        return session.policy_file or str(self.main.file), session.saved_rules_file or str(
            self.main.saved_file
        )
