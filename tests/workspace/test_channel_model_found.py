"""Scripts by which the model found something amiss, as short as they could be made."""

import pytest

from tests.workspace.model_steps import Answer, Api, Crash, Look, Race, Script
from tests.workspace.model_tree import Op
from tests.workspace.test_channel_model import MODES, play

LOOK, APPROVE = Look("copy"), Answer("approve-all", 0)
ODD = "\udcff-odd"


def deleted_in_a_batch(point: int) -> Script:
    folder_to_file = Op("agent", "line", "d", "free/a", 0)
    return [folder_to_file, LOOK, Race(point, Op("person", "delete", "d", "free/a", 0), APPROVE)]


FOUND: dict[str, Script] = {
    "the person deletes a folder before a batch does": deleted_in_a_batch(1),
    "the person deletes a folder while a batch does": deleted_in_a_batch(6),
    "killed in a batch that can't be put back before its contents are kept": [
        Op("agent", "append", "d/c", "d/c", 4),
        LOOK,
        Race(2, Op("person", "save", "d/c", "d/c", 7), APPROVE),
        Op("agent", "link", "free/a", "free/a", 7),
        Op("agent", "line", "d/c", "d/c", 11),
        LOOK,
        Crash(18, APPROVE, (Op("person", "swap", "free/a", "d/c", 10),)),
    ],
    "a batch fails at a name that isn't UTF-8": [
        Op("agent", "sly", ODD, "d/e/f", 3),
        LOOK,
        APPROVE,
        Op("agent", "swap", ODD, "d/c", 4),
        LOOK,
        Op("person", "swap", ODD, "d/e/f", 4),
        APPROVE,
    ],
    "a file where a folder was whose mode the person changed": [
        Api("move", "d/e/f", "d/c", 7),
        Op("person", "chmod", "d/e", "closed/x", 9),
        Op("agent", "sly", "d/e", "d", 5),
    ],
    "the person's save of the same size and time, in the instant of an effect": [
        Op("agent", "line", "b", "b", 0),
        LOOK,
        Race(6, Op("person", "sly", "b", "b", 1), APPROVE),
    ],
}


@MODES
@pytest.mark.parametrize("script", FOUND.values(), ids=FOUND)
def test_what_the_model_found(mode: str, script: Script) -> None:
    play(script, mode)
