"""Answers comments that mention us, after asking the forge for their author's permission.

The comment's text is also read from the forge: the webhook only says that a comment exists. A
reaction confirms it; an answer in words is an act like any other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine

from supervisor.base.clock import Clock
from supervisor.core.forge_acts import Act
from supervisor.errors import NotFoundError, UserError
from supervisor.reviews.core import deliveries, mentions, slots
from supervisor.reviews.core.config.effective import EffectiveConfig
from supervisor.reviews.core.config.shapes import MENTIONS
from supervisor.reviews.core.forge_people import is_same_person, person_name
from supervisor.reviews.core.mentions import Mention
from supervisor.reviews.core.receipts import CALLED_OFF
from supervisor.reviews.core.trust import WRITERS
from supervisor.reviews.forges.base import ForgeError, Forges, PostedComment
from supervisor.reviews.reconcile import Reconcile, facts_of
from supervisor.reviews.rounds import Rounds
from supervisor.reviews.store import findings, queries
from supervisor.reviews.stored_slots import Slots
from supervisor.reviews.targets import act_on
from supervisor.reviews.webhooks import payload_of

IGNORED, NOT_PERMITTED = "ignored", "not-permitted"
HEARD, DONE, UNCLEAR = "eyes", "+1", "confused"
# What each says in words, on a forge that has no reactions; "": nothing.
SIGNS = {HEARD: "", DONE: "Done.", UNCLEAR: "That can't be done now."}
# How long the forge's answer about a person's permission is reused for further comments.
PERMISSION_S = 60.0


class Mentions:
    """The mentions of one supervisor. `readers` are those of each forge's webhooks; `ask` requests
    an act in a repository's session; `takes_bang`: `!` calls us, too."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        forges: Forges,
        readers: Mapping[str, deliveries.WebhookReader],
        slots_: Slots,
        reconcile: Reconcile,
        rounds: Rounds,
        ask: Callable[[Act, str, str], None],
        *,
        takes_bang: bool = False,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._forges = forges
        self._readers = readers
        self._slots = slots_
        self._reconcile = reconcile
        self._rounds = rounds
        self._ask = ask
        self._takes_bang = takes_bang
        # By repository and person, with the time of the answer.
        self._permissions: dict[tuple[int, str], tuple[str, float]] = {}

    async def handle(self, repository: queries.Repository, delivery: queries.Delivery) -> str:
        """Answer a delivery's comment; return the outcome in a word."""
        payload = msgspec.json.decode(payload_of(delivery))
        forge = self._forges.of(repository)
        said = self._readers[delivery.forge].comment(delivery.event, payload)
        own, names = await forge.own_login(), await forge.own_names()
        # The webhook's content can only be a reason not to ask the forge.
        if said is None or self._read(said.body, names) is None:
            return IGNORED
        if self._known(repository, said.author) not in (None, *WRITERS):
            return NOT_PERMITTED
        is_inline = said.is_inline
        key = queries.MentionKey(repository.forge, said.id, is_inline)
        comment = await self._comment(repository, delivery.number, said.id, is_inline=is_inline)
        if comment is None or comment.number is None or comment.is_bot:
            return IGNORED
        found = self._read(comment.body, names)
        if is_same_person(comment.author, own):
            return IGNORED
        if found is None:
            return IGNORED
        permission = await self._permission(repository, comment.author)
        pull = await self._pull(repository, comment.number)
        with self._engine.begin() as connection:
            is_wanted = queries.add_mention(
                connection,
                key,
                pull_id=pull.id,
                author=comment.author[:256],
                command=found.command,
                arguments=found.arguments[: mentions.MOST_ARGUMENT_CHARS],
                at=self._clock.now(),
            )
            # Recorded at once: a run treats an open mention as the wish of somebody who may.
            if is_wanted and permission not in WRITERS:
                queries.end_mention(connection, key, NOT_PERMITTED)
        if not is_wanted:
            return "duplicate"
        if permission not in WRITERS:
            return NOT_PERMITTED
        outcome = "too-long"
        is_prompt = found.command not in MENTIONS
        if is_prompt and not found.is_too_long:
            # The run, which has the configuration, knows whether there is such a prompt.
            await self._reconcile.pull(repository, pull.number, again=True)
            return "waits"
        if not is_prompt:
            answer = _Answer(repository, pull, comment, is_inline)
            reaction, words = await self._do(answer, found)
            self._say(answer, reaction, words)
            outcome = "done"
        with self._engine.begin() as connection:
            queries.end_mention(connection, key, outcome)
        return outcome

    def _read(self, body: str, names: Sequence[str]) -> Mention | None:
        read = (mentions.parse_mention(body, name, takes_bang=self._takes_bang) for name in names)
        return next(filter(None, read), None)

    def called(
        self, repository: queries.Repository, pull: queries.PullRequest, config: EffectiveConfig
    ) -> list[queries.WaitingMention]:
        """Return the mentions that call for a prompt of this configuration, and react to them.
        Unknown mentions are dropped."""
        known = {one.value.id for one in config.commands}
        with self._engine.begin() as connection:
            waiting = _prompts_waiting(connection, pull.id)
            for one in waiting:
                if one.command not in known:
                    queries.end_mention(connection, _key(repository, one), IGNORED)
        found = [one for one in waiting if one.command in known]
        for one in found if self._forges.of(repository).has_reactions else ():
            spelled = f"review:{one.comment_id}" if one.is_inline else str(one.comment_id)
            act = act_on(repository, pull, "react", body=HEARD, targets=(spelled,))
            self._ask(act, repository.session_id, f"an answer to {person_name(one.author)}")
        return found

    def answered(
        self, repository: queries.Repository, called: Sequence[queries.WaitingMention]
    ) -> None:
        """Record that the prompts of these mentions have run."""
        with self._engine.begin() as connection:
            for one in called:
                queries.end_mention(connection, _key(repository, one), "done")

    def wants_more(self, pull_id: int) -> bool:
        """Return whether there is a mention that no run has handled."""
        with self._engine.connect() as connection:
            return bool(_prompts_waiting(connection, pull_id))

    async def call_again(self) -> None:
        """Run mentions that had to wait for a full slot or another reason that has passed."""
        with self._engine.connect() as connection:
            found = [queries.pull(connection, one) for one in queries.pulls_called(connection)]
            places = [
                (queries.repository_of(connection, one.repository_id), one.number) for one in found
            ]
        for repository, number in places:
            await self._reconcile.pull(repository, number, again=True)

    async def _do(self, on: "_Answer", found: Mention) -> tuple[str, str]:
        """Do what a mention asks for; return the reaction to it, and the answer in words, "" for
        none."""
        if found.is_too_long:
            most = mentions.MOST_ARGUMENT_CHARS
            return UNCLEAR, f"More than {most:,} characters of arguments are not read."
        pull, by = on.pull, on.comment.author
        match found.command:
            case "review":
                is_known = self._last_reviewed(pull.id) == pull.head_sha
                full = "full" in found.argv or is_known
                outcome = await self._reconcile.pull(
                    on.repository, pull.number, full=full, called=True
                )
                return (HEARD if outcome == "wanted" else UNCLEAR), ""
            case "pause":
                self._change(pull.id, paused_by=by)
                self._slots.happened(pull.id, slots.Closed("paused"))
                return DONE, ""
            case "resume":
                self._change(pull.id, paused_by="")
                await self._reconcile.pull(on.repository, pull.number)
                return DONE, ""
            case "stop":
                self._slots.happened(pull.id, slots.Closed(CALLED_OFF))
                return DONE, ""
            case "ignore":
                return await self._ignore(on, found)
        return await self._why(on, found)

    async def _ignore(self, on: "_Answer", found: Mention) -> tuple[str, str]:
        wish = mentions.read_ignore(found)
        name = wish.finding or await self._of_thread(on)
        try:
            self._rounds.say(
                *(on.pull.id, name, "wont-fix"),
                by=on.comment.author,
                why=wish.why,
                scope="repository" if wish.everywhere else "pull",
            )
        except (NotFoundError, UserError) as error:
            return UNCLEAR, f"{error}."
        return DONE, ""

    async def _why(self, on: "_Answer", found: Mention) -> tuple[str, str]:
        name = found.argv[0].strip("`") if found.argv else await self._of_thread(on)
        with self._engine.connect() as connection:
            known = findings.of_pull(connection, on.pull.id)
        match = [one for one in known if name and one.id.startswith(name.casefold())]
        if len(match) != 1:
            return UNCLEAR, "Say which finding: its comment shows its id."
        return HEARD, mentions.why_text(match[0])

    async def _of_thread(self, on: "_Answer") -> str:
        """Return the short id of the finding that an inline comment's thread is about."""
        if not on.is_inline or on.comment.in_reply_to is None:
            return ""
        first = await self._comment(
            on.repository, on.comment.number, on.comment.in_reply_to, is_inline=True
        )
        own = await self._forges.of(on.repository).own_login()
        is_ours = first is not None and is_same_person(first.author, own)
        return mentions.finding_of(first.body) if first and is_ours else ""

    def _say(self, on: "_Answer", reaction: str, words: str) -> None:
        number = on.comment.id
        why = f"an answer to {person_name(on.comment.author)}"
        spelled = f"review:{number}" if on.is_inline else str(number)
        if self._forges.of(on.repository).has_reactions:
            self._ask(
                act_on(on.repository, on.pull, "react", body=reaction, targets=(spelled,)),
                *(on.repository.session_id, why),
            )
        else:
            # A word where there is no sign; a review that begins is seen by itself.
            words = words or SIGNS[reaction]
        if not words:
            return
        if on.is_inline:
            said = act_on(on.repository, on.pull, "reply", body=words, targets=(spelled,))
        else:
            said = act_on(
                on.repository, on.pull, "comment", body=words, title=f"answer to {number}"
            )
        self._ask(said, on.repository.session_id, why)

    async def _permission(self, repository: queries.Repository, person: str) -> str:
        """Return a person's permission. Anyone may comment, so the forge is asked at most once a
        minute."""
        found = self._known(repository, person)
        if found is None:
            asked_at = self._clock.monotonic()
            found = await self._forges.of(repository).permission(facts_of(repository), person)
            self._permissions[repository.id, person] = found, asked_at
        return found

    def _known(self, repository: queries.Repository, person: str) -> str | None:
        """Return the forge's answer about a person within the last minute; None if it wasn't
        asked."""
        fresh = self._clock.monotonic() - PERMISSION_S
        known = {whose: one for whose, one in self._permissions.items() if one[1] > fresh}
        self._permissions = known
        return known[repository.id, person][0] if (repository.id, person) in known else None

    async def _comment(
        self,
        repository: queries.Repository,
        number: int | None,
        comment_id: int,
        *,
        is_inline: bool,
    ) -> PostedComment | None:
        facts, forge = facts_of(repository), self._forges.of(repository)
        try:
            return await forge.comment(facts, number, comment_id, is_inline=is_inline)
        except ForgeError as error:
            if error.status == 404:
                return None
            raise

    async def _pull(self, repository: queries.Repository, number: int) -> queries.PullRequest:
        with self._engine.connect() as connection:
            known = queries.pull_numbered(connection, repository.id, number)
        if known is None:
            await self._reconcile.pull(repository, number)
            with self._engine.connect() as connection:
                known = queries.pull_numbered(connection, repository.id, number)
        assert known is not None
        return known

    def _last_reviewed(self, pull_id: int) -> str:
        with self._engine.connect() as connection:
            return queries.slot(connection, pull_id).last_reviewed_sha

    def _change(self, pull_id: int, **facts: object) -> None:
        with self._engine.begin() as connection:
            queries.change_pull(connection, pull_id, **facts)


def _key(repository: queries.Repository, one: queries.WaitingMention) -> queries.MentionKey:
    return queries.MentionKey(repository.forge, one.comment_id, one.is_inline)


def _prompts_waiting(connection: Connection, pull_id: int) -> list[queries.WaitingMention]:
    """Return the mentions that call for a prompt; built-in commands are done at once."""
    waiting = queries.waiting_mentions(connection, pull_id)
    return [one for one in waiting if one.command not in MENTIONS]


class _Answer(NamedTuple):
    """A comment to be answered, and its place."""

    repository: queries.Repository
    pull: queries.PullRequest
    comment: PostedComment
    is_inline: bool
