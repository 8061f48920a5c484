"""The agent API's client: it survives a restart, gives up in bounded time, and shows refusals as
they were meant."""

import threading

import pytest

from agent_image.reviewer.gatehouse import ApiError, Gatehouse, Refused
from tests.fakes.agent_api import ASK_ROUTES, AgentApi


class Time:
    """A clock that moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def client(api: AgentApi, token: str = "session-token", **options: float) -> Gatehouse:
    return Gatehouse(api.url, token, **options)


def test_each_ask_reaches_its_route(api: AgentApi) -> None:
    door = client(api)
    door.execute("ls", cwd="src", reason="r", timeout_s=5)
    door.write("a", "b", reason="r")
    door.edit("a", "b", "c", replace_all=True, reason="r")
    door.packages("pip install x", reason="r")
    door.git("git push", reason="r")
    door.propose("allow", "exec(ls)", "w")
    assert tuple(route for route, _ in api.asks) == ASK_ROUTES
    assert api.asks[0][1] == {"command": "ls", "cwd": "src", "reason": "r", "timeout_s": 5}
    assert api.asks[2][1] == {
        "path": "a",
        "old": "b",
        "new": "c",
        "replace_all": True,
        "reason": "r",
    }
    assert api.asks[5][1] == {"effect": "allow", "rule": "exec(ls)", "why": "w"}


def test_wait_returns_the_answer(api: AgentApi) -> None:
    door = client(api)
    ask = door.execute("ls")
    assert ask.status == "pending"
    threading.Timer(
        0.05, api.resolve, (ask.id, "used"), {"outcome": {"ok": True, "exit_code": 0}}
    ).start()
    done = door.wait(ask.id, 20)
    assert done.is_granted
    assert done.outcome == {"ok": True, "exit_code": 0}


def test_wait_survives_a_restart_of_the_supervisor(api: AgentApi) -> None:
    door = client(api)
    ask = door.execute("ls")
    polling = threading.Event()
    answers: list[str] = []

    def wait() -> None:
        polling.set()
        answers.append(door.wait(ask.id, 60).status)

    thread = threading.Thread(target=wait)
    thread.start()
    polling.wait()
    for _ in range(2):
        api.stop()
        api.start()
    api.resolve(ask.id, "denied")
    thread.join(timeout=60)
    assert answers == ["denied"]


def test_an_ask_is_repeated_with_the_same_key_while_the_supervisor_starts(api: AgentApi) -> None:
    time = Time()
    api.failures = [503, 502]
    Gatehouse(api.url, api.token, sleep=time.sleep, clock=lambda: time.now).execute("ls")
    keys = {headers["idempotency-key"] for _, _, headers in api.calls}
    assert len(api.calls) == 3
    assert len(keys) == 1
    assert len(api.asks) == 1


def test_an_outage_ends_in_bounded_time_with_one_clear_line() -> None:
    time = Time()
    gone = AgentApi()
    gone.start()
    gone.stop()
    door = Gatehouse(gone.url, "t", outage_s=30, sleep=time.sleep, clock=lambda: time.now)
    with pytest.raises(ApiError, match=r"can't be reached .*start the review again"):
        door.execute("ls")
    assert time.now <= 30
    assert time.slept == sorted(time.slept)
    assert max(time.slept) <= 5


def test_wait_ends_at_its_limit_with_the_request_still_pending(api: AgentApi) -> None:
    door = client(api)
    ask = door.execute("ls")
    assert door.wait(ask.id, 0).status == "pending"


def test_a_grant_that_is_never_carried_out_is_not_waited_for_for_ever(api: AgentApi) -> None:
    time = Time()
    door = Gatehouse(api.url, api.token, sleep=time.sleep, clock=lambda: time.now)
    ask = door.packages("pip install x")
    api.resolve(ask.id, "approved")
    assert door.wait(ask.id, 3600, settle_s=2).status == "approved"
    assert time.now == pytest.approx(2)


def test_a_refusal_carries_why_and_rule(api: AgentApi) -> None:
    api.failures = [403]
    with pytest.raises(Refused, match=r"refused: the test says so; rule exec\(x\)"):
        client(api).execute("ls")


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_mistake_is_not_repeated(api: AgentApi, status: int) -> None:
    api.failures = [status] * 3
    with pytest.raises(ApiError, match="scripted failure; the test says so"):
        client(api).execute("ls")
    assert len(api.calls) == 1


def test_another_token_is_refused(api: AgentApi) -> None:
    with pytest.raises(ApiError, match="not this session's token"):
        client(api, token="other").session()


def test_a_request_id_cannot_leave_its_path(api: AgentApi) -> None:
    with pytest.raises(ApiError, match="no such request"):
        client(api).wait("../session?x=", 0)


@pytest.mark.parametrize("url", ["https://x", "file:///etc/passwd", "127.0.0.1:3701", ""])
def test_an_address_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(ApiError, match="not an http address"):
        Gatehouse(url, "t")
