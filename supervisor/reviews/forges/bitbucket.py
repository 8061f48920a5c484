"""Bitbucket Cloud: implements the port's calls.

Its API has no idempotency: whatever makes something looks for our mark first. It has no reactions,
labels or issues. Sources: developer.atlassian.com/cloud/bitbucket/rest (pullrequests, repositories,
refs, commit statuses, workspaces, webhooks). The scopes for each call are in docs/reviews.md.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from supervisor.base import log, plain_files
from supervisor.core import forge_acts
from supervisor.core.forge_acts import Act, InlineComment
from supervisor.core.review_markdown import unescaped
from supervisor.reviews.core.bitbucket_deliveries import EVENTS
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken, expiry_words
from supervisor.reviews.core.deliveries import is_full_name, is_sha
from supervisor.reviews.core.forge_pages import pages_base, pull_page
from supervisor.reviews.core.forge_people import is_same_person, person, person_id, person_name
from supervisor.reviews.core.posts import own_mark, run_of, without_places
from supervisor.reviews.forges.base import (
    CommentFacts,
    FailedDelivery,
    ForgeError,
    HeadSource,
    Installed,
    IssueFacts,
    Posted,
    PostedComment,
    PullFacts,
    RepositoryFacts,
    ReviewFacts,
    ThreadFacts,
    check_head,
)
from supervisor.reviews.forges.bitbucket_calls import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    BitbucketCalls,
    read,
)
from supervisor.reviews.forges.bitbucket_facts import (
    BY_AGENT,
    edited,
    first_of,
    inline_facts,
    is_own_branch,
    place_mark,
    place_of,
    plain_body,
    posted,
    posted_comment,
    pull_facts,
    raw,
    repository_facts,
    review_facts,
    short_hash,
    thread_facts,
    verdict_of,
    with_verdict,
)

# A neutral check satisfies a required one at GitHub. Here a stopped build satisfies none.
STATES = {
    "success": "SUCCESSFUL",
    "failure": "FAILED",
    "action_required": "FAILED",
    "neutral": "STOPPED",
}
_MOST_DESCRIPTION = 250
_VERDICTS = {"approve": "approve", "request_changes": "request-changes"}
# A participant's state, and what takes it back.
_TAKEN_BACK = {"approved": "approve", "changes_requested": "request-changes"}
# How long the list of who may write is used again.
WRITERS_S = 60.0
_MOST_HEADS = 10_000
# The name by which everybody may call us.
OUR_NAME = "gatehouse"


class OwnAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a token; `token` is a digest of that. `earlier`: whose tokens before it
    were."""

    token: str
    person: str
    account_id: str = ""
    earlier: tuple[str, ...] = ()


class Bitbucket:
    """Implements `base.Forge`. `api` is the base of the REST API, `repositories` the names of those
    that are reviewed; `account_file` keeps whose the token is."""

    name: forge_acts.Forge = "bitbucket"
    title = "Bitbucket"
    has_reactions = False

    def __init__(
        self,
        *,
        api: str,
        token: Callable[[], BitbucketToken],
        repositories: tuple[str, ...],
        account_file: Path,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._calls = BitbucketCalls(api=api, token=token, now=now, monotonic=monotonic)
        self.pages = pages_base(api)
        self._hosts = (urlsplit(self.pages).netloc, urlsplit(api).netloc)
        self._names = repositories
        self._account_file = account_file
        self._account: OwnAccount | None = None
        self._earlier: tuple[str, ...] = ()
        self._now = now
        self._monotonic = monotonic
        self._writers: dict[str, tuple[float, dict[str, str]]] = {}
        # By repository, number, time of the last change, and short hash.
        self._heads: dict[tuple[str, int, str, str], str] = {}

    async def close(self) -> None:
        await self._calls.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the repositories that the operator named."""
        return self._names

    def pull_page(self, repository: str, number: int) -> str:
        return pull_page(self.pages, repository, number, "pull-requests")

    def notice(self) -> str:
        return expiry_words(self._calls.token(), self._now())

    # -- whose the token is -----------------------------------------------------------------------

    async def own_login(self) -> str:
        own = await self._own()
        return own.person if own else ""

    async def own_names(self) -> tuple[str, ...]:
        own = await self._own()
        if own is None:
            return (OUR_NAME,)
        name = person_name(own.person)
        ids = (person_id(own.person), f"{{{own.account_id}}}" if own.account_id else "")
        return tuple(filter(None, (OUR_NAME, *ids, name if " " not in name else "")))

    async def _own(self) -> OwnAccount | None:
        """Return whose the token is. Bitbucket doesn't say that of an access token: it is known
        from the first thing that we make, and kept."""
        token = self._calls.token()
        digest = hashlib.sha256(token.token.encode()).hexdigest()
        if self._account is None or self._account.token != digest:
            kept = _kept(self._account_file)
            self._account = kept if kept and kept.token == digest else None
            self._earlier = kept.earlier if kept else ()
            if kept and self._account is None:
                self._earlier = (*(one for one in kept.earlier if one != kept.person), kept.person)
        if self._account is None and not token.is_access:
            self._learn(await self._calls.call("GET", "/user"))
        return self._account

    def _learn(self, user: Any) -> None:
        if self._account is not None or not isinstance(user, dict):
            return
        digest = hashlib.sha256(self._calls.token().token.encode()).hexdigest()
        account_id = str(user.get("account_id") or "")
        own = OwnAccount(
            token=digest, person=person(user), account_id=account_id, earlier=self._earlier
        )
        self._account = own
        self._account_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        plain_files.replace(self._account_file, msgspec.json.encode(own))

    def _is_own(self, own: OwnAccount | None, one: dict[str, Any]) -> bool:
        """Return whether something is ours, by this token or one before it."""
        user = one.get("user") or {}
        is_before = bool(user) and any(is_same_person(person(user), it) for it in self._earlier)
        return is_before or self._is_current(own, one)

    def _is_current(self, own: OwnAccount | None, one: dict[str, Any]) -> bool:
        """Return whether something is the token's account's. While it isn't known who that is,
        whatever an access token made may be, and our marks tell."""
        user = one.get("user") or {}
        if own is None:
            return user.get("type") == "app_user" and self._calls.token().is_access
        return bool(user) and is_same_person(person(user), own.person)

    # -- repositories and pull requests -----------------------------------------------------------

    async def installed(self) -> Installed:
        found, unread = list[RepositoryFacts](), set[str]()
        for name in self._names:
            try:
                one = await self._calls.call("GET", f"/repositories/{name}")
                found.append(read(partial(repository_facts, hosts=self._hosts), one))
            except ForgeError as error:
                log.warning("a repository can't be read", repo=name, error=str(error))
                if error.status not in (FORBIDDEN, NOT_FOUND):
                    unread.add(name)
        return Installed(repositories=tuple(found), unread_names=frozenset(unread))

    async def pull(self, repository: RepositoryFacts, number: int) -> PullFacts:
        return await self._facts(
            repository, await self._calls.call("GET", _pull(repository, number))
        )

    async def open_pulls(self, repository: RepositoryFacts) -> list[PullFacts]:
        path = f"{_at(repository)}/pullrequests?state=OPEN&pagelen=50"
        found, bases = [], dict[str, str]()
        for one in await self._calls.all(path):
            try:
                head = await self._listed_head(repository, one)
                ref = read(lambda it: str(it["destination"]["branch"]["name"]), one)
                if ref not in bases:
                    bases[ref] = await self.branch_head(repository, ref)
                found.append(read(partial(pull_facts, head_sha=head, base_sha=bases[ref]), one))
            except ForgeError as error:
                if error.retry_at is not None:
                    raise
                log.warning("a pull request can't be read", repo=path, error=str(error))
        return found

    async def _facts(self, repository: RepositoryFacts, one: dict[str, Any]) -> PullFacts:
        """Return a pull request's facts, with whole hashes."""
        head = await self._head_sha(repository, one)
        ref = read(lambda it: str(it["destination"]["branch"]["name"]), one)
        base = await self.branch_head(repository, ref)
        return read(partial(pull_facts, head_sha=head, base_sha=base), one)

    async def _listed_head(self, repository: RepositoryFacts, one: dict[str, Any]) -> str:
        """Return the head of a pull request in a list; it is known while nothing changed."""
        key = read(lambda it: (int(it["id"]), str(it["updated_on"]), short_hash(it["source"])), one)
        known = self._heads.get((repository.full_name, *key))
        if known is not None:
            return known
        if len(self._heads) >= _MOST_HEADS:
            self._heads.pop(next(iter(self._heads)))
        full = await self._head_sha(repository, one)
        self._heads[repository.full_name, *key] = full
        return full

    async def _head_sha(self, repository: RepositoryFacts, one: dict[str, Any]) -> str:
        """Return the whole hash of a pull request's head."""
        # INVARIANT: a head is never told by the 12 digits of a pull request's JSON: two commits
        # with the same are made in seconds. The list of its commits has whole hashes.
        number, short = read(lambda it: (int(it["id"]), short_hash(it["source"])), one)
        answer = await self._calls.call("GET", f"{_pull(repository, number)}/commits?pagelen=1")
        full = read(lambda it: str(it["values"][0]["hash"]) if it["values"] else "", answer)
        if full.startswith(short) and is_sha(full):
            return full
        if full:
            raise ForgeError(f"the head of {number} moved while it was read", may_retry=True)
        # It has no commit that its base hasn't: it is merged, or nothing changed.
        try:
            path = f"{_at(repository)}/commit/{quote(short, safe='')}"
            return read(lambda it: str(it["hash"]), await self._calls.call("GET", path))
        except ForgeError as error:
            if error.status == NOT_FOUND:  # a branch that is gone took it along
                return short
            raise

    async def permission(self, repository: RepositoryFacts, login: str) -> str:
        return (await self._may_write(repository)).get(person_id(login), "none")

    async def _may_write(self, repository: RepositoryFacts) -> dict[str, str]:
        """Return who has more than to read, by id: one call for all of a repository."""
        name, now = repository.full_name, self._monotonic()
        at, known = self._writers.get(name, (-WRITERS_S, {}))
        if now - at < WRITERS_S:
            return known
        owner, _, slug = name.partition("/")
        more = f"?q={quote('permission>"read"')}&pagelen=100"
        try:
            path = f"/workspaces/{owner}/permissions/repositories/{slug}{more}"
            rows = await self._calls.all(path)
        except ForgeError as error:
            if error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            # Not what groups give, but a repository's own token may ask for it.
            path = f"{_at(repository)}/permissions-config/users?pagelen=100"
            # Who can't be asked about is a stranger, for as long as an answer counts.
            self._writers[name] = now, {}
            try:
                rows = await self._calls.all(path)
            except ForgeError:
                raise error from None
        found = {
            person_id(person(one.get("user") or {})): str(one.get("permission")) for one in rows
        }
        found.pop("", None)
        self._writers[name] = now, found
        return found

    async def labelled_by(self, repository: RepositoryFacts, number: int, label: str) -> str:
        return ""

    async def clone_token(self, repository: RepositoryFacts) -> str:
        return self._calls.token().for_git

    async def push_token(self, repository: RepositoryFacts) -> str:
        return self._calls.token().for_git

    async def head_source(self, repository: RepositoryFacts, number: int) -> HeadSource:
        one = await self._calls.call("GET", _pull(repository, number))
        ref = f"refs/heads/{read(lambda it: it['source']['branch']['name'], one)}"
        sha = await self._head_sha(repository, one)
        if read(is_own_branch, one):
            return HeadSource(repository.clone_url, ref, "", sha)
        source = one["source"].get("repository")
        name = read(lambda it: str(it["full_name"]), source) if source else ""
        if not is_full_name(name):
            return HeadSource("", ref, "", sha)
        parts, token = urlsplit(repository.clone_url), self._calls.token()
        # A repository's token opens no other; what is public needs none.
        is_near = name.partition("/")[0] == repository.full_name.partition("/")[0]
        given = token.for_git if is_near or not token.is_access else ""
        return HeadSource(f"{parts.scheme}://{parts.netloc}/{name}.git", ref, given, sha)

    async def pull_diff(self, repository: RepositoryFacts, number: int) -> bytes:
        return await self._calls.data(f"{_pull(repository, number)}/diff")

    # -- reviews ----------------------------------------------------------------------------------

    async def post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Post a comment for each finding, then the summary with the verdict's mark, and give the
        verdict at the end: none of ours ever stands without a text that says of which head."""
        path = f"{_pull(repository, act.number)}/comments"
        ours = await self._own_comments(repository, act.number)
        there = {(one.prompt, one.finding) for one in filter(None, map(place_of, ours))}
        refused = list[InlineComment]()
        for one in act.comments:
            mark = place_mark(act, one.finding)
            place = place_of({"content": {"raw": mark}})
            if place and (place.prompt, place.finding) in there:
                continue
            lines = {"to": one.line} | ({"start_to": one.start_line} if one.start_line else {})
            data = _content(f"{one.body}\n\n{mark}") | {"inline": {"path": one.path, **lines}}
            try:
                await self._make(path, data)
            except ForgeError as error:
                if error.status != BAD_REQUEST:
                    raise
                # It shows less of the diff than git: the summary has it.
                refused.append(one)
        left = msgspec.structs.replace(act, comments=tuple(refused))
        body = without_places(left).body if refused else act.body
        mark = own_mark(act.body)
        for known in ours:
            if mark and own_mark(plain_body(raw(known))) == mark:
                break
        else:
            if act.comments:
                await self._check_verdict(repository, act)
            known = await self._make(path, _content(with_verdict(act, body)))
        await self.give_verdict(repository, act)
        return read(posted, known)

    async def give_verdict(self, repository: RepositoryFacts, act: Act) -> None:
        """Give a review's verdict, whose text stands already. Raise `MovedError` if the head isn't
        the act's."""
        if act.verdict in _VERDICTS:
            await self._check_verdict(repository, act)
            word = _VERDICTS[act.verdict]
            await self._may_be_so("POST", f"{_pull(repository, act.number)}/{word}")

    async def _check_verdict(self, repository: RepositoryFacts, act: Act) -> None:
        if act.verdict in _VERDICTS:
            pull = await self._calls.call("GET", _pull(repository, act.number))
            check_head(act, await self._head_sha(repository, pull))

    async def own_reviews(self, repository: RepositoryFacts, number: int) -> list[ReviewFacts]:
        ours = [
            one for one in await self._own_comments(repository, number) if not one.get("inline")
        ]
        standing = list[dict[str, Any]]()
        # Before it is known who we are, another program's approval could pass for ours.
        if await self._own() is not None or any(verdict_of(raw(one)) for one in ours):
            standing = await self._standing(repository, number)
        state = str(standing[0]["state"]) if standing else None
        return read(lambda them: review_facts(them, state), ours)

    async def _standing(self, repository: RepositoryFacts, number: int) -> list[dict[str, Any]]:
        """Return those of us whose approval or request for changes stands, the token's account
        first."""
        pull, own = await self._calls.call("GET", _pull(repository, number)), await self._own()
        standing = [
            one
            for one in read(lambda it: list(it.get("participants") or ()), pull)
            if one.get("state") in _TAKEN_BACK and self._is_own(own, one)
        ]
        return sorted(standing, key=lambda one: not self._is_current(own, one))

    async def edit_review(
        self, repository: RepositoryFacts, number: int, review_id: int, body: str
    ) -> Posted:
        path = f"{_pull(repository, number)}/comments"
        one = await self._calls.call("GET", f"{path}/{review_id}")
        try:
            change = _content(edited(raw(one), body))
            made = await self._calls.call("PUT", f"{path}/{review_id}", change)
        except ForgeError as error:
            if error.status != FORBIDDEN:
                raise
            # It is an earlier account's. Ours stands after it, once.
            mine = await self._after(repository, number, review_id, body)
            if mine is None:
                return read(posted, await self._make(path, _content(body)))
            change = _content(edited(raw(mine), body))
            made = await self._calls.call("PUT", f"{path}/{mine['id']}", change)
        return read(posted, made)

    async def _after(
        self, repository: RepositoryFacts, number: int, review_id: int, body: str
    ) -> dict[str, Any] | None:
        """Return the text of the token's account that stands for one that it can't edit."""
        own = await self._own()
        for one in await self._own_comments(repository, number):
            is_later = int(one["id"]) > review_id and not one.get("inline")
            is_same = raw(one) == body or (run_of(body) and run_of(raw(one)))
            if is_later and is_same and self._is_current(own, one):
                return one
        return None

    async def dismiss(
        self, repository: RepositoryFacts, number: int, review_id: int, why: str
    ) -> Posted:
        for one in await self._standing(repository, number):
            path = f"{_pull(repository, number)}/{_TAKEN_BACK[one['state']]}"
            await self._may_be_so("DELETE", path)
        if await self._standing(repository, number):
            raise ForgeError(
                "an approval or a request for changes of an earlier token's account stands",
                "take it back by hand at Bitbucket: the token's account changed",
            )
        return Posted(id=review_id)

    async def _may_be_so(self, method: str, path: str) -> None:
        """Make a call that is refused where things are so already."""
        try:
            await self._calls.call(method, path)
        except ForgeError as error:
            gone = method == "DELETE" and error.status in (BAD_REQUEST, NOT_FOUND)
            if error.status != CONFLICT and not gone:
                raise

    # -- comments ---------------------------------------------------------------------------------

    async def comments(self, repository: RepositoryFacts, number: int) -> list[CommentFacts]:
        return read(inline_facts, await self._comments(repository, number))

    async def threads(self, repository: RepositoryFacts, number: int) -> list[ThreadFacts]:
        return read(partial(thread_facts, number), await self._comments(repository, number))

    async def comment(
        self, repository: RepositoryFacts, number: int | None, comment_id: int, *, is_inline: bool
    ) -> PostedComment:
        if number is None:
            raise ForgeError("the comment is on no pull request", status=NOT_FOUND)
        path = f"{_pull(repository, number)}/comments/{comment_id}"
        one = await self._calls.call("GET", path)
        first = None
        if one.get("parent"):
            others = await self._comments(repository, number)
            first = read(lambda them: first_of(one, {each["id"]: each for each in them}), others)
        return read(lambda it: posted_comment(number, it, first), one)

    async def post_comment(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        return await self._say(repository, act, mark, {})

    async def put_inline(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Say what an agent says about a finding beside the code, or replace what one said about it
        there. A review's own comments stay."""
        (one,) = act.comments
        path = f"{_pull(repository, act.number)}/comments"
        for known in await self._own_comments(repository, act.number):
            place, text = place_of(known), raw(known).rstrip()
            if place is not None and (place.prompt, place.finding) == (BY_AGENT, one.finding):
                new = f"{one.body}\n\n{text[text.rindex('`gatehouse:at:') :]}"
                if text == new:
                    return read(posted, known)
                change = _content(new)
                return read(posted, await self._calls.call("PUT", f"{path}/{known['id']}", change))
        data = _content(f"{one.body}\n\n{place_mark(act, one.finding)}")
        data["inline"] = {"path": one.path, "to": one.line}
        return read(posted, await self._make(path, data))

    async def reply(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        target = int(act.targets[0].removeprefix("review:"))
        return await self._say(repository, act, mark, {"parent": {"id": target}})

    async def _say(
        self, repository: RepositoryFacts, act: Act, mark: str, more: dict[str, Any]
    ) -> Posted:
        for one in await self._own_comments(repository, act.number):
            if own_mark(raw(one)) == mark:
                self._learn(one.get("user"))
                return read(posted, one)
        path = f"{_pull(repository, act.number)}/comments"
        return read(posted, await self._make(path, _content(act.body) | more))

    async def resolve(self, repository: RepositoryFacts, thread_id: str) -> None:
        number, _, comment_id = thread_id.partition("/")
        path = f"{_pull(repository, int(number))}/comments/{int(comment_id)}/resolve"
        await self._may_be_so("POST", path)

    async def react(self, repository: RepositoryFacts, act: Act) -> Posted:
        raise ForgeError("Bitbucket has no reactions", "reply in words", status=NOT_FOUND)

    async def delete_comment(
        self, repository: RepositoryFacts, number: int, comment_id: int
    ) -> None:
        await self._may_be_so("DELETE", f"{_pull(repository, number)}/comments/{comment_id}")

    async def _comments(self, repository: RepositoryFacts, number: int) -> list[dict[str, Any]]:
        """Return all comments of a pull request, oldest first."""
        found = await self._calls.all(f"{_pull(repository, number)}/comments?pagelen=100")
        return sorted(found, key=lambda one: read(lambda it: int(it["id"]), one))

    async def _own_comments(self, repository: RepositoryFacts, number: int) -> list[dict[str, Any]]:
        own = await self._own()
        return [
            one
            for one in await self._comments(repository, number)
            if not one.get("deleted") and self._is_own(own, one)
        ]

    async def _make(self, path: str, data: dict[str, Any]) -> dict[str, Any]:
        """Post something; it says who we are."""
        made = await self._calls.call("POST", path, data)
        self._learn(read(lambda it: it.get("user") or it.get("author"), made))
        return read(dict, made)

    # -- statuses, pull requests, branches --------------------------------------------------------

    async def set_check(
        self, repository: RepositoryFacts, head: str, act: Act, external_id: str
    ) -> Posted:
        words = " ".join(unescaped(act.body).split())
        page = self.pull_page(repository.full_name, act.number)
        data = {
            "key": external_id,
            "state": STATES[act.conclusion],
            "name": act.title,
            "description": words[:_MOST_DESCRIPTION],
            "url": page,
        }
        try:
            await self._calls.call("POST", f"{_at(repository)}/commit/{head}/statuses/build", data)
        except ForgeError as error:
            if act.fork and error.status in (FORBIDDEN, NOT_FOUND):
                raise ForgeError(
                    "Bitbucket takes no build status for a fork's commit here",
                    "the receipt says what became of it",
                    status=error.status,
                ) from error
            raise
        return Posted(id=0, url=page)

    async def open_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        for one in await self._of_branch(repository, act.branch, "OPEN"):
            if read(lambda it: it["destination"]["branch"]["name"], one) == act.base:
                if own_mark(str(one.get("description"))) == own_mark(act.body) != "":
                    self._learn(one.get("author"))
                return read(posted, one)
        data = {
            "title": act.title,
            "description": act.body,
            "source": {"branch": {"name": act.branch}},
            "destination": {"branch": {"name": act.base}},
        }
        return read(posted, await self._make(f"{_at(repository)}/pullrequests", data))

    async def update_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        path = _pull(repository, act.number)
        old = await self._calls.call("GET", path)
        # What is left out would be emptied. Tasks are things of their own.
        kept = {name: old[name] for name in ("close_source_branch", "draft") if name in old}
        reviewers = [{"uuid": one["uuid"]} for one in old.get("reviewers") or ()]
        branch = read(lambda it: it["destination"]["branch"]["name"], old)
        data = kept | {
            "title": act.title,
            "description": act.body,
            "reviewers": reviewers,
            "destination": {"branch": {"name": branch}},
        }
        return read(posted, await self._calls.call("PUT", path, data))

    async def own_issues(self, repository: RepositoryFacts) -> list[IssueFacts]:
        raise _no_issues()

    async def put_issue(self, repository: RepositoryFacts, act: Act, number: int) -> Posted:
        raise _no_issues()

    async def pulls_of_branch(self, repository: RepositoryFacts, branch: str) -> list[PullFacts]:
        found = []
        for one in await self._of_branch(
            repository, branch, "OPEN", "MERGED", "DECLINED", "SUPERSEDED"
        ):
            if one["state"] == "OPEN":
                found.append(await self._facts(repository, one))
            else:
                short = read(lambda it: short_hash(it["source"]), one)
                found.append(read(partial(pull_facts, head_sha=short, base_sha=""), one))
        return found

    async def _of_branch(
        self, repository: RepositoryFacts, branch: str, *states: str
    ) -> list[dict[str, Any]]:
        """Return the pull requests of a branch of the repository, newest first."""
        named = branch.replace("\\", "\\\\").replace('"', '\\"')
        wanted = "&".join(f"state={one}" for one in states)
        query = quote(f'source.branch.name="{named}"', safe="")
        path = f"{_at(repository)}/pullrequests?{wanted}&q={query}&pagelen=50"
        found = await self._calls.all(path)
        ours = [
            one
            for one in found
            if read(lambda it: it["source"]["branch"]["name"], one) == branch
            and read(is_own_branch, one)
        ]
        return sorted(ours, key=lambda one: -int(one["id"]))

    async def branch_head(self, repository: RepositoryFacts, branch: str) -> str:
        path = f"{_at(repository)}/refs/branches/{quote(branch)}"
        try:
            one = await self._calls.call("GET", path)
        except ForgeError as error:
            if error.status == NOT_FOUND:
                return ""
            raise
        return read(lambda it: str(it["target"]["hash"]), one)

    async def put_hook(self, name: str, url: str, secret: str) -> None:
        """Have a repository's webhooks sent to this address: by a new hook, or the one there."""
        data = {
            "description": "Gatehouse",
            "url": url,
            "active": True,
            "secret": secret,
            "events": list(EVENTS),
        }
        path = f"/repositories/{name}/hooks"
        for one in await self._calls.all(f"{path}?pagelen=100"):
            if one.get("url") == url:
                await self._calls.call("PUT", f"{path}/{quote(str(one['uuid']), safe='')}", data)
                return
        await self._calls.call("POST", path, data)

    async def failed_deliveries(self) -> list[FailedDelivery]:
        # It sends again by itself, twice, and lists none; the poll finds the rest.
        return []

    async def redeliver(self, delivery: FailedDelivery) -> None:
        raise ForgeError("Bitbucket sends no webhook again", "the next poll finds what it told")


def _kept(file: Path) -> OwnAccount | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=OwnAccount)
    except (OSError, msgspec.MsgspecError):
        return None


def _no_issues() -> ForgeError:
    return ForgeError(
        "Bitbucket has no issues any more", "have the job open a pull request", status=NOT_FOUND
    )


def _content(text: str) -> dict[str, Any]:
    return {"content": {"raw": text}}


def _at(repository: RepositoryFacts) -> str:
    return f"/repositories/{repository.full_name}"


def _pull(repository: RepositoryFacts, number: int) -> str:
    return f"{_at(repository)}/pullrequests/{number}"
