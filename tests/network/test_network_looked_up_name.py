"""The name that is looked up is the one that was judged, whatever this machine adds to names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.network import network
from supervisor.settings import ROOT

# In a network of its own, with a name server that answers for a search list's names, and files that
# say so.
_SEARCHING = """
import asyncio, ctypes, fcntl, json, os, socket, struct, sys, threading
import dns.message, dns.rcode, dns.rrset
from pathlib import Path
from supervisor.base.clock import RealClock
from supervisor.egress.admission.resolver import Resolver

os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET | os.CLONE_NEWNS)
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))  # netdevice(7): SIOCSIFFLAGS
files = {
    "resolv.conf": "nameserver 127.0.0.1\\nsearch corp.test\\noptions ndots:5\\n",
    "nsswitch.conf": "hosts: files dns\\n",
    "hosts": "192.0.2.1 known.example.test\\n",
}
libc = ctypes.CDLL(None, use_errno=True)
for name, text in files.items():
    ours = Path(sys.argv[1], name)
    ours.write_text(text)
    if libc.mount(str(ours).encode(), b"/etc/" + name.encode(), None, 4096, None):  # MS_BIND
        raise OSError(ctypes.get_errno(), name)
asked = set()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))

def serve():
    while True:
        data, asker = server.recvfrom(2000)
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        (question,) = query.question
        asked.add(question.name.to_text())
        if not question.name.to_text().endswith(".corp.test."):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif question.rdtype == 1:
            answer.answer.append(dns.rrset.from_text(question.name, 60, 1, 1, "203.0.113.66"))
        server.sendto(answer.to_wire(), asker)

threading.Thread(target=serve, daemon=True).start()
resolver = Resolver(RealClock(), None)
found = [asyncio.run(resolver.addresses("s", name)) for name in ("api.example.test", "known.example.test")]
print(json.dumps([found, sorted(asked)]))
"""  # noqa: E501


@pytest.mark.parametrize("is_egress", [True, False])
def test_the_name_that_is_looked_up_is_the_one_that_was_judged(
    tmp_path: Path, is_egress: bool
) -> None:
    """Whatever this machine searches; another process of it finds another host."""
    env = network.egress_environment()
    if not is_egress:
        del env["LOCALDOMAIN"]
    command = [sys.executable, "-c", _SEARCHING, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr:
        pytest.skip("this machine makes no namespaces")
    assert done.returncode == 0, done.stderr
    (judged, known), asked = json.loads(done.stdout)
    assert known == ["192.0.2.1"], "/etc/hosts counts"
    assert judged == ([] if is_egress else ["203.0.113.66"])
    assert ("api.example.test.corp.test." in asked) != is_egress
