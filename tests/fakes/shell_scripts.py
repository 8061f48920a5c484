"""Random bash scripts as trees, and every place in them where one more command could stand. For
property and differential tests.

A `Script` is a list of parts with what joins them; a part is its text, some of it further
scripts (a condition, a subshell, the text of `sh -c`). Every command and word comes from
`ALLOWED`, which `POLICY` allows, and nothing here is opaque: so `POLICY` must allow the whole.
`insert` puts a command anywhere into the tree, never by searching text. The generator takes its
choices from a `random.Random`, which may be Hypothesis's.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

NAMES = ("ls", "cat", "echo", "printf", "grep", "head", "sort", "true", "false", "test", "[", "sed",
"awk", "find", "xargs", "pytest",
         "git log", "git status", "sh -c", "bash -c")  # fmt: skip
POLICY = {"allow": [f"exec({name} *)" for name in NAMES]}

# What POLICY allows: plain words, quoted operators, what looks like a command and is data.
ALLOWED = (
    "ls", "ls -la src", "ls *.py", "ls src/[ab]*", "cat f", "cat 'a b' c\\ d",
    "git log --oneline -3", "/usr/bin/git status", "echo hi",
    "echo evil", "echo 'evil; evil' \"&& evil\" \\; evil", "echo \"$HOME\" $USER",
    "echo $'a\\nevil\\x41'", "printf '%s\\n' a evil",
    "grep -n 'a|evil' f", "grep -e 'x' -- f", "head -3 f", "sort -k2,2 f", "true", "false",
    "test -f f", "[ -d src ]", "[ a = b ]",
    "sed -n 1,3p f", "awk '{print $1}' f", "find . -name '*.py'", "pytest -q", "l\\s", "'ls'",
    "e\"ch\"o x", "echo a#b {x} =y a=b !",
    "echo \\\n evil", "echo \\$\\(evil\\) '`evil`'", "echo \"\\$(evil)\"", "cat < f",
    "grep x <<< 'evil'", "ls 2>&1", "ls >/dev/null 2>&1",
    "ls &>/dev/null x", "2>/dev/null ls", "ls 2>/dev/null evil",
    "cat <<'E'\nevil $(evil) `evil`\n'\nE", "cat <<-'E' f\n\tevil\n\tE",
    "echo \"$(cat <<'E'\nevil '$(evil)'\nE\n)\"", "cd src", "echo \u00e9 \u65e5", "echo $((1 + 2))",
    "echo ${HOME} $1 $?", "echo do fi in",
)  # fmt: skip
# Of these no argument is opaque, so further ones from input are no matter; and what every shell
# reads the same way.
FED = ("ls -la src", "cat 'a b'", "head -3", "echo evil", "l\\s")
POSIX = tuple(
    text for text in ALLOWED if not any(mark in text for mark in ("&>", "$'", "<<<", "{x}"))
)
PREFIXES = ("timeout 5 ", "timeout -k 1 -s KILL 5 ", "nice ", "nice -n 5 ", "nice -5 ", "env ",
"env -i ", "env -u X ", "nohup ", "command ",
            "stdbuf -oL ", "time ", "time -p ", "setsid ", "! ", "timeout 5 nice env ")  # fmt: skip
FEEDERS = (
    "xargs ",
    "xargs -0 -n 1 ",
    "xargs -I@ ",
    "timeout 5 xargs -r ",
    "find . -print0 | xargs -0 ",
    "ls | xargs -n 1 nice ",
)
POSIX_JOINS = ("; ", " && ", " || ", " | ", " & ", "\n", " # c; evil\n")
JOINS = (
    "; ",
    ";",
    " && ",
    " || ",
    " | ",
    " |& ",
    " & ",
    "&",
    "\n",
    "\n\n",
    " &&\n ",
    " |\n",
    " # c; evil\n",
    "\n# evil\n",
)

# A command that POLICY doesn't allow, in every place where one command can hold another.
EVIL = (
    "{}", "\\{}", "'evil' --now", "e\"vi\"l --now", "./evil", "/tmp/ls", "src/ls", "$EVIL",
    "\"$EVIL\" x", "ev?l", "{} > /dev/null",
    "timeout 5 {}", "nice -n 5 {}", "env {}", "env A=1 {}", "A=1 ls", "A=1 {}", "env -S '{}'",
    "env -i nice {}", "nohup {}", "time {}",
    "command {}", "builtin {}", "exec {}", "stdbuf -oL {}", "setsid {}", "sudo {}", "busybox {}",
    "xargs {}", "xargs -n 1 {}",
    "xargs -I@ {} @", "xargs sh -c '{}'", "find . -exec {} \\;", "find . -exec ls \\; -exec {} +",
    "find . -exec sh -c '{}' \\;",
    "find . -delete", "find . -ok {} \\;", "sh -c '{}'", "bash -c '{}'", "bash -lc 'ls; {}'",
    "bash -c 'sh -c \"{}\"'", "bash -c \"$X\"",
    "bash script", "ssh host '{}'", "watch {}", "parallel {} ::: a", "echo $({})", "echo \"$({})\"",
    "echo `{}`", "echo \"`{}`\"",
    "echo $(echo $({}))", "echo \"$(cat <<E\n$({})\nE\n)\"", "cat <({})", "ls > >({})",
    "bash <<'E'\n{}\nE", "bash <<E\n{}\nE",
    "cat <<E\n$({})\nE", "cat <<E\n`{}`\nE", "sh <<< '{}'", "sh <<< \"$X\"", "echo '{}' | sh",
    "cat f | bash", "cat f | xargs -0 sh -c",
    "cat f | env bash", "sh < f", "{{ {}; }}", "( {} )", "! {}", "if {}; then ls; fi",
    "if ls; then {}; fi", "if ls; then ls; else {}; fi",
    "if ls; then ls; elif {}; then ls; fi", "while {}; do ls; done", "until ls; do {}; done",
    "for i in 1; do {}; done",
    "for i in $({}); do ls; done", "for i in evil; do $i; done", "case $({}) in a) ls;; esac",
    "case a in a) {};; esac",
    "select i in a; do {}; done", "f() {{ {}; }}; f", "function f {{ {}; }}", "ls() {{ {}; }}",
    "eval '{}'", "eval {}", "trap '{}' EXIT",
    "coproc {}", "source f", ". f", "alias ls='{}'", "enable -n test", "hash -p /tmp/x ls",
    "[[ $({}) ]]", "[[ a ]] && {}",
    "echo $(( $({}) ))", "echo $(( a[$({})] ))", "(( x = $({}) ))", "echo ${{x:-$({})}}",
    "echo ${{x:=`{}`}}", "echo ${{x@P}}",
    "arr=($({}))", "export A=$({})", "declare A=$({})", "printf -v 'a[$({})]' x",
    "test -v 'a[$({})]'", "[ -v 'a[$({})]' ]",
    "awk 'BEGIN {{ system(\"{}\") }}'", "sed '1e {}' f", "sed -n '/x/w out' f",
    "sort --compress-program=evil f", "sort -o out f",
    "git log --output=out", "git -c core.pager='{}' log", "git --exec-path=/tmp log", "git push",
    "pytest -p evil", "grep x f > out",
    "ls >> out", "ls &> out", "ls 2> out", "ls >| out", "ls <> out", "cat < $X",
    "cat </dev/tcp/h/1", "cd /; ls", "cd ..; ls", "cd; ls",
    "rm -rf x", "ls # c\n{}", "ls \\\n| {}", "ls |& {}", "ls & {}", "ls;{}", "ls\n{}",
    "ls &&\n\n{}", "ls\r{}", "ls \x00{}", "echo {{a,$({})}}",
    "python -c 'x'", "env bash -c '{}'", "timeout 5 sh -c '{}'", "echo \"$(<f)\"", "time {{ {}; }}",
    "ls; }} {}", "ls | ( {} )",
)  # fmt: skip
# What makes any simple command one that no rule allows.
SUFFIXES = (" $(evil)", " \"$(evil)\"", " `evil`", " <(evil)", " > out", " >> ../out", " 2>out",
" \"${x:-$(evil)}\"", " $(< f)", " & evil",
            "; evil", " | evil", "\nevil", " && evil", " >(evil)", " $[`evil`]",
            " {a,`evil`}")  # fmt: skip
_HEREDOC_ENDS = ("\nE", "\n\tE")


@dataclass
class Part:
    """One command: its text in pieces, the scripts inside it among them. `is_quoted`: those are
    handed over as one word."""

    pieces: "list[str | Script]"
    is_quoted: bool = False

    def render(self) -> str:
        rendered = [piece if isinstance(piece, str) else piece.render() for piece in self.pieces]
        if self.is_quoted:
            return "".join(
                text if isinstance(p, str) else shlex.quote(text)
                for p, text in zip(self.pieces, rendered, strict=True)
            )
        text = rendered[0]
        for piece in rendered[1:]:
            text = _joined(text, piece)
        return text


@dataclass
class Script:
    """Commands and what stands between them."""

    parts: list[Part]
    joins: list[str] = field(default_factory=list)

    def render(self) -> str:
        text = self.parts[0].render()
        for join, part in zip(self.joins, self.parts[1:], strict=True):
            text = _joined(text, join) + part.render()
        return text

    def scripts(self) -> "Iterator[Script]":
        """This one and all that are inside it."""
        yield self
        for part in self.parts:
            for piece in part.pieces:
                if isinstance(piece, Script):
                    yield from piece.scripts()


def _joined(text: str, following: str) -> str:
    """A here-document's end stands alone in its line, whatever follows."""
    if not text.endswith(_HEREDOC_ENDS):
        return text + following
    rest = re.sub(r"\A[ \\\n]*(?:;|&&|\|\||\|&|\||&)?", "", following)
    return text + "\n" + rest


def random_script(random: Random, depth: int = 0, *, may_loop: bool = True) -> Script:
    """A script of one to four parts. `may_loop` False: it comes to an end when it is run."""
    parts = [
        _part(random, depth, may_loop=may_loop)
        for _ in range(random.randint(1, 4 if depth == 0 else 2))
    ]
    return Script(parts, [random.choice(JOINS) for _ in parts[1:]])


def _part(random: Random, depth: int, *, may_loop: bool) -> Part:
    if depth > 2 or random.random() < 0.5:
        return Part([_simple(random)])

    def inner() -> Script:
        return random_script(random, depth + 1, may_loop=may_loop)

    condition = inner() if may_loop else None
    shapes: list[Part] = [
        Part(["{ ", inner(), "; }"]),
        Part(["( ", inner(), " )"]),
        Part(["if ", inner(), "; then ", inner(), "; fi"]),
        Part(["if ", inner(), "\nthen ", inner(), "; else ", inner(), "\nfi >/dev/null"]),
        Part(["if ", inner(), "; then ", inner(), "; elif ", inner(), "; then ", inner(), "; fi"]),
        Part(["for i in a 'evil' \"$HOME\"; do ", inner(), "; done"]),
        Part(["for name in src/*\ndo ", inner(), "\ndone 2>&1"]),
        Part(
            ["while ", condition, "; do ", inner(), "; done"]
            if condition
            else ["while false; do ", inner(), "; done"]
        ),
        Part(["until true; do ", inner(), "; done"]),
        Part(["bash -c ", inner()], is_quoted=True),
        Part(["timeout 5 bash -c ", inner(), " x evil"], is_quoted=True),
        Part(["find . -name x -exec bash -c ", inner(), " \\;"], is_quoted=True),
        Part(["sh -c ", _posix(random)], is_quoted=True),
        Part(["env sh -c ", _posix(random)], is_quoted=True),
    ]
    return random.choice(shapes)


def _posix(random: Random) -> Script:
    parts = [Part([random.choice(POSIX)]) for _ in range(random.randint(1, 3))]
    return Script(parts, [random.choice(POSIX_JOINS) for _ in parts[1:]])


def _simple(random: Random) -> str:
    kind = random.randrange(10)
    if kind == 0:
        return random.choice(FEEDERS) + random.choice(FED)
    text = random.choice(ALLOWED)
    if kind == 1 and "<<" not in text and not text.startswith(("cd", "2>")):
        return f"find . -exec {text} \\;"
    if kind < 4 and not text.startswith(("cd", "2>")):
        return random.choice(PREFIXES) + text
    return text


def insert(random: Random, script: Script) -> str:
    """Put something that POLICY doesn't allow anywhere into the script; what was put there."""
    where = random.choice(list(script.scripts()))
    simples = [p for p in where.parts if len(p.pieces) == 1 and "<<" not in str(p.pieces[0])]
    if simples and random.random() < 0.3:
        part = random.choice(simples)
        suffix = random.choice(SUFFIXES)
        part.pieces = [f"{part.pieces[0]}{suffix}"]
        return suffix
    evil = random.choice(EVIL).format("evil --now")
    at = random.randint(0, len(where.parts))
    where.parts.insert(at, Part([evil]))
    where.joins.insert(min(at, len(where.joins)), random.choice(JOINS))
    return evil
