"""Which words of a line may name a script: wherever it stands, and however the folder is said."""

import pytest

from supervisor.core.actions import Exec, ShownScript, fingerprint, subject
from supervisor.core.shell.exec_operands import MOST_NAMES, looks_like_script, operands
from tests.tables import each_row


@each_row(
    ("command", "cwd", "found"),
    [
        ("bash run.sh", ".", {"run.sh": True}),
        ("bash ./tools/../run.sh x", ".", {"run.sh": True, "x": True}),
        ("python3 tools/x.py --fast", ".", {"tools/x.py": True}),
        ("bash x", "tools", {"tools/x": True}),
        ("cd tools && bash x", ".", {"x": True, "tools/x": True}),
        ("./run --now", ".", {"run": True}),
        ("/workspace/merged/run", ".", {"run": True}),
        (
            "timeout 60 env A=1 bash run",
            ".",
            {"60": True, "env": True, "A=1": True, "bash": True, "run": True},
        ),
        ("sh -c 'bash run'", ".", {"bash run": True, "run": True}),
        ("source env.sh", ".", {"env.sh": True}),
        (". ./env", ".", {"env": True}),
        ("bash < run", ".", {"run": True}),
        ("pytest tests/test_a.py::test_b", ".", {"tests/test_a.py": False}),
        ("tool --script=run.py", ".", {"run.py": False}),
        ("cat a.txt | sort", ".", {"a.txt": False}),
        ("if true; then bash run; fi", ".", {"run": True}),
        ("bash /etc/x ../y $Z", ".", {}),
        ("ls", ".", {}),
    ],
)
def test_what_a_line_may_name(command: str, cwd: str, found: dict[str, bool]) -> None:
    assert {one.path: one.is_run for one in operands(command, cwd)} == found


def test_their_number_is_bounded() -> None:
    deep = "; ".join(f"cd d{n}" for n in range(8))
    many = " ".join(f"f{n}" for n in range(400))
    found = operands(f"{deep}; cat {many}; bash run")
    assert len(found) == MOST_NAMES
    assert "run" in {one.path for one in found if one.is_run}


def test_a_text_in_texts_is_looked_into_so_deep() -> None:
    assert operands("""bash -c "bash -c 'bash run'" """)[-1].path == "run"


@pytest.mark.parametrize(
    ("path", "start", "is_one"),
    [("run", b"#!", True), ("a.PY", b"im", True), ("a.txt", b"im", False), ("py", b"", False)],
)
def test_a_script_is_known_by_its_name_or_its_first_line(
    path: str, start: bytes, is_one: bool
) -> None:
    assert looks_like_script(path, start) is is_one


def test_another_script_is_another_action_about_the_same() -> None:
    plain = Exec(command="bash run")
    one, other = (
        Exec(command="bash run", scripts=(ShownScript(path="run", hash=text),)) for text in "ab"
    )
    assert len({fingerprint(plain), fingerprint(one), fingerprint(other)}) == 3
    assert subject(plain) == subject(one) == subject(other)
