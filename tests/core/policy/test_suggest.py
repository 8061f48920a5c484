"""Which rules "always" offers, and when it offers none."""

import msgspec

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, Proposal
from supervisor.core.policy.suggest import suggest
from tests.tables import each_row


def connect(host: str, port: int = 443) -> Network:
    return Network(operation="connect", host=host, port=port)


def request(url_path: str, host: str = "api.example.com", method: str = "GET") -> Network:
    return Network(
        operation="request", host=host, port=443, scheme="https", method=method, path=url_path
    )


def write(path: str) -> FileChange:
    return FileChange(operation="write", path=path)


@each_row(
    ("action", "rules"),
    [
        (connect("a.b.example.com"), ["network(*.example.com)", "network(a.b.example.com)"]),
        (connect("API.Example.com."), ["network(*.example.com)", "network(api.example.com)"]),
        (connect("example.com"), ["network(example.com)"]),
        (
            connect("shop.example.co.uk"),
            ["network(*.example.co.uk)", "network(shop.example.co.uk)"],
        ),
        (connect("example.co.uk"), ["network(example.co.uk)"]),
        (connect("github.io"), ["network(github.io)"]),
        (connect("host.gatehouse.internal", 80), ["network(host.gatehouse.internal:80)"]),
        (
            request("/a/b", "host.gatehouse.internal"),
            [
                "network(host.gatehouse.internal:443)",
                "network(GET https://host.gatehouse.internal:443/a/**)",
            ],
        ),
        (connect("me.github.io"), ["network(me.github.io)"]),
        (connect("bucket.s3.amazonaws.com"), ["network(bucket.s3.amazonaws.com)"]),
        (connect("ec2.amazonaws.com"), ["network(ec2.amazonaws.com)"]),
        (connect("93.184.216.34"), ["network(93.184.216.34)"]),
        (connect("0x5db8d822"), ["network(93.184.216.34)"]),
        (connect("10.0.0.5", 5432), ["network(10.0.0.5:5432)"]),
        (connect("2606:2800:220::1", 8443), ["network([2606:2800:220::1]:8443)"]),
        (
            connect("db.example.com", 5432),
            ["network(*.example.com:5432)", "network(db.example.com:5432)"],
        ),
        (
            request("/repos/me/x?y=1"),
            [
                "network(*.example.com)",
                "network(GET https://api.example.com/repos/me/**)",
                "network(api.example.com)",
            ],
        ),
        (
            msgspec.structs.replace(request("/x/y"), has_body=True),
            [
                "network(*.example.com)",
                "network(* https://api.example.com/x/**)",
                "network(api.example.com)",
            ],
        ),
        (
            request("/", "example.com"),
            ["network(example.com)", "network(GET https://example.com/)"],
        ),
        (request("/a b/c", "example.com"), ["network(example.com)"]),
        (request("/a[1]/c", "example.com"), ["network(example.com)"]),
        (request("/a%2fb"), []),
        (connect("169.254.169.254"), []),
        (connect("not a host"), []),
        (connect("localhost"), []),
        (
            write("src/app/main.py"),
            ["filesystem(src/app/*)", "filesystem(src/app/main.py)", "filesystem(src/app/**)"],
        ),
        (write("README.md"), ["filesystem(./*)", "filesystem(README.md)"]),
        (
            write("app/[id]/page.tsx"),
            [
                "filesystem(app/[[]id]/*)",
                "filesystem(app/[[]id]/page.tsx)",
                "filesystem(app/[[]id]/**)",
            ],
        ),
        (write(".env"), ["filesystem(.env)"]),
        (write(".github/workflows/ci.yml"), ["filesystem(.github/workflows/ci.yml)"]),
        (write("a\nb"), []),
        (write("../a"), []),
        (FileChange(operation="symlink", path="src/l"), []),
        (FileChange(operation="write", path="src/x", hazards=("new-executable",)), []),
        (
            FileChange(operation="rename", path="src/a", to="src/b"),
            ["filesystem(src/*)", "filesystem(src/**)"],
        ),
        (FileChange(operation="rename", path="src/a", to="lib/b"), []),
        (Git(operation="", command="git push; id"), []),
        (
            Git(operation="push", remote="origin", refspecs=("feature/x",)),
            ["git(feature/x)", "git(push origin feature/x)", "git(feature/*)"],
        ),
        (
            Git(operation="push", remote="origin", refspecs=("main",)),
            ["git(main)", "git(push origin main)"],
        ),
        (
            Git(operation="push", remote="up", refspecs=("main",)),
            ["git(main)", "git(push up main)"],
        ),
        (
            Git(operation="push", remote="origin", refspecs=("x",), force=True),
            ["git(push --force origin x)"],
        ),
        (
            Git(operation="push", remote="origin", refspecs=(":x",), delete=True),
            ["git(push --delete origin x)"],
        ),
        (
            Git(operation="push", remote="origin", refspecs=("HEAD:main",)),
            ["git(push origin HEAD:main)"],
        ),
        (Git(operation="push", remote="origin", refspecs=("a", "b")), []),
        (
            Git(operation="push", remote="origin", refspecs=("refs/tags/v1",)),
            ["git(push origin refs/tags/v1)"],
        ),
        (Git(operation="fetch", remote="origin"), ["git(fetch origin)"]),
        (Git(operation="diff", remote="a", refspecs=("b..c", "d e")), ["git(diff a b..c 'd e')"]),
        (Git(operation="add", remote="*.py", refspecs=("x",)), []),
        (
            Packages(manager="npm", operation="install", names=("left-pad@1.3.0",)),
            ["packages(npm install left-pad@1.3.0)", "packages(npm:left-pad)"],
        ),
        (
            Packages(manager="npm", operation="install", names=("left-pad",), flags=("-D",)),
            ["packages(npm install left-pad)", "packages(npm:left-pad)"],
        ),
        (
            Packages(manager="", operation="", command="pip install 'Requests>=2'"),
            ["packages(pip install 'Requests>=2')", "packages(pip:requests)"],
        ),
        (
            Packages(manager="pip", operation="install", flags=("-r=r.txt",)),
            ["packages(pip install -r r.txt)"],
        ),
        (Packages(manager="npm", operation="ci"), ["packages(npm ci)"]),
        (Packages(manager="npm", operation="install", names=("a", "b")), []),
        (Packages(manager="npm", operation="install", names=("a",), flags=("--registry=x",)), []),
        (Packages(manager="npm", operation="install", names=("a;b",)), []),
        (Proposal(effect="allow", rule="network(a.example.com)"), []),
        (Exec(command="echo $(id)"), []),
    ],
)
def test_candidates(action: Action, rules: list[str]) -> None:
    found = suggest(action)
    assert [candidate.rule for candidate in found] == rules
    assert [candidate.default for candidate in found] == [index == 0 for index in range(len(found))]
    assert all(candidate.explains for candidate in found)


def test_exec_offers_the_exact_command_first() -> None:
    found = suggest(Exec(command="git log -3"))
    assert found[0].label == "exact"
    assert found[0].rule == "exec(git log -3)"
    assert found[0].default
