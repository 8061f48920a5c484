"""Which files a program writes, by their names alone."""

from supervisor.core.text.generated import generated_as
from tests.tables import each_row


@each_row(
    ("path", "kind"),
    [
        ("uv.lock", "lock file"),
        ("web/package-lock.json", "lock file"),
        ("go.sum", "lock file"),
        ("Cargo.lock", "lock file"),
        ("my-uv.lock", ""),
        ("uv.lock/a.py", ""),
        ("uv.lock\n", ""),
        ("app.min.js", "generated"),
        ("a/app.css.map", "generated"),
        ("node_modules/a/b.js", "generated"),
        ("api/v1_pb2.py", "generated"),
        ("distance/a.py", ""),
        ("a.py", ""),
    ],
)
def test_a_name_tells_what_kind_of_file_it_is(path: str, kind: str) -> None:
    assert generated_as(path) == kind
