"""Which handlers of a module are served."""

from supervisor.server.common.routes import routes_of
from supervisor.server.operator.pages import pages, quiet_page


def test_every_handler_of_a_module_is_served_and_none_that_it_imports() -> None:
    own = ["banner_part", "get_status", "find_ids", "stop_all", "resume"]
    assert [one.fn.__name__ for one in routes_of(pages)] == own
    assert routes_of(quiet_page, pages) == [*routes_of(quiet_page), *routes_of(pages)]
