"""A secret in a new text is never put on the host by a rule: a person sees the card first."""

import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.workspace.trees import secrets_seen
from tests.workspace.conftest import Desk

# As the redactor's table of shapes has it; split, so that no scanner takes this file for a leak.
TOKEN = "gh" + "p_" + "a1B2c3D4e5" * 4
OTHER = "gh" + "p_" + "z9Y8x7W6v5" * 4


def hazards(request: Request) -> tuple[str, ...]:
    assert isinstance(request.action, FileChange)
    return request.action.hazards


async def test_a_rule_that_allows_the_path_does_not_allow_a_secret(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/new.txt").write_text(f"token={TOKEN}\n")
        (desk.copy / "free/plain.txt").write_text("token=none\n")
        request = await desk.asked("free/new.txt")
        assert hazards(request) == ("secret",)
        assert "secret" in request.why
        assert any("secret" in note for note in (await desk.channel.card(request)).notes)
        await desk.until(lambda: (desk.host / "free/plain.txt").exists())
        assert not (desk.host / "free/new.txt").exists()
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]
        # It is on the host now: what is changed elsewhere in the file is no news, another secret
        # is.
        (desk.copy / "free/new.txt").write_text(f"more\ntoken={TOKEN}\n")
        await desk.until(lambda: (desk.host / "free/new.txt").read_text().startswith("more"))
        (desk.copy / "free/new.txt").write_text(f"more\ntoken={TOKEN}\nother={OTHER}\n")
        assert hazards(await desk.asked("free/new.txt")) == ("secret",)
        # Taken out again, nobody has to be asked.
        (desk.copy / "free/new.txt").write_text(f"even more\ntoken={TOKEN}\n")
        await desk.until(lambda: (desk.host / "free/new.txt").read_text().startswith("even more"))


async def test_nor_through_the_agents_api(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.write("free/new.txt", f"token={TOKEN}\n".encode(), "")
        assert (status(request), hazards(request)) == ("pending", ("secret",))
        request = await desk.channel.edit("free/a.txt", "a", f"a {TOKEN}", False, "")
        assert (status(request), hazards(request)) == ("pending", ("secret",))
        # One more edit takes it out: the request that holds both has none.
        request = await desk.channel.edit("free/a.txt", TOKEN, "nothing", False, "")
        assert (status(request), hazards(request)) == ("allowed", ())
        assert (await desk.settled(request)).outcome["ok"]
        assert (desk.host / "free/a.txt").read_text() == "a nothing\n"


@pytest.mark.parametrize(("content", "is_asked"), [(b"\0" + TOKEN.encode(), False), (b"x" * 5000,
True), (b"x" * 4000, False)])  # fmt: skip
async def test_what_is_no_text_and_what_is_too_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, content: bytes, is_asked: bool
) -> None:
    monkeypatch.setattr(secrets_seen, "MOST_SEARCHED_BYTES", 4096)
    async with desk.running():
        request = await desk.channel.write("free/new.bin", content, "")
        assert (status(request) == "pending") == is_asked


@pytest.mark.parametrize("rest", ["pending", "drop"])
async def test_some_changes_of_a_file_without_the_secret_one(desk: Desk, rest: str) -> None:
    lines = [f"line {number}" for number in range(40)]
    (desk.host / "src/app.py").write_text("\n".join(lines) + "\n")
    async with desk.running():
        lines[3], lines[30] = f"key = {TOKEN}", "harmless"
        (desk.copy / "src/app.py").write_text("\n".join(lines) + "\n")
        request = await desk.asked("src/app.py")
        card = await desk.channel.card(request)
        assert card.flags.names == ("secret",)
        _, last = (hunk.id for hunk in card.diff.hunks)
        done = await desk.channel.answer_part(
            request.id, [last], rest, by="tester", fingerprint=request.fingerprint
        )  # type: ignore[arg-type]
        assert hazards(done.part) == ()
        assert TOKEN not in (desk.host / "src/app.py").read_text()
        await desk.compared()
        if rest == "drop":
            assert done.rest is not None
            assert hazards(done.rest) == ("secret",)
            assert desk.pending() == {}  # the denial is an answer to what the comparison finds
        else:
            assert hazards(desk.pending()["src/app.py"]) == ("secret",)


async def test_the_secret_one_chosen_leaves_a_rest_without_it(desk: Desk) -> None:
    lines = [f"line {number}" for number in range(40)]
    (desk.host / "src/app.py").write_text("\n".join(lines) + "\n")
    async with desk.running():
        lines[3], lines[30] = f"key = {TOKEN}", "harmless"
        (desk.copy / "src/app.py").write_text("\n".join(lines) + "\n")
        request = await desk.asked("src/app.py")
        first = (await desk.channel.card(request)).diff.hunks[0].id
        done = await desk.channel.answer_part(
            request.id, [first], "drop", by="tester", fingerprint=request.fingerprint
        )
        assert hazards(done.part) == ("secret",)
        assert done.rest is not None
        assert hazards(done.rest) == ()
        await desk.compared()
        assert desk.pending() == {}
