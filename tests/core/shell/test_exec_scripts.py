"""sed and awk programs: plain is only what is known to read and print, and read to its end."""

import pytest

from supervisor.core.shell.exec_scripts import is_plain_awk, is_plain_sed


@pytest.mark.parametrize(
    "text",
    [
        "", "p", "1p", "1,5p", "$d", "/a/d", "/a/,/b/p", "1~2d", "2,+3p", "1!d", "s/a/b/",
        "s/a/b/gI", "s|a|b|2", "s/a\\/b/c/", "y/ab/cd/",
        "p;p", "/a/{p;d}", "{ p; }", "{\n\tp\n}", "/x/ { ; n; d }", "1q", "q0", "s/[a-z]/x/",
        " p ; d ",
    ],
)  # fmt: skip
def test_sed_scripts_that_print_are_plain(text: str) -> None:
    assert is_plain_sed(text)


@pytest.mark.parametrize(
    "text",
    [
        "e", "1e id", "w out", "r in", "s/a/b/e", "s/a/b/w out", "s/a/b/ge", "s/a/b/;e", "W x",
        "i\\\ntext", "p w", "s/a", "s/a/b", "s", "s\n",
        "saxbxc", "s\\a\\b\\", "sé", "s/[/]/x/e", "s/[/]/x/", "y/a", "pp e", "}e", "b x;e", ":a",
        "=e", "s/a\nb/c/", "F x",
    ],
)  # fmt: skip
def test_sed_scripts_that_may_run_or_write_are_not_plain(text: str) -> None:
    assert not is_plain_sed(text)


@pytest.mark.parametrize(
    "text",
    ["{print $1}", "NR==1", "$3 >= 5 || $4", "{printf \"%s\\n\", substr($1, 2)}",
     "/a/ {n++} END {print n}", "{ if (length($0) < 9) print }"],
)  # fmt: skip
def test_awk_programs_that_print_are_plain(text: str) -> None:
    assert is_plain_awk(text)


@pytest.mark.parametrize(
    "text",
    ['BEGIN{system("id")}', '{print > "f"}', '{print | "sh"}', '"id" | getline', "@f()", "{x(1)}",
     "function f(a) {}", "{print ENVIRON[\"A\"]}",
     '{print "\\x41"}', "BEGIN { @load \"x\" }"],
)  # fmt: skip
def test_awk_programs_that_may_do_more_are_not_plain(text: str) -> None:
    assert not is_plain_awk(text)
