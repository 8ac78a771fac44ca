"""An option with an empty value, such as `--group "$GROUP"` with an unset variable, is refused by every command."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path and the name of each option with a value."""
    for name, sub in getattr(command, "commands", {}).items():
        yield from options(sub, (*path, name))
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.is_flag and not parameter.count:
            yield (*path, parameter.opts[0])


OPTIONS = list(options(typer.main.get_command(app)))


def test_each_option_refuses_an_empty_value() -> None:
    assert len(OPTIONS) > 60 and ("spark-conf", "--jars") in OPTIONS and ("plan", "--preview") in OPTIONS
    for words in OPTIONS:
        *_, option = words
        for given in ([*words, ""], [*words[:-1], f"{option}="]):
            done = CliRunner().invoke(app, given)
            said = f"tidemark: {option}: expected a value, found an empty text; leave the option out for its default\n"
            assert (done.exit_code, done.stderr) == (2, said), given


@pytest.mark.parametrize(
    "words", [["spark-conf", "--jars", "a="], ["spark-conf", "--jars=a="], ["spark-conf", "--json"]]
)
def test_other_values_are_not_empty(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 0
