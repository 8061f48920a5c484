"""What egress gives up before it serves anybody: nobody of the same user reads its memory, it
leaves no image of it, and what it starts gains no rights."""

import subprocess
import sys

ASK = """
import ctypes, resource
from supervisor.egress.__main__ import harden
harden()
libc = ctypes.CDLL(None)
get_dumpable, get_no_new_privs = 3, 39
print(libc.prctl(get_dumpable, 0, 0, 0, 0), libc.prctl(get_no_new_privs, 0, 0, 0, 0))
print(*resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_it_is_hidden_from_processes_of_its_user_and_gains_no_rights() -> None:
    said = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["0 1", "0 0"]
