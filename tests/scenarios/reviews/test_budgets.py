"""What reviews cost, by the books of the model's own server: never more than any cap, and the same
to the micro-dollar."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from supervisor.core.forge_acts import Act
from supervisor.core.money import microusd
from supervisor.ledger.spending import read_prices
from supervisor.reviews.demo.stage import NAME, Stage
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.store import allowances, queries
from supervisor.settings import ROOT
from supervisor.store.engine import open_database
from tests.fakes.messages_server import MessagesServer
from tests.fakes.paid_reader import (
    INPUT,
    KEY,
    MODEL,
    NAMES,
    OUTPUT,
    books,
    look,
    paid,
    paid_server,
    settled,
    url_of,
)
from tests.fakes.paid_reader import written as the_review
from tests.fakes.reviewed import (
    CHANGE,
    Reviewed,
    forge_with_people,
    our_reviews,
    reviewed,
    reviewing_at,
)
from tests.scenarios.process import Gatehouse, until

pytestmark = [pytest.mark.xdist_group("reviews-money"), pytest.mark.timeout(300)]
USD = 10**12


async def test_without_money_nothing_starts_and_a_receipt_and_a_comment_say_so(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge, repo_day_cost="0usd") as on:
        pull = on.open_pull()
        receipt = await on.receipt("held")
        assert receipt.reason == "no-budget-repository"
        check = await on.check(pull.head_sha, "neutral")
        assert "held: no budget is left for this repository today" in on.words(check)
        (comment,) = [
            one
            for one in on.acts()
            if isinstance(one.action, Act) and one.action.operation == "comment"
        ]
        assert "The limit is $0.00. On " in comment.action.body  # type: ignore[union-attr]
        assert on.running.parts.sessions.recent() == [], "nothing was started"
        async with client(on) as operator:
            page = (await operator.get("/reviews")).text
            assert "nothing is left of the limit of acme/shop for" in page
            assert (await operator.get("/api/usage?period=900d")).status_code == 400
        told = on.running.audit("review_budget_used")
        assert [(one["scope"], one["percent"]) for one in told] == [("repository", 100)]


@pytest.mark.many
async def test_what_was_held_goes_on_by_itself_once_the_limit_is_raised(
    tmp_path: Path, forge: Tongue
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with reviewing_at(stage, tmp_path, repo_day_cost="0usd") as on:
            pull = on.open_pull()
            await on.check(pull.head_sha, "neutral")
            on.forge.loses_webhooks = True
            on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")
        async with reviewing_at(stage, tmp_path) as on:
            receipt = await on.receipt("found", "clean")
            assert receipt.head_sha == pull.head_sha, "the newest head, though nobody told of it"


async def test_every_layer_has_what_the_servers_own_books_say(tmp_path: Path) -> None:
    with paid_server([look(1), look(2, 900), the_review()]) as model:
        async with paid(model, tmp_path) as on:
            on.open_pull()
            await on.receipt("found")
            used = await settled(on)
            assert len(model.served) == 3
            assert {one[0] for one in used.values()} == {books(model)}
            assert set(used) == {"run", "pull", "repository", "owner", "all"}
            with on.service.engine.connect() as connection:
                (run,) = queries.newest_runs(connection)
            assert run.cost == books(model)
            assert run.partial == ""
            async with client(on) as operator:
                answer = (await operator.get("/api/usage?period=7d")).json()
                page = (await operator.get("/reviews")).text
            assert answer["cost_microusd"] == microusd(books(model))
            assert [one["name"] for one in answer["repositories"]] == [NAME]
            assert [one["name"] for one in answer["models"]] == [MODEL]
            caps = {one["scope"]: one for one in answer["caps"]}
            assert caps["repository"]["limit_microusd"] == 5_000_000
            assert caps["repository"]["used_microusd"] == microusd(books(model))
            assert "of $5.00 this day" in page


def client(on: Reviewed) -> httpx.AsyncClient:
    running = on.running.supervisor
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{running.port}",
        headers={"Authorization": f"Bearer {running.auth.cli_token}"},
    )


async def test_a_reader_concludes_with_what_it_has_and_nothing_passes(tmp_path: Path) -> None:
    script = [look(number, 16_000) for number in range(10)]

    def told(body: dict) -> bool:
        return body["tool_choice"] == {"type": "none"}

    steps = [
        lambda body, turn=turn: the_review(left_out=["shop/cart.py"]) if told(body) else turn
        for turn in script
    ]
    with paid_server([*steps]) as model:
        async with paid(model, tmp_path, review_cost="0.6usd") as on:
            pull = on.open_pull()
            (post,) = await on.posts()
            assert isinstance(post.action, Act)
            assert (
                "its money was nearly used; not looked at: shop/cart"
                in post.action.body.replace("\\", "")
            )
            await on.check(pull.head_sha, "neutral")
            receipt = await on.receipt("found")
            assert '"partial":"its money was nearly used; not looked at:' in receipt.body
            used = await settled(on)
            assert 1 < len(model.served) < 5
            assert used["run"][0] == books(model) <= 6 * USD // 10
            assert not on.running.audit("budget_refused"), "it stopped before it was stopped"


async def test_a_model_without_a_price_costs_the_highest_and_passes_nothing(
    tmp_path: Path,
) -> None:
    with paid_server([look(1), the_review()]) as model:
        wanted = {"review_cost": "12usd", "pr_cost": "12usd", "repo_day_cost": "12usd"}
        async with paid(model, tmp_path, review_model="no-such-model-9", **wanted) as on:
            on.open_pull()
            await on.receipt("found")
            used = await settled(on)
            prices = read_prices(on.running.parts.settings.prices_file)
            assert not prices.find("no-such-model-9").is_known
            assert {name for name, _, _ in model.served} == {"no-such-model-9"}
            ledger = on.running.audit("spend_settled")
            assert all(one["flags"] == ["unknown_model"] for one in ledger)
            assert used["run"][0] == sum(one["cost_picousd"] for one in ledger) <= 12 * USD
            assert used["run"][0] > books(model), "more than any model that has a price"


CALLERS = r"""
import json, os, sys, threading, urllib.request

def call(number):
    body = {"model": sys.argv[2], "max_tokens": 1000,
            "messages": [{"role": "user", "content": "x" * number}]}
    headers = {"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"],
               "anthropic-version": "2023-06-01"}
    url = sys.argv[1] + "/v1/messages"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            print(answer.status)
    except Exception as error:
        print(error)

threads = [threading.Thread(target=call, args=(number,)) for number in range(64)]
for one in threads: one.start()
for one in threads: one.join()
"""


async def test_64_calls_at_once_pass_no_cap_and_add_up(tmp_path: Path) -> None:
    """A reader's session that goes wild: its budget is a share of what its run reserved."""
    with paid_server([lambda body: the_review()] * 64) as model:
        async with paid(model, tmp_path, review_cost="0.2usd", ask_at_limit=True) as on:
            script = (sys.executable, "-c", CALLERS, url_of(model), MODEL)
            rules = f"network(POST {url_of(model)}/v1/messages), network(127.0.0.1:{model.port})"
            policy = f"version: 1\nallow: [{rules}]\n"
            (tmp_path / "wild.yaml").write_text(policy)
            folder = tmp_path / "work"
            folder.mkdir()
            session = await on.running.start(
                folder, *script, budget="0.2usd", policy=tmp_path / "wild.yaml"
            )
            on.running.parts.spending.fix(session.id)
            await on.running.ended(session)
            spent = None
            while (spent := on.running.parts.spending.spent(session.id)) is None:
                await asyncio.sleep(0.05)
            output = on.running.output(session)
            assert output.count("200\n") == len(model.served) > 5, output[:2000]
            assert spent == books(model) <= USD // 5
            assert "402" in output, "some were refused, and nobody was asked"
            assert not [one for one in on.running.requests(session) if one.answer is None]


# -- kill -9 --------------------------------------------------------------------------------------

STEPS: dict[str, Callable[[Gatehouse, MessagesServer], object]] = {
    "started": lambda product, model: product.events("session_started"),
    "called": lambda product, model: product.events("spend_reserved"),
    "answered": lambda product, model: product.events("spend_settled"),
    "reported": lambda product, model: product.events("review_recorded"),
}
SHARE = ("called",)


@pytest.mark.parametrize("step", STEPS if os.environ.get("EVERYTHING") else SHARE)
def test_killed_at_any_step_no_cap_is_passed_and_the_books_agree(
    gatehouse: Path, tmp_path: Path, forge: Tongue, free_tcp_port: int, step: str
) -> None:
    with (
        forge_with_people(tmp_path / "stage", forge) as stage,
        paid_server([look(1), look(2), the_review()]) as model,
    ):
        program = with_names(gatehouse, tmp_path)
        product = Gatehouse(program, tmp_path, "version: 1\nallow: [review(* */*)]\n")
        process = start(product, stage, model, tmp_path, free_tcp_port)
        stage.tell(f"http://127.0.0.1:{free_tcp_port}")
        stage.forge.commit(NAME, "feature", CHANGE, "A change", base="main")
        pull = stage.forge.open_pull(NAME, "feature", title="Count")
        until(lambda: STEPS[step](product, model), step)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process = start(product, stage, model, tmp_path, free_tcp_port)
        until(lambda: our_reviews(stage.forge, pull) or None, "the review")
        product.until_told(
            lambda: "found" in product.ok("reviews", "list") or None, "a run that ended"
        )
        assert len(our_reviews(stage.forge, pull)) == 1
        used = until(lambda: all_settled(product.data / "reviews.db"), "money to be settled")
        product.end()
        # The last line of each: a kill between a line and the database has it settled again.
        last = {one["reservation"]: one for one in product.events("spend_settled")}
        ledger = list(last.values())
        total = sum(one["cost_picousd"] for one in ledger)
        lost = [one for one in ledger if "lost" in one["flags"]]
        # What the ledger knows is in every layer, to the pico-dollar.
        assert used == dict.fromkeys(("run", "pull", "repository", "owner", "all"), total)
        # A call whose end nobody saw counts as the most that it can have cost, and never as less
        # than the server's books have it.
        known = total - sum(one["cost_picousd"] for one in lost)
        assert known <= books(model) <= total <= 2 * USD
        if not lost:
            assert microusd(total) == microusd(books(model))


def with_names(gatehouse: Path, folder: Path) -> Path:
    """The same program with a name in its DNS."""
    program = folder / "gatehouse"
    program.write_text(
        f"""#!{gatehouse.with_name("python")}
import sys
from supervisor.app import app
from supervisor.cli.cli import main
made = app.Supervisor.__init__
app.Supervisor.__init__ = lambda self, *a, **k: made(self, *a, **k | {{"names": {NAMES!r}}})
sys.exit(main())
"""
    )
    program.chmod(0o755)
    return program


def start(
    product: Gatehouse, stage: Stage, model: MessagesServer, folder: Path, port: int
) -> subprocess.Popen[bytes]:
    env = {
        "GATEHOUSE_FORGE_PORT": str(port),
        **stage.environment(),
        "GATEHOUSE_REVIEW_DEBOUNCE": "1s/3s",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url_of(model),
        "GATEHOUSE_REVIEW_MODEL": MODEL,
    }
    log = folder / f"log-{len(product.started)}.txt"
    process = product.launch("up", "--reviews", log=log, **env)
    until(lambda: b"webhooks come in" in log.read_bytes() or None, "the door for webhooks")
    return process


def all_settled(database: Path) -> dict[str, int] | None:
    """What each layer has used, once every attempt is settled."""
    engine = open_database(database, Path(queries.__file__).parent / "migrations")
    try:
        with engine.connect() as connection:
            if connection.exec_driver_sql(
                "select 1 from allowances where settled_at is null"
            ).first():
                return None
            rows = connection.exec_driver_sql(
                "select scope, sum(used) from allowances group by 1"
            ).all()
            assert allowances.attempts_over(connection) == []
    finally:
        engine.dispose()
    return {scope: int(used) for scope, used in rows}


def test_the_books_of_the_server_have_the_prices_of_the_table() -> None:
    found = read_prices(ROOT / "policy/prices.yaml").find(MODEL)
    assert found.is_known
    assert (found.price.rates.input, found.price.rates.output) == (INPUT, OUTPUT)
