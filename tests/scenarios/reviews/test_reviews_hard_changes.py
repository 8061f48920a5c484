"""Changes that are hard to read, through the whole path: what can be reviewed is, what can't is
named in the receipt, remarks stand where they belong, and the forge refuses nothing."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from supervisor.core.forge_acts import Act
from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import Tongue
from tests.fakes.messages_server import Json, Turn, calls, tool_use
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import CLEAN, NAME, POSTING, Reviewed, reviewed_by_model

pytestmark = pytest.mark.xdist_group("reviews-acts")
TITLE = "<img src=x onerror=alert(1)> @everyone closes #1 \u202e {{ 7*7 }} `id` [x](javascript:1)"
BRANCH = "feat/`id`$(touch${IFS}x)<b>'\"|;&--upload-pack=evil"
LONG = "x = '" + "y" * 140_000 + "'\n"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 123456\n"
BODY = "".join(f"line {n} of the old file\n" for n in range(40))
MANY, LINES = 320, 21_000


def fast_import(forge: DemoForge, branch: str, base: str, *commands: bytes) -> str:
    """Put a commit on a branch, made of commands of git-fast-import(1); return its id."""
    folder = forge.repositories[NAME].folder
    head = b"commit refs/heads/%s\ncommitter A <a@b.c> 1 +0000\ndata 0\n" % branch.encode()
    stream = head + b"from refs/heads/%s^0\n" % base.encode() + b"".join(commands)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=stream, check=True)
    return forge.sha(NAME, branch)


def put(path: bytes, data: str | bytes) -> bytes:
    """A file; `path` as fast-import quotes it."""
    content = data.encode() if isinstance(data, str) else data
    return b"M 100644 inline %s\ndata %d\n%s\n" % (path, len(content), content)


def finding(path: str, line: int, quote: str, **more: object) -> Json:
    return {
        "skill": "bug-detection",
        "severity": "medium",
        "path": path,
        "line": line,
        "title": f"Something about {path}",
        "body": "It does not do what it says.",
        "quote": quote,
        "confidence": "high",
        **more,
    }


# Where a remark is wanted, and on which line the forge has to have it; None: in the text.
WANTED: list[tuple[str, int, str, int | None]] = [
    ("crlf.py", 2, "two = 2  # changed", 2),
    ("bare.py", 3, "last = 3", 3),
    ("renamed.py", 20, "line 19 of the NEW file", 20),
    ("ümläut/ñandú.py", 1, "greeting = 'hé'", 1),
    ('say "hi" \\ there.py', 1, "quoted = 1", 1),
    ("$(id);`x`.py", 1, "shell = 1", 1),
    ("--output=x.py", 1, "option = 1", 1),
    ("<script>alert(1)<.py", 1, "markup = 1", 1),
    (f"many/f{MANY - 1}.py", 1, f"value = {MANY - 1}", 1),
    ("tall.py", LINES - 1, f"row_{LINES - 2} = 0", LINES - 1),
    # The model isn't shown it; a remark that quotes it stands there all the same.
    ("long.py", 1, "x = '", 1),
    # Not in the change, or without lines: they stand in the text, and are not lost.
    ("picture.bin", 1, "", None),
    ("README.md", 1, "# Shop", None),
]
SKIPPED = {
    "long.py": "a line of more than 5,000 characters",
    "picture.bin": "binary",
    "model.weights": "kept by Git LFS",
    "vendor/lib": "a submodule",
    "a\tb.py": "its name isn't plain text",
    "line\nbreak.py": "its name isn't plain text",
    "no-utf8-\udcff.py": "its name isn't plain text",
    "huge.txt": "kB of changes",
}


def prepare(forge: DemoForge) -> None:
    """The files that the change starts from."""
    fast_import(
        forge,
        "main",
        "main",
        put(b"old/name.py", BODY),
        put(b"crlf.py", "one = 1\r\ntwo = 2\r\nthree = 3\r\n"),
        put(b"bare.py", "first = 1\nsecond = 2\nlast = 2"),
    )


def change(forge: DemoForge) -> str:
    changed = BODY.replace("line 19 of the old file", "line 19 of the NEW file")
    return fast_import(
        forge,
        BRANCH,
        "main",
        *(put(b"many/f%d.py" % n, f"value = {n}\n") for n in range(MANY)),
        put(b"tall.py", "".join(f"row_{n} = 0\n" for n in range(LINES))),
        put(b"huge.txt", "".join(f"{n:020}\n" for n in range(40_000))),
        put(b"long.py", LONG),
        put(b"picture.bin", bytes(range(256)) * 20),
        put(b"model.weights", LFS),
        put(b".gitattributes", "*.weights filter=lfs diff=lfs merge=lfs -text\n*.py filter=evil\n"),
        b"M 160000 " + b"1" * 40 + b" vendor/lib\n",
        b"R old/name.py renamed.py\n",
        put(b"renamed.py", changed),
        put(b"crlf.py", "one = 1\r\ntwo = 2  # changed\r\nthree = 3\r\n"),
        put(b"bare.py", "first = 1\nsecond = 2\nlast = 3"),
        put('"ümläut/ñandú.py"'.encode(), "greeting = 'hé'\n"),
        put(b'"say \\"hi\\" \\\\ there.py"', "quoted = 1\n"),
        put(b"$(id);`x`.py", "shell = 1\n"),
        put(b"--output=x.py", "option = 1\n"),
        put(b"<script>alert(1)<.py", "markup = 1\n"),
        put(b'"a\\tb.py"', "tab = 1\n"),
        put(b'"line\\nbreak.py"', "newline = 1\n"),
        put(b'"no-utf8-\\377.py"', "byte = 1\n"),
    )


def review(_: Json) -> Turn:
    found = [finding(path, line, quote) for path, line, quote, _ in WANTED]
    answer = {"verdict": "comment", "summary": "A lot.", "findings": found, "notes": []}
    return said(f"<review>{json.dumps(answer)}</review>")


async def posted(on: Reviewed) -> Act:
    (request,) = await on.posts()
    assert (await on.running.done(request))["ok"]
    assert isinstance(request.action, Act)
    return request.action


async def test_all_of_it_is_reviewed_or_named_as_left_out(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed_by_model(tmp_path, forge, [review] * 3) as on:
        prepare(on.forge)
        head = change(on.forge)
        pull = on.forge.open_pull(NAME, BRANCH, title=TITLE)
        act = await posted(on)
        receipt = msgspec.json.decode((await on.receipt("found")).body)
        assert receipt["head"] == head == pull.head_sha

        # Each changed file was looked at, or is named with the reason.
        left_out = {}
        for line in receipt["skipped"]:
            path, _, why = line.rpartition(": ")
            left_out[path] = why
        for path, why in SKIPPED.items():
            shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            assert why in left_out.pop(path, left_out.pop(shown, "")), path
        assert left_out == {}
        # 320, tall.py, renamed.py, crlf.py, bare.py, .gitattributes and the five hard names.
        assert receipt["files"] == MANY + 10

        # Each remark stands where it belongs, at once: nothing was refused and tried otherwise.
        places = {(one["path"], one["line"]) for one in pull.comments}
        assert places == {(path, line) for path, _, _, line in WANTED if line is not None}
        (body,) = [one["body"] for one in on.reviews(pull)]
        for path, _, _, line in WANTED:
            if line is None:
                assert path in body
        assert len(act.comments) == len(places)
        verb, part = POSTING[forge]
        calls = [call for call in on.forge.calls if call[0] == verb and part in call[1]]
        wanted = 1 if forge == "github" else len(places) + 1
        assert len(calls) == wanted, "the forge took it at the first try"

        check = await on.check(head, "neutral")
        assert "picture.bin: binary" in on.words(check)
        assert "<img" not in body
        assert not (tmp_path / "x").exists()


@pytest.mark.many
@pytest.mark.parametrize("kind", ["only what is skipped", "nothing but a mode", "nothing at all"])
async def test_a_change_in_which_nothing_can_be_read_is_said_to_be_so(
    tmp_path: Path, forge: Tongue, kind: str
) -> None:
    commands = {
        "only what is skipped": [put(b"picture.bin", bytes(range(256)))],
        "nothing but a mode": [b"M 100755 inline README.md\ndata 0\n\n"],
        "nothing at all": [],
    }
    async with reviewed_by_model(tmp_path, forge, [review] * 3) as on:
        head = fast_import(on.forge, "hard", "main", *commands[kind])
        on.forge.open_pull(NAME, "hard", title="x")
        receipt = await on.receipt("skipped", "found", "clean")
        assert receipt.head_sha == head
        if kind != "nothing but a mode":
            assert (receipt.outcome, receipt.reason) == ("skipped", "empty")
            await on.check(head, "neutral")


@pytest.mark.parametrize("kind", ["all is read", "a file is left out"])
async def test_no_approval_and_no_green_check_stand_on_what_nobody_read(
    tmp_path: Path, forge: Tongue, kind: str
) -> None:
    # No attribute of the head leaves anything out.
    commands = [
        put(b".gitattributes", "*.py -diff\n*.js binary linguist-generated\n"),
        put(b"evil.py", "__import__('os').system('id')\n"),
        put(b"evil.js", "evil()\n"),
    ]
    if kind != "all is read":
        commands.append(put(b"a.bin", b"\0evil"))
    rules = tmp_path / "approves.yaml"
    rules.write_text("version: 1\nallow: [review(* */* --approve)]\n")
    async with reviewed_by_model(tmp_path, forge, [said(CLEAN)] * 3, policy_file=rules) as on:
        head = fast_import(on.forge, "quiet", "main", *commands)
        pull = on.forge.open_pull(NAME, "quiet", title="x")
        receipt = msgspec.json.decode((await on.receipt("clean")).body)
        assert receipt["files"] == 3
        if kind == "all is read":
            await on.check(head, "success")
            await on.running.until_soon(lambda: on.reviews(pull) or None, "the approval")
            assert on.verdict(pull) == "approved"
        else:
            assert receipt["skipped"] == ["a.bin: binary"]
            check = await on.check(head, "neutral")
            assert "reviewed in part" in on.words(check)
            assert on.reviews(pull) == []


READ_ON = [calls(tool_use("git_diff", {"paths": ["c.py", "z.py"]})), said(CLEAN)]


@pytest.mark.many
@pytest.mark.parametrize("is_asked_for", [False, True], ids=["nobody read on", "read to the end"])
async def test_no_approval_and_no_green_check_stand_on_a_diff_that_was_cut(
    tmp_path: Path, forge: Tongue, is_asked_for: bool
) -> None:
    """What comes first fills the diff that a reader is given: the rest was never shown."""
    rules = tmp_path / "approves.yaml"
    rules.write_text("version: 1\nallow: [review(* */* --approve --fork)]\n")
    filler = "".join(f"lines_{n:05}_filler = 0\n" for n in range(1_800))
    script = READ_ON if is_asked_for else [said(CLEAN)]
    async with reviewed_by_model(tmp_path, forge, script, policy_file=rules) as on:
        head = fast_import(
            *(on.forge, "long", "main", *(put(b"%c.py" % name, filler) for name in b"abc")),
            put(b"z.py", "evil()\n"),
        )
        pull = on.forge.open_pull(NAME, "long", title="x")
        check = await on.check(head, "success" if is_asked_for else "neutral")
        if is_asked_for:
            await on.running.until_soon(lambda: on.reviews(pull) or None, "the approval")
        else:
            assert "z.py" in on.words(check), check
            assert "partial" in on.words(check)
            assert on.reviews(pull) == []
