"""What egress says of an approved command's own session belongs to the session it is of."""

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Draw, Question, Ready, Used
from supervisor.network.reach import meant, of_session, stand_in


def test_a_stand_in_is_new_each_time_and_leads_back() -> None:
    first, second = stand_in("abc"), stand_in("abc")
    assert first != second
    for one in (first, second):
        drawn = Draw(question_id=1, session_id=one, kind="requests", wanted=1)
        assert meant(drawn) == Draw(question_id=1, session_id="abc", kind="requests", wanted=1)


def test_a_report_of_a_stand_ins_traffic_is_not_its_sessions_last() -> None:
    used = Used(session_id=stand_in("abc"), requests=1, bytes_out=2, is_last=True)
    assert meant(used) is used
    assert of_session(used).session_id == "abc"


def test_a_question_stays_until_it_is_told_of() -> None:
    action = Network(operation="connect", host="a.test", port=443)
    question = Question(question_id=1, session_id=stand_in("abc"), connection_id="c", action=action)
    assert meant(question) is question
    assert of_session(question).session_id == "abc"


def test_all_else_is_as_it_was() -> None:
    ready, used = Ready(), Used(session_id="abc", requests=1, bytes_out=2)
    assert meant(ready) is ready
    assert meant(used) is used
