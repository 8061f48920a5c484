"""Real bash in the real sandbox, where every program is a shim that writes down how it was called.
For differential tests.

Two logs, so that nothing is missed. Every file of the system's program folders is replaced by
one shim, by name and by absolute path: whoever starts a program, bash or `env` or `find`, starts
the shim, which notes its name and arguments and then becomes the real program where that one is
harmless (`REAL`), else just ends. And bash traces itself (`set -x`): each simple command after
its expansions, builtins and names that don't exist too. Both write to descriptors of the line's
own, which every process inherits, so that a command in the background is still noted under its
line. A shim that can't write notes that something was lost.
"""

import io
import re
import shlex
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.sandbox import bubblewrap
from supervisor.sandbox.base import MERGED, MIB, SandboxLimits, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.host import HostSystem

REAL_BIN = "/opt/real"
EXECS, TRACE = 59, 57
# INVARIANT: a record is one write, so that those of two commands in the background don't mix: bash
# writes what is longer than this in pieces. A longer one is an error of the test, never a record
# that is read wrongly.
ONE_WRITE_BYTES = 4096
MOST_CHARS = ONE_WRITE_BYTES // 4
# Harmless in a sandbox, so they do what they do: wrappers run what they are told to run, filters
# pass text on.
REAL = (
    "bash", "sh", "dash", "rbash", "env", "timeout", "nice", "nohup", "stdbuf", "setsid", "ionice",
    "chrt", "taskset",
    "xargs", "find", "sed", "awk", "gawk", "mawk", "sort", "tar", "flock", "setarch", "linux64",
    "true", "false",
    "test", "[", "echo", "printf", "cat", "head", "tail", "wc", "seq", "ls", "pwd", "tr", "cut",
    "uniq", "grep",
    "basename", "dirname", "expr", "touch", "mkdir", "split", "nl", "tac", "paste", "comm", "tee",
    "od", "sleep",
    "date", "id", "uname",
)  # fmt: skip
# Names that only tests know: what is run must exist, or a shell other than bash wouldn't start the
# shim.
MORE_NAMES = ("evil", "ca", "cb", "cc", "git", "pytest", "npm", "rg", "jq", "sudo", "ssh", "rm",
"python", "python3", "make", "curl", "node")  # fmt: skip
# `{real}`: a case for each program that does what it does.
SHIM = f"""#!{REAL_BIN}/bash -p
name=${{{{0##*/}}}}
if [[ -e /tmp/log ]]; then
  printf -v record '%q ' "$name" "$@"
  {{{{ (( ${{{{#record}}}} < {MOST_CHARS} )) && echo "$record" >&{EXECS}; }}}} 2>/dev/null || echo "$name $*" >> /tmp/log/lost
fi
case $name in
  bash|rbash) exec {REAL_BIN}/env SHELLOPTS=xtrace BASH_XTRACEFD={TRACE} {REAL_BIN}/"$name" "$@" ;;
{{real}}
esac
exit 0
"""  # noqa: E501
# Runs each line in turn, then waits until nothing of them is left. What would run for ever is cut
# short: its logs count.
DRIVER = f"""
{REAL_BIN}/mkdir /tmp/log
cd {MERGED}
for file in /opt/lines/*; do
  exec {TRACE}>>"/tmp/log/${{file##*/}}.trace" {EXECS}>>"/tmp/log/${{file##*/}}.execs"
  {REAL_BIN}/timeout -s KILL 10 {REAL_BIN}/env SHELLOPTS=xtrace BASH_XTRACEFD={TRACE} {REAL_BIN}/bash -c "$(<"$file")" \\
    </dev/null >/dev/null 2>&1
  [[ $? != 137 ]] || slow=1
done
exec {TRACE}>&- {EXECS}>&-
for (( tries = 0; tries < 200; tries++ )); do
  others=(/proc/[1-9]*)
  (( ${{#others[@]}} <= 2 )) && break
  {REAL_BIN}/sleep 0.05
done
(( ${{#others[@]}} <= 2 || slow )) || echo "something still runs" >> /tmp/log/lost
exec {REAL_BIN}/tar -C /tmp/log -cf - .
"""  # noqa: E501
FILES = ("f", "g", "a b", "x.py", "y.md", "src/a.py", "src/b c.txt", "-n", "evil.txt")

type Argv = tuple[str, ...]


async def run_lines(lines: Sequence[str], folder: Path) -> list[list[Argv]]:
    """What ran for each line: the name without its folder, then the arguments. The order is that
    of the logs."""
    for name in ("lower", "merged/src", "shims", "lines"):
        (folder / name).mkdir(parents=True)
    for name in FILES:
        (folder / "merged" / name).write_text("f\ng\n")
    for number, line in enumerate(lines):
        (folder / "lines" / f"{number:06}").write_bytes(line.encode())
    spec = Spec(
        command=(f"{REAL_BIN}/bash", "-p", "-c", DRIVER),
        workspace_lower=folder / "lower",
        workspace_merged=folder / "merged",
        readonly_binds=((Path("/usr/bin"), REAL_BIN), (folder / "lines", "/opt/lines")),
        limits=SandboxLimits(processes=256, memory_bytes=1024 * MIB),
    )
    box = Bubblewrap(folder / "etc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bubblewrap, "arguments", _with_shims(folder))
        result = await box.run_tool(spec, timeout_s=20 + len(lines))
    await box.close()
    assert (result.exit_code, result.killed_why) == (0, ""), result.stderr.decode(errors="replace")
    with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
        logs = {
            m.name.removeprefix("./"): archive.extractfile(m)
            for m in archive.getmembers()
            if m.isfile()
        }
        texts = {
            name: stream.read().decode("utf-8", "surrogateescape")
            for name, stream in logs.items()
            if stream
        }
    assert "lost" not in texts, texts["lost"]
    return [
        [*_executed(texts[f"{number:06}.execs"]), *_traced(texts[f"{number:06}.trace"])]
        for number in range(len(lines))
    ]


def _with_shims(folder: Path) -> object:
    """`bubblewrap.arguments` with the shims laid over every folder of programs; all else is as
    it is for an agent."""
    original = bubblewrap.arguments
    shim = folder / "shim"
    # Without links: those of Debian's alternatives lead back to /usr/bin, to the shim.
    found = {name: Path("/usr/bin", name).resolve() for name in REAL}
    shim.write_text(
        SHIM.format(
            real="\n".join(
                f"  {shlex.quote(name)}) exec -a {shlex.quote(name)}"
                f' {REAL_BIN}/{shlex.quote(path.name)} "$@" ;;'
                for name, path in found.items()
                if path.parent == Path("/usr/bin")
                and path.exists()
                and name not in ("bash", "rbash")
            )
        )
    )
    shim.chmod(0o755)
    places = [
        Path(place)
        for place in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
    ]
    places = [place for place in places if place.is_dir() and not place.is_symlink()]
    for name in {
        *MORE_NAMES,
        *REAL,
        *(found.name for place in places for found in place.iterdir()),
    }:
        (folder / "shims" / name).hardlink_to(shim)

    def arguments(
        spec: Spec, host: HostSystem, *, covers: Sequence[tuple[str, bool]] = ()
    ) -> list[str]:
        words = original(spec, host, covers=covers)
        at = words.index("--remount-ro", words.index(MERGED))
        binds = [
            word for place in places for word in ("--ro-bind", str(folder / "shims"), str(place))
        ]
        return [*words[:at], *binds, *words[at:]]

    return arguments


def _executed(text: str) -> Iterator[Argv]:
    """One line for each start, written at once: so that those of a pipeline don't mix."""
    at = 0
    while at < len(text):
        words, at = _words(text, at)
        yield tuple(words)


_QUOTED = re.compile(r"'([^']*)'|\$'((?:[^'\\]|\\.)*)'|\\(.)|(.)", re.DOTALL)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def _traced(text: str) -> Iterator[Argv]:
    """The commands of a trace: a line each, `+` as often as it is nested, words quoted by bash
    as it does for reading again."""
    at = 0
    while at < len(text):
        start = at
        words, at = _words(text, text.index(" ", at) + 1)
        assert len(text[start:at].encode("utf-8", "surrogateescape")) <= ONE_WRITE_BYTES, text[
            start : start + 80
        ]
        # What a loop goes over is traced too, and is no command.
        if words and not (words[0] == "for" and words[2:3] == ["in"]):
            yield (words[0].rpartition("/")[2], *words[1:])


def _words(text: str, at: int) -> tuple[list[str], int]:
    words: list[str] = []
    word: str | None = None
    while text[at] != "\n":
        if text[at] == " ":
            if word is not None:
                words.append(word)
            word = None
            at += 1
            continue
        found = _QUOTED.match(text, at)
        assert found, text[at : at + 80]
        plain, escaped, single, bare = found.groups()
        if escaped is not None:
            plain = re.sub(r"\\([0-7]{1,3}|.)", _unescape, escaped, flags=re.DOTALL)
        word = (word or "") + next(part for part in (plain, single, bare) if part is not None)
        at = found.end()
    return [*words, *([word] if word is not None else [])], at + 1


def _unescape(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text, 8)) if text[0].isdigit() else _ESCAPES.get(text, text)
