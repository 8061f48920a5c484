"""`gatehouse undo`: show what an undo would do, ask, and have exactly that done.

If a supervisor runs, it does the work, as for the page. If none runs (`gatehouse run` has ended),
the verb opens the data folder itself, under the same lock, so that two can never work on one.
Sessions that a crash left are first recovered by the next supervisor.
"""

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any

import msgspec

from supervisor.base.clock import RealClock
from supervisor.cli.terminal import agrees, shown_id
from supervisor.core.text.display import visible
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.folding import marked
from supervisor.errors import RefusedError, UserError
from supervisor.settings import Settings

# One call: from a path of the API and a body to its answer.
type Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
MOST_SHOWN_LINES = 2000
_WORDS = {"stays": "stays (holds more)", "mode": "permissions"}
FORMS = "14:05, 14:05:30, 2026-03-01T14:05 or 5m (ago)"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def undo(
    settings: Settings,
    *,
    any_id: str | None,
    session: str | None,
    everything: bool,
    to: str | None,
    merge: bool,
    is_agreed: bool,
) -> int:
    """Run the verb. Return its exit code: 2 where something prevents the undo, or the person said
    no."""
    if sum((any_id is not None, everything, to is not None)) != 1:
        raise UserError("nothing to undo was named", "give an ID, --all or --to TIME")
    since = None if to is None else parse_moment(to, RealClock().now())
    given = {"id": any_id, "session": session, "since": since, "merge": merge}
    body = {name: value for name, value in given.items() if value is not None}
    ask = _way(settings)
    seen = ask("/api/undo/preview", body)
    print(preview_text(seen))
    if seen["problems"]:
        merging = "" if merge else ", or --merge to keep what you edited since"
        raise RefusedError(
            "it can't be undone as a whole, so nothing was undone", f"undo less{merging}"
        )
    if not seen["count"]:
        print("nothing would change: everything is as it was before")
        return 0
    if not is_agreed and not agrees(f"Undo {_paths(seen['count'])}?"):
        raise RefusedError("nothing was undone", "answer y, or pass --yes")
    # Exactly what was shown, even if another session has become the newest meanwhile.
    done = ask("/api/undo", body | {"session": seen["session_id"], "token": seen["token"]})
    print(
        f"undone: {done['what']}, {_paths(done['count'])}; `gatehouse undo {done['undo']}` brings"
        " it back"
    )
    return 0


def preview_text(seen: dict[str, Any]) -> str:
    """Return what would be done: every path, then the differences."""
    lines = [
        f"session {shown_id(seen['session_id'])} on {marked(seen['workspace'], one_line=True)}",
        f"taking back {seen['what']}:",
    ]
    if seen["forgotten"]:
        lines.append(f"  ({seen['forgotten']})")
    for file in seen["files"]:
        what = "can't be undone" if file["problem"] else _WORDS.get(file["doing"], file["doing"])
        counts = (
            f"  +{file['added']} -{file['removed']}" if file["added"] or file["removed"] else ""
        )
        why = f"  ({marked(file['problem'], one_line=True)})" if file["problem"] else ""
        lines.append(f"  {what:<18}  {marked(file['path'], one_line=True)}{counts}{why}")
    for file in seen["files"]:
        if file["diff"] or file["notes"]:
            lines += ["", f"--- {marked(file['path'], one_line=True)}"]
            lines += [visible(text, one_line=True) for text in (*file["notes"], *file["diff"])]
    if len(lines) > MOST_SHOWN_LINES:
        lines = [*lines[:MOST_SHOWN_LINES], f"... {len(lines) - MOST_SHOWN_LINES} more lines"]
    return "\n".join(lines)


def _paths(count: int) -> str:
    return f"{count} path{'' if count == 1 else 's'}"


def _way(settings: Settings) -> Ask:
    """Return the way to ask: by the running supervisor, or alone."""
    from supervisor.cli.common.client import find

    client = find(settings.data_dir)
    if client is not None:
        running = client
        return lambda path, body: dict(running.post_and_wait(path, **body))
    return lambda path, body: asyncio.run(_alone(settings, path, body))


async def _alone(settings: Settings, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Answer the API's calls without a server. Raise UserError where another process holds the data
    folder."""
    from supervisor.parts import Parts
    from supervisor.server.operator.pages import undo_api

    parts = Parts(settings)
    try:
        if path == "/api/undo":
            done = await undo_api.carry_out(
                parts, msgspec.convert(body, undo_api.UndoNowBody), by="operator (cli)"
            )
        else:
            done = await undo_api.preview(parts, msgspec.convert(body, undo_api.UndoBody))
        answer: dict[str, Any] = msgspec.to_builtins(done)
        return answer
    except msgspec.ValidationError as error:
        raise UserError(str(error), "see `gatehouse undo --help`") from error
    finally:
        parts.close()


def parse_moment(text: str, now: float, zone: tzinfo | None = None, name: str = "--to") -> float:
    """Return seconds since the epoch, in the past. A time of day means its last occurrence; `zone`
    None: this machine's."""
    given = text.strip()
    found = _clock_time(given, now, zone) or _iso_time(given, zone)
    if found is None:
        try:
            found = now - parse_duration(re.sub(r"\s*ago$", "", given), name)
        except UserError:
            raise UserError(f"{name}: `{text}` is no time", f"write {FORMS}") from None
    if not 0 < found <= now:
        raise UserError(f"{name}: `{text}` hasn't come yet, or is no time", f"write {FORMS}")
    return found


def _clock_time(text: str, now: float, zone: tzinfo | None) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups())
    if hour > 23 or minute > 59 or second > 59:
        return None
    today = datetime.fromtimestamp(now, zone).replace(
        hour=hour, minute=minute, second=second, microsecond=0
    )
    moment = today if today.timestamp() <= now else today - timedelta(days=1)
    return moment.timestamp()


def _iso_time(text: str, zone: tzinfo | None) -> float | None:
    if len(text) < len("2026-03-01"):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (
            moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone)
        ).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
