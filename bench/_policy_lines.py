"""Command lines for `bench/policy.py`, of the kinds that coding agents write: pipes, chains,
quotes, here-documents, wrappers."""

from collections.abc import Iterator

# Rules that such an agent's operator has; the rest of a policy of a thousand is about other
# programs.
RULES = (
    "git status *", "git diff *", "git log *", "git show *", "git add *", "git commit *",
    "git branch *", "ls *", "cat *", "head *", "tail *",
    "grep *", "rg *", "find *", "sed -n *", "wc *", "sort *", "uniq *", "echo *", "pytest *",
    "python -m pytest *", "npm test *", "npm run *",
    "npx tsc *", "cargo test *", "cargo build *", "cargo check *", "go test *", "make *", "mkdir *",
    "test *", "true", "jq *", "ruff check *",
    "mypy *", "diff *", "xargs *", "tee *", "which *", "date *", "pwd",
)  # fmt: skip
_LINES = (
    "git status --short",
    "git log --oneline -{n}",
    "git diff HEAD~{n} -- src/part{n}/main.py",
    "ls -la src/part{n}",
    "cat src/part{n}/main.py",
    "cat package.json | jq '.scripts.step{n}'",
    "grep -rn \"def handle_{n}\" src/ --include=*.py | head -{n}",
    "rg -n 'class Part{n}\\b' src tests",
    "find . -name '*part{n}*.py' -not -path './node_modules/*' | head -20",
    "sed -n '{n},+40p' src/part{n}/main.py",
    "wc -l src/part{n}/*.py | sort -n | tail -5",
    "cd src/part{n} && ls && cat README.md",
    "cd web && npm test -- --run part{n} 2>&1 | tail -40",
    "python -m pytest tests/test_part{n}.py -x -q 2>&1 | tail -{n}",
    "timeout 60 pytest tests/part{n} -k 'slow and not case{n}' --tb=short",
    "npx tsc --noEmit -p packages/part{n} 2>&1 | grep -c error",
    "cargo test -p part{n} -- --nocapture 2>&1 | tail -30",
    "go test ./part{n}/... -run 'TestPart{n}' -count=1",
    "make -j4 part{n} && make check-part{n}",
    "git add -A && git commit -m \"Part {n}: keep the order of lines\"",
    "git add src/part{n} && git commit -m \"$(cat <<'EOF'\nPart {n}: fix the parser\n\nIt lost the last line.\nEOF\n)\"",  # noqa: E501
    "git diff --stat main...HEAD && git log --oneline main..HEAD | wc -l",
    "mkdir -p build/part{n} && echo \"part {n}\"",
    "test -f src/part{n}/conf.toml && cat src/part{n}/conf.toml || echo 'no conf {n}'",
    "for f in src/part{n}/*.py; do echo \"== $f\"; head -5 \"$f\"; done",
    "grep -l 'TODO({n})' -r src | xargs wc -l",
    "if git diff --quiet HEAD~{n}; then echo same; else git diff --stat HEAD~{n}; fi",
    "which node && date && pwd && ls part{n}",
    "ruff check src/part{n} && mypy src/part{n} 2>/dev/null | tail -3",
    "cat src/a{n}.ts | grep -E 'export (const|function) [a-z]+{n}' | sort | uniq -c | sort -rn | head -20",  # noqa: E501
    "npm install left-pad-{n} && npm run build",
    "curl -s https://api.example.org/v1/items/{n} | jq .",
    "rm -rf build/part{n} && git status",
    "docker ps --filter name=part{n}",
    "python3 -c \"import json; print(json.load(open('part{n}.json'))['name'])\"",
    "env FOO={n} pytest -q tests/part{n}",
    "echo $HOME/part{n} && ls \"$PWD/part{n}\"",
    "git push origin part{n}",
    "cd part{n} && cargo build --release 2>&1 | grep -v warning | tail -{n} ; cargo check",
    "diff -u old/part{n}.txt new/part{n}.txt | head -100",
)  # fmt: skip
MAX_CHARS = 200


def lines(count: int) -> Iterator[str]:
    """Yield `count` different lines of at most 200 characters."""
    for index in range(count):
        line = _LINES[index % len(_LINES)].replace("{n}", str(index))
        assert len(line) <= MAX_CHARS, line
        yield line
