"""The policy in force: the base file, the operator's saved rules, and the rules of one session,
merged.

Files are read from outside the workspace only. A file that changes on disk is noticed at the
next decision. One that no longer parses, or vanished, keeps the last good policy in force and
raises a banner (law 3); where there never was a good one, everything is denied. Saved rules are
written atomically: what `add_rule` returned from survives a crash (law 7).
"""

import contextlib
import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from supervisor.base import plain_files
from supervisor.base.clock import Clock
from supervisor.core.actions import Effect
from supervisor.core.policy.policy_text import DENY_ALL, EFFECTS, merge, parse_policy, parse_rule
from supervisor.core.policy.rules import Policy, Rule
from supervisor.core.sessions import Session
from supervisor.core.text import strict_yaml
from supervisor.core.verdicts import Context
from supervisor.errors import GatehouseError, NotFoundError, PolicyError, UserError

_HEADER = (
    "# Rules that were saved from the inbox, the Rules page or `gatehouse rules add`. Edit freely;"
    " comments are not kept.\n"
)
# What `added_at` may lie ahead by rounding.
_ROUNDED_S = 1.0
_NONE: frozenset[str] = frozenset()

# The policies that come with Gatehouse.
SHIPPED = Path(__file__).resolve().parents[2] / "policy"

type _Key = tuple[str, float]


class RuleEnds:
    """The expiry of temporary rules, by wall-clock time and by elapsed time. One per `PolicyFiles`.

    A rule's end is stored as wall-clock time, so that it survives a restart. But that clock can be
    set back, which would turn "for 15 minutes" into an hour. So while this process runs, the time
    elapsed since it first saw a rule counts as well; where the two disagree, the stricter wins
    (`core.verdicts.Context.is_over`). After a restart only the wall clock is left; a rule that was
    added in what is now the future is over, since its remaining time is unknown.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[_Key, float] = {}

    def disputed(self, policy: Policy) -> frozenset[str]:
        """Return the ids of the policy's rules on whose end the two clocks disagree."""
        return _NONE if not policy.ending else self._disputed(policy.ending)

    def is_over(self, rule: Rule) -> bool:
        """Return whether a rule is over by the stricter clock."""
        now = self._clock.now()
        return Context(
            now, "", None, frozenset(), frozenset(), None, self._disputed([rule])
        ).is_over(rule)

    def _disputed(self, rules: Iterable[Rule]) -> frozenset[str]:
        now, went_by = self._clock.now(), self._clock.monotonic()
        found = []
        for rule in rules:
            if rule.expires_at is not None:
                end = self._end(rule, rule.expires_at, now, went_by)
                if (now >= rule.expires_at) != (went_by >= end):
                    found.append(rule.id)
        return frozenset(found) if found else _NONE

    def _end(self, rule: Rule, expires_at: float, now: float, went_by: float) -> float:
        """Its end in the time that goes by, noted when it is first seen."""
        key = (rule.id, expires_at)
        found = self._ends.get(key)
        if found is None:
            is_from_ahead = (
                rule.effect == "allow"
                and rule.added_at is not None
                and rule.added_at > now + _ROUNDED_S
            )
            found = self._ends[key] = -math.inf if is_from_ahead else went_by + expires_at - now
        return found


def _plain(value: Any) -> Any:
    """Data without its lines, for PyYAML to write. `strict_yaml` bounds how deep it is."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if value is None else str(value)


class Until(NamedTuple):
    """How long a saved rule holds: to a time in seconds since the epoch, in one session, or
    (neither) until it is removed."""

    at: float | None = None
    session_id: str | None = None


ALWAYS = Until()


def check_policy(path: Path) -> None:
    """Raise `PolicyError`, in one line, if a file can't be used as a policy: a check before
    anything starts.
    """
    try:
        parse_policy(plain_files.read_text(path), str(path))
    except OSError as error:
        remedy = "give a policy with --policy or GATEHOUSE_POLICY"
        raise PolicyError(f"{path}: {error.strerror}", remedy) from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: is not UTF-8 text", "give a policy with --policy") from error


class _File:
    """One policy file: its last good policy, and what is wrong with its present text."""

    def __init__(self, path: Path, *, required: bool) -> None:
        self.path = path
        self._name = str(path)
        self.error: str | None = None
        self.policy: Policy | None = None
        self.sha256 = ""
        self._required = required
        self._seen: tuple[int, ...] | None = None

    def refresh(self) -> bool:
        """Read the file again if it changed. Return whether anything changed."""
        try:
            stat = os.stat(self._name)  # noqa: PTH116  # asked before every verdict, and a Path takes as long as the kernel
            stamp: tuple[int, ...] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            stamp = ()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.policy, self.error = self._load(), None
        except PolicyError as error:
            self.error = str(error)
        except (OSError, UnicodeDecodeError) as error:
            self.error = f"{self.path}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}"
        return True

    def _load(self) -> Policy:
        try:
            text = plain_files.read_text(self.path)
        except FileNotFoundError:
            if self._required or self.policy is not None:
                raise
            text = ""
        policy = parse_policy(text or "version: 1\n", str(self.path))
        self.sha256 = hashlib.sha256(text.encode()).hexdigest() if text else ""
        return policy


def _drop(data: dict[str, Any], is_over: Callable[[dict[str, Any]], bool]) -> None:
    for effect in EFFECTS:
        if effect in data:
            data[effect] = [
                entry
                for entry in data[effect] or []
                if not (isinstance(entry, dict) and is_over(entry))
            ]


class PolicyFiles:
    """Holds the policies. `on_change(is_saved)` is called after every change of the policy in force
    or of the banner.

    `is_saved`: the change came from `add_rule` or `remove_rule`, whose caller lets it answer
    waiting requests in a person's name.
    """

    def __init__(self, base: Path, saved: Path, clock: Clock) -> None:
        self._base = _File(base, required=True)
        self._saved = _File(saved, required=False)
        self._clock = clock
        self.ends = RuleEnds(clock)
        self._merged: Policy = DENY_ALL
        self._of_session: dict[str, Policy] = {}
        self.on_change: Callable[[bool], None] = lambda is_saved: None
        self._refresh()

    @property
    def file(self) -> Path:
        """The policy file."""
        return self._base.path

    @property
    def saved_file(self) -> Path:
        """Where `add_rule` saves."""
        return self._saved.path

    def on_record(self) -> dict[str, Any]:
        """Return the files in force, for the record: path, and SHA-256 of their last
        good content.
        """
        return {
            "policy": str(self.file),
            "policy_sha256": self._base.sha256,
            "saved_rules": str(self.saved_file),
            "saved_rules_sha256": self._saved.sha256,
        }

    @property
    def banner(self) -> str | None:
        """Return what is wrong with a policy file; None while all is well."""
        self._refresh()
        errors = [file.error for file in (self._base, self._saved) if file.error]
        if not errors:
            return None
        never_good = self._base.policy is None or self._saved.policy is None
        kept = "everything is denied" if never_good else "the last good policy stays in force"
        return f"{'; '.join(errors)} ({kept})"

    def current(self) -> Policy:
        """Return the policy in force for every session."""
        self._refresh()
        return self._merged

    def for_session(self, policy_text: str) -> Policy:
        """Return the policy in force for a session with its own rules, given as policy text."""
        self._refresh()
        return self.known_for_session(policy_text)

    def known_for_session(self, policy_text: str) -> Policy:
        """Return the same policy as of the last look, without reading files: for callers that
        already have a verdict.
        """
        if not policy_text:
            return self._merged
        if policy_text not in self._of_session:
            self._of_session[policy_text] = merge(
                self._merged, parse_policy(policy_text, "this session")
            )
        return self._of_session[policy_text]

    def add_rule(
        self, effect: Effect, rule: str, *, why: str, by: str, until: Until = ALWAYS
    ) -> str:
        """Save a rule and return its id. `PolicyError` where it doesn't parse or may not be saved;
        nothing is written then.
        """
        parse_rule(rule)
        now = self._clock.now()
        data = self._read_saved()
        rule_id = secrets.token_hex(4)
        entry = {"rule": rule, "id": rule_id, "why": why, "added_by": by, "added_at": round(now, 3)}
        if until.session_id is not None:
            entry |= {"expires": "session", "session": until.session_id}
        elif until.at is not None:
            entry["expires"] = datetime.fromtimestamp(until.at, UTC).isoformat()
        data.setdefault(effect, []).append(entry)
        self._write_saved(data)
        return rule_id

    def remove_rule(self, rule_id: str) -> str:
        """Remove a saved rule and return its text. `NotFoundError` where no saved rule
        has that id.
        """
        data = self._read_saved()
        for effect in EFFECTS:
            for entry in data.get(effect) or []:
                if isinstance(entry, dict) and entry.get("id") == rule_id:
                    data[effect].remove(entry)
                    self._write_saved(data)
                    return str(entry["rule"])
        raise NotFoundError(
            f"no saved rule has the id `{rule_id}`",
            "`gatehouse rules list` shows them; others stand in the policy file",
        )

    def has_saved(self, rule_id: str) -> bool:
        """Return whether `remove_rule` knows this id."""
        return any(rule.id == rule_id for rule in self._saved_rules())

    def drop_ended(self, is_over: Callable[[str], bool]) -> list[Rule]:
        """Remove and return the saved rules whose time or session is over. They can't match any
        more, so a failure does no harm.
        """
        ended = [
            found
            for found in self._saved_rules()
            if (found.until_session_ends and is_over(found.session or ""))
            or self.ends.is_over(found)
        ]
        ids = {found.id for found in ended}
        with contextlib.suppress(GatehouseError, OSError):
            if ids:
                data = self._read_saved()
                _drop(data, lambda entry: entry.get("id") in ids)
                self._write_saved(data)
                return ended
        return []

    def _saved_rules(self) -> tuple[Rule, ...]:
        self._refresh()
        return self._saved.policy.rules if self._saved.policy is not None else ()

    def _read_saved(self) -> dict[str, Any]:
        path = self._saved.path
        try:
            text = plain_files.read_text(path)
        except FileNotFoundError:
            return {"version": 1}
        except UnicodeDecodeError as error:
            raise PolicyError(f"{path}: is not UTF-8 text", "mend the file") from error
        parse_policy(text, str(path))  # never build on a file that can't be used
        # As the policy was read: a date, or a why of `no`, stays the text that it is, and nothing
        # recurses.
        data = _plain(strict_yaml.load(text, str(path)) or {})
        return {"version": 1} | {
            key: value for key, value in data.items() if key != "version" and value is not None
        }

    def _write_saved(self, data: dict[str, Any]) -> None:
        path = self._saved.path
        text = _HEADER + yaml.safe_dump(data, sort_keys=False, allow_unicode=False)
        parse_policy(text, str(path))
        plain_files.replace(path, text.encode())
        self._refresh(is_saved=True)

    def _refresh(self, *, is_saved: bool = False) -> None:
        is_base_new, is_saved_new = self._base.refresh(), self._saved.refresh()
        if not (is_base_new or is_saved_new):
            return
        policies = [file.policy for file in (self._base, self._saved)]
        try:
            # A saved file that never parsed may hold denials: without it nothing is allowed either.
            self._merged = (
                DENY_ALL if None in policies else merge(*(policy for policy in policies if policy))
            )
        except GatehouseError as error:
            self._base.error = str(error)
        self._of_session.clear()
        self.ends.disputed(self._merged)  # noted: their time begins now
        self.on_change(is_saved)


def saved_file(policy: Path, data_dir: Path) -> Path:
    """Return where rules for a policy file other than the supervisor's are saved: beside it, or in
    the data folder for a file that ships with Gatehouse. Rules that an earlier version saved beside
    such a file stay in force.
    """
    beside = policy.with_name(f"saved-{policy.name}")
    is_shipped = policy.resolve().is_relative_to(SHIPPED) and not beside.exists()
    return data_dir / beside.name if is_shipped else beside


class PolicySets:
    """The policy of each session: the supervisor's set, `main`, or the set of the session's own
    file.

    A set is a policy file and the rules that were saved for it. The supervisor's rules are saved in
    its data folder, those of any other file apart from these, so that "always" in one session
    loosens no session of another policy. INVARIANT: a session without a good policy of its own
    never falls back to the supervisor's: such a set denies everything.

    `on_change(set, is_saved)` is called for these others as `PolicyFiles.on_change` is for the
    main one.
    """

    def __init__(self, main: PolicyFiles, clock: Clock) -> None:
        self.main = main
        self._clock = clock
        self._others: dict[tuple[str, str], PolicyFiles] = {}
        self.on_change: Callable[[PolicyFiles, bool], None] = lambda policies, is_saved: None

    def of(self, session: Session) -> PolicyFiles:
        """Return the set that judges a session."""
        key = self._key(session)
        if key == (str(self.main.file), str(self.main.saved_file)):
            return self.main
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = PolicyFiles(Path(key[0]), Path(key[1]), self._clock)
            found.on_change = lambda is_saved: self.on_change(found, is_saved)
        return found

    def keep_only(self, sessions: Iterable[Session]) -> None:
        """Forget sets that judge none of these sessions."""
        used = {self._key(session) for session in sessions}
        self._others = {key: found for key, found in self._others.items() if key in used}

    def all(self) -> list[PolicyFiles]:
        """Return every set in use, the supervisor's first."""
        return [self.main, *self._others.values()]

    @property
    def banner(self) -> str | None:
        """Return what is wrong with the policy files in use; None while all is well."""
        return "; ".join(filter(None, (one.banner for one in self.all()))) or None

    def wanted(self, policy: Path | None) -> dict[str, Any]:
        """Return the facts of a new session with this policy, or with the default. `UserError`
        where it can't be used.
        """
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
