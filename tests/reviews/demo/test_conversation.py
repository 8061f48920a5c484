"""Where a comment stands after a push, as the forge on loopback counts it."""

import random
import subprocess
from pathlib import Path

from supervisor.reviews.demo.conversation import moved
from supervisor.reviews.demo.github_json import user_json


def test_a_line_is_found_again_or_was_changed(tmp_path: Path) -> None:
    chance = random.Random(3)
    before, after = tmp_path / "before", tmp_path / "after"
    for _ in range(60):
        old = [f"line {number}" for number in range(chance.randint(0, 30))]
        new = list(old)
        for _ in range(chance.randint(0, 5)):
            at = chance.randint(0, len(new))
            if chance.random() < 0.5:
                new[at:at] = [f"new {chance.random()}" for _ in range(chance.randint(1, 4))]
            else:
                del new[at : at + chance.randint(1, 4)]
        for file, lines in ((before, old), (after, new)):
            file.write_text("".join(f"{line}\n" for line in lines))
        words = ("git", "diff", "-U0", "--no-index", "--no-color", "before", "after")
        diff = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout
        found = {line: moved(diff, line) for line in range(1, len(old) + 1)}
        for line, place in found.items():
            text = old[line - 1]
            assert (new[place - 1] == text) if place else (text not in new), (diff, line)


def test_a_program_is_no_person() -> None:
    assert user_json("gatehouse[bot]") == {"login": "gatehouse[bot]", "type": "Bot"}
    assert user_json("ada") == {"login": "ada", "type": "User"}
