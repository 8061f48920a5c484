"""Read the lab's inputs: a policy file, the policy that a session would start with, the record."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from supervisor.core.lab.past import Past, iterate, read_answers, read_history
from supervisor.core.policy.policy_text import merge, parse_policy
from supervisor.core.policy.rules import Policy
from supervisor.errors import UserError
from supervisor.settings import Settings

# Ten times a policy of 100,000 rules.
LONGEST_TEXT_BYTES = 64 << 20


def read_policy(path: str) -> Policy:
    """Return the policy of a file. Raise `UserError` where it can't be read, `PolicyError`
    (`file:line: ...`) where it can't be used."""
    return parse_policy(read_text(Path(path), "give a policy file"), path)


def policy_in_force(settings: Settings) -> Policy:
    """Return the policy that a new session would get: the policy file and the operator's saved
    rules."""
    base = parse_policy(
        read_text(settings.policy_file, "give a policy with --policy"), str(settings.policy_file)
    )
    saved = settings.saved_rules_file
    if not saved.exists():
        return base
    return merge(base, parse_policy(read_text(saved, "mend the file"), str(saved)))


def chosen_policy(path: str | None, settings: Settings) -> Policy:
    """Return the named file's policy, else the one in force."""
    return policy_in_force(settings) if path is None else read_policy(path)


def read_record(path: str | None, settings: Settings) -> tuple[Past, ...]:
    """Return the history of an audit log: the named one, else this installation's."""
    with _opened(path, settings) as (file, name):
        return read_history(file, name)


def stream_record(path: str | None, settings: Settings) -> Iterator[Past]:
    """Yield the same, one judgement at a time. The file is read twice, and never held, so it must
    not be a pipe."""
    with _opened(path, settings) as (file, name):
        if not file.seekable():
            raise UserError(f"{name}: can't be read twice", "give a file")
        answers = read_answers(file, name)
        file.seek(0)
        yield from iterate(file, name, answers)


@contextlib.contextmanager
def _opened(path: str | None, settings: Settings) -> Iterator[tuple[BinaryIO, str]]:
    log = settings.audit_log if path is None else Path(path)
    try:
        with log.open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{log}: is a device", "name an audit log")
            yield file, str(log)
    except FileNotFoundError:
        raise UserError(
            f"{log}: there is no audit log", "name one, or run a session first"
        ) from None
    except OSError as error:
        raise UserError(f"{log}: {error.strerror}", "name an audit log that can be read") from error


def read_text(path: Path, remedy: str) -> str:
    """Return the text of a file. Raise `UserError` where it can't be read, or is longer than any
    policy."""
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_TEXT_BYTES + 1)
        if len(data) > LONGEST_TEXT_BYTES:
            raise UserError(f"{path}: is longer than {LONGEST_TEXT_BYTES >> 20} MB", remedy)
        return data.decode()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", remedy) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text", remedy) from error
