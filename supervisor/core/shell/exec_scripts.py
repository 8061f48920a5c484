"""Check whether a sed or awk program only reads and prints.

Decides it by a list of what is known to be plain, never by a list of what is dangerous: sed runs
commands with `e` and writes files with `w`, awk with `system`, pipes and redirections. It is
apart because these are small languages of their own. It must never call a program plain that it
doesn't read to its end.
"""

import re

_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)*/[IM]*|\+[0-9]+)"
_SED_HEAD = re.compile(rf"(?:{_ADDRESS}(?:[ \t]*,[ \t]*{_ADDRESS})?)?[ \t]*!?[ \t]*")
_SED_LETTER = re.compile(r"[pdDPhHgGxnNlFz=]|[qQ][0-9]*")
_SED_FLAGS = re.compile(r"[gpIi0-9]*")
_SED_END = re.compile(r"[ \t]*(?:[;\n}]+[ \t;\n}]*|\Z)")


def _delimited(text: str, start: int, parts: int) -> int:
    """Return the offset behind `parts` parts that are closed by the delimiter at `start`, or -1."""
    delimiter = text[start : start + 1]
    if not delimiter or delimiter in "\\\n" or delimiter.isalnum() or not delimiter.isascii():
        return -1
    i = start + 1
    while parts and i < len(text):
        if text[i] == "\\":
            i += 1
        elif text[i] == "\n":
            return -1
        elif text[i] == delimiter:
            parts -= 1
        i += 1
    return -1 if parts else i


def is_plain_sed(text: str) -> bool:
    """Return whether a sed script holds only printing, deleting, hold-space commands, `s` without
    `e`/`w`, and `y`.

    Bracket expressions that hold the delimiter are read differently by sed; a script with the
    delimiter inside brackets is not called plain. Source of the commands: the GNU sed 4.9
    manual, section 3.
    """
    i = 0
    text = text.strip(" \t\n;")
    while i < len(text):
        head = _SED_HEAD.match(text, i)
        i = head.end() if head else i
        if text[i : i + 1] == "{":
            i += 1
            while text[i : i + 1] in (" ", "\t", ";", "\n"):
                i += 1
            continue
        end = _sed_command(text, i)
        if end < 0:
            return False
        behind = _SED_END.match(text, end)
        if behind is None:
            return False
        i = behind.end()
    return True


def _sed_command(text: str, i: int) -> int:
    letter = _SED_LETTER.match(text, i)
    if letter:
        return letter.end()
    if text[i : i + 1] not in ("s", "y"):
        return -1
    end = _delimited(text, i + 1, 2)
    if end < 0 or _delimiter_in_brackets(text[i + 2 : end], text[i + 1]):
        return -1
    if text[i] == "y":
        return end
    flags = _SED_FLAGS.match(text, end)
    return flags.end() if flags else end


def _delimiter_in_brackets(body: str, delimiter: str) -> bool:
    return any(delimiter in found for found in re.findall(r"\[[^\]]*", body)) and "[" in body


_AWK_CALL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\(")
_AWK_KNOWN_CALLS = frozenset(
    [
        "if",
        "while",
        "for",
        "in",
        "print",
        "printf",
        "length",
        "substr",
        "split",
        "gsub",
        "sub",
        "match",
        "tolower",
        "toupper",
        "sprintf",
        "int",
        "index",
        "sqrt",
        "log",
        "exp",
        "return",
    ]
)
_AWK_REFUSED = re.compile(
    r"[@>\\|]|system|getline|close|fflush|ENVIRON|PROCINFO|SYMTAB|FUNCTAB|function|func\b|include|load"
)


def is_plain_awk(text: str) -> bool:
    """Return whether an awk program only computes and prints to standard output.

    No `system`, `getline`, pipe, output redirection, indirect call or function of its own.
    Strings and regular expressions aren't told from code (awk's own rule for `/` is too fine to
    copy), so a `>`, a single `|` or a backslash that isn't part of `\\n` or `\\t` anywhere is
    not called plain. Where nothing is printed, `>` only compares (POSIX awk: an output
    redirection belongs to `print` or `printf`).
    """
    bare = text.replace("||", " ").replace(">=", " ").replace("\\n", " ").replace("\\t", " ")
    if "print" not in bare:
        bare = bare.replace(">", " ")
    if _AWK_REFUSED.search(bare):
        return False
    return all(name in _AWK_KNOWN_CALLS for name in _AWK_CALL.findall(bare))
