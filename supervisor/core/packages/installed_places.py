"""Where installs outside of a project go: two folders in a session's home. Pure.

Only approved installs that run no code of the project's or the home's write there; the agent and
its commands read. So no install runs what an agent put there: a plugin of gem, a `.pth` file, npm's
own configuration. Sources: the manuals of the managers.
"""

HOME = "/home/agent/"
INSTALLED = f"{HOME}.installed"
# What managers keep of what they fetched. It may be one for all sessions of a workspace.
FETCHED = f"{HOME}.packages"
# Crates as cargo keeps them below its own home, and where a home has a link to them.
CRATES = "crates"
CRATES_LINK = (".cargo/registry", f"{FETCHED}/{CRATES}")
PROGRAMS = tuple(
    f"{INSTALLED}/{one}"
    for one in ("npm/bin", "pnpm", "python/bin", "cargo/bin", "go/bin", "gem/bin", "uv/bin")
)
ENVIRONMENT = {
    "npm_config_prefix": f"{INSTALLED}/npm",
    "PNPM_HOME": f"{INSTALLED}/pnpm",
    "PYTHONUSERBASE": f"{INSTALLED}/python",
    "CARGO_INSTALL_ROOT": f"{INSTALLED}/cargo",
    "GEM_HOME": f"{INSTALLED}/gem",
    "UV_TOOL_DIR": f"{INSTALLED}/uv/tools",
    "UV_TOOL_BIN_DIR": f"{INSTALLED}/uv/bin",
    "GOMODCACHE": f"{FETCHED}/go",
}
OF_INSTALLS = {
    "GOBIN": f"{INSTALLED}/go/bin",
    "npm_config_cache": f"{FETCHED}/npm",
    "PIP_CACHE_DIR": f"{FETCHED}/pip",
    "UV_CACHE_DIR": f"{FETCHED}/uv",
}
# Of an install that changes nothing there.
THROWN_AWAY = {
    one: f"/tmp/gatehouse-{one.lower()}"  # noqa: S108 - the sandbox's own tmpfs
    for one in ("npm_config_cache", "PIP_CACHE_DIR", "UV_CACHE_DIR")
}
