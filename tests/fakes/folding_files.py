"""A file system that takes several spellings of a name for one, as the disks of other systems do: a
real one, by FUSE.

It passes everything on to a folder, but for names: `case` finds a name in any case and keeps the
one it was made with (NTFS, ext4 with casefold), `apfs` in any case and Unicode form, `nfc` and
`nfd` keep every name composed or decomposed and find it in both forms (as servers do, and HFS+
did). It is a process of its own, so that the kernel's waiting for it never stops a test.
"""

import contextlib
import ctypes.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = ("case", "apfs", "nfc", "nfd")
ROOT = Path(__file__).resolve().parents[2]
MOST_WAITS = 500


@contextlib.contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """Such a file system over a new folder; pytest.skip with what stands in the way."""
    why = why_not()
    if why:
        pytest.skip(why)
    source, place = folder / f"{kind}-source", folder / f"on-{kind}"
    source.mkdir()
    place.mkdir()
    command = [sys.executable, "-m", "tests.fakes.folding_server", kind, str(source), str(place)]
    library = os.environ | {"FUSE_LIBRARY_PATH": ctypes.util.find_library("fuse3") or ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=library, text=True, **pipes) as server:
        try:
            for _ in range(MOST_WAITS):
                if os.path.ismount(place) or server.poll() is not None:
                    break
                time.sleep(0.01)
            if not os.path.ismount(place):
                server.kill()
                pytest.skip(
                    f"this machine can't mount by FUSE: {server.communicate()[0].strip()[-200:]}"
                )
            yield place
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
            server.terminate()


def why_not() -> str:
    """What such a file system needs and this machine doesn't have; empty where it has all."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse on this machine"
    if ctypes.util.find_library("fuse3") is None:
        return "no libfuse3 on this machine"
    return "" if os.geteuid() == 0 else "mounting a file system needs root"
