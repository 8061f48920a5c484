"""Only a page on the forge's own host is linked."""

from supervisor.reviews.core.forge_pages import own_page, pages_base, pull_page
from tests.tables import each_row

BASES = {
    "GitHub": ("https://api.github.com", "https://github.com"),
    "an Enterprise Server": ("https://git.acme.test/api/v3", "https://git.acme.test"),
    "an Enterprise Cloud": ("https://api.acme.ghe.com", "https://acme.ghe.com"),
    "another API's host": ("https://api.acme.test", "https://api.acme.test"),
    "the demo": ("http://127.0.0.1:4000/api", "http://127.0.0.1:4000"),
    "no encryption": ("http://git.acme.test/api/v3", ""),
    "no web": ("ftp://git.acme.test", ""),
    "a user": ("https://a@git.acme.test", ""),
    "no address": ("https://[", ""),
    "nothing": ("", ""),
}
BASE = "https://github.com"
FOREIGN = [
    *("https://github.com.evil.test/a", "https://evil.test/github.com", "http://github.com/a"),
    *(
        "https://a@github.com/b",
        "javascript:alert(1)",
        "//github.com/a",
        "https://github.com:8443/",
    ),
    *("https://github.com\\@evil.test", "https://github.com/a b", "https://github.com/\n", ""),
]


@each_row(("api", "base"), BASES.values(), ids=BASES)
def test_the_pages_are_beside_the_api(api: str, base: str) -> None:
    assert pages_base(api) == base


@each_row("url", FOREIGN, ids=repr)
def test_what_is_elsewhere_is_no_page_of_the_forge(url: str) -> None:
    assert own_page(BASE, url) == ""


def test_a_pull_request_and_a_post_have_their_addresses() -> None:
    url = "https://github.com/acme/shop/pull/1#pullrequestreview-7"
    assert own_page(BASE, url) == url
    assert own_page("", url) == ""
    assert pull_page(BASE, "acme/shop", 1) == "https://github.com/acme/shop/pull/1"
    for repository, number in (("acme/shop", 0), ("acme", 1), ("a/b/c", 1), ("a/b?c", 1)):
        assert pull_page(BASE, repository, number) == ""
    assert pull_page("", "acme/shop", 1) == ""
