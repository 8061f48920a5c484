"""The program of an agent that floods each of its routes with what is longest to read."""

FLOOD = r"""
import os, threading, urllib.error, urllib.request

URL, TOKEN = os.environ["GATEHOUSE_URL"], os.environ["GATEHOUSE_TOKEN"]
MB = 1 << 20
many = b'{"a":[' + b"{}," * (MB // 3) + b"{}]}"
calls = [
    ("POST", "/mcp", b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 9000 + b"{}]"),
    ("POST", "/mcp", b"[" + b"{}," * (8 * MB // 3) + b"{}]"),
    ("POST", "/mcp", many),
    ("POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
    ("POST", "/v1/exec", b'{"command":"' + b"git " * 15000 + b'"}'),
    ("POST", "/v1/exec", many),
    ("POST", "/v1/git", b'{"command":"git push ' + b"a:b " * 15000 + b'"}'),
    ("POST", "/v1/packages", b'{"command":"npm install ' + b"a@1 " * 15000 + b'"}'),
    ("POST", "/v1/policy-proposals",
     b'{"effect":"allow","why":"w","rule":"exec(' + b"*a" * 20000 + b')"}'),
    ("POST", "/v1/tool-calls", b'{"tool":"command","command":"' + b"{a," * 20000 + b'","cwd":"."}'),
    ("POST", "/v1/files/write", b'{"path":"a","content":"' + b"x" * (8 * MB) + b'"}'),
    ("POST", "/v1/files/edit", b'{"path":"a","old":"x","new":"' + b"x" * MB + b'"}'),
    ("POST", "/v1/files/delete", b'{"path":"' + b"a/" * 30000 + b'"}'),
    ("POST", "/v1/files/move", b'{"path":"a","to":"' + b"b/" * 30000 + b'"}'),
    ("POST", "/v1/review", b'{"summary":"' + b"(" * MB + b'"}'),
    ("GET", "/v1/requests?limit=200", None),
    ("GET", "/v1/requests/none?wait=60", None),
    ("GET", "/v1/session", None),
    ("GET", "/v1/changes", None),
    ("GET", "/v1/budget", None),
    ("GET", "/v1/openapi.json", None),
]
tried = threading.Semaphore(0)

def flood(method, path, body):
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json",
               "Accept": "application/json"}
    while True:
        request = urllib.request.Request(URL + path, method=method, data=body, headers=headers)
        try:
            urllib.request.urlopen(request, timeout=60).read()
        except Exception:
            pass
        tried.release()

for call in calls:
    threading.Thread(target=flood, args=call, daemon=True).start()
for _ in range(len(calls)):
    tried.acquire()
print("FLOODING", flush=True)
while True:
    tried.acquire()
"""
