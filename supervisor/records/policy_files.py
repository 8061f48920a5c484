"""The policy in force: the base file, the operator's saved rules, and the rules of one session,
merged.

Files are read from outside the workspace only. A file that changes on disk is noticed at the
next decision. One that no longer parses, or vanished, keeps the last good policy in force and
raises a banner (law 3); where there never was a good one, everything is denied. Saved rules are
written atomically: what `add_rule` returned from survives a crash (law 7).
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from supervisor.base import plain_files, whole_files
from supervisor.base.clock import Clock
from supervisor.core.actions import Effect
from supervisor.core.policy.policy_text import DENY_ALL, EFFECTS, merge, parse_policy, parse_rule
from supervisor.core.policy.rules import Policy, Rule
from supervisor.core.text import policy_yaml
from supervisor.errors import GatehouseError, NotFoundError, PolicyError
from supervisor.records.rule_ends import RuleEnds

_HEADER = (
    "# Rules that were saved from the inbox, the Rules page or `gatehouse rules add`. Edit freely;"
    " comments are not kept.\n"
)


def _plain(value: Any) -> Any:
    """Data without its lines, for PyYAML to write. `policy_yaml` bounds how deep it is."""
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
    """`PolicyError` in one line where a file can't be used as a policy: for what is to be said
    before anything starts."""
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
        """Read the file again where it changed; whether anything did."""
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
    """The one holder of policies. `on_change(is_saved)` is called after every change of what is in
    force, or of the banner.

    `is_saved`: it came through `add_rule` or `remove_rule`, whose caller lets it answer what
    waits, in a person's name.
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
        """Which files are in force, for the record: by path, and by the SHA-256 of what they
        held when they were last good."""
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
        """Return what is in force for every session."""
        self._refresh()
        return self._merged

    def for_session(self, policy_text: str) -> Policy:
        """Return what is in force for a session that has rules of its own, as policy text."""
        self._refresh()
        return self.known_for_session(policy_text)

    def known_for_session(self, policy_text: str) -> Policy:
        """The same as it was at the last look: for who has a verdict already, and asks what else
        it means."""
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
        """Save a rule; its new id. `PolicyError` where it doesn't parse or may not be saved;
        nothing is written then."""
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
        """Take a saved rule away; its text. `NotFoundError` where no saved rule has that id."""
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
        """Take away the saved rules whose time, or session, is over: those. They can match
        nothing any more, so what fails does no harm."""
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
        data = _plain(policy_yaml.load(text, str(path)) or {})
        return {"version": 1} | {
            key: value for key, value in data.items() if key != "version" and value is not None
        }

    def _write_saved(self, data: dict[str, Any]) -> None:
        path = self._saved.path
        text = _HEADER + yaml.safe_dump(data, sort_keys=False, allow_unicode=False)
        parse_policy(text, str(path))
        whole_files.replace(path, text.encode())
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
