"""What is taken for the name of a file with secrets, and what isn't."""

import re

import pytest

from supervisor.core.shell.exec_secrets import names_a_secret, secret_words
from supervisor.core.shell.shell import parse
from supervisor.core.text.data_tables import table
from tests.tables import each_row

SECRETS = [
    ".env",
    "app/.env.local",
    "/workspace/merged/.env",
    ".ENV",
    ".env*",
    "--env-file=.env",
    "HEAD:.env",
    "@.env",
    "config/master.key",
    "server.key",
    "certs/ca.pem",
    "$HOME/.netrc",
    "~/.aws/credentials",
    "~/.ssh",
    "~/.ssh/id_ed25519",
    "id_rsa",
    "~/.claude.json",
    "~/.claude/mcp.json",
    "~/.config/gh/hosts.yml",
    "~/.render/api_key",
    "config/secrets.yml",
    "config/credentials.yml.enc",
    "/run/secrets/db",
    "/proc/1/environ",
    "~/.bash_history",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    "~/.my.cnf",
    ".htpasswd",
    "~/.vault-token",
    "~/.dockercfg",
    "~/.docker/config.json",
    "~/.s3cfg",
    "~/.azure/x",
    "~/.gnupg",
    "~/.kube/config",
    "~/.password-store/a/b.gpg",
    "a.p12",
    "a.pfx",
    "a.jks",
    "release.keystore",
    "a.kdbx",
    "a.ppk",
    "~/.git-credentials",
    "config/private-key.pem",
    "app/auth_token.txt",
    "infra/terraform.tfstate",
    "keys/service-account.json",
    "prod_serviceaccount_1.json",
]
PLAIN = [
    "README.md",
    ".env.example",
    "app/.env.trial.example",
    ".env.production.template",
    ".envrc",
    "src/environment.ts",
    "process.env",
    "docs/env",
    "id_rsa.pub",
    "agents/secret-scanner/secret-scanner.md",
    "src/credentials_form.py",
    ".items[].key",
    "api_key",
    "monkey.py",
    "WARNING: No .env or API key",
    "Rails.application.credentials\\|Rails.application.secrets",
    ".claude/settings.json",
    "",
    "x" * 600 + "/.env",
]


@each_row("text", SECRETS)
def test_a_name_of_a_secret(text: str) -> None:
    assert names_a_secret(text)


@each_row(("mark", "name"), table("secret_names")["secrets"].items())
def test_each_name_of_the_table_holds_its_mark(mark: str, name: str) -> None:
    assert mark == mark.lower()
    assert any(
        mark in text.lower() and re.search(f"{name}$", text, re.IGNORECASE) for text in SECRETS
    )


@each_row("text", PLAIN)
def test_a_name_of_nothing_secret(text: str) -> None:
    assert not names_a_secret(text)


@each_row(
    ("line", "found"),
    [
        ("cat .env", {1}),
        ("cat", set()),
        ("cat a.py .env b.py id_rsa", {2, 4}),
        ("cat " + "a" * 499 + "*", set()),
        ("cat " + "a" * 500 + "*", {1}),
        ("ls -l .env", set()),
        ("/bin/ls .env", set()),
        ("git add .env", set()),
        ("git commit -F .env", {3}),
        ("git commit -F.env", {2}),
        ("date -f.env", {1}),
        ("grep -rnf.netrc x", {1}),
        ("cut -fid_rsa", {1}),
        ("cut -f.env.example", set()),
        ("git add --pathspec-from-file=.env", {2}),
        ("git add --pathspec-f .env", {3}),
        ("wc --files0-from=.env", {1}),
        ("tree --fromfile .env", {2}),
        ("find . -name .env", set()),
        ("find . -name .env -exec cat {} ';'", {3}),
        ("find . -name .env -ok cat {} ';'", {3}),
        ("fd .env -x cat", {1}),
        ("git show HEAD:.env", {2}),
        ("git diff .env", {2}),
        ("git", set()),
        ("grep -rn .env src", set()),
        ("grep --ignore-case .env src", set()),
        ("grep KEY .env", {2}),
        ("grep -o '^[^=]*' .env", {3}),
        ("grep -e KEY .env", {3}),
        ("grep -f .env src", {2}),
        ("grep --file .env src", {2}),
        ("grep --f .env src", {2}),
        ("grep -A .env x", {2}),
        ('grep "$X" .env', {2}),
        ('grep "-$X" .env', {2}),
        ("grep -- .env src", {2}),
        ("grep --", set()),
        ("grep -r --include=.env", {2}),
    ],
)
def test_which_words_of_a_command_name_one(line: str, found: set[int]) -> None:
    (command,) = parse(line).commands
    assert secret_words(command.words) == found


@pytest.mark.parametrize("line", ["cat < .env", "cat 0<.env", 'cat < "$HOME/.env"'])
def test_input_from_one_is_never_allowed(line: str) -> None:
    assert parse(line).constructs


def test_input_from_another_file_is_plain() -> None:
    assert not parse("cat < .env.example").constructs
