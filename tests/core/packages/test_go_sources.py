"""Sources of go, reduced to what `go mod tidy` reads."""

import time

import pytest

from supervisor.core.packages.go_sources import MOST_IMPORTS, go_head, go_heads

SOURCE = """// Copyright.
//go:build linux && !cgo
// +build linux

/* package no
 * import "x.test/no"
 **/
package shop // the shop

import "fmt"
import p "x.test/pad/v2"; import . `x.test/dot`

import (
	"C"
	_ "x.test/blank" // import "x.test/no"
	/* import */ "x.test/last"
)

import ()

var text = `
import "x.test/no"
`
"""


def test_a_head_has_constraints_package_and_imports() -> None:
    assert go_head(SOURCE) == (
        "//go:build linux && !cgo\n// +build linux\n\npackage shop\n"
        'import _ "fmt"\nimport _ "x.test/pad/v2"\nimport _ "x.test/dot"\n'
        'import _ "x.test/blank"\nimport _ "x.test/last"\n'
    )


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("", ""),
        ("func main() {}", ""),
        ("package a", "\npackage a\n"),
        ("package a\nimport 7", "\npackage a\n"),
        ('package a\nimport ("b" 7', '\npackage a\nimport _ "b"\n'),
        ('package a\nimport "$(id)"', "\npackage a\n"),
    ],
)
def test_what_is_no_source_ends_where_it_is_none(text: str, head: str) -> None:
    assert go_head(text) == head


def test_nested_modules_and_other_files_are_left_out() -> None:
    files = dict.fromkeys(
        ("go.mod", "a.go", "in/a.go", "in/go.mod", "in/b/c.go", "x/y.go"), "package a"
    )
    assert [*go_heads(files)] == ["a.go", "x/y.go"]
    assert go_heads({"a.go": "no"}) == {}


@pytest.mark.parametrize(
    "part", ["/*", "//", "/**/", "package ", "import ", 'import ("a"\n', "\n ;", '"a"']
)
def test_a_hostile_source_takes_linear_time(part: str) -> None:
    begun = time.monotonic()
    for before in ("", "package a\nimport (", "package a\n"):
        assert go_head(before + part * 200_000).count("import") <= MOST_IMPORTS
    assert time.monotonic() - begun < 5
