"""How each package manager is planned and run: shell texts for a tool sandbox.

    index_from   prints where packages come from, as the manager itself is configured
    plan    resolves in a throwaway folder, with nothing installed and no script run
    run     does what was approved, in the private copy

Sources: the manuals of the managers. Every word of the request is quoted; nothing of it is ever
read as shell.
"""

import shlex
from typing import Literal, NamedTuple

from supervisor.core.actions import Packages
from supervisor.core.packages.package_commands import manager_named, operation_named
from supervisor.core.text.words import split_command

type Kind = Literal["npm", "pypi", "crates", "go", "rubygems"]

# What marks the lock file in the output of a plan.
MARK = "--gatehouse-lock--"
# Prints the index that pip uses, and further ones.
_PIP_INDEX = (
    'python3 -c "from pip._internal.commands import create_command as c;'
    " o, _ = c('install').parse_args([]); print(o.index_url);"
    " print(*o.extra_index_urls, sep='\\n')\""
)
# No install scripts: of npm, pnpm, yarn (both) and bun; wheels alone of pip, uv and poetry.
_NO_SCRIPTS = (
    "npm_config_ignore_scripts=true YARN_IGNORE_SCRIPTS=true YARN_ENABLE_SCRIPTS=false"
    " PIP_ONLY_BINARY=:all: UV_NO_BUILD=1 POETRY_INSTALLER_ONLY_BINARY=:all:"
)
# npm since its eleventh version wants each script allowed by name.
_SCRIPTS = "npm_config_dangerously_allow_all_scripts=true"
_QUIET = (
    "PIP_RETRIES=1 npm_config_fetch_retries=1 npm_config_fetch_retry_mintimeout=500"
    " npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false"
    " PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 POETRY_NO_INTERACTION=1"
    " POETRY_VIRTUALENVS_IN_PROJECT=true"
    # Over plain HTTP cargo would ask for HTTP/2 in a way that proxies refuse.
    " YARN_ENABLE_TELEMETRY=0 CI=1 CARGO_HTTP_MULTIPLEXING=false"
)


class Recipe(NamedTuple):
    """How one manager is run.

    `index_from` prints where packages come from. `lock` is the file that says what is installed,
    `installed` another one that says it of the copy as it is. `plan_env` and `plan_flags`, which
    stand behind the operation, make the manager resolve and no more; `plan_after` runs behind it.
    """

    kind: Kind
    lock: str
    index_from: str
    installed: str = ""
    plan_env: str = ""
    plan_flags: tuple[str, ...] = ()
    plan_after: str = ""

    @property
    def is_report(self) -> bool:
        """Return whether `lock` is what a plan prints, and no file of the project's."""
        return self.lock in ("pip-report.json", "uv-pip.txt", "gem.txt")

    @property
    def installed_format(self) -> str:
        """Return the format of what says how the copy is, as `locks_in` names it."""
        return "package-lock.json" if self.installed else self.lock


_NPM_INDEX = "npm config get registry"
RECIPES: dict[str, Recipe] = {
    "npm": Recipe(
        "npm",
        "package-lock.json",
        _NPM_INDEX,
        installed="node_modules/.package-lock.json",
        plan_env="npm_config_package_lock_only=true",
    ),
    "pnpm": Recipe(
        "npm", "pnpm-lock.yaml", "pnpm config get registry", plan_flags=("--lockfile-only",)
    ),
    "yarn": Recipe(
        "npm",
        "yarn.lock",
        "yarn config get registry 2>/dev/null | grep ^http || yarn config get npmRegistryServer",
        plan_env="YARN_ENABLE_GLOBAL_CACHE=false",
    ),
    "bun": Recipe("npm", "bun.lock", _NPM_INDEX, plan_flags=("--lockfile-only",)),
    "pip": Recipe(
        "pypi",
        "pip-report.json",
        _PIP_INDEX,
        plan_flags=("--dry-run", "--quiet", "--report", "pip-report.json"),
    ),
    "uv": Recipe("pypi", "uv.lock", f"printenv UV_DEFAULT_INDEX UV_INDEX_URL || {_PIP_INDEX}"),
    "poetry": Recipe("pypi", "poetry.lock", _PIP_INDEX, plan_flags=("--lock",)),
    "cargo": Recipe(
        "crates",
        "Cargo.lock",
        # Cargo prints no URL of its index but where it can't be reached.
        'd=$(mktemp -d); cp -r .cargo "$d" 2>/dev/null; cd "$d"'
        "; cargo init -q --vcs none --name x . && echo 'itoa = \"*\"' >> Cargo.toml"
        "; env -u HTTPS_PROXY -u https_proxy -u HTTP_PROXY -u http_proxy"
        " CARGO_NET_RETRY=0 cargo generate-lockfile 2>&1 | grep -o 'https*://[^ `]*'"
        " | sed 's#config.json$##' | head -n 1",
        plan_after="cargo update --workspace",
    ),
    "go": Recipe(
        "go",
        "go.sum",
        "go env GOPROXY | tr ',|' '\\n\\n' | grep ^http; go env GOSUMDB"
        " | sed -n 's#^\\([a-z0-9.-]*\\).*#https://\\1/#p'",
        plan_env="GOFLAGS=-mod=mod",
    ),
    "gem": Recipe("rubygems", "gem.txt", "gem sources | grep ^http", plan_flags=("--explain",)),
}
# Operations whose plan needs other words than the command's own.
_PLAN_AS: dict[tuple[str, str], tuple[str, ...]] = {
    ("npm", "ci"): ("true",),
    ("uv", "sync"): ("uv", "lock"),
    ("poetry", "install"): ("true",),
    ("cargo", "fetch"): ("true",),
}
_UV_PIP = Recipe("pypi", "uv-pip.txt", RECIPES["uv"].index_from, plan_flags=("--dry-run",))
_GLOBAL = frozenset({"-g", "--global", "--location=global", "--user", "--user-install"})
_ELSEWHERE = {
    ("cargo", "install"),
    ("cargo", "uninstall"),
    ("go", "install"),
    ("uv", "tool install"),
}
_GEM_FOLDER = ("--install-dir", "-i")


def recipe_of(action: Packages) -> Recipe | None:
    """Return how the action's manager is run; None where it isn't known."""
    if action.manager == "uv" and action.operation.startswith("pip "):
        return _UV_PIP
    return RECIPES.get(action.manager)


def why_not(action: Packages) -> str:
    """Return why an install has no effect that lasts: it would go to a home folder, which ends
    with the command. Empty where it stays in the private copy."""
    names = {flag.partition("=")[0] for flag in action.flags} | set(action.flags)
    is_elsewhere = (
        bool(names & _GLOBAL)
        or (action.manager, action.operation) in _ELSEWHERE
        or (action.manager == "gem" and not names & set(_GEM_FOLDER))
    )
    return (
        "it installs outside of the project, in a home folder that ends with the command"
        * is_elsewhere
    )


def words_of(action: Packages) -> list[str]:
    """Return the words of the manager's command."""
    if action.command is not None:
        return split_command(action.command)
    return [action.manager, *action.operation.split(), *action.flags, *action.names]


def index_script(recipe: Recipe, action: Packages, own: str) -> str:
    """Return the shell text that prints every index, one a line. `own` is `home_config`."""
    scopes = {name.partition("/")[0] for name in action.names if name.startswith("@")}
    more = [
        f"npm config get {shlex.quote(scope)}:registry | grep ^http || true"
        for scope in sorted(scopes)
        if recipe.kind == "npm"
    ]
    return "\n".join((own, recipe.index_from, *more))


def home_config(kind: Kind, index: str) -> str:
    """Return the shell text that makes the person's own index what the sandbox's managers know,
    below what the project says itself."""
    quoted = shlex.quote(index)
    if kind == "npm" and index:
        return f"printf 'registry=%s\\n' {quoted} > ~/.npmrc"
    if kind == "pypi" and index:
        return (
            "mkdir -p ~/.config/pip && printf '[global]\\nindex-url = %s\\n'"
            f" {quoted} > ~/.config/pip/pip.conf"
        )
    return ":"


def plan_script(recipe: Recipe, action: Packages, own: str) -> str:
    """Return the shell text that resolves in a throwaway folder, and prints the state before and
    after, each behind `MARK`."""
    # A lock file that isn't there, or a report, is no state: everything is new then.
    before = f"cat {recipe.installed or recipe.lock} 2>/dev/null || true"
    if recipe.is_report:
        before = "true"
    words = _PLAN_AS.get((action.manager, action.operation)) or _with_flags(
        action, recipe.plan_flags + _plan_flags(action)
    )
    line = _environment(f"{_NO_SCRIPTS} {recipe.plan_env}", _in_project(action, words))
    prints = recipe.lock in ("uv-pip.txt", "gem.txt")
    after = recipe.plan_after if action.operation in ("add", "remove", "fetch") else ""
    return "\n".join(
        (
            "set -e",
            own,
            'd=$(mktemp -d "${TMPDIR:-/tmp}/plan.XXXXXX")',
            "project=$PWD",
            "tar --exclude=./node_modules --exclude=./.git --exclude=./target --exclude=./.venv"
            ' --exclude=./venv -cf - . | tar -C "$d" -xf -',
            f"echo {MARK}; {before}; echo; echo {MARK}",
            'cd "$d"',
            # What isn't copied is still the environment that it would install into.
            '[ ! -d "$project/.venv" ] || export VIRTUAL_ENV="$project/.venv"'
            if recipe is _UV_PIP
            else ":",
            f"{line} > plan-output.txt 2>&1 || {{ tail -n 40 plan-output.txt >&2; exit 1; }}",
            f"{after or 'true'} >&2",
            "cat plan-output.txt" if prints else f"cat {recipe.lock}",
        )
    )


def _plan_flags(action: Packages) -> tuple[str, ...]:
    """Return the flags that keep one operation from installing."""
    if action.manager == "uv" and action.operation in ("add", "remove"):
        return ("--no-sync",)
    return ()


def run_script(action: Packages, own: str, *, scripts: bool) -> str:
    """Return the shell text that does what was approved. `scripts`: with install scripts."""
    line = _in_project(action, tuple(words_of(action)))
    recipe = recipe_of(action)
    after = (
        f"\n{recipe.plan_after}"
        if recipe and recipe.plan_after and action.operation in ("add", "remove")
        else ""
    )
    line = _environment(_SCRIPTS if scripts else _NO_SCRIPTS, line)
    return f"set -e\n{own}\nproject=$PWD\n{line}{after}"


def lock_script(recipe: Recipe) -> str:
    """Return the shell text that prints the lock file as it is now; nothing where a plan's output
    was the only one."""
    file = recipe.installed or recipe.lock
    return f"cat {file} 2>/dev/null || cat {recipe.lock} 2>/dev/null || true"


def _with_flags(action: Packages, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with further flags behind its operation."""
    words = words_of(action)
    count = len(action.operation.split())
    for at in range(1, len(words)):
        said = " ".join(words[at : at + count])
        if operation_named(action.manager, said) == action.operation:
            return (*words[: at + count], *flags, *words[at + count :])
    return (*words, *flags)


def _in_project(action: Packages, words: tuple[str, ...]) -> str:
    """Return the line; pip means the environment of the project, where there is one."""
    quoted = shlex.join(words)
    if action.manager != "pip":
        return quoted
    rest = words[3:] if words[1:2] == ("-m",) else words[1:]
    assert manager_named(words[0].rpartition("/")[2]) == "pip" or words[1:2] == ("-m",)
    return (
        '"$(for d in .venv venv; do if [ -x "$project/$d/bin/python" ]; then echo'
        ' "$project/$d/bin/python"; exit; fi; done; echo python3)"'
        f" -m pip {shlex.join(rest)}"
    )


def _environment(names: str, line: str) -> str:
    return f"env {names} {_QUIET} {line}"
