"""Empty and relative entries of PATH mean whatever folder somebody is in."""

import pytest

from supervisor.base.search_path import absolute_entries


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        (":/usr/bin", "/usr/bin"),
        ("/usr/bin:", "/usr/bin"),
        ("/usr/bin::/bin", "/usr/bin:/bin"),
        (".:./bin:../x:bin:~/bin:/bin", "/bin"),
        ("", ""),
    ],
)
def test_only_absolute_folders_are_kept(path: str, kept: str) -> None:
    assert absolute_entries(path) == kept
