"""How each package manager is planned and run: shell texts for a sandbox.

    index_from   prints where packages come from, as the manager itself is configured
    plan    resolves in a folder that holds what `plan_inputs` took over; no script is run
    run     does what was approved, in the private copy

Sources: the manuals of the managers. Every word of the request is quoted; nothing of it is ever
read as shell.
"""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Packages
from supervisor.core.packages.installed_places import CRATES, FETCHED, INSTALLED
from supervisor.core.packages.lock_files import NPM_INSTALLED, Locks
from supervisor.core.packages.package_commands import (
    OTHER_ENVIRONMENT,
    items_of,
    managers,
    risky_flags,
)
from supervisor.core.packages.plan_inputs import CONSTRAINTS, REQUIREMENTS
from supervisor.core.packages.plan_inputs import INSTALLED as IN_ENVIRONMENT
from supervisor.core.packages.registry_answers import host_of
from supervisor.core.text.words import split_command

type Kind = Literal["npm", "pypi", "crates", "go", "rubygems"]

# Relative to the home of a sandbox: the pinned versions that an install must use.
PINNED = ".gatehouse/pinned.txt"
# Prints the index that pip uses, and further ones.
_PIP_INDEX = (
    'python3 -I -c "from pip._internal.commands import create_command as c;'
    " o, _ = c('install').parse_args([]); print(o.index_url);"
    " print(*o.extra_index_urls, sep='\\n')\""
)
# No install scripts: of npm, pnpm, yarn (both) and bun; wheels alone of pip, uv and poetry. No
# program that the project's configuration names: npm starts `git` of its own for a repository, and
# a compiler tells cargo its version.
_NO_SCRIPTS = (
    "npm_config_ignore_scripts=true npm_config_git=/bin/false npm_config_script_shell=/bin/false"
    " YARN_IGNORE_SCRIPTS=true YARN_ENABLE_SCRIPTS=false"
    " PIP_ONLY_BINARY=:all: UV_NO_BUILD=1 POETRY_INSTALLER_ONLY_BINARY=:all:"
)
# npm since its eleventh version wants each script allowed by name.
_SCRIPTS = "npm_config_dangerously_allow_all_scripts=true"
_QUIET = (
    "PIP_RETRIES=1 npm_config_fetch_retries=1 npm_config_fetch_retry_mintimeout=500"
    " npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false"
    " PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 POETRY_NO_INTERACTION=1"
    " POETRY_VIRTUALENVS_IN_PROJECT=true"
    # No other version of itself than the one that is here.
    " COREPACK_ENABLE_NETWORK=0 GOTOOLCHAIN=local UV_PYTHON_DOWNLOADS=never"
    # The copy and what uv has fetched are on two file systems.
    " UV_LINK_MODE=copy"
    # Over plain HTTP, cargo would request HTTP/2 in a way that proxies refuse.
    " YARN_ENABLE_TELEMETRY=0 CI=1 CARGO_HTTP_MULTIPLEXING=false"
)
# The same for pnpm. npm reads these, too, and would warn of them.
_QUIET_PNPM = (
    f"{_QUIET} npm_config_manage_package_manager_versions=false"
    " npm_config_package_manager_strict=false pnpm_config_pm_on_fail=ignore"
    # Else pnpm looks for a place on the project's own file system, which is the copy.
    " npm_config_store_dir=~/.pnpm-store pnpm_config_store_dir=~/.pnpm-store"
)


class Recipe(NamedTuple):
    """How one manager is run.

    `index_from` prints where packages come from. `lock` is the file that says what is to be
    installed; empty if installs of this manager aren't planned. `after` runs after a command that
    names packages.
    """

    kind: Kind
    index_from: str
    lock: str = ""
    after: str = ""

    @property
    def is_report(self) -> bool:
        """Return whether `lock` is the output of a plan rather than a file of the project."""
        return self.lock in ("pip-report.json", "uv-pip.txt")


_NPM_INDEX = "npm config get registry"
RECIPES: dict[str, Recipe] = {
    "npm": Recipe("npm", _NPM_INDEX, "package-lock.json"),
    "pnpm": Recipe("npm", "pnpm config get registry", "pnpm-lock.yaml"),
    "yarn": Recipe(
        "npm",
        "yarn config get registry 2>/dev/null | grep ^http || yarn config get npmRegistryServer",
    ),
    "bun": Recipe("npm", _NPM_INDEX),
    "pip": Recipe("pypi", _PIP_INDEX, "pip-report.json"),
    "uv": Recipe("pypi", f"printenv UV_DEFAULT_INDEX UV_INDEX_URL || {_PIP_INDEX}", "uv.lock"),
    "poetry": Recipe("pypi", _PIP_INDEX),
    "cargo": Recipe(
        "crates",
        # Cargo prints its index's URL only if it can't reach the index.
        "cargo init -q --vcs none --name x . && echo 'itoa = \"*\"' >> Cargo.toml"
        "; env -u HTTPS_PROXY -u https_proxy -u HTTP_PROXY -u http_proxy"
        " CARGO_NET_RETRY=0 cargo generate-lockfile 2>&1 | grep -o 'https*://[^ `]*'"
        " | sed 's#config.json$##' | head -n 1",
        "Cargo.lock",
        "cargo update --workspace",
    ),
    "go": Recipe(
        "go",
        "go env GOPROXY | tr ',|' '\\n\\n' | grep ^http; go env GOSUMDB"
        " | sed -n 's#^\\([a-z0-9-]*\\.[a-z0-9.-]*\\).*#https://\\1/#p'",
        "go.mod",
    ),
    "gem": Recipe("rubygems", "gem sources | grep ^http"),
}
# What hashes another file has of a lock file's packages.
_HASHES = {"go.mod": "go.sum"}
_GO_SETTINGS = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GONOPROXY", "GOINSECURE")
# Prints what go is configured with, as JSON: the person's own where they run it outside of a
# project.
GO_SETTINGS_FROM = f"GOTOOLCHAIN=local go env -json {' '.join(_GO_SETTINGS)}"
# Nothing of a project's configures go, and no module comes from a repository.
_GO_ALONE = "GOENV=off GOFLAGS=-mod=mod GOWORK=off GOVCS='*:off' GOTOOLCHAIN=local"
_PNPM_ALONE = ("--config.ignore-scripts=true", "--config.ignore-pnpmfile=true")
_PNPM_LOCKS = ("--lockfile-only", *_PNPM_ALONE)
_UV_PIP = Recipe("pypi", RECIPES["uv"].index_from, "uv-pip.txt")
# The operations of each manager that are planned, and the words that plan them: none if the lock
# file already lists everything.
_PLANNED: dict[tuple[str, str], tuple[str, ...]] = {
    **{("npm", one): (one, "--package-lock-only") for one in ("install", "uninstall", "update")},
    ("npm", "ci"): (),
    ("pnpm", "install"): ("install", "--no-frozen-lockfile", *_PNPM_LOCKS),
    **{("pnpm", one): (one, *_PNPM_LOCKS) for one in ("add", "remove", "update")},
    ("go", "get"): ("get",),
    ("go", "mod tidy"): ("mod", "tidy"),
    ("go", "mod download"): (),
    ("pip", "install"): ("install", "--dry-run", "--quiet", "--report", "pip-report.json"),
    ("uv", "add"): ("add", "--no-sync"),
    ("uv", "remove"): ("remove", "--no-sync"),
    ("uv", "lock"): ("lock",),
    ("uv", "sync"): ("lock",),
    ("uv", "pip install"): ("pip", "install", "--dry-run"),
    **{("cargo", one): (one,) for one in ("add", "remove", "update")},
    ("cargo", "fetch"): ("update", "--workspace"),
}
# Flags with which an operation takes the lock file as it is.
_FROZEN = {("uv", "sync"): "--frozen", ("pnpm", "install"): "--frozen-lockfile"}
# Flags of a command that mean nothing to the other one that plans it.
_OTHER_WORDS = {("uv", "sync"), ("cargo", "fetch"), ("npm", "ci"), ("go", "mod download")}
# Flags that keep an install out of manifest and lock: a plan needs it there.
_UNSAVED = ("npm", "--no-save")
_MORE_FLAGS = frozenset(("--extra-index-url", "--index"))
_INDEX_FLAGS = _MORE_FLAGS | {"--registry", "--index-url", "-i", "--default-index"}
_GLOBAL = frozenset({"-g", "--global", "--location=global", "--user", "--user-install"})
_ELSEWHERE = {
    ("cargo", "install"),
    ("cargo", "uninstall"),
    ("go", "install"),
    ("uv", "tool install"),
}
_GEM_FOLDER = ("--install-dir", "-i")
_PIP_FOLDERS = frozenset({"--target", "-t", "--prefix", "--root"})
_SAYS_WHERE = (
    'if [ "${PIP_USER-}" ]; then echo "there is no virtual environment here: it is installed for'
    " python3 in the session's home\"; fi"
)
# What cargo fetches stays in the home, and nothing else of its own folder.
_KEEPS_CRATES = (
    f"if [ -d {FETCHED}/{CRATES} ]; then mkdir -p ~/.cargo"
    f" && ln -s {FETCHED}/{CRATES} ~/.cargo/registry; fi"
)


class Words(NamedTuple):
    """The words of a command besides its operation. `default` is the index that replaces the
    configured one, empty if none does; `more` are further indexes. `strange` are flags that aren't
    known as harmless; `names` are all other words."""

    default: str
    more: tuple[str, ...]
    strange: tuple[str, ...]
    names: tuple[str, ...]


def recipe_of(action: Packages) -> Recipe | None:
    """Return the recipe for the action's manager; None if it isn't known."""
    if action.manager == "uv" and action.operation.startswith("pip "):
        return _UV_PIP
    return RECIPES.get(action.manager)


def is_at_home(action: Packages) -> bool:
    """Return whether an install has nothing to do with the project: it goes to the home."""
    names = {flag.partition("=")[0] for flag in action.flags} | set(action.flags)
    return action.manager != "pip" and (
        bool(names & _GLOBAL)
        or (action.manager, action.operation) in _ELSEWHERE
        or (action.manager == "gem" and not names & set(_GEM_FOLDER))
    )


def goes_home(action: Packages, environment: str) -> bool:
    """Return whether a command changes what the home has for all programs of the session.
    `environment` is the Python environment that pip changes; empty where there is none."""
    is_pip = action.manager == "pip" and action.operation in ("install", "uninstall")
    return is_at_home(action) or (is_pip and not environment and not _is_placed(action))


def names_packages_alone(action: Packages) -> bool:
    """Return whether a command says nothing but names for an index: then no file of the project's
    takes part."""
    words = said(action)
    items = items_of(replace(action, names=words.names))
    return not words.strange and not any(one.origin or one.is_file for one in items)


def places_written(
    action: Packages, environment: str, *, scripts: bool, runs: bool
) -> tuple[str, ...]:
    """Return where below the home an install may write. INVARIANT: where code of the project's or
    the home's may run, it is nowhere: other commands and sessions run what is there. `runs` says
    that such code may run without install scripts, too; what goes to the home is told by
    `names_packages_alone`, or pinned."""
    if goes_home(action, environment):
        return (INSTALLED,) if scripts else (INSTALLED, FETCHED)
    recipe = recipe_of(action)
    is_by_own = recipe is None or recipe.kind == "pypi" or scripts or runs
    return () if is_by_own else (FETCHED,)


def words_of(action: Packages) -> list[str]:
    """Return the words of the manager's command."""
    if action.command is not None:
        return split_command(action.command)
    table = managers().get(action.manager)
    valued = table.valued | table.files if table is not None else frozenset()
    flags: list[str] = []
    for flag in action.flags:
        name, equals, value = flag.partition("=")
        flags += [name, value] if equals and name in valued else [flag]
    return [action.manager, *action.operation.split(), *flags, *action.names]


def said(action: Packages) -> Words:
    """Sort the words of a command into a `Words`."""
    default, more, strange, names = "", [], [], list(action.names)
    words = words_of(action)
    for flag in risky_flags(action):
        name, equals, value = flag.partition("=")
        if name in _INDEX_FLAGS and not equals:
            at = words.index(flag)
            value = "".join(words[at + 1 : at + 2])
        if name in _INDEX_FLAGS and host_of(value):
            more += [value] if name in _MORE_FLAGS else []
            default = default if name in _MORE_FLAGS else value
            names = names if equals else [one for one in names if one != value]
        else:
            strange.append(flag)
    return Words(default, tuple(more), tuple(strange), tuple(names))


def index_script(recipe: Recipe, own: str) -> str:
    """Return the shell text that prints every index, one a line. `own` is `home_config`."""
    return f"{own}\n{recipe.index_from}"


def home_config(kind: Kind, index: str) -> str:
    """Return the shell text that configures an index for the sandbox's managers, with lower
    precedence than the project's own settings."""
    quoted = shlex.quote(index)
    if kind == "npm" and index:
        return f"printf 'registry=%s\\n' {quoted} > ~/.npmrc"
    if kind == "pypi" and index:
        return (
            "mkdir -p ~/.config/pip && printf '[global]\\nindex-url = %s\\n'"
            f" {quoted} > ~/.config/pip/pip.conf; export UV_DEFAULT_INDEX={quoted}"
        )
    return ":"


def go_config(settings: str) -> str:
    """Return the shell text that configures go as the person's own is, by what `GO_SETTINGS_FROM`
    prints, and by nothing else."""
    try:
        said = {key: str(value) for key, value in json.loads(settings).items()}
    except (ValueError, AttributeError, RecursionError):
        said = {}
    proxies = re.split(r"[,|]", said.get("GOPROXY", ""))
    said["GOPROXY"] = ",".join(one for one in proxies if host_of(one)) or "off"
    given = [f"{key}={shlex.quote(said[key])}" for key in _GO_SETTINGS if key in said]
    return f"export {' '.join(given)} {_GO_ALONE}"


def index_environment(action: Packages, indexes: Sequence[str]) -> str:
    """Return the shell text that makes a command's manager use these indexes; the first takes
    precedence."""
    kind = RECIPES[action.manager].kind
    if kind == "npm" and said(action).default:
        return f"export npm_config_registry={shlex.quote(indexes[0])}"
    if kind == "pypi":
        first, more = shlex.quote(indexes[0]), shlex.quote(" ".join(indexes[1:]))
        return (
            f"export PIP_INDEX_URL={first} PIP_EXTRA_INDEX_URL={more}"
            f" UV_DEFAULT_INDEX={first} UV_INDEX={more}"
        )
    return ":"


def is_unsaved(action: Packages) -> bool:
    """Return whether the installed packages are written to no lock file."""
    return action.manager == _UNSAVED[0] and _UNSAVED[1] in action.flags


def lock_paths(lock: str) -> tuple[str, ...]:
    """Return the files that a reader of a lock file wants one after the other."""
    return (lock, _HASHES[lock]) if lock in _HASHES else (lock,)


def lock_after(action: Packages) -> str:
    """Return the file in the project that lists what was installed."""
    recipe = recipe_of(action)
    assert recipe is not None
    return NPM_INSTALLED if is_unsaved(action) else recipe.lock


def is_planned(action: Packages) -> bool:
    """Return whether the effects of an install can be planned."""
    if is_at_home(action):
        return (action.manager, action.operation) == ("npm", "install")
    return (action.manager, action.operation) in _PLANNED


def plan_script(action: Packages, own: str, *, program: str, python: str = "") -> str:
    """Return the shell text that resolves in the folder of a plan, and prints the lock file.
    Nothing in it comes from the copy: `program` is the manager by its absolute path, and the names
    of packages were parsed. `python` is the version of the project's environment."""
    recipe = recipe_of(action)
    assert recipe is not None
    words = _PLANNED[action.manager, action.operation]
    if _FROZEN.get((action.manager, action.operation)) in action.flags:
        words = ()
    flags = [] if (action.manager, action.operation) in _OTHER_WORDS else _harmless(action)
    names = said(action).names
    line = f"{shlex.quote(program)} {shlex.join([*words, *flags, *names])}"
    if recipe.kind == "pypi":
        line = _python_plan(action, program, python, [*words, *flags])
    environment = f"export {_NO_SCRIPTS} {_quiet(action)}"
    run = f"{{ {line}; }} > plan-output.txt 2>&1 || {{ tail -n 40 plan-output.txt >&2; exit 1; }}"
    after = f"{recipe.after} >&2" if action.names and recipe.after else "true"
    prints = "plan-output.txt" if recipe.lock == "uv-pip.txt" else " ".join(lock_paths(recipe.lock))
    steps = ("set -e", own, environment, *([run, after] if words else []))
    return "\n".join((*steps, f"cat {prints}"))


def _python_plan(action: Packages, program: str, python: str, words: list[str]) -> str:
    """Return the line that plans with pip or uv, in an environment of our own that knows what the
    project's has."""
    if action.manager == "uv" and action.operation != "pip install":
        names = said(action).names
        return f"{shlex.quote(program)} {shlex.join([*words, *names])} --python python3"
    made = (
        f"python=$(command -v python{python} || command -v python3)"
        ' && "$python" -m venv --without-pip ~/python'
        f" && mkdir -p {IN_ENVIRONMENT}"
        f" && cp -r {IN_ENVIRONMENT}/. ~/python/lib/python3.*/site-packages/"
    )
    files = f"-r {REQUIREMENTS} -c {CONSTRAINTS}"
    if action.manager == "uv":
        return f"{made} && VIRTUAL_ENV=~/python {shlex.quote(program)} {shlex.join(words)} {files}"
    # The environment gets its own pip if the system has none.
    pip = "python3 -I -m pip --python ~/python/bin/python"
    return (
        f"{made} && {{ python3 -I -m pip --version >/dev/null 2>&1"
        f' || "$python" -m venv ~/pip; }} && PATH="$HOME/pip/bin:$PATH"'
        f" && {pip} {shlex.join(words)} --only-binary=:all: {files}"
    )


def _harmless(action: Packages) -> list[str]:
    """Return a plan's flags: the known harmless ones, without files of requirements."""
    table, strange = managers()[action.manager], set(risky_flags(action))
    strange |= {_UNSAVED[1]} if is_unsaved(action) else set()
    found: list[str] = []
    for flag in action.flags:
        name, equals, value = flag.partition("=")
        if flag in strange | _GLOBAL or name in table.files or name == OTHER_ENVIRONMENT:
            continue
        found += [name, value] if equals and name in table.valued else [flag]
    return found


def pinned(locks: Locks) -> str:
    """Return a plan as a file of requirements: these versions, with their hashes if known."""
    rows = []
    for one in locks.values():
        hashed = f" --hash={one.integrity}" if one.integrity else ""
        rows.append(f"{one.name}=={one.version}{hashed}\n")
    return "".join(rows)


def run_script(
    action: Packages, own: str, *, scripts: bool, is_pinned: bool, environment: str = ""
) -> str:
    """Return the shell text that carries out what was approved. `scripts`: with install scripts.
    `is_pinned`: `PINNED` tells the manager to install what was planned, and nothing else.
    `environment` is the absolute path of the Python environment that pip changes, as planned."""
    recipe = recipe_of(action)
    words = words_of(action)
    pins = f"~/{PINNED}"
    if action.manager == "pip":
        words = words[3:] if words[1:2] == ["-m"] else words[1:]
        while OTHER_ENVIRONMENT in words:
            at = words.index(OTHER_ENVIRONMENT)
            words = words[:at] + words[at + 2 :]
        line = _by_pip(action, environment) + (
            f"install --no-deps --require-hashes -r {pins}" if is_pinned else shlex.join(words)
        )
        line += f"\n{_SAYS_WHERE}"
    else:
        last = _last_words(action, scripts=scripts)
        at = words.index("--") if "--" in words else len(words)
        line = shlex.join([*words[:at], *last, *words[at:]])
    if is_pinned and recipe is _UV_PIP:
        line = f"uv pip install --no-config --no-deps -r {pins}"
    after = (
        f"\n{recipe.after}"
        if recipe and recipe.after and action.operation in ("add", "remove")
        else ""
    )
    if recipe is not None and recipe.kind == "crates":
        own = f"{own}\n{_KEEPS_CRATES}"
    names = _SCRIPTS if scripts else _NO_SCRIPTS
    if action.manager == "uv":  # else it says that nobody finds its programs
        own = f'{own}\nexport PATH="$PATH:{INSTALLED}/uv/bin"'
    return f"set -e\n{own}\nexport {names} {_quiet(action)}\n{line}{after}"


def _quiet(action: Packages) -> str:
    return _QUIET_PNPM if action.manager == "pnpm" else _QUIET


def _last_words(action: Packages, *, scripts: bool) -> list[str]:
    if action.manager == "npm" and not scripts:
        return ["--ignore-scripts"]
    if action.manager != "pnpm":
        return []
    # Without a terminal pnpm takes a lock file for frozen.
    is_frozen = "--frozen-lockfile" in action.flags or action.operation != "install"
    words = [] if is_frozen else ["--no-frozen-lockfile"]
    return [*words, *(["--config.dangerously-allow-all-builds=true"] if scripts else _PNPM_ALONE)]


def _by_pip(action: Packages, environment: str) -> str:
    """Return the beginning of a line that runs pip in this environment; the system's pip installs
    into one without its own. It runs isolated, or a `pip.py` in the folder would be run instead.
    Without an environment, and if the command says nothing else, it installs for the home's
    python3, whatever a system says of its own (PEP 668)."""
    if environment:
        python = shlex.quote(f"{environment}/bin/python")
        gone = shlex.quote(f"there is no Python in the environment {environment}")
        return (
            f"if [ ! -x {python} ]; then echo {gone} >&2; exit 1; fi; set -- {python} -I -m pip;"
            ' if ! "$@" --version >/dev/null 2>&1; then'
            f' set -- python3 -I -m pip --python {python}; fi; "$@" '
        )
    at_home = "export PIP_USER=1 PIP_BREAK_SYSTEM_PACKAGES=1; " * (not _is_placed(action))
    return (
        f"{at_home}set -- python3 -I -m pip;"
        # Since Python 3.11: isolated, but for what the home has already.
        ' if python3 -P -c "" 2>/dev/null; then set -- python3 -P -m pip; fi; "$@" '
    )


def _is_placed(action: Packages) -> bool:
    """Return whether a command of pip says where it installs to."""
    return bool({flag.partition("=")[0] for flag in action.flags} & _PIP_FOLDERS)
