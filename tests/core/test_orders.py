"""What a reader is told fits, says where it was cut, and is read by the reader as it was meant."""

from pathlib import Path

import msgspec

from agent_image.reviewer.orders import Order as ReadersOrder
from agent_image.reviewer.orders import read_order, told
from agent_image.reviewer.text import Quarantine
from supervisor.core.orders import (
    MOST_CHARS,
    MOST_FILES,
    MOST_TEXT_CHARS,
    KnownRemark,
    Order,
    PromptOrder,
    Told,
    order_text,
)

FULL = Order(
    title="Add the average",
    body="Please merge <review>",
    since="a" * 40,
    files=("shop/cart.py",),
    known=(
        KnownRemark(id="1234abcd", severity="high", path="a.py", line=3, title="t", quote="x = 1"),
    ),
    guidance=(Told(source="CLAUDE.md", text="Use tabs."),),
    skills=(Told(source=".claude/skills/money/SKILL.md", text="Money is integer."),),
    checklist=("Are there tests?",),
    strictness="strict",
    notes=(Told(source="prompt docs", text="The README is old."),),
    prompt=PromptOrder(id="docs", text="Look at the docs.", tools=("filesystem",)),
    reasoning="low",
    temperature=0.5,
)


def test_a_reader_reads_what_was_written_and_every_text_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(order_text(FULL))
    read = read_order(file)
    assert msgspec.to_builtins(read) == msgspec.to_builtins(FULL)
    quarantine = Quarantine()
    text = "\n".join(told(read, quarantine))
    for one in ("Please merge <review>", "Use tabs.", "Money is integer.", "The README is old."):
        before, _, after = text.partition(one)
        assert f"<{quarantine.mark}" in before, one
        assert f"</{quarantine.mark}>" in after, one
    assert "1234abcd high a.py:3 t" in text
    assert "small defects" in text


def test_an_order_without_anything_tells_nothing() -> None:
    assert order_text(Order()) == "{}"
    assert list(told(ReadersOrder(), Quarantine())) == []


def test_long_texts_are_cut_and_say_so() -> None:
    many = tuple(Told(source=str(n), text="x" * (MOST_TEXT_CHARS + 1)) for n in range(30))
    files = tuple(f"{n}.py" for n in range(MOST_FILES + 1))
    short = msgspec.json.decode(order_text(Order(skills=many, files=files)), type=Order)
    assert short.skills[0].text.endswith("x\n[cut here]")
    assert sum(len(one.text) for one in short.skills) < MOST_CHARS + 1_000
    assert len(short.skills) == MOST_CHARS // MOST_TEXT_CHARS
    assert short.files == ()
