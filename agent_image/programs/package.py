"""Hand a package manager's words to Gatehouse, which asks and runs them, and print what comes.

`package_manager` starts this with the real program, with pip's own folder where pip started it, and
with the words. What fetches only what is missing (`cargo build`, `npx`) starts its program once
that is there; what Gatehouse leaves alone starts the real one. It believes nothing: whatever it
sends is judged like any ask of the session's.
"""

import os
import sys

PATH = "/v1/run-package"
# Cargo's verbs that need all packages, and fetch those that are missing.
BUILDS = ("build", "b", "check", "c", "test", "t", "run", "r", "bench", "doc", "d", "clippy", "fix")
BUILDS += ("rustc", "rustdoc")

# Managers, and verbs, that run a package's program: `run_once` knows more.
RUNS = ("npx", "pnpx", "bunx", "uvx", "exec", "x", "dlx", "tool", "init", "innit", "create", "c")

NOTHING_ELSE = (("npm", "exec"), ("npm", "x"))

# What names an index to managers.
INDEX = ("npm_config_registry", "YARN_REGISTRY", "YARN_NPM_REGISTRY_SERVER", "UV_DEFAULT_INDEX")
INDEX += ("GOPROXY",)


def main(real, runner, name, *words):
    """Do what the words say; return the exit code."""
    verb = next((one for one in words if not one.startswith(("-", "+"))), "")
    ours = taken_index()
    own = ("pip" if runner else name, *words)
    if name == "cargo" and verb in BUILDS:
        first = missing_crates(real, words)
    elif name == "go" and verb not in ("get", "install", "mod"):
        first = missing_modules(real)
    elif name == "uv" and verb in ("run", "sync"):
        first = missing_wheels(real, words if verb == "sync" else ("sync",))
    elif name in RUNS or verb in RUNS:
        from agent_image.programs.run_once import program_of

        if program := program_of(name, words):
            return run(program)
        first = None if name in RUNS or (name, verb) in NOTHING_ELSE else own
    else:
        first = own
    code = asked(first, environment(runner)) if first else None
    if code is None or (code == 0 and first != own):
        if first == own:  # Gatehouse knows no more than that it isn't one of its operations
            os.environ.update(ours)
        return start(real, runner, words)
    return code


def run(program):
    """Run the program of a package, once what it needs is there."""
    missing = program.missing()
    code = asked(missing) if missing else 0
    if code == 0 and (path := program.path()):
        try:
            return os.execv(path, [path, *program.words])
        except OSError:  # no first line says what runs it: a shell does
            return os.execv("/bin/sh", ["sh", path, *program.words])
    if not code:
        print(f"{program.command}: no program of what is installed", file=sys.stderr)
    return code or 127


def asked(words, environment=""):
    """Ask for a manager's words; return its exit code, None where Gatehouse has nothing to ask."""
    from agent_image.programs.door import ask, tell

    body = {"words": words, "cwd": os.environ["PWD"], "environment": environment}
    for line in ask(PATH, body):
        if line.get("plain"):
            return None
        for stream, key in ((sys.stdout, "out"), (sys.stderr, "err")):
            stream.write(line.get(key, ""))
            stream.flush()
        if "why" in line:
            tell("; ".join(filter(None, (line["why"], line.get("remedy")))))
    return line["exit"]


def start(real, runner, words):
    """Become the real program."""
    if not real:
        print(f"{sys.argv[3]}: command not found", file=sys.stderr)
        return 127
    os.environ.pop("PIP_PYTHON", None)
    return os.execv(real, [real, *([runner] if runner else []), *words])


def taken_index():
    """Take the index of managers that are started around Gatehouse out of the environment, and
    return it."""
    own = "http://127.0.0.1:3702/"
    found = {
        one: value for one, value in os.environ.items() if one in INDEX and value.startswith(own)
    }
    for one in found:
        del os.environ[one]
    return found


def environment(runner):
    """Return the folder of the environment that pip is meant for; empty where it is none."""
    folder = runner.partition("/lib/python3")[0] if runner else os.environ.get("VIRTUAL_ENV", "")
    return folder if folder and os.access(f"{folder}/pyvenv.cfg", os.R_OK) else ""


def values(words, *options):
    """Return the values of an option among words, in either form."""
    found = [words[at + 1] for at, one in enumerate(words[:-1]) if one in options]
    return found + [
        one.partition("=")[2] for one in words if one.partition("=")[0] in options and "=" in one
    ]


def missing_crates(real, words):
    """Return what fetches the crates of a build that aren't there."""
    at = [f"--manifest-path={one}" for one in values(words, "--manifest-path")]
    return ("cargo", "fetch") if fails([real, "fetch", "--offline", *at], "offline") else None


def missing_modules(real):
    """Return what fetches the modules of a build that aren't there."""
    listed = ["env", "GOPROXY=off", real, "list", "-deps", "-test", "./..."]
    return ("go", "mod", "download") if fails(listed, "GOPROXY=off") else None


def missing_wheels(real, words):
    """Return what fetches the packages of a project of uv, if its environment isn't complete."""
    checked = fails([real, *words, "--offline", "--check"], "")
    return ("uv", *words) if checked else None


def fails(command, because):
    """Return whether a command fails, and says so."""
    if not command[0]:
        return False
    import subprocess

    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode != 0 and because.encode() in done.stderr


if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/agent_image/")[0])
    try:
        os.environ["PWD"] = os.path.realpath(".")
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os._exit(141)
