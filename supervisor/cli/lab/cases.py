"""`gatehouse policy test`: case files against a policy.

An unusable file fails the test, whatever the others say.
"""

import sys
from pathlib import Path

from supervisor.base.clock import RealClock
from supervisor.cli.lab.inputs import chosen_policy, read_text
from supervisor.core.lab.case_files import Case, failure_of, read_cases
from supervisor.core.text.display import visible
from supervisor.errors import UserError
from supervisor.settings import Settings

_SUFFIXES = (".yaml", ".yml")


def test(folder: str, policy_file: str | None, settings: Settings) -> int:
    """Print every case with another answer than expected, then the count. Return 1 where there is
    one, a file can't be used, or there is no case."""
    files = _files(Path(folder))
    cases, unusable = _read(files)
    needs_policy = policy_file is not None or any(not case.has_policy for case in cases)
    policy = chosen_policy(policy_file, settings) if needs_policy else None
    now = RealClock().now()
    failures = [failure for case in cases if (failure := failure_of(case, policy, now)) is not None]
    for failure in failures:
        print(visible(str(failure), one_line=True))
    count = (
        f"{len(cases)} case{'' if len(cases) == 1 else 's'} in {len(files)}"
        f" file{'' if len(files) == 1 else 's'}"
    )
    print(f"{count}, {len(failures)} failed" + (f", {unusable} can't be used" if unusable else ""))
    return 1 if failures or unusable or not cases else 0


def _files(folder: Path) -> list[Path]:
    """Return the case files of a folder and its subfolders, or the one file that was named."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(
            f"{folder}: there is no such folder", "name a folder of case files, or one of them"
        )
    found = sorted(
        path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file()
    )
    if not found:
        raise UserError(
            f"{folder}: holds no case files", f"a case file's name ends in {' or '.join(_SUFFIXES)}"
        )
    return found


def _read(files: list[Path]) -> tuple[list[Case], int]:
    """Return every case of the usable files, and how many files are unusable: each of those is
    reported on standard error."""
    cases: list[Case] = []
    unusable = 0
    for path in files:
        try:
            cases.extend(read_cases(read_text(path, "make it readable"), str(path)))
        except UserError as error:
            unusable += 1
            print(visible(str(error), one_line=True), file=sys.stderr)
    return cases, unusable
