"""The routes that modules define: each handler that stands in a served module is served."""

from types import ModuleType

from litestar.handlers import BaseRouteHandler


def routes_of(*modules: ModuleType) -> list[BaseRouteHandler]:
    """Return the handlers of these modules, without those that they import."""
    return [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, BaseRouteHandler) and one.fn.__module__ == module.__name__
    ]
