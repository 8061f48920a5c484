"""Each event of the audit log has one writer, so that its fields can't come apart."""

import ast

from supervisor.records.audit import EVENTS
from supervisor.settings import ROOT

# These read lines, show them, or declare the events.
READ = ("core/lab/past.py", "records/audit.py", "server/operator/pages/page_frame.py")


def names_in(source: str) -> list[str]:
    """The events that a module writes, each as often as it names it; not those of its types."""
    if not any(event in source for event in EVENTS):
        return []
    tree = ast.parse(source)
    types = {
        id(one)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Literal"
        for one in ast.walk(node)
    }
    return [
        str(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in EVENTS and id(node) not in types
    ]


def test_each_event_is_written_in_one_place() -> None:
    written: dict[str, list[str]] = {}
    for path in sorted((ROOT / "supervisor").rglob("*.py")):
        name = path.relative_to(ROOT / "supervisor").as_posix()
        if name not in READ:
            for event in names_in(path.read_text(encoding="utf-8")):
                written.setdefault(event, []).append(name)
    assert {event: found for event, found in written.items() if len(found) > 1} == {}
    assert written["verdict_given"] == ["gate/audit_lines.py"]


def test_a_second_writer_would_be_found() -> None:
    source = '''
def line() -> Literal["rule_added"]:
    """`rule_added`"""
    record("rule_added"), [("rule_added", {})]
'''
    assert names_in(source) == ["rule_added"] * 2
