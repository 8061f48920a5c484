"""People of Bitbucket, whose names anybody may take."""

from supervisor.reviews.core.forge_people import (
    NOBODY,
    is_same_person,
    person,
    person_id,
    person_name,
)

UUID = "{0f5b2a44-6f1e-4c43-9c3b-0a1b2c3d4e5f}"


def test_the_id_counts_and_the_name_is_for_people() -> None:
    ada = person({"nickname": "ada", "display_name": "Ada L.", "uuid": UUID})
    assert ada == f"ada {UUID}"
    renamed = person({"display_name": "Ada of {x}\n\u202e", "uuid": UUID.upper()})
    assert (person_name(ada), person_id(ada)) == ("ada", UUID)
    assert person_id(renamed) == UUID
    assert "{" not in person_name(renamed)
    assert is_same_person(ada, renamed)
    assert not is_same_person(ada, f"ada {{{'1' * 8}-6f1e-4c43-9c3b-0a1b2c3d4e5f}}")
    assert not is_same_person("ada", ada)
    assert is_same_person("login", "login")
    assert (person_name("login"), person_id("login")) == ("login", "")


def test_who_has_no_id_is_nobody() -> None:
    assert person({"nickname": "ada"}) == NOBODY
    assert person({"nickname": "ada", "uuid": "{no}"}) == NOBODY
    assert person({"uuid": UUID}) == f"somebody {UUID}"
