"""The proxies that `egress` is compared with, started by default and allowing everything.

squid and tinyproxy are left out where they aren't installed, sandbox-runtime where npm can't
install it. Each is a context that gives the `Way` through it.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from bench._egress_ours import HOST
from supervisor.base.process import spawn

# The one that was measured when the limits were set.
SANDBOX_RUNTIME = "0.0.78"


class Way(NamedTuple):
    """How a client reaches the origins: by a proxy's port (None: directly), trusting this
    authority."""

    name: str
    port: int | None
    trust: Path
    pid: int | None = None


def rivals(folder: Path) -> list[contextlib.AbstractAsyncContextManager[Way]]:
    """Return the installed proxies that pass TLS on. Each lets everything through and logs
    nothing."""
    found = []
    squid, tinyproxy = (
        shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin")
        for name in ("squid", "tinyproxy")
    )
    if squid:
        settings = (
            "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log"
            " none\ncache_log /dev/null\npid_filename none\nshutdown_lifetime 0 seconds\n"
        )
        found.append(
            _daemon(folder, "squid", [squid, "-n", "gatehousebench", "-N", "-f"], settings)
        )
    if tinyproxy:
        settings = (
            "Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 500\nDisableViaHeader"
            " Yes\nLogLevel Critical\n"
        )
        found.append(_daemon(folder, "tinyproxy", [tinyproxy, "-d", "-c"], settings))
    for name, program in (("squid", squid), ("tinyproxy", tinyproxy)):
        if not program:
            print(f"{name} is not installed and left out", file=sys.stderr)
    return found


@contextlib.asynccontextmanager
async def _daemon(folder: Path, name: str, command: list[str], settings: str) -> AsyncIterator[Way]:
    port = _free_port()
    file = folder / f"{name}.conf"
    file.write_text(settings.format(port=port))
    child = await spawn([*command, str(file)], env={"PATH": os.defpath, "HOME": str(folder)})
    try:
        await _listening(port)
        yield Way(name, port, folder / "origin-ca.pem", child.pid)
    finally:
        child.kill_tree()
        child.close()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def _listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def mitmdump(folder: Path) -> AsyncIterator[Way]:
    """Start mitmdump, stock and quiet."""
    port = _free_port()
    program = Path(sys.executable).parent / "mitmdump"
    options = (
        "--set",
        f"confdir={folder / 'mitm'}",
        "--set",
        f"ssl_verify_upstream_trusted_ca={folder / 'origin-ca.pem'}",
    )
    child = await spawn(
        [program, "-q", "--listen-host", "127.0.0.1", "--listen-port", str(port), *options],
        env={"PATH": os.defpath, "HOME": str(folder)},
    )
    try:
        await _listening(port)
        yield Way("mitmdump", port, folder / "mitm" / "mitmproxy-ca-cert.pem", child.pid)
    finally:
        child.close()


def sandbox_runtime(folder: Path) -> list[contextlib.AbstractAsyncContextManager[Way]]:
    """Return the proxies of sandbox-runtime as its manager starts them: one that passes TLS on, one
    that ends it. Empty where it isn't available."""
    package = installed(f"@anthropic-ai/sandbox-runtime@{SANDBOX_RUNTIME}")
    return (
        []
        if package is None
        else [_sandbox_runtime(folder, package, mode) for mode in ("LEAVE", "TERMINATE")]
    )


def installed(package: str) -> Path | None:
    """Return where npm put a package, in a cache of ours; None, with a message, where it can't."""
    name = package.rpartition("@")[0]
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "gatehouse-bench"
        / package.replace("/", "-")
    )
    found = cache / "node_modules" / name
    why = None if shutil.which("npm") and shutil.which("node") else "npm or node is missing"
    if why is None and not (found / "package.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(cache),
            package,
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            why = None if done.returncode == 0 else "npm can't install it"
        except (OSError, subprocess.TimeoutExpired):
            why = "npm can't install it"
    if why is not None:
        print(f"sandbox-runtime is left out: {why}", file=sys.stderr)
    return found if why is None else None


@contextlib.asynccontextmanager
async def _sandbox_runtime(folder: Path, package: Path, mode: str) -> AsyncIterator[Way]:
    port, trust = _free_port(), folder / "origin-ca.pem"
    program = [
        "node",
        str(Path(__file__).with_name("_egress_srt.mjs")),
        str(package),
        str(port),
        mode,
    ]
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(trust)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        try:
            certificate = (await asyncio.to_thread(child.stdout.readline)).strip()
            await _listening(port)
            yield Way(
                "sandbox-runtime", port, Path(certificate) if certificate else trust, child.pid
            )
        finally:
            child.terminate()
