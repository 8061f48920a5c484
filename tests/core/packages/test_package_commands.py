"""Package command lines: manager, operation, packages, options."""

import pytest

from supervisor.core.actions import Packages
from supervisor.core.packages.package_commands import (
    agrees,
    environments,
    fetches,
    fetches_otherwise,
    fold_name,
    folded_spec,
    items_of,
    managers,
    parse_command,
    risky_flags,
    rough_actions,
)
from supervisor.core.policy.package_rules import compile_pattern
from supervisor.errors import PolicyError
from tests.tables import each_row


def test_every_manager_of_the_contract_is_known() -> None:
    assert set(managers()) == {
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "pip",
        "uv",
        "poetry",
        "cargo",
        "go",
        "gem",
    }


@each_row(
    ("command", "manager", "operation", "names", "flags"),
    [
        ("npm install left-pad@1.3.0", "npm", "install", ("left-pad@1.3.0",), ()),
        ("npm i -D a b", "npm", "install", ("a", "b"), ("-D",)),
        ("npm add a", "npm", "install", ("a",), ()),
        ("npm clean-install", "npm", "ci", (), ()),
        ("npm -g install a", "npm", "install", ("a",), ("-g",)),
        ("npm run build", "npm", "run", ("build",), ()),
        ("pnpm i a", "pnpm", "add", ("a",), ()),
        ("pnpm i", "pnpm", "install", (), ()),
        ("yarn", "yarn", "install", (), ()),
        ("yarn add a", "yarn", "add", ("a",), ()),
        ("bun install a", "bun", "add", ("a",), ()),
        ("pip3.12 install a", "pip", "install", ("a",), ()),
        ("python -m pip install a", "pip", "install", ("a",), ()),
        ("/usr/bin/python3.13 -m pip install a", "pip", "install", ("a",), ()),
        ("pip install -r r.txt a", "pip", "install", ("a",), ("-r=r.txt",)),
        ("pip install --requirement r.txt", "pip", "install", (), ("--requirement=r.txt",)),
        ("uv pip install a", "uv", "pip install", ("a",), ()),
        ("uv tool install a", "uv", "tool install", ("a",), ()),
        ("uv add --group dev a", "uv", "add", ("a",), ("--group=dev",)),
        ("poetry add a -G dev", "poetry", "add", ("a",), ("-G=dev",)),
        (
            "cargo add serde@1 --features derive",
            "cargo",
            "add",
            ("serde@1",),
            ("--features=derive",),
        ),
        ("go mod tidy", "go", "mod tidy", (), ()),
        ("gem i rake", "gem", "install", ("rake",), ()),
        ("npm install -- -x", "npm", "install", ("-x",), ()),
        (
            "npm --loglevel warn --fetch-retries 0 install evil",
            "npm",
            "install",
            ("evil",),
            ("--loglevel=warn", "--fetch-retries=0"),
        ),
        ("npm --loglevel warn -g i e", "npm", "install", ("e",), ("--loglevel=warn", "-g")),
        ("npm --loglevel=warn test i", "npm", "test", ("i",), ("--loglevel=warn",)),
        ("cargo +nightly install evil", "cargo", "install", ("evil",), ("+nightly",)),
        ("uv --directory a -q pip install e", "uv", "pip install", ("e",), ("--directory=a", "-q")),
        ("go -C a -x get e.org/x", "go", "get", ("e.org/x",), ("-C=a", "-x")),
    ],
)
def test_a_command_is_read(
    command: str, manager: str, operation: str, names: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    action = parse_command(command)
    assert (action.manager, action.operation, action.names, action.flags) == (
        manager,
        operation,
        names,
        flags,
    )
    assert agrees(action)


@each_row(
    ("command", "may_fetch"),
    [
        ("npm install --help", False), ("pip install -q --no-index x", False),
        ("pip --timeout=5 install --no-index x", False), ("npm install evil --cache -h", True),
        ("pip install evil --log -h", True), ("cargo install evil --root --offline", True),
        ("cargo uninstall x", False), ("npm test", False),
    ],
)  # fmt: skip
def test_an_option_keeps_a_manager_from_fetching_unless_it_may_be_a_value(
    command: str, may_fetch: bool
) -> None:
    assert fetches(parse_command(command)) is may_fetch


@each_row(
    ("command", "words"),
    [
        ("npm it", "it"), ("npm init evil", "init"), ("npm init -y", ""), ("npm link", ""),
        ("npm audit", ""), ("npm audit fix", "audit fix"), ("pnpm dlx evil", "dlx"),
        ("pip wheel evil", "wheel"), ("uv tool run evil", "tool run"), ("uv tool list", ""),
        ("cargo vendor", "vendor"), ("go version", ""), ("ls", ""),
    ],
)  # fmt: skip
def test_operations_that_fetch_though_no_request_carries_them_out(command: str, words: str) -> None:
    assert fetches_otherwise(parse_command(command)) == words


@each_row(
    "command",
    [
        "",
        "ls",
        "npx x",
        "./npm i",
        "/tmp/npm i",
        "python -m evil",
        "python -m",
        "npm i; id",
        "npm i $(x)",
        "A=1 npm i",
        "npm i 'x",
        "npm i x\ny",
    ],
)
def test_what_can_t_be_read_says_so(command: str) -> None:
    assert parse_command(command).flags[0].startswith("--gatehouse-unread=")


@each_row(
    ("manager", "word", "name"),
    [
        ("npm", "left-pad", "left-pad"), ("npm", "left-pad@^1.2 <2", "left-pad"), ("npm",
         "@scope/x@latest", "@scope/x"), ("npm", "x@>=1 <2", "x"),
        ("pip", "Requests", "requests"), ("pip", "zope.interface[test]==1.0", "zope-interface"),
        ("pip", "a>=1,!=1.5,<2", "a"), ("pip", "a~=1.0", "a"),
        ("uv", "a_b==1", "a-b"), ("poetry", "django@^5", "django"), ("poetry", "a@latest", "a"),
        ("cargo", "serde@1.0", "serde"),
        ("go", "example.com/mod/v2@v2.0.0", "example.com/mod/v2"), ("gem", "rake:13.0", "rake"),
    ],
)  # fmt: skip
def test_a_package_has_a_name(manager: str, word: str, name: str) -> None:
    (item,) = items_of(Packages(manager=manager, operation="install", names=(word,)))
    assert item.name == name
    assert item.origin == ""


@each_row(
    ("manager", "word"),
    [
        ("npm", "https://x.example.org/a.tgz"), ("npm", "git+ssh://x"), ("npm", "git@x:y"), ("npm",
         "user/repo"), ("npm", "user/repo#branch"),
        ("npm", "github:a/b"), ("npm", "gist:1"), ("npm", "a@npm:b"), ("npm", "a@file:b"), ("npm",
         "a@http://x"), ("npm", "./a"), ("npm", "../a"),
        ("npm", "/a"), ("npm", "~/a"), ("npm", "a.tgz"), ("npm", "link:a"), ("npm", "workspace:a"),
        ("npm", "jsr:@a/b"), ("npm", "a@user/repo"),
        ("pip", "."), ("pip", "./a"), ("pip", "a.whl"), ("pip", "a.tar.gz"), ("pip",
         "a @ https://x"), ("pip", "git+https://x"), ("pip", "a/b"),
        ("pip", "file:///a"), ("pip", "a==1 --hash=x"), ("go", "./cmd"), ("go", "nodots/x"), ("go",
         "all"), ("gem", "a.gem"), ("cargo", "a/b"),
    ],
)  # fmt: skip
def test_what_says_where_code_comes_from_is_no_package(manager: str, word: str) -> None:
    (item,) = items_of(Packages(manager=manager, operation="install", names=(word,)))
    assert item.origin


@each_row(
    "word",
    ["", "-x", "a;b", "a|b", "$(x)", "a`b`", "a'b", "a\nb", "a\\b", "a&b", "a\u202eb", "a\x00"],
)
def test_what_is_no_word_of_a_package_is_refused(word: str) -> None:
    with pytest.raises(ValueError):
        items_of(Packages(manager="npm", operation="install", names=(word,)))


@pytest.mark.parametrize(
    ("flag", "origin"),
    [
        ("-r=r.txt", False),
        ("-r=./sub/r.txt", False),
        ("-r=../r.txt", True),
        ("-r=/r.txt", True),
        ("-r=https://x/r.txt", True),
        ("-c=", True),
        ("--constraint=c.txt", False),
    ],
)
def test_a_file_of_requirements_lies_in_the_workspace(flag: str, origin: bool) -> None:
    (item,) = items_of(Packages(manager="pip", operation="install", flags=(flag,)))
    assert item.is_file
    assert bool(item.origin) is origin


@each_row(
    ("command", "risky"),
    [
        ("npm install -D --save-exact --save-weird a", []),
        ("npm install -DE a", []),
        ("npm install --registry=x a", ["--registry=x"]),
        ("npm install --save=x a", ["--save=x"]),
        ("npm install --userconfig x a", ["--userconfig"]),
        ("npm install -Dx a", ["-Dx"]),
        ("pip install -qU a", []),
        ("pip install -e . -i x --pre a", ["-e", "-i", "--pre"]),
        ("pip install -rr.txt", ["-rr.txt"]),
        ("pip install -r", ["-r"]),
        ("go get -u a.b/c", []),
        ("go get -exec=x a.b/c", ["-exec=x"]),
    ],
)
def test_options_that_are_not_known_are_named(command: str, risky: list[str]) -> None:
    assert risky_flags(parse_command(command)) == risky


def test_names_are_folded_as_pep_503_says() -> None:
    assert fold_name("A__b.-c") == "a-b-c"
    assert folded_spec("pip", "A_b >= 1") == "a-b>=1"
    assert folded_spec("npm", "A_b") == "A_b"
    assert folded_spec("pip", "@") == "@"


def test_deny_rules_see_what_can_t_be_read() -> None:
    found = rough_actions("true; sudo npm i evil && pip install 'x'")
    assert [(action.manager, action.names) for action in found] == [
        ("npm", ("evil",)),
        ("pip", ("x",)),
    ]


def test_patterns() -> None:
    assert compile_pattern("npm i x").operation == "install"
    assert compile_pattern("pip3 install X_y==1").item == "x-y==1"
    assert compile_pattern("pnpm install x").operation == "add"
    assert compile_pattern("uv pip install x").operation == "pip install"
    assert compile_pattern("pip install -r r.txt").file == "-r"
    assert compile_pattern("npm:@a/b").item == "@a/b"
    for bare in ("*", "**", "* *", "* * *", "*:*"):
        assert compile_pattern(bare).is_bare
    assert not compile_pattern("npm:*").is_bare
    for bad in (
        "npm",
        "apt:x",
        "apt install x",
        "npm frob x",
        "npm install a b",
        "npm install 'x",
        "npm -g",
    ):
        with pytest.raises(PolicyError):
            compile_pattern(bad)


@pytest.mark.parametrize("word", ["i", "clean-install", "rm"])
def test_an_alias_alone_is_its_operation_in_rules_too(word: str) -> None:
    assert (
        compile_pattern(f"npm {word}").operation == parse_command(f"npm {word}").operation != word
    )


@pytest.mark.parametrize(
    ("command", "is_asked"),
    [
        ("npm ci", True),
        ("npm i x", True),
        ("pip uninstall x", False),
        ("uv pip uninstall x", False),
        ("npm ci --offline", False),
        ("pip install --no-index x", False),
        ("pip list", False),
        ("cargo build", False),
        ("make install", False),
    ],
)
def test_what_may_fetch_is_asked(command: str, is_asked: bool) -> None:
    assert fetches(parse_command(command)) is is_asked


@pytest.mark.parametrize(
    ("command", "cwd", "folders", "is_risky"),
    [
        ("pip install x", "app", (".venv", "venv"), False),
        ("pip install --user x", "app", (), False),
        ("pip --python ../other install x", "app", ("../other",), False),
        ("pip --python env/bin/python3.11 install x", ".", ("env",), False),
        ("pip --python ../other install x", ".", ("../other",), True),
        ("pip --python /usr install x", ".", ("/usr",), True),
    ],
)
def test_an_environment_is_one_of_the_workspace(
    command: str, cwd: str, folders: tuple[str, ...], is_risky: bool
) -> None:
    action = parse_command(command, cwd)
    assert environments(action) == folders
    assert bool(risky_flags(action)) is is_risky
