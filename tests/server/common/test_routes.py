"""Which handlers of a module are served."""

from supervisor.server.common.routes import routes_of
from supervisor.server.operator.pages import quiet_page, security_page


def test_every_handler_of_a_module_is_served_and_none_that_it_imports() -> None:
    assert {one.fn.__name__ for one in routes_of(security_page)} == {"security_events", "security"}
    found = routes_of(security_page, quiet_page)
    assert len(found) == len(routes_of(security_page)) + len(routes_of(quiet_page))
    assert routes_of(security_page)[0] is security_page.security_events
