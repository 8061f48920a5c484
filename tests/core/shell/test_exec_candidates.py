"""What "always" may offer for a command line: the exact pattern, and the narrow one where the
tables find it harmless."""

from supervisor.core.shell.exec_candidates import MAX_RULE_CHARS, candidates, quote
from supervisor.core.shell.exec_patterns import compile_pattern
from tests.tables import each_row

ROOT = "/workspace/merged"


@each_row(
    ("text", "exact", "narrow"),
    [
        ("git log -3", "git log -3", "git log *"),
        ("cd src && git log -3", "git log -3", "git log *"),
        ("git log 'a b'", "git log 'a b'", "git log *"),
        ('git log "$X"', None, None),
        ('ls "a$X"', None, "ls *"),
        ("/usr/bin/git log", "/usr/bin/git log", "/usr/bin/git log *"),
        ("./run x", "./run x", None),
        ("cd sub; ./run x", None, None),
        ("cd sub && ./run x", "./sub/run x", None),
        # What no rule could allow gets none.
        ("git log; id", None, None),
        ("git log $(id)", None, None),
        ("eval x", None, None),
        ("cd ..; ls", None, None),
        ("../run", "../run", None),
        ("", None, None),
        # A name that a rule would read as an assignment.
        ("'A=1' x", None, None),
        ("echo " + "a" * MAX_RULE_CHARS, None, "echo *"),
    ],
)
def test_a_candidate_allows_the_line_that_it_is_made_from(
    text: str, exact: str | None, narrow: str | None
) -> None:
    assert candidates(text, ".", (ROOT,)) == (exact, narrow)


def test_a_program_of_the_workspace_is_named_from_its_root() -> None:
    assert candidates("./run", "sub", (ROOT,)) == ("./sub/run", None)
    assert candidates("../run", "sub", (ROOT,)) == ("./run", None)
    assert candidates("./run", ".", ()) == (None, None)


@each_row(
    "word",
    ["a", "a b", "it's", "*", "a\nb", "a\tb\\", "\x01'", "if", "$x", "{a,b}", "é", "~", "#a", "-"],
)
def test_a_quoted_word_means_exactly_itself(word: str) -> None:
    assert compile_pattern(f"run {quote(word)}").words[1].literal == word
