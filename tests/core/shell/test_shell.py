"""Bash text to commands: what is read, and what is refused."""

import pytest

from supervisor.core.shell import shell, shell_outline
from supervisor.core.shell.exec_scripts import is_plain_awk, is_plain_sed
from supervisor.core.shell.shell import MAX_CHARS, contexts, hidden_character, parse
from supervisor.core.shell.shell_words import resolve
from tests.tables import each_row


def words(text):
    return [[word.text for word in command.words] for command in parse(text).commands]


@each_row(
    ("text", "expected"),
    [
        ("git log -3 2>&1 | head", [["git", "log", "-3"], ["head"]]),
        ("a; b & c\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("ls 'a'\"b\"c\\ d", [["ls", "abc d"]]),
        ("ls 2>/dev/null -la x", [["ls", "-la", "x"]]),
        ("2>&1 a b", [["a", "b"]]),
        ("a 5>&1 6", [["a", "6"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for i in x y; do a $i; done; b", [["a", "$i"], ["b"]]),
        ("while a\ndo b\ndone", [["a"], ["b"]]),
        (
            "cat <<'EOF' 2>&1 | grep x; ls\n$(rm) '\nEOF\ndone2",
            [["cat"], ["grep", "x"], ["ls"], ["done2"]],
        ),
        ("a <<-'A' <<\\B\n\tx\n\tA\ny\nB\nc", [["a"], ["c"]]),
        ("a <<'E'\nE", [["a"]]),
        ("a \"$(cat <<'E'\nit's $x\n\nE\n)\" b", [["a", "it's $x", "b"]]),
        ("a \"x$(cat <<'E'\ny\nE\n)z\"", [["a", "xyz"]]),
        ("a # b; c", [["a"]]),
        ("a b#c", [["a", "b#c"]]),
        ("\\\na b \\\n c", [["a", "b", "c"]]),
        ("[ -f a ] && b", [["[", "-f", "a", "]"], ["b"]]),
        ("find . -exec a {} \\;", [["find", ".", "-exec", "a", "{}", ";"]]),
        ("a $'\\x41\\102\\u00e9\\n\\'\\\\'", [["a", "ABé\n'\\"]]),
        ('a "\\a\\$\\"\\\\`"' if False else 'a "\\a\\$\\"\\\\"', [["a", '\\a$"\\']]),
        ("a é 日本", [["a", "é", "日本"]]),
        ("", []),
        ("# x", []),
    ],
)
def test_commands_are_read_as_the_shell_would_pass_them(text, expected):
    assert words(text) == expected
    assert parse(text).constructs == ()


@each_row(
    "text",
    ["$(a)", "`a`", "a <(b)", "a >(b)", "a <<E\nE", "a <<E'F'\nEF", "a <<'E'", "A=1 b", "A=1",
     "A+=1", "a[0]=1", "A=(b)",
     "export A=1", "declare A=$(b)", "f() { a; }", "function f { a; }", "a() b", "a > f", "a >> f",
     "a >| f", "a &> f", "a >& f",
     "a <> f", "a > $f", "a > '/dev/nul'", "a > /dev/tcp/x/1", "a < /dev/udp/x/1", "a < $f",
     "a {fd}>&1", "[[ a ]]", "((a))",
     "case a in b) c;; esac", "select a in b; do c; done", "coproc a", "for ((;;)); do a; done",
     "for a; do b; done",
     "for IFS in a; do b; done", "for i in $(a); do b; done", "a $((b))", "a ${b:-c}", "a ${b:=c}",
     "a ${!b}", "a ${b@P}",
     "a $[1]", "a $\"b\"", "a 'b", "a \"b", "a $'b", "a )", "( a", "a )(", "a ;; b", "a & & b",
     "& a", "| a", "a | | b", "a !(b)",
     "a @(b)", "time { a; }", "time ! ( a )", "{ a; } b", "if a; then b; fi c", "a\\", "a\x00",
     "a\rb", "a\x1b",
     "a\u200b", "a\u202eb", "a\u2066", "a\ufeff", "a\U000e0041", "a\u2028b", "a\x85", "a\x7f",
     "in x", "esac", "a <<'E' 'F\nE\n",
     "a" * 10_001, "a;" * 501, 'a $(cat <<\'E\'\nx\nE\n)', 'a "$(cat <<E\nx\nE\n)"',
     'a "$(cat <<\'E\'\nE\nb\nE\n)"',
     'a "$(cat f)"', 'a "$(cat <<\'E\' | b\nE\n)"', 'a "$(cat <<\'E\'\nx\n)"'],
)  # fmt: skip
def test_what_no_rule_may_allow_is_a_construct(text):
    assert parse(text).constructs, words(text)


@each_row(
    "text",
    ["$(x a)", "b `x a`", "b <(x a)", "b <<E\n$(x a)\nE", "A=$(x a)", "A=1 x a", "f() { x a; }",
     "x a > f", "[[ $(x a) ]]",
     "case $(x a) in b) c;; esac", "case b in b) x a;; esac", "${b:-$(x a)}",
     "b \"$(c \"$(x a)\")\"", "$((`x a`))",
     "for i in $(x a); do b; done", "coproc x a", "select i in a; do x a; done", "export B=$(x a)",
     "b=($(x a))",
     "for ((i=0;i<$(x a);i++)); do b; done", "b[$(x a)]=1"],
)  # fmt: skip
def test_commands_are_found_inside_constructs(text):
    assert any(found[-2:] == ["x", "a"] for found in words(text))


def test_doubtful_texts_are_kept_for_the_deny_rules():
    for text in ("a\x00b", "x 'a", "( a", "a;" * 501, "a" * 20_000, "a\u200b"):
        assert parse(text).deny_texts, text
    assert parse("a; b").deny_texts == ()


def test_two_parsers_must_agree(monkeypatch):
    real = shell_outline.outline("a b; c")
    wrong = shell_outline.Outline(real.commands[:1], (), (), has_input=False)
    monkeypatch.setattr("supervisor.core.shell.shell.outline", lambda source: wrong)
    script = parse("a b; c  ")
    assert "read differently" in script.constructs[0]
    assert len(script.commands) == 2


@each_row(
    ("raw", "is_literal", "prefix", "is_many"),
    [
        ("a'b'", True, "", False),
        ("$x", False, "", True),
        ('"$x"', False, "", False),
        ('"a$x"', False, "a", False),
        ("a$x", False, "a", True),
        ('"$@"', False, "", True),
        ("'a'*", False, "a", True),
        ("'*'", True, "", False),
        ("\\*", True, "", False),
        ("a{b,c}", False, "a", True),
        ("a{b}", True, "", False),
        ("\\{a,b}", True, "", False),
        ("[", True, "", False),
        ("a[0]", False, "a", True),
        ("$'a'", True, "", False),
        ("$'a\\0b'", False, "", True),
        ("$", True, "", False),
        ("a$", True, "", False),
        ('"$(a)"', False, "", True),
        ("~", True, "", False),
        ("~/a", True, "", False),
        ("~+/a", False, "", False),
        ("~-", False, "", False),
        ("~root/a*", False, "", True),
        ("'~root'", True, "", False),
        ("HEAD~1", True, "", False),
    ],
)
def test_words(raw, is_literal, prefix, is_many):
    word = resolve(raw)
    assert word.is_literal == is_literal
    if not is_literal:
        assert (word.prefix, word.is_many) == (prefix, is_many)


def test_hidden_characters_are_found_and_ordinary_ones_not():
    assert hidden_character("a\tb\nc é 日本 ⚠️ ✓ “x”") is None
    assert hidden_character("a\u200db") == "U+200D"
    assert hidden_character("a\x00") == "U+0000"


@each_row(
    "text",
    ["p", "1,5p", "$d", "/a/,/b/p", "s/a/b/", "s/a/b/g;s|x|y|2p", "1!G;h;$!d", "/x/{p;d}", "{p}",
     "y/ab/cd/", "10q", "1~2d",
     "s/\\//x/", "s,a,b,", "/a/Id", "n;d", ""],
)  # fmt: skip
def test_plain_sed(text):
    assert is_plain_sed(text)


@each_row(
    "text",
    ["w f", "1w f", "s/a/b/w f", "s/a/b/e", "s/a/b/ge", "e", "1e id", "r /etc/passwd", "R f", "W f",
     "a x", "i\\\nx", "c x", "p;w f",
     "p\nw f", "/a/w f", "{w f}", "{p;e}", "s/a/b/;e", "s/[/]/w f/;p", "y/a/b/e", "\\,a,w f",
     "s/a/b", "s", "b x", "t", ":a", "v",
     "F;e id", "0e", "s\na\nb\nw f", "p}w f", "z;w x", "s/x/y/m;e", "#n", "1,3{p;s/a/b/w f\n}"],
)  # fmt: skip
def test_sed_that_may_write_or_run(text):
    assert not is_plain_sed(text)


@each_row(
    ("text", "is_plain"),
    [
        ("{print $1}", True),
        ("NR==1 || /x/ { printf(\"%s\\n\", $2) }", True),
        ("{ s += $1 } END { print s / NR, length(s) }", True),
        ("$3 >= 5", True),
        ("$3 > 5", True),
        ("$3 > 5 {print}", False),
        ("{printf(\"%s\", $1) > \"f\"}", False),
        ("{system(\"id\")}", False),
        ("{system (\"id\")}", False),
        ("{print | \"sh\"}", False),
        ("{print |& \"sh\"}", False),
        ("{print > \"f\"}", False),
        ("{print >> \"f\"}", False),
        ("\"id\" | getline", False),
        ("/\"/{system(\"id\")};/\"/", False),
        ("{f=\"system\"; @f(\"id\")}", False),
        ("{fn(\"id\")}", False),
        ("@include \"x\"", False),
        ("{sys\\\ntem(1)}", False),
    ],
)  # fmt: skip
def test_awk(text, is_plain):
    assert is_plain_awk(text) == is_plain


def test_a_part_of_the_grammar_that_is_not_known_here_is_a_construct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later grammar may have kinds of parts that nobody looked at: nothing in them is allowed,
    deny rules see the text."""
    monkeypatch.setattr(shell, "_STRUCTURE", shell._STRUCTURE - {"subshell"})
    found = parse("(new-kind-of-part a)")
    assert found.constructs == ("something that isn't known here (`(new-kind-of-part a)`)",)
    assert found.deny_texts == ("(new-kind-of-part a)",)


def test_every_kind_of_part_that_the_grammar_has_is_known_here():
    language = shell._parser().language
    named = {
        language.node_kind_for_id(i)
        for i in range(language.node_kind_count)
        if language.node_kind_is_named(i) and language.node_kind_is_visible(i)
    }
    assert named <= shell._STRUCTURE | set(shell._CONSTRUCTS)


def test_a_condition_with_a_substitution_is_a_construct_and_its_command_is_found():
    found = parse('[ -f "$(rm x)" ]')
    assert "a command substitution" in " ".join(found.constructs)
    assert ["rm", "x"] in [[word.text for word in command.words] for command in found.commands]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10_000,
        "a " * 5_000,
        '""' * 5_000,
        "((" + "!" * 9_990 + "1))",
        "a''" * 3_333,
        "{1..2}" * 1_600,
    ],
)
def test_a_text_has_fewer_parts_than_characters(text):
    """What bounds the walk over the tree: MAX_CHARS does."""
    parts, stack = 0, [shell._parser().parse(text.encode()).root_node]
    while stack:
        parts += 1
        stack.extend(child for child in stack.pop().children if child.is_named)
    assert parts < len(text) + 10


def test_a_text_that_is_too_long_has_no_contexts():
    assert contexts("ls") == {("ls",): [""]}
    assert contexts("ls #" + "a" * MAX_CHARS) == {}
