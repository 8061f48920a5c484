"""`gatehouse policy lint`: what is wrong with the rules of a policy."""

import sys
from collections.abc import Iterator

import msgspec

from supervisor.base.clock import RealClock
from supervisor.cli.lab.inputs import chosen_policy, stream_record
from supervisor.core.lab.lint import Report
from supervisor.core.lab.lint import lint as findings_of
from supervisor.core.lab.past import Past
from supervisor.core.text.display import visible
from supervisor.settings import Settings


def lint(policy_file: str | None, audit: str | None, settings: Settings, *, as_json: bool) -> int:
    """Print the findings. Return 1 where there are some. What couldn't be checked is reported on
    standard error."""
    report = findings_of(
        chosen_policy(policy_file, settings), _record(audit, settings), RealClock().now()
    )
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        _print(report)
    return 1 if report.findings else 0


def _record(audit: str | None, settings: Settings) -> Iterator[Past] | None:
    """Return the named record, else this installation's; None where it has none yet."""
    if audit is None and not settings.audit_log.exists():
        return None
    return stream_record(audit, settings)


def _print(report: Report) -> None:
    for finding in report.findings:
        print(visible(str(finding), one_line=True))
    if not report.findings:
        print("nothing is wrong with the rules")
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
