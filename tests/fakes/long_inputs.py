"""Inputs that are long, deep or repetitive, of every kind. For tests of what they cost: `name ->
text`.

Each entry of `SHELL` is a function of how often its construct is repeated; the other tables are
whole actions.
"""

from collections.abc import Callable

from supervisor.core.actions import Action, FileChange, Git, Network, Packages

MAX_CHARS = 10_000
DEEP = 500


def nested(before: str, after: str, inner: str = "ls", prefix: str = "") -> Callable[[int], str]:
    return lambda n: prefix + before * n + inner + after * n


def repeated(unit: str, prefix: str = "", suffix: str = "") -> Callable[[int], str]:
    return lambda n: prefix + unit * n + suffix


def numbered(unit: str, prefix: str = "", suffix: str = "") -> Callable[[int], str]:
    """Every repetition is a little different, so that nothing is remembered."""
    return lambda n: prefix + "".join(unit.replace("@", str(i)) for i in range(n)) + suffix


SHELL: dict[str, Callable[[int], str]] = {
    # nested
    "group": nested("{ ", "; }"), "subshell": nested("( ", " )"), "substitution": nested("$(echo ",
    ")", prefix="echo "),
    "quoted substitution": nested('"$(echo ', ')"', prefix="echo "), "backquotes": nested("`echo ",
    "`", prefix="echo "),
    "process substitution": nested("<(cat ", ")", prefix="cat "), "default value": nested("${a:-",
    "}", prefix="echo "),
    "quoted default": nested('"${a:-', '}"', prefix="echo "), "arithmetic": nested("$((", "))", "1",
    "echo "),
    "parentheses in arithmetic": nested("(", ")", "1", "echo $(("), "if": nested("if ls; then ",
    "; fi"),
    "condition": nested("if ", "; then ls; fi"), "case": nested("case a in a) ", ";; esac"),
    "for": nested("for i in a b; do ", "; done"),
    "while": nested("while ls; do ", "; done"), "select": nested("select i in a; do ", "; done"),
    "function": nested("f() { ", "; }"),
    "arithmetic for": nested("for ((i=0;i<3;i++)); do ", "; done"), "braces": nested("{a,", "}",
    "b", "echo "),
    "extended globs": nested("@(", ")", "a", "ls "), "subscripts": nested("${a[", "]}", "0",
    "echo "), "conditions": nested("( ", " )", "-f a", "[[ "),
    "here-documents": numbered("cat <<'E@'\nx\nE@\n"),
    "here-documents of shells": nested("bash <<'E'\n", "\nE", "ls"),
    "here-documents, expanded": numbered("cat <<E@\n$(ls)\nE@\n"),
    "here-documents in one line": numbered("<<'E@' ", "cat ", "\n"),
    "literal cats": repeated("\"$(cat <<'E'\nx\nE\n)\" ", "echo "), "sed blocks": nested("/a/{",
    "}", "p", "sed '"),
    # wrappers
    "env": repeated("env ", suffix="ls"), "timeout": repeated("timeout 5 ", suffix="ls"),
    "xargs": repeated("xargs ", suffix="ls"),
    "sudo": repeated("sudo ", suffix="ls"), "nice": numbered("nice -n @ ", suffix="ls"),
    "busybox": repeated("busybox ", suffix="ls"),
    "docker": numbered("docker run i@ ", suffix="ls"), "find": numbered("-exec ls @ \\; ",
    "find . "), "find in find": repeated("-exec find . ", "find . "),
    "sh -c": repeated("sh -c ", suffix="ls"), "ssh": numbered("ssh h@ ", suffix="ls"),
    "python -m": numbered("python -m m@ ", suffix="ls"),
    "uv run": numbered("uv run x@ ", suffix="ls"), "env -S": numbered("env -S @ ", suffix="ls"),
    "env -u": numbered("-u X@ ", "env ", "ls"),
    "env A=": numbered("A@=1 ", "env ", "ls"), "command": repeated("command ", suffix="ls"),
    "watch": repeated("watch ", suffix="ls"),
    "npx": numbered("npx p@ ", suffix="ls"), "eval": repeated("eval ", suffix="ls"),
    "coproc": repeated("coproc ", suffix="ls"),
    "parallel": repeated("parallel ", suffix="ls"), "unheard-of options": numbered("env --x@ ",
    suffix="rm"),
    # one after another
    "list": numbered("ls @;"), "and": repeated("ls && ", suffix="ls"), "pipe": repeated("ls | ",
    suffix="ls"), "background": repeated("ls & "),
    "lines": repeated("ls\n"), "comments": repeated("# x; ls\n"),
    "elif": repeated("elif ls; then ls; ", "if ls; then ls; ", "fi"),
    "alternatives": repeated("a|", "case a in ", "a) ls;; esac"), "cd": numbered("cd a@; ",
    suffix="ls"), "cd up": repeated("a/../", "cd ", " && ls"),
    "assignments": numbered("A@=1 ", suffix="ls"), "redirections": repeated("2>&1 ", "ls "),
    "here-strings": repeated("<<< x ", "cat "),
    "bang": repeated("! ", suffix="ls"), "time": repeated("time ", suffix="ls"),
    "options": numbered("-x@ ", "git log "),
    "git -C": repeated("-C src ", "git ", "log"), "git -c": numbered("-c a=@ ", "git ", "log"),
    "long options": numbered("--recursive@ ", "rm "),
    "words": numbered("w@ ", "rm "), "echo": numbered("w@ ", "echo "), "dashes": repeated("-rf ",
    "rm "), "quotes": repeated("\"'\"'\"'", "echo "),
    "ansi": repeated("$'a\\n'", "echo "), "backslashes": repeated("\\\\", "echo "),
    "continuations": repeated("\\\n", "echo ", "x"),
    "stars": repeated("*a", "ls "), "globs": repeated("* ", "ls "),
    "globs of names": numbered(".?@* ", "cat "), "classes": repeated("[a]", "ls "),
    "open classes": repeated("[", "ls "),
    "brace expansions": repeated("{a,b}", "echo "), "open braces": repeated("{", "echo "),
    "variables": repeated("$x", "echo "),
    "quoted variables": repeated('"$x" ', "echo "), "tests": repeated("! ", "[ ", "-f a ]"),
    "sed": repeated("s/a/b/;", "sed '", "' f"),
    "sed classes": repeated("[a", "sed 's/", "/b/' f"), "awk": repeated("{print $1}", "awk '",
    "' f"), "one word": repeated("a"), "blanks": repeated(" "),
    "tabs": repeated("\t"), "control": repeated("ls\x00"), "returns": numbered("ls @\r"),
    "bidi": repeated("ls \u202e"), "accents": repeated("\u00e9", "echo "),
    "surrogates": repeated("\ud800", "echo "), "astral": repeated("\U0001f600", "echo "),
    # broken
    **{f"broken: {text!r}": repeated(text) for text in
       ("a ) ", "( ", '"$(', "${", "<<", "if ", "; ", "}", "$((", "do ", "esac ", "case ", "((",
        "[[ ", "`", '$"', "<(", "a=(", "f() ", "|&", "case x in a",
        "case x in (", "for i in ", "\"'", "a\\", "!(", "<<A <<B\n", "${a#", "${a/", "$[[ ",
        "function ", "a[", "=~ ", "<<<", ">&", "{a}>", "cat <<'E'\n",
        "echo \"$(cat <<'E'\n", "a=~b", "[[ a =~ (", "%(", "\x00(", "$'", "&>", "\\\n\n", "#",
        "'")},
}  # fmt: skip


def _url(path: str) -> Network:
    return Network(
        operation="request", host="a.example.com", port=443, scheme="https", method="GET", path=path
    )


def _host(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


def _many(unit: str) -> str:
    return (unit * MAX_CHARS)[:MAX_CHARS]


_UNITS = ("a", "/", "a/", "../", "./", ".", "*", "*a", "**/", "[", "[!", "[a-", "?", "\\", "\u0301",
"e\u0301", "\ufb03", "\u0130", "A", " ", "~", "\x00", "\ud800",
          "%", "%2", "%25", "%2f", "%2e%2e/", "%c3%a9", ";", ":", "@", "#", "-", "--", "xn--", "a.",
          "1.", "0x", "\u3002", "\u00df", "[::", "fe80::%", "+", "=", ",",
          "refs/heads/", "a:b ", "+a ", "-f ", "--force ", "origin ", "'a' ", '"', "a@1 ", "@a/b ",
          "-r ", "git+https://x ", "a==1,", "a[b] ", "npm:")  # fmt: skip
ACTIONS: dict[str, Action] = {
    **{f"path of {unit!r}": FileChange(operation="write", path=_many(unit)) for unit in _UNITS},
    **{f"rename to {unit!r}": FileChange(operation="rename", path="a",
    to=_many(unit)) for unit in _UNITS},
    "path in base64": FileChange(operation="write", path="", path_b64=_many("YQ")),
    "link": FileChange(operation="symlink", path="a", link_target=_many("../")),
    "hazards": FileChange(operation="write", path="a", hazards=(_many("x"),) * 20),
    **{f"host of {unit!r}": _host(_many(unit)) for unit in _UNITS},
    **{f"short host of {unit!r}": _host(unit * 60) for unit in _UNITS},
    **{f"url path of {unit!r}": _url("/" + _many(unit)) for unit in _UNITS},
    **{f"host header of {unit!r}": Network(operation="request", host="a.example.com", port=443,
    scheme="https", method="GET", path="/", sni=_many(unit),
    host_header=_many(unit)) for unit in _UNITS},
    "method": Network(operation="request", host="a.example.com", port=443, scheme="https",
    method=_many("A"), path="/"),
    "resolved": Network(operation="connect", host="a.example.com", port=443,
    resolved=tuple(f"93.184.{i // 250}.{i % 250}" for i in range(DEEP))),
    **{f"git push of {unit!r}": Git(operation="",
    command=f"git push origin {_many(unit)}"[:MAX_CHARS]) for unit in _UNITS},
    **{f"git of {unit!r}": Git(operation="",
    command=f"git {_many(unit)}"[:MAX_CHARS]) for unit in _UNITS},
    "refspecs": Git(operation="push", remote="origin",
    refspecs=tuple(f"+refs/heads/a{i}:refs/heads/feature/{i}" for i in range(DEEP))),
    "flags": Git(operation="push", remote="origin", refspecs=("a",),
    flags=tuple(f"--x{i}" for i in range(DEEP))),
    "refspec command": Git(operation="",
    command="git push origin " + " ".join(f"a{i}:feature/{i}" for i in range(DEEP))),
    "remote": Git(operation="push", remote=_many("a"), refspecs=(_many("b"),)),
    **{f"{manager} of {unit!r}": Packages(manager="", operation="",
    command=f"{manager} install {_many(unit)}"[:MAX_CHARS])
       for manager in ("npm", "pip", "cargo") for unit in _UNITS},
    "packages": Packages(manager="npm", operation="install",
    names=tuple(f"@team/p{i}@{i}.0.0" for i in range(DEEP))),
    "package flags": Packages(manager="pip", operation="install", names=("a",),
    flags=tuple(f"--x{i}=y" for i in range(DEEP))),
    "package command": Packages(manager="", operation="",
    command="npm install " + " ".join(f"p{i}@1" for i in range(DEEP))),
    "package name": Packages(manager="npm", operation="install", names=(_many("a"),)),
}  # fmt: skip
