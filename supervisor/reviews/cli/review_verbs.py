"""Verbs of the review service, and their words: each calls the running supervisor and prints.

Those that start one, `demo` and `up --reviews`, are in `supervisor.cli`.
"""

from __future__ import annotations

from supervisor.cli.common.options import client_of, id_of, settings_of

# A constant that type checkers know: see `verbs`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from supervisor.cli.common.client import Client


def add_words(
    verb: Callable[..., argparse.ArgumentParser], group: Callable[[str, str, str], Any]
) -> None:
    """Add each verb and its options to `gatehouse`, by what `cli` adds its own with."""
    app = group("app", "The GitHub App that reviews.", "create")
    making = verb("create", app_create, app)
    making.add_argument(
        "--url", metavar="URL", required=True, help="where GitHub reaches you: https://HOST"
    )
    making.add_argument(
        "--organization", metavar="NAME", default="", help="whose it is (default: your own)"
    )
    bitbucket = group("bitbucket", "Reviews on Bitbucket Cloud.", "setup")
    setting_up = verb("setup", bitbucket_setup, bitbucket)
    for name, metavar, words in (
        ("--token-file", "FILE", "the token, or MAIL:TOKEN (default: it asks)"),
        ("--expires", "DAY", "when the token expires, as 2027-03-01"),
        ("--repos", "NAMES", "WORKSPACE/REPO, several with commas (default: it asks)"),
    ):
        setting_up.add_argument(name, metavar=metavar, default="", help=words)
    setting_up.add_argument("--url", metavar="URL", help="where Bitbucket reaches you")
    verb("bitbucket-mcp", bitbucket_mcp)
    pull = verb("review-pr", review_pr)
    pull.add_argument("pull", metavar="URL", help="of the pull request, or OWNER/REPO#NUMBER")
    repos = group("repos", "Which repositories are reviewed.", "list|enable|disable")
    verb("list", repos_list, repos)
    for name, switch in (
        ("enable", repos_enable),
        ("disable", repos_disable),
    ):
        verb(name, switch, repos).add_argument("name", metavar="OWNER/REPO")
    reviews = group("reviews", "What was reviewed.", "list|show|receipt|trace|requeue|undo")
    verb("list", reviews_list, reviews)
    for name, one in (
        ("show", reviews_show),
        ("receipt", reviews_receipt),
        ("trace", reviews_trace),
        ("requeue", reviews_requeue),
    ):
        verb(name, one, reviews).add_argument("id", metavar="ID", help="a review's id")
    undo = verb("undo", reviews_undo, reviews)
    undo.add_argument("of", metavar="RUN_OR_PULL", help="a review's id, or a pull request's URL")
    jobs = group("jobs", "The scheduled jobs of repositories.", "list|run|log|pause|resume")
    verb("list", jobs_list, jobs)
    for name, one in (
        ("run", jobs_run),
        ("log", jobs_log),
        ("pause", jobs_pause),
        ("resume", jobs_resume),
    ):
        parser = verb(name, one, jobs)
        parser.add_argument("repository", metavar="OWNER/REPO")
        parser.add_argument("job", metavar="JOB")
        if name == "pause":
            parser.add_argument("--why", metavar="TEXT", default="", help="what the page says")
    files = group("reviewerc", "The configuration of a repository's reviews.", "check")
    verb("check", reviewerc_check, files).add_argument(
        "file", metavar="FILE", nargs="?", default=".reviewerc", help="default: .reviewerc; - reads"
    )
    verb("holds", holds)
    holding = verb("hold", hold)
    holding.add_argument("--why", metavar="TEXT", default="", help="what the receipts say")
    for parser in (holding, verb("release", release)):
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--all", action="store_true", help="everything")
        what.add_argument("--forge", metavar="NAME", help="all of a forge: github, bitbucket")
        what.add_argument("--repo", dest="repository", metavar="NAME", help="of OWNER/REPO")
        what.add_argument("--pr", dest="pull", metavar="URL", help="of one pull request")
    deliveries = group("deliveries", "The webhooks that came in.", "list|again")
    verb("list", deliveries_list, deliveries)
    verb("again", deliveries_again, deliveries).add_argument("id", metavar="ID")


def app_create(options: argparse.Namespace) -> int:
    """Make the GitHub App that reviews, in a browser."""
    from supervisor.reviews.cli.app_create import create

    settings = settings_of(options)
    return create(settings, organization=options.organization, public_url=options.url)


def bitbucket_setup(options: argparse.Namespace) -> int:
    """Ask for Bitbucket's token, repositories and webhook, and check each."""
    from supervisor.reviews.cli.bitbucket_setup import SetupAnswers, set_up

    told = SetupAnswers(options.token_file, options.expires, options.repos, options.url)
    return set_up(settings_of(options), told)


def bitbucket_mcp(options: argparse.Namespace) -> int:
    """Serve Bitbucket's pull requests as tools (MCP, stdio) to an agent outside of Gatehouse."""
    from supervisor.reviews.cli.bitbucket_mcp import run

    return run(settings_of(options), lambda: client_of(options))


def repos_list(options: argparse.Namespace) -> int:
    """List the repositories that the App is installed on."""
    for one in client_of(options).get("/api/repos"):
        print(_repository_line(one))
    return 0


def repos_enable(options: argparse.Namespace) -> int:
    """Review a repository's pull requests."""
    return _switch(options, is_enabled=True)


def repos_disable(options: argparse.Namespace) -> int:
    """Review a repository's pull requests no more."""
    return _switch(options, is_enabled=False)


def jobs_list(options: argparse.Namespace) -> int:
    """List the scheduled jobs, when each is due, and its last run."""
    for one in client_of(options).get("/api/jobs"):
        due = f"next {_moment(one['next_due_at'])}" if one["next_due_at"] else "not scheduled"
        if one["paused_by"]:
            why = f": {_plain(one['paused_why'])}" if one["paused_why"] else ""
            due = f"paused by {_plain(one['paused_by'])}{why}"
        last = f"; last {_run_words(one['last'])}" if one["last"] else ""
        print(f"{one['repository']} {one['name']}  {due}{last}")
    return 0


def jobs_run(options: argparse.Namespace) -> int:
    """Have a scheduled job run now."""
    client = client_of(options)
    print(f"{client.post(f'/api/jobs/{_job_id(options)}/run')['id']}  waiting")
    return 0


def jobs_log(options: argparse.Namespace) -> int:
    """List the newest runs of a scheduled job, newest first."""
    for one in client_of(options).get(f"/api/jobs/{_job_id(options)}/runs"):
        print(f"{one['id']}  {_run_words(one)}")
    return 0


def jobs_pause(options: argparse.Namespace) -> int:
    """Have a scheduled job run no more, until it is resumed."""
    client_of(options).post(f"/api/jobs/{_job_id(options)}/pause", why=options.why)
    print(f"{options.job} is paused")
    return 0


def jobs_resume(options: argparse.Namespace) -> int:
    """Let a paused job run again, from its next time on."""
    client_of(options).post(f"/api/jobs/{_job_id(options)}/resume")
    print(f"{options.job} runs again")
    return 0


def _review_id(client: Client, options: argparse.Namespace) -> str:
    from supervisor.core.text.id_starts import only_of

    return only_of(id_of(options.id), [one["id"] for one in client.get("/api/reviews")])


def _job_id(options: argparse.Namespace) -> int:
    from supervisor.errors import UserError

    for one in client_of(options).get("/api/jobs"):
        wanted = (options.repository.lower(), options.job)
        if (one["repository"].lower(), one["name"]) == wanted:
            return int(one["id"])
    raise UserError(
        f"`{options.repository}` has no job `{options.job}`", "`gatehouse jobs list` lists them"
    )


def _run_words(one: dict[str, Any]) -> str:
    why = f": {_plain(one['reason'])}" if one["reason"] else ""
    answer = f", {one['answer']}" if one["answer"] else ""
    return f"{_moment(one['wanted_at'])} {one['outcome']}{answer}{why}"


def _moment(at: float) -> str:
    from datetime import datetime

    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"


def reviewerc_check(options: argparse.Namespace) -> int:
    """Check a `.reviewerc`: every mistake with its line, or what holds by it."""
    from supervisor.reviews.cli.reviewerc_check import check

    return check(options.file)


def reviews_list(options: argparse.Namespace) -> int:
    """List the newest reviews."""
    for one in client_of(options).get("/api/reviews"):
        where = f"{one['repository']}#{one['number']}"
        why = f" ({_plain(one['why'])})" if one["why"] else ""
        print(f"{one['id']}  {one['outcome']:<8}  {where}  {one['head'][:12]}{why}")
    return 0


def reviews_show(options: argparse.Namespace) -> int:
    """Print one review: its outcome, summary and findings."""
    client = client_of(options)
    one = client.get(f"/api/reviews/{_review_id(client, options)}")
    print(f"{one['repository']}#{one['number']}: {_plain(one['title'])}")
    if one["url"]:
        print(f"  {one['url']}")
    print(f"  {one['outcome']}{': ' + _plain(one['why']) if one['why'] else ''}")
    print(f"  head {one['head']}, {len(one['files'])} files, model {_plain(one['model'])}")
    for left_out in one["skipped"]:
        print(f"  left out: {_plain(left_out)}")
    if one["summary"]:
        print(f"  {_plain(one['summary'])}")
    for found in one["findings"]:
        finding = found["finding"]
        place = f"{_plain(finding['path'])}:{found['line'] or finding.get('line') or '-'}"
        print(f"  {found['id'][:8]}  {finding['severity']:<8}  {place}  {_plain(finding['title'])}")
    return 0


def reviews_receipt(options: argparse.Namespace) -> int:
    """Print the receipts of a review's head, as they were signed."""
    client = client_of(options)
    for one in client.get(f"/api/reviews/{_review_id(client, options)}/receipts"):
        print(one["body"])
        word = "good" if one["is_signed"] else "WRONG"
        print(f"signature {one['signature']} ({word})")
    return 0


def reviews_trace(options: argparse.Namespace) -> int:
    """Print the turns of a review: what the model said and called."""
    client = client_of(options)
    turns = client.get(f"/api/reviews/{_review_id(client, options)}/trace")
    for number, turn in enumerate(turns, 1):
        tokens = f"{turn['input_tokens']} tokens in, {turn['output_tokens']} out"
        print(f"turn {number}: {tokens}, {turn['seconds']:.1f} s")
        if turn["said"]:
            print(f"  {_plain(turn['said'])}")
        for call in turn.get("calls", ()):
            print(f"  {_plain(call['tool'])} {_plain(call['input'])}")
            print(f"    {_plain(call['result'])}")
    return 0


def reviews_requeue(options: argparse.Namespace) -> int:
    """Have the pull request of a review reviewed anew."""
    client = client_of(options)
    print(client.post(f"/api/reviews/{_review_id(client, options)}/requeue")["outcome"])
    return 0


def reviews_undo(options: argparse.Namespace) -> int:
    """Take back what a review posted, or all that stands on a pull request."""
    for run_id in client_of(options).post("/api/reviews/undo", of=options.of):
        print(f"{run_id}  taken back")
    return 0


def review_pr(options: argparse.Namespace) -> int:
    """Have a pull request reviewed now, also where it was."""
    print(client_of(options).post("/api/reviews", pull=options.pull)["outcome"])
    return 0


def deliveries_list(options: argparse.Namespace) -> int:
    """List the newest webhooks, and what became of each."""
    for one in client_of(options).get("/api/deliveries"):
        about = f"{one['repository']}#{one['number']}" if one["number"] else one["repository"]
        what = f"{one['event']} {one['action']}".strip()
        error = f"  {_plain(one['error'])}" if one["error"] else ""
        print(f"{one['id']}  {one['outcome'] or 'waits':<10}  {what}  {about}{error}")
    return 0


def deliveries_again(options: argparse.Namespace) -> int:
    """Have a webhook handled once more."""
    from supervisor.core.text.id_starts import only_of

    start, client = id_of(options.id), client_of(options)
    delivery = only_of(start, [one["id"] for one in client.get("/api/deliveries")])
    print(client.post(f"/api/deliveries/{delivery}/again")["outcome"])
    return 0


def holds(options: argparse.Namespace) -> int:
    """List what is held, by whom, and why."""
    _print_holds(client_of(options).get("/api/holds"))
    return 0


def hold(options: argparse.Namespace) -> int:
    """Start no reviews for now, and post nothing; webhooks are kept, what runs finishes."""
    _print_holds(client_of(options).post("/api/holds", why=options.why, **_held(options)))
    return 0


def release(options: argparse.Namespace) -> int:
    """Go on with what was held: the newest heads are reviewed."""
    _print_holds(client_of(options).post("/api/holds/release", **_held(options)))
    return 0


def _held(options: argparse.Namespace) -> dict[str, str]:
    for scope in ("forge", "repository", "pull"):
        if key := getattr(options, scope):
            return {"scope": scope, "key": key}
    return {"scope": "all"}


def _print_holds(found: list[dict[str, Any]]) -> None:
    for one in found:
        why = f": {_plain(one['why'])}" if one["why"] else ""
        print(f"{_plain(one['key']) or 'everything'}  held by {_plain(one['by'])}{why}")
    if not found:
        print("nothing is held")


def _switch(options: argparse.Namespace, *, is_enabled: bool) -> int:
    from supervisor.errors import UserError

    client = client_of(options)
    wanted = options.name.lower()
    for one in client.get("/api/repos"):
        if one["name"].lower() == wanted:
            client.patch(f"/api/repos/{one['id']}/settings", enabled=is_enabled)
            print(f"{one['name']}: reviews are {'on' if is_enabled else 'off'}")
            return 0
    raise UserError(
        f"no repository is called `{options.name}`", "`gatehouse repos list` lists them"
    )


def _repository_line(one: dict[str, Any]) -> str:
    state = "removed" if one["is_removed"] else "on" if one["enabled"] else "off"
    return f"{one['name']}  {state}  {one['running']} running, {one['waiting']} waiting"


def _plain(text: str) -> str:
    from supervisor.core.text.display import visible

    return visible(text, one_line=True)
