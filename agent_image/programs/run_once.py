"""Programs of packages that nobody installed by name: npx, `pnpm dlx`, bunx, uvx and their like.

A program that is there is started. For any other its package is installed into the session's home,
by npm or uv, which is a request as any install; then its program is started.
"""

import json
import os
import re

RUNNERS = ("npx", "pnpx", "bunx", "uvx")
VERBS = ("npm exec", "npm x", "pnpm dlx", "yarn dlx", "bun x", "uv tool run")
# These make a project by a package that has another name than they are given.
CREATE = (
    "npm init",
    "npm innit",
    "npm create",
    "pnpm create",
    "yarn create",
    "bun create",
    "bun c",
)
# With these nothing is fetched, or a shell is asked for.
OTHERS = ("--no", "--no-install", "--offline", "-c", "--call", "--shell-mode")
SPEC = re.compile(r"(@[^/@]+/[^/@]+|[^@=<>~!\[]+)(?:\[[^\]]*\])?(?:(?:@|==)(.*))?")


class Program:
    """A program that is to run. `packages` are those that were named for it, `more` are options of
    its install, `words` its own words. With `takes_all`, options up to `--` are the manager's."""

    def __init__(self, manager, words, takes_all):
        self.manager = manager
        self.packages, self.more, rest = [], [], []
        self.is_known = True
        words = list(words)
        named = ("--from",) if manager == "uv" else ("-p", "--package")
        while words and (takes_all or not rest):
            word = words.pop(0)
            option, equals, value = word.partition("=")
            if word == "--":
                break
            if option in (*named, "--with", "--python", "-p") and word.startswith("-"):
                value = value if equals else "".join(words[:1])
                words = words if equals else words[1:]
                if option in named:
                    self.packages.append(value)
                else:
                    self.more += [option, value]
            elif not word.startswith("-"):
                rest.append(word)
            self.is_known = self.is_known and option not in OTHERS
        rest += words
        self.command, self.words = "".join(rest[:1]), rest[1:]
        self.is_known = bool(self.is_known and re.match(r"[\w@]", self.command))

    def missing(self):
        """Return the words that install what isn't there; none where all is."""
        if not self.packages and self.manager == "npm" and local(self.command):
            return ()
        wanted = [one for one in self.packages or [self.command] if not self._has(one)]
        if not wanted:
            return ()
        if self.manager == "npm":
            return ("npm", "install", "-g", *wanted)
        name, version = parts(wanted[0])
        spec = f"{name}=={version}" if version else wanted[0].removesuffix("@latest")
        return ("uv", "tool", "install", *self.more, spec)

    def path(self):
        """Return the program's path; empty where it isn't there."""
        if self.manager == "uv":
            return executable(os.environ.get("UV_TOOL_BIN_DIR", ""), parts(self.command)[0])
        found = local(self.command)
        if found or self.packages:
            return found
        name = parts(self.command)[0]
        programs = package(name).get("bin") or {}
        own = name.rpartition("/")[2]
        names = [own] if isinstance(programs, str) or own in programs else [*programs]
        return executable(f"{prefix()}/bin", names[0]) if len(names) == 1 else ""

    def _has(self, spec):
        name, version = parts(spec)
        if self.manager == "npm":
            found = package(name)
            return bool(found) and version in ("", found.get("version"))
        folder = f"{os.environ.get('UV_TOOL_DIR', '')}/{name}/lib"
        try:
            (python,) = os.listdir(folder)  # noqa: PTH208
            listed = os.listdir(f"{folder}/{python}/site-packages")  # noqa: PTH208
        except (OSError, ValueError):
            return False
        start = f"{name.replace('-', '_')}-{version}".lower()
        wanted = f"{start}.dist-info" if version else ".dist-info"
        return any(one.lower().startswith(start) and one.lower().endswith(wanted) for one in listed)


def program_of(name, words):
    """Return the program that a manager's words run so; None where they do something else."""
    if name in RUNNERS:
        found = Program("uv" if name == "uvx" else "npm", words, takes_all=False)
        return found if found.is_known else None
    plain = [one for one in words if not one.startswith(("-", "+"))]
    verb = plain[: 2 if name == "uv" else 1]
    line = " ".join((name, *verb))
    if line not in (*VERBS, *CREATE):
        return None
    rest = words[words.index(verb[-1]) + 1 :]
    found = Program("uv" if name == "uv" else "npm", rest, takes_all=name == "npm")
    if line in CREATE:
        found.is_known = found.is_known and ":" not in found.command and not found.packages
        found.command = creator(found.command)
    return found if found.is_known else None


def creator(name):
    """Return the package that `npm create NAME` means (npm-init(1))."""
    scope, slash, rest = name.partition("/") if name.startswith("@") else ("", "", name)
    if scope and not slash:
        name, version, number = scope[1:].partition("@")
        return f"@{name}/create{version}{number}"
    return f"{scope}{slash}create-{rest}"


def parts(spec):
    """Return name and version of a package, as it is written for npm or uv."""
    found = SPEC.match(spec)
    name, version = found.groups(default="") if found else (spec, "")
    return name, "" if version == "latest" else version


def prefix():
    """Return where npm puts packages of the session's home."""
    return os.environ.get("npm_config_prefix", "")  # noqa: SIM112 (npm's name)


def package(name):
    """Return what a package of npm in the session's home says of itself; empty where there is
    none."""
    path = f"{prefix()}/lib/node_modules/{name}/package.json"
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def local(name):
    """Return the path of a program of the project, or of the PATH; empty where there is none."""
    folder, places = os.environ["PWD"], []
    while folder:
        places.append(f"{folder}/node_modules/.bin")
        folder = folder.rpartition("/")[0]
    found = (executable(one, name) for one in (*places, *os.environ["PATH"].split(":")))
    return next(filter(None, found), "")


def executable(folder, name):
    """Return the path of a program in a folder; empty where it isn't there."""
    path = f"{folder}/{name}"
    is_there = folder and name and os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113
    return path if is_there else ""
