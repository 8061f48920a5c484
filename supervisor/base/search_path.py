"""PATH without what depends on the folder that somebody is in."""

import os


def absolute_entries(search_path: str) -> str:
    """Return a PATH without its empty and relative entries: these mean whatever folder a program
    is started in."""
    return os.pathsep.join(one for one in search_path.split(os.pathsep) if one.startswith("/"))
