"""Parser from bash text to simple commands.

Decides which commands a line would run, and what in it no rule may allow (`constructs`). It must
never raise, and never leave a command out because a limit was reached: whatever can't be fully
judged becomes a construct, and `deny_texts` keeps deny rules applying.

Two parsers read every line: tree-sitter's bash grammar, which knows the whole language and finds
commands anywhere (in substitutions too), and `shell_outline.outline`, a strict reader of a small
part of it. A line has no construct only if both read exactly the same commands from exactly the
same words. tree-sitter-bash has known mis-parses (a here-document's line, redirections followed by
words), so a difference is a construct.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import msgspec

from supervisor.core.shell.shell_outline import GiveUp, Outline, Simple, Span, outline, spans
from supervisor.core.shell.shell_words import Word, from_bytes_text, resolve, to_bytes_text
from supervisor.core.text.display import first_hidden, is_hidden

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARS = 10_000
MAX_OPERATORS = 500
MAX_COMMANDS = 400
_BACKQUOTED = re.compile(r"`([^`]*)`?")
# `=~` counts because tree-sitter tries several readings of each.
_OPERATOR = re.compile(r"[;&|(){}<>$`\n\[]|=~")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_CONSTRUCTS = {
    "command_substitution": "a command substitution",
    "process_substitution": "a process substitution",
    "heredoc_redirect": "a here-document",
    "variable_assignment": "an assignment",
    "variable_assignments": "an assignment",
    "array": "an array",
    "function_definition": "a function",
    "declaration_command": "an assignment or declaration",
    "case_statement": "`case`",
    "c_style_for_statement": "an arithmetic `for`",
    "translated_string": "a translated string",
    "ERROR": "something that can't be parsed",
}
# Nodes without relevant children.
_LEAVES = frozenset(
    [
        "word",
        "raw_string",
        "string_content",
        "file_descriptor",
        "variable_name",
        "special_variable_name",
        "comment",
    ]
)
_STRUCTURE = frozenset(
    [
        "program",
        "command",
        "command_name",
        "word",
        "number",
        "raw_string",
        "string",
        "string_content",
        "concatenation",
        "brace_expression",
        "list",
        "pipeline",
        "subshell",
        "compound_statement",
        "redirected_statement",
        "file_redirect",
        "herestring_redirect",
        "file_descriptor",
        "negated_command",
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "for_statement",
        "do_group",
        "comment",
        "simple_expansion",
        "expansion",
        "variable_name",
        "special_variable_name",
        "ansi_c_string",
        "arithmetic_expansion",
        "test_command",
        "unset_command",
        "unary_expression",
        "binary_expression",
        "parenthesized_expression",
        "test_operator",
        "extglob_pattern",
        "regex",
        "ternary_expression",
        "postfix_expression",
        "subscript",
        "heredoc_start",
        "heredoc_body",
        "heredoc_content",
        "heredoc_end",
        "case_item",
    ]
)


# Nodes that are more than a frame around their children.
_LOOKED_INTO = frozenset(
    [
        "command",
        "file_redirect",
        "herestring_redirect",
        "test_command",
        "compound_statement",
        "unset_command",
    ]
)


class Command(msgspec.Struct, frozen=True, gc=False):
    """A simple command: `words[0]` is its name. `is_joined` and `in_loop`: see
    `shell_outline.Simple`."""

    words: tuple[Word, ...]
    is_joined: bool = False
    in_loop: bool = False


class Script(msgspec.Struct, frozen=True, gc=False):
    """The commands that a text would run.

    `constructs`: the parts that no rule may allow, by name and place; empty means that `commands`
    is certainly complete. `deny_texts`: texts that deny rules also match token by token, because
    the reading is doubtful. `bodies`: the here-documents and here-strings. `has_input`: some
    command reads a pipe, a here-document, a here-string or a file. `unread`: the construct that
    makes it doubtful whether `commands` is what bash would run; empty if there is none.
    """

    commands: tuple[Command, ...]
    constructs: tuple[str, ...] = ()
    deny_texts: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    has_input: bool = False
    unread: str = ""


@cache
def _parser() -> "Parser":
    # Imported when a command line is first judged: it costs milliseconds that most starts don't
    # need.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def hidden_character(text: str) -> str | None:
    """Return the first character that must not be in a command line (control, bidi, zero-width), as
    `U+XXXX`."""
    found = first_hidden(text, kept="\t\n")
    return f"U+{ord(found):04X}" if found is not None else None


def without_hidden(text: str) -> str:
    """Return the text as it would look and most likely run: CR becomes a newline, and the other
    hidden characters are removed."""
    text = _CONTROL.sub("", text.replace("\r", "\n").replace("\v", " ").replace("\f", " "))
    if text.isascii():
        return text
    return "".join(c for c in text if c <= "\x7f" or not is_hidden(c))


def parse(text: str) -> Script:
    """Return the commands of a bash text. Never raises; see `Script`."""
    if len(text) > MAX_CHARS:
        return _unread(f"too long to judge: {len(text)} characters, at most {MAX_CHARS}", text)
    return _parse(text)


@lru_cache(maxsize=512)
def _parse(text: str) -> Script:
    hidden = hidden_character(text)
    if hidden is not None:
        clean = without_hidden(text)
        inner = _parse_clean(clean)
        blanked = _CONTROL.sub(" ", text)
        return msgspec.structs.replace(
            inner,
            constructs=(f"the hidden character {hidden}", *inner.constructs),
            deny_texts=(clean, blanked, *inner.deny_texts),
            unread=f"the hidden character {hidden}",
        )
    return _parse_clean(text)


def _parse_clean(text: str) -> Script:
    source = to_bytes_text(text)
    if len(_OPERATOR.findall(source)) > MAX_OPERATORS:
        return _unread(f"too complex to judge: more than {MAX_OPERATORS} operators", text)
    reading, so_far, unread = None, None, ""
    constructs: list[str] = []
    try:
        so_far = reading = outline(source)
    except GiveUp as reason:
        so_far = reason.so_far
        constructs.append(str(reason))
    # Here-documents confuse the grammar most: those that are only data are blanked out, even before
    # a part that isn't read here.
    masked = _mask(source, so_far) if so_far else source
    tree = _Tree(source)
    tree.walk(_parser().parse(masked.encode("latin-1")).root_node)
    if reading is not None and not tree.constructs:
        if (
            tree.commands == {simple.words for simple in reading.commands}
            and len(tree.commands) <= MAX_COMMANDS
        ):
            return _script(source, reading)
        constructs.append(unread := "a line that two parsers read differently")
    if tree.is_doubtful:
        unread = unread or tree.doubt
    found = tuple(dict.fromkeys([*tree.constructs, *constructs]))
    simples = {words: Simple(words) for words in sorted(tree.commands)}
    simples.update({simple.words: simple for simple in (so_far.commands if so_far else ())})
    whole = (
        (text,) if tree.is_doubtful or not tree.constructs or len(simples) > MAX_COMMANDS else ()
    )
    return Script(
        commands=tuple(
            _command(source, simple) for simple in list(simples.values())[:MAX_COMMANDS]
        ),
        constructs=found,
        deny_texts=(*whole, *map(from_bytes_text, tree.quoted)),
        bodies=tuple(
            from_bytes_text(body) for body in (*tree.bodies, *(so_far.bodies if so_far else ()))
        ),
        has_input=True,
        unread=unread or ("too many commands to judge" if len(simples) > MAX_COMMANDS else ""),
    )


def _unread(why: str, text: str) -> Script:
    return Script((), (why,), (text,), unread=why)


def _script(source: str, reading: Outline) -> Script:
    return Script(
        commands=tuple([_command(source, simple) for simple in reading.commands]),
        bodies=tuple([from_bytes_text(body) for body in reading.bodies]),
        has_input=reading.has_input,
    )


def _command(source: str, simple: Simple) -> Command:
    words = tuple([resolve(source[start:end]) for start, end in simple.words])
    return Command(words, simple.is_joined, simple.in_loop)


def _mask(source: str, reading: Outline) -> str:
    """Return the text with its data-only here-documents blanked out, at the same offsets."""
    for start, end, filler in reading.data:
        source = source[:start] + filler * (end - start) + source[end:]
    return source


class _Tree:
    """A walk over tree-sitter's tree, without recursion, that collects every command and every
    construct."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.commands: set[tuple[Span, ...]] = set()
        self.constructs: list[str] = []
        self.bodies: list[str] = []
        # Backquotes in an expanded here-document: the grammar finds only `$(` there.
        self.quoted: list[str] = []
        # The first construct because of which the tree may differ from bash's reading.
        self.doubt = ""

    @property
    def is_doubtful(self) -> bool:
        return bool(self.doubt)

    def walk(self, root: "Node") -> None:
        # MAX_CHARS bounds the tree: except for a few, it has fewer nodes than its text has
        # characters.
        stack = [root]
        is_whole = not root.has_error
        while stack:
            node = stack.pop()
            children = node.children
            if node.is_named:
                self.visit(node, children)
            if node.is_missing:
                self.note("something that can't be parsed", node)
                self.doubt = self.doubt or self.constructs[-1]
            if is_whole:
                stack += [
                    child
                    for child in reversed(children)
                    if child.is_named and child.type not in _LEAVES
                ]
            else:
                # Any of them may be missing.
                stack += [
                    child for child in reversed(children) if child.is_named or child.is_missing
                ]

    def note(self, what: str, node: "Node") -> None:
        text = from_bytes_text(self.source[node.start_byte : node.end_byte]).split("\n", 1)[0]
        self.constructs.append(f"{what} (`{text[:40]}{'...' if len(text) > 40 else ''}`)")

    def visit(self, node: "Node", children: "list[Node]") -> None:
        kind = node.type
        if kind in _STRUCTURE and kind not in _LOOKED_INTO:
            return
        if kind == "command":
            self.add(_command_spans(node, children))
        elif kind in _CONSTRUCTS:
            self.note(_CONSTRUCTS[kind], node)
            if kind == "ERROR":
                self.doubt = self.doubt or self.constructs[-1]
        elif kind == "file_redirect":
            self.visit_redirect(node, children)
        elif kind == "test_command":
            self.visit_test(node, children)
        elif kind == "compound_statement" and children and children[0].type == "((":
            self.note("arithmetic", node)
        elif kind not in _STRUCTURE:
            self.note("something that isn't known here", node)
            self.doubt = self.doubt or self.constructs[-1]
        if kind in ("declaration_command", "unset_command"):
            self.add([(child.start_byte, child.end_byte) for child in children])
        elif kind == "heredoc_redirect":
            self.visit_heredoc(children)
        elif kind == "herestring_redirect":
            text = resolve(self.source[children[-1].start_byte : children[-1].end_byte]).text
            self.bodies.append(to_bytes_text(text))

    def add(self, words: list[Span]) -> None:
        self.commands.add(tuple(sorted(words)))

    def visit_heredoc(self, children: "list[Node]") -> None:
        parts = {child.type: self.source[child.start_byte : child.end_byte] for child in children}
        body = parts.get("heredoc_body", "")
        self.bodies.append(body)
        if not re.search(r"['\"\\]", parts.get("heredoc_start", "")):
            self.quoted.extend(_BACKQUOTED.findall(body))

    def visit_test(self, node: "Node", children: "list[Node]") -> None:
        if not children or children[0].type != "[":
            self.note("a `[[` condition", node)
            return
        try:
            self.commands.add(spans(self.source, node.start_byte, node.end_byte))
        except GiveUp as reason:
            self.note(str(reason), node)

    def visit_redirect(self, node: "Node", children: "list[Node]") -> None:
        operator = next((child.type for child in children if not child.is_named), "")
        targets = [
            child for child in children if child.is_named and child.type != "file_descriptor"
        ]
        text = self.source[targets[0].start_byte : targets[0].end_byte] if targets else ""
        if operator in (">", ">>", ">|", "&>", "&>>") and text != "/dev/null":
            self.note("a redirection to a file", node)


def _command_spans(node: "Node", children: "list[Node]") -> list[Span]:
    """Return the words of a `command` node, including those that the grammar files under the
    redirections after it; after the whole list, if the command is the list's last."""
    words = [
        (c.start_byte, c.end_byte) for c in children if c.is_named and c.type not in _NOT_WORDS
    ]
    words.extend(word for c in children if c.type == "file_redirect" for word in _extra_words(c))
    parent = node.parent
    while parent is not None:
        is_redirected = parent.type == "redirected_statement" and parent.children[0].id == node.id
        is_last = (
            parent.type in ("list", "pipeline", "negated_command")
            and parent.children[-1].id == node.id
        )
        if is_redirected:
            words.extend(
                word for redirect in parent.children[1:] for word in _extra_words(redirect)
            )
        node, parent = parent, parent.parent if is_redirected or is_last else None
    return words


_NOT_WORDS = frozenset(
    {"file_redirect", "herestring_redirect", "heredoc_redirect", "variable_assignment", "comment"}
)


def _extra_words(redirect: "Node") -> Iterator[Span]:
    """Return the words that tree-sitter-bash takes for a second destination: it reads `ls
    2>/dev/null -l` as a redirection with two."""
    if redirect.type == "file_redirect":
        targets = [
            c
            for c in redirect.children
            if c.is_named and c.type not in ("file_descriptor", "ERROR")
        ]
        for target in targets[1:]:
            yield (target.start_byte, target.end_byte)


# -- for `explain`: judging doesn't need to know where a command stands ---------------------------

_CONTEXTS = {
    "command_substitution": "in a command substitution",
    "process_substitution": "in a process substitution",
    "function_definition": "in a function",
    "heredoc_body": "in a here-document",
    "subshell": "in a subshell",
    "pipeline": "in a pipe",
    "while_statement": "in a loop",
    "for_statement": "in a loop",
    "c_style_for_statement": "in a loop",
    "if_statement": "in an `if`",
    "case_statement": "in a `case`",
}


def contexts(text: str) -> dict[tuple[str, ...], list[str]]:
    """Return where each command of a bash text stands (`in a loop, in a subshell`; empty at the
    top), by the command's words, as tree-sitter reads them and in the order of the text."""
    found: dict[tuple[str, ...], list[str]] = {}
    if len(text) > MAX_CHARS:
        return found
    source = to_bytes_text(text)
    stack: list[tuple[Node, tuple[str, ...]]] = [
        (_parser().parse(source.encode("latin-1")).root_node, ())
    ]
    while stack:
        node, where = stack.pop()
        if node.type == "command":
            words = [
                resolve(source[start:end]).text
                for start, end in sorted(_command_spans(node, node.children))
            ]
            found.setdefault(tuple(words), []).append(", ".join(where))
        elif node.type in _CONTEXTS:
            where = (*where, _CONTEXTS[node.type]) if _CONTEXTS[node.type] not in where else where
        stack.extend((child, where) for child in reversed(node.children))
    return found
