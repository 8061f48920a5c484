"""Actions: law 2 says that two actions that would do different things never share a fingerprint."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import actions
from supervisor.core.actions import (
    Action,
    BudgetRaise,
    Exec,
    FileChange,
    Git,
    McpCall,
    McpTools,
    Network,
    Packages,
    Proposal,
    ShownScript,
    ToolChange,
    category_of,
    content_hash,
    decode,
    encode,
    fingerprint,
    subject,
    targets,
    title,
)
from supervisor.core.forge_acts import Act
from tests.tables import each_row

_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_some = st.none() | _words
_tuples = st.lists(_words, max_size=3).map(tuple)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Exec, command=_words, cwd=_words),
    st.builds(
        FileChange,
        operation=st.sampled_from(["write", "edit", "delete", "rename"]),
        path=_words,
        to=_some,
        to_b64=_some,
        before=_some,
        after=_some,
        mode=st.none() | st.integers(0, 0o7777),
        link_target=_some,
        hazards=_tuples,
    ),
    st.builds(
        Network,
        operation=st.sampled_from(["connect", "request"]),
        host=_words,
        port=st.integers(1, 65535),
        method=_some,
        path=_some,
        body_hash=_some,
        has_body=st.booleans(),
    ),
    st.builds(
        Git,
        operation=_words,
        remote=_some,
        refspecs=_tuples,
        force=st.booleans(),
        delete=st.booleans(),
        flags=_tuples,
    ),
    st.builds(McpCall, server=_words, tool=_words, arguments=_words, by_agent=st.booleans()),
    st.builds(
        McpTools,
        server=_words,
        digest=_words,
        changes=st.lists(
            st.builds(ToolChange, name=_words, before=_words, after=_words), max_size=2
        ).map(tuple),
    ),
    st.builds(Packages, manager=_words, operation=_words, names=_tuples, flags=_tuples),
    st.builds(Proposal, effect=st.sampled_from(["allow", "ask", "deny"]), rule=_words, why=_words),
)


@given(ACTIONS, ACTIONS)
def test_unequal_actions_never_share_a_fingerprint(one: Action, other: Action) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


@given(ACTIONS)
def test_an_action_survives_its_record(action: Action) -> None:
    assert decode(encode(action)) == action
    assert fingerprint(decode(encode(action))) == fingerprint(action)
    assert title(action) is not None


def test_words_that_join_to_the_same_text_are_different_actions() -> None:
    left = Packages(manager="npm", operation="install", names=("a", "b c"))
    right = Packages(manager="npm", operation="install", names=("a b", "c"))
    assert fingerprint(left) != fingerprint(right)


def test_where_a_name_resolved_to_is_evidence_and_not_the_action() -> None:
    one = Network(operation="connect", host="example.org", port=443, resolved=("192.0.2.1",))
    other = Network(operation="connect", host="example.org", port=443, resolved=("192.0.2.2",))
    assert fingerprint(one) == fingerprint(other)


def test_requests_for_one_file_share_a_subject_and_others_do_not() -> None:
    write = FileChange(operation="write", path="a.py", after="1")
    edit = FileChange(operation="edit", path="a.py", after="2")
    assert subject(write) == subject(edit)
    assert subject(Exec(command="ls")) != subject(Exec(command="ls -l"))


@each_row(
    ("action", "text"),
    [
        (Exec(command="make test"), "make test"),
        (FileChange(operation="chmod", path="run.sh", mode=0o755), "chmod 755 run.sh"),
        (FileChange(operation="symlink", path="a", link_target="/etc"), "symlink a -> /etc"),
        (Network(operation="connect", host="example.org", port=443), "connect example.org:443"),
        (Network(operation="connect", host="example.org", port=0), "connect example.org"),
        (
            Network(
                operation="request", host="h", port=8080, scheme="http", method="GET", path="/x"
            ),
            "GET http://h:8080/x",
        ),
        (
            Network(
                operation="request",
                host="h",
                port=443,
                scheme="https",
                method="GET",
                path="/x",
                has_body=True,
            ),
            "GET https://h/x (with a body)",
        ),
        (
            Git(operation="push", remote="origin", refspecs=("main",), force=True),
            "git push origin main (forces)",
        ),
        (
            Packages(manager="npm", operation="install", names=("a",), flags=("-D",)),
            "npm install -D a",
        ),
        (Proposal(effect="allow", rule="exec(ls)"), "allow exec(ls)"),
        (McpCall(server="notes", tool="add", arguments='{"a":1}'), 'mcp__notes__add {"a":1}'),
        (
            McpTools(
                server="notes",
                digest="d",
                changes=tuple(
                    ToolChange(name=f"t{number}", before="", after="x") for number in range(10)
                ),
            ),
            "use the changed tools of the MCP server notes: t0, t1, t2, t3, t4, t5, t6, t7, 2 more",
        ),
        (
            McpTools(
                server="notes",
                digest="d",
                changes=(ToolChange(name="add", before="", after="x"),),
            ),
            "use the changed tools of the MCP server notes: add",
        ),
        (
            BudgetRaise(scope="session", of="s", kind="cost", limit=5 * 10**12, by=10**12),
            "raise the budget of this session by $1.00 to $6.00",
        ),
    ],
)
def test_titles_are_exact(action: Action, text: str) -> None:
    assert title(action) == text


def test_every_category_has_an_action_type() -> None:
    types = (Exec, FileChange, Network, Git, Packages, Act, Proposal, BudgetRaise)
    assert {one.__struct_config__.tag for one in types} == set(actions.CATEGORIES)


def test_an_action_from_before_renames_had_other_names_is_the_same_still() -> None:
    """So that what was asked before an upgrade can be answered after it."""
    move = FileChange(operation="rename", path="a", to="b", before="x", after="x")
    assert fingerprint(move) == "207185ea65e608a2255e376372d3910a26607672d0955f34b2ac025d165f4e2d"
    assert fingerprint(msgspec.structs.replace(move, to_b64="Yg==")) != fingerprint(move)


def test_a_request_from_before_bodies_were_told_is_the_same_still() -> None:
    get = Network(
        operation="request", host="a.example", port=443, scheme="https", method="GET", path="/"
    )
    assert fingerprint(get) == "e7418e24a2740d2a631fcfbd32d74489d672583bd3114318d1edff51655cffa7"
    assert fingerprint(msgspec.structs.replace(get, has_body=True)) != fingerprint(get)


def test_a_move_is_about_both_of_its_paths() -> None:
    write = FileChange(operation="write", path='a"b')
    other = FileChange(operation="write", path="c")
    move = FileChange(operation="rename", path='a"b', to="c")
    assert targets(subject(move)) == (subject(write), subject(other))
    assert targets(subject(write)) == (subject(write),)
    assert subject(move) != subject(FileChange(operation="rename", path="c", to='a"b'))
    odd = FileChange(
        operation="rename", path="caf\\xe9", path_b64="Y2Fm6Q==", to="caf\\xff", to_b64="Y2Fm/w=="
    )
    assert targets(subject(odd)) == tuple(
        subject(FileChange(operation="write", path=name, path_b64=encoded))
        for name, encoded in (("caf\\xe9", "Y2Fm6Q=="), ("caf\\xff", "Y2Fm/w=="))
    )
    # No file's name makes a subject that reads as a move's.
    sneaky = FileChange(operation="write", path='-move:["filesystem:x","filesystem:y"]')
    assert targets(subject(sneaky)) == (subject(sneaky),)


def test_the_repositories_around_a_change_are_part_of_it() -> None:
    plain = FileChange(operation="write", path="a/b")
    inside = FileChange(operation="write", path="a/b", repositories=("a",))
    marks = {
        fingerprint(plain),
        fingerprint(inside),
        fingerprint(FileChange(operation="write", path="a/b", repositories=(".",))),
    }
    assert len(marks) == 3
    assert decode(encode(inside)) == inside


def test_a_command_of_the_agents_own_tool_is_another_one() -> None:
    """It runs in another sandbox. What was approved before there was this field still is."""
    plain = Exec(command="make")
    own = Exec(command="make", by_agent=True)
    scripts = (ShownScript(path="Makefile", hash="0" * 64),)
    with_scripts = Exec(command="make", scripts=scripts)
    both = Exec(command="make", scripts=scripts, by_agent=True)
    assert len({fingerprint(one) for one in (plain, own, with_scripts, both)}) == 4
    assert fingerprint(plain) == content_hash(msgspec.msgpack.encode(["exec", "make", ".", 120.0]))


def test_a_call_of_an_mcp_server_is_a_command_and_never_the_program_of_that_name() -> None:
    call = McpCall(server="notes", tool="add", arguments="{}")
    assert category_of(call) == "exec"
    program = Exec(command=title(call))
    assert fingerprint(program) != fingerprint(call)
    assert subject(program) != subject(call)


def test_another_list_of_tools_takes_the_place_of_the_one_that_waits() -> None:
    lists = [McpTools(server="notes", digest=one, changes=()) for one in ("1", "2")]
    assert category_of(lists[0]) == "sandbox"
    assert len({subject(one) for one in lists}) == 1
