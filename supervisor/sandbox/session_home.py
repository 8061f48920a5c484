"""The home of a session's sandboxes: a folder on the host's disk, whose start-up and configuration
files are ours.

The names in `FILES` and `FOLDERS` are covered in every sandbox that shows a home: the agent has its
own of them, which end with its sandbox; a command sees them empty and read-only (`SCRATCH` apart).
So no command runs what an agent planted there.

INVARIANT: every sandbox with a home covers every name of `FILES` and `FOLDERS`. The kernel lets
nobody replace a mount point from the inside, so in the host's folder they stay the empty files and
folders that `prepare` made, and no later sandbox is mounted over a link of an agent's (law 4).
"""

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

# In a session's folder: the home, and what approved installs put there and fetched for it.
HOME_FOLDER, INSTALLED_FOLDER, FETCHED_FOLDER = "home", "installed", "packages"
# Read by shells and programs that start, relative to the home.
FILES = (
    *(".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"),
    *(".cshrc", ".inputrc", ".kshrc", ".login", ".mkshrc", ".tcshrc", ".xprofile", ".xsessionrc"),
    *(".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc"),
    *(".bunfig.toml", ".npmrc", ".pnpmrc", ".yarnrc", ".yarnrc.yml"),
    *(".npm-init.js", ".condarc", ".pydistutils.cfg", ".pypirc", ".pythonrc.py"),
    *(".mypy.ini", ".pdbrc", ".pylintrc"),
    *(".gemrc", ".irbrc", ".pryrc", ".rspec", ".mavenrc"),
    *(".git-credentials", ".gitattributes", ".gitconfig", ".gitignore", ".hgrc"),
    *(".curlrc", ".netrc", ".wgetrc", ".asdfrc", ".direnvrc", ".envrc", ".tool-versions"),
    *(".emacs", ".exrc", ".gdbinit", ".lldbinit", ".nanorc", ".screenrc", ".tmux.conf", ".vimrc"),
    *(".ackrc", ".gdbearlyinit", ".lessfilter", ".selected_editor", ".tigrc"),
    *(".antrc", ".bazelrc", ".erlang", ".ghci", ".iex.exs", ".latexmkrc", ".perldb", ".sbclrc"),
    *(".Renviron", ".Rprofile", ".ansible.cfg", ".my.cnf", ".psqlrc", ".sqliterc", ".terraformrc"),
)
# Folders that a home may have files and folders of ours in (`Spec.home_files`, `writable_binds`).
OURS = (
    ".claude",
    ".codex",
    ".config",
    ".data",
    ".gatehouse",
    ".installed",
    ".opencode",
    ".packages",
)
# In these a command may write, until it ends, but not under the names in `CLOSED`.
SCRATCH = (".ansible", ".cargo", ".config", ".gradle", ".ipython", ".m2")
FOLDERS = (
    *(*OURS, ".ansible", ".aws", ".bash_completion.d", ".bundle", ".cargo", ".docker", ".emacs.d"),
    *(".gnupg", ".gradle", ".ipython", ".kube", ".m2", ".node_libraries", ".node_modules", ".pip"),
    *(".rustup", ".ssh", ".terraform.d", ".vim"),
)
# Folders end with a slash.
CLOSED = (
    *(".cargo/config", ".cargo/config.toml", ".cargo/credentials.toml"),
    *(".gradle/gradle.properties", ".gradle/init.d/", ".gradle/init.gradle", ".m2/settings.xml"),
    *(".config/flake8", ".config/gitconfig", ".config/pylintrc", ".config/starship.toml"),
    *(
        f".config/{name}/"
        for name in (
            *(
                "bash",
                "bundle",
                "containers",
                "direnv",
                "environment.d",
                "fish",
                "gem",
                "git",
                "go",
            ),
            *("gdb", "gh", "irb", "mise", "mypy", "npm", "nvim", "pip", "pnpm", "pypoetry"),
            *("systemd", "tig", "uv", "vim", "yarn", "zsh"),
        )
    ),
)


def top_of(path: str) -> str:
    """Return the first name of a path below the home."""
    return path.partition("/")[0]


def prepare(home: Path) -> None:
    """Make the home, and the mount points for `FILES` and `FOLDERS` in it. What is there under such
    a name and is none gets another name. Only while no sandbox of the session's runs.

    An agent may have written in it: nothing here follows a link.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    make_folders(home, FOLDERS, FILES)


def make_folders(place: Path, folders: Iterable[str], files: Iterable[str] = ()) -> None:
    """Make these mount points in a folder that agents write to, and may have closed."""
    folder = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # A descriptor of a closed folder takes no `fchmod`.
        os.chmod(f"/proc/self/fd/{folder}", 0o700)  # noqa: PTH101
        for names, kind in ((files, stat.S_IFREG), (folders, stat.S_IFDIR)):
            for name in names:
                _make(folder, name, kind)
    finally:
        os.close(folder)


def _make(folder: int, name: str, kind: int) -> None:
    try:
        if stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode) == kind:
            return
    except FileNotFoundError:
        pass
    else:
        old = f"{name}.{secrets.token_hex(4)}"
        os.rename(name, old, src_dir_fd=folder, dst_dir_fd=folder)
    if kind == stat.S_IFDIR:
        os.mkdir(name, 0o700, dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(name, flags, 0o600, dir_fd=folder))
