"""Git's remote helper `gatehouse`: fetches and pushes go through Gatehouse (gitremote-helpers(7)).

    list             asks for a fetch, or an ls-remote: what is there, and its objects
    list for-push    what the repository knows of the remote; nothing is asked
    fetch            the objects that the private copy has by now, taken from there
    push             asks for one push of all refs, and passes on the answer for each

Whatever is said here is judged by Gatehouse, the program's own words included. An address that the
workspace didn't have when the session began is left to git: `insteadOf` knows only beginnings.
"""

import os
import re
import shlex
import subprocess
import sys

sys.path.append(__file__.rpartition("/agent_image/")[0])
from agent_image.programs.door import ask, tell

WORKSPACE = "/workspace/merged"
CONFIG = "/etc/gatehouse/gitconfig"
# Git's own exit code where it gives up.
FATAL = 128
# Names that mean the same without `refs/heads/`, for every reader.
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\Z")
# Options whose value may be the next word, and object ids: what else stands there are no refs.
OTHER_WORDS = re.compile(
    r"--(?!all$|force$|no-|prune|quiet$|tags$|update-head|verbose$)|[0-9a-f]{40}"
)
# A line of `git push --porcelain` (git-push(1), OUTPUT) for a ref that wasn't moved.
REJECTED = re.compile(r"^!\t[^\t:]*:(refs/[^\t]+)\t\[[^\]]*\](?: \((.*)\))?$", re.MULTILINE)
WEB = re.compile(r"(https?)://")


class Remote:
    """One remote: `folder` is that of its repository in the workspace, `name` its name there."""

    def __init__(self, called, url, name, folder):
        self.called = called
        self.url = url
        self.name = name
        self.place = os.path.normpath(f"{WORKSPACE}/{folder}")
        self.folder = folder
        self.leases = {}
        self.is_dry = False
        self.words = words_of_git()

    def ask(self, *words):
        """Ask for a git command there. Return the fields of all lines of the answer."""
        command = shlex.join(["git", *words])
        body = {"command": command, "cwd": self.folder, "reason": shlex.join(self.words)[:2000]}
        found = {}
        for line in ask("/v1/git", body):
            for text in line.get("err", "").splitlines():
                if words[0] == "push" and text.startswith("remote: "):
                    print(text, file=sys.stderr, flush=True)
                elif words[0] != "push":
                    tell(text)
            found |= line
        return found

    @property
    def is_here(self):
        """Whether git runs in that repository itself, and not in another clone."""
        common = ("rev-parse", "--path-format=absolute", "--git-common-dir")
        here, there = git(*common), git(*common, at=self.place)
        return bool(here) and os.path.realpath(here) == os.path.realpath(there)

    # -- fetching ----------------------------------------------------------------------------------

    def list(self):
        """Ask what there is, and print it."""
        operation, refs = wanted(self.words)
        found = self.ask(operation, self.name, *refs)
        if found["exit"] != 0:
            give_up(found)
        ids, symbolic, peeled = (found.get(key, {}) for key in ("refs", "symbolic", "peeled"))
        for ref in sorted(ids):
            target = symbolic.get(ref)
            print(f"@{target}" if target in ids else ids[ref], ref)
            if ref in peeled:
                print(peeled[ref], f"{ref}^{{}}")

    def fetch(self, refs):
        """Have these objects, ids by ref, in the repository that git runs in."""
        for is_last in (False, True):
            missing = missing_of(refs.values())
            if missing and not self.is_here:
                there = set(missing) - set(missing_of(missing, at=self.place))
                carry(there, source=self.place, target=None)
                missing = missing_of(missing)
            if not missing:
                return
            if is_last:
                tell(f"{missing[0]} isn't among what came")
                sys.exit(FATAL)
            found = self.ask("fetch", self.name, *(ref for ref in refs if refs[ref] in missing))
            if found["exit"] != 0:
                give_up(found)

    # -- pushing -----------------------------------------------------------------------------------

    def list_for_push(self):
        """Print the remote's branches as the repository knows them."""
        start = f"refs/remotes/{self.called}/"
        for line in git("for-each-ref", "--format=%(objectname) %(refname)", start).splitlines():
            oid, _, ref = line.partition(" ")
            if ref != f"{start}HEAD":
                print(oid, f"refs/heads/{ref.removeprefix(start)}")

    def push(self, wishes):
        """Push these, (is forced, source, target), and print what became of each."""
        targets = [target for _, _, target in wishes]
        if self.is_dry:
            report({}, targets)
            return
        words = [
            f"--force-with-lease={ref}:{oid}" for ref, oid in self.leases.items() if ref in targets
        ]
        if words:
            words.append("--force")
        is_here = self.is_here
        words.append(self.name)
        for is_forced, source, target in wishes:
            words.append(("+" if is_forced else "") + self.spelled(source, target, is_here=is_here))
        found = self.ask("push", *words)
        said = found.get("out", "")
        rejected = dict(REJECTED.findall(said))
        if found["exit"] == 0:
            report({}, targets)
            return
        if rejected:  # of several, all move or none
            report(dict.fromkeys(targets, "nothing was pushed") | rejected, targets)
            return
        why = " ".join(str(found["why"]).split())
        said = {target: as_git_says(why, target) for target in targets}
        if found.get("remedy") and why in said.values():
            tell(found["remedy"])
        report(said, targets)

    def spelled(self, source, target, *, is_here):
        """Return one refspec as a person would write it. From another clone its commits are taken
        along, and named by their ids."""
        if not source:
            return f":{target}"
        if source == "HEAD":
            source = git("rev-parse", "--symbolic-full-name", "HEAD") or source
        if not is_here or not source.startswith("refs/"):
            oid = git("rev-parse", "--verify", "--quiet", source)
            if not is_here:
                carry([oid], source=None, target=self.place)
            return f"{oid}:{target}"
        if source != target:
            return f"{source}:{target}"
        name = source.removeprefix("refs/heads/")
        is_plain = PLAIN.match(name) and name != source
        if is_plain and not git("for-each-ref", "--count=1", f"refs/tags/{name}"):
            return name
        return source


def as_git_says(why, target):
    """Return a reason as git knows it from a remote, so that it says its own words."""
    if why.startswith("the remote has all of this already"):
        return "up to date"
    if "has commits at the remote that yours lacks" in why:
        return "fetch first" if f"`{target}`" in why else "nothing was pushed"
    if why.startswith("stale info"):
        return "stale info"
    return why


def report(rejected, targets):
    """Print what became of each target."""
    for target in targets:
        if target in rejected:
            print("error", target, rejected[target] or "rejected")
        else:
            print("ok", target)


def give_up(found):
    """Say why nothing is fetched, and end as git does."""
    tell("; ".join(filter(None, (found["why"], found.get("remedy")))))
    sys.exit(FATAL)


# -- git -------------------------------------------------------------------------------------------


def git(*words, at=None, data=None):
    """Return what a git command prints, stripped; empty where it fails. `at`: in the repository of
    this folder, else in the one that git runs in."""
    done = subprocess.run(
        ["git", *words],
        cwd=at,
        env=environment_at(at),
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def environment_at(folder):
    """Return the environment of a git in another folder: nothing names this repository there."""
    if folder is None:
        return None
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name == "GIT_PROTOCOL"
    }


def missing_of(oids, at=None):
    """Return those of these objects that a repository hasn't."""
    said = git("cat-file", "--batch-check", at=at, data="".join(f"{one}\n" for one in oids))
    if not said:
        return list(oids)
    return [line.split(" ")[0] for line in said.splitlines() if line.endswith(" missing")]


def carry(oids, *, source, target):
    """Take what these objects reach from one repository of the sandbox to another."""
    has = git("for-each-ref", "--format=%(objectname)", at=target).split()
    unknown = set(missing_of(has, at=source)) if has else set()
    known = [one for one in has if one not in unknown]
    wished = "".join(f"{one}\n" for one in [*oids, *(f"^{one}" for one in known)])
    pack = ["git", "pack-objects", "--revs", "--stdout", "--quiet"]
    with (
        subprocess.Popen(
            pack,
            cwd=source,
            env=environment_at(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as giving,
        subprocess.Popen(
            ["git", "index-pack", "--stdin"],
            cwd=target,
            env=environment_at(target),
            stdin=giving.stdout,
            stdout=subprocess.DEVNULL,
        ),
    ):
        giving.stdin.write(wished.encode())
        giving.stdin.close()


def words_of_git():
    """Return the command line of the git that a program started: a hint, no more."""
    found, process = ["git"], os.getppid()
    for _ in range(8):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:  # noqa: PTH123
                words = os.fsdecode(file.read()).split("\0")[:-1]
            with open(f"/proc/{process}/stat") as file:  # noqa: PTH123
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if not words or os.path.basename(words[0]) != "git":  # noqa: PTH119
            if found != ["git"]:
                break
        elif "remote-gatehouse" not in words:
            found = ["git", *words[1:]]
            if words[1:2] == ["fetch"]:  # of a pull, the fetch says what is wanted
                break
    return found


def wanted(words):
    """Return the operation that a command line reads the remote for, and the refs that it names."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-c", "-C", "--git-dir", "--work-tree", "--namespace"):
            next(rest, None)
        elif not word.startswith("-"):
            operation = word
            break
    else:
        operation = "fetch"
    if operation in ("ls-remote", "remote"):
        return "ls-remote", []
    refs, rest = [], list(rest)
    named = [one for one in rest if not one.startswith("-")][1:]
    for before, word in zip(["", *named], named, strict=False):
        source = word.removeprefix("+").partition(":")[0]
        if before == "tag":
            source = f"refs/tags/{source}"
        if word != "tag":
            refs.append(source)
    is_plain = operation == "fetch" and all(PLAIN.match(one) and one != "HEAD" for one in refs)
    if not is_plain or any(map(OTHER_WORDS.match, rest)):
        refs = []  # all branches, then
    return "fetch", refs


def known_remote(called, url):
    """Return the remote that the workspace has at this address; None where it has none."""
    address = url.rstrip("/").removesuffix(".git").rstrip("/")
    said = git("config", "--file", CONFIG, "--get-all", f"gatehouse.{address}.known", at="/")
    here = os.getcwd()  # noqa: PTH109
    found = [Remote(called, url, *line.split(" ", 1)) for line in said.splitlines()]
    found.sort(key=lambda one: one.place != here)
    if found and ":" not in url and not url.startswith("/") and not found[0].is_here:
        return None  # a path that means another place here
    return found[0] if found else None


# -- what isn't ours -------------------------------------------------------------------------------


def leave_to_git(called, url):
    """Go on as git would for an address that Gatehouse has no part in."""
    if scheme := WEB.match(url):
        os.execvp("git", ["git", f"remote-{scheme[1]}", called, url])
    path = url.removeprefix("file://")
    if not path.startswith("/") and ":" in path.partition("/")[0]:
        tell(
            f"`{url}` is no remote that the workspace had when the session began, and only https"
            " is reached from here; ask for it by an https address"
        )
        sys.exit(FATAL)
    for line in lines():
        if line == "capabilities":
            answer("connect\n")
        elif line.startswith("connect git-"):
            answer("")
            service = line.removeprefix("connect git-")
            env = environment_at(path)
            os.execvpe("git", ["git", service, path], env)


# -- the protocol ----------------------------------------------------------------------------------


def lines():
    """Yield git's lines; nothing more is read than these."""
    with open(0, "rb", buffering=0, closefd=False) as given:
        while line := given.readline():
            yield os.fsdecode(line.rstrip(b"\n"))


def answer(text):
    """Print a whole answer."""
    print(text, flush=True)


def batches():
    """Yield git's commands, those of a batch together."""
    batch = []
    for line in lines():
        if line.startswith(("fetch ", "push ")):
            batch.append(line)
        else:
            yield batch or [line]
            batch = []


def serve(remote):
    """Do what git asks, until it has no more."""
    for batch in batches():
        command, _, rest = batch[0].partition(" ")
        if command == "capabilities":
            print("fetch\npush\noption")
        elif command == "option":
            answer(option(remote, *rest.split(" ", 1)))
            continue
        elif command == "list":
            (remote.list_for_push if rest else remote.list)()
        elif command == "fetch":
            pairs = (line.split(" ", 2)[1:] for line in batch)
            remote.fetch({ref: oid for oid, ref in pairs})
        elif command == "push":
            remote.push([wish(line.removeprefix("push ")) for line in batch])
        elif not command:
            return
        answer("")


def wish(refspec):
    """Return whether it is forced, source and target."""
    source, _, target = refspec.removeprefix("+").partition(":")
    return refspec.startswith("+"), source, target


def option(remote, name, value=""):
    """Set an option of git's; the answer says whether it is one that is known here."""
    if name == "dry-run":
        remote.is_dry = value == "true"
    elif name == "cas":
        ref, _, oid = value.rpartition(":")
        remote.leases[ref] = oid
    elif name not in ("progress", "verbosity", "atomic"):
        return "unsupported"
    return "ok"


def main():
    """Serve git, whose arguments are the remote's name and address."""
    called, url = sys.argv[1], sys.argv[-1]
    remote = known_remote(called, url)
    if remote is None:
        leave_to_git(called, url)
    else:
        serve(remote)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        tell(f"git's remote helper failed: {error!r}")
        sys.exit(FATAL)
