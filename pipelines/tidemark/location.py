"""The user's code location, as the machinery finds it: by name, when it is needed, and never by an import of its own.

The package that `TIDEMARK_CODE_LOCATION` names (`pipelines`) holds `definitions.defs`, `definitions.TABLES` and
`feeds.FEEDS`. It may hold streams, `streams.STREAMS`, and a sample feed, `demo`: `demo.feed.first_round(settings)`
writes what is due, once, and returns a line about it; `demo.command.app` is the command `pipelines feed`, which goes
on.

Commands import this inside a function: a code location reads the environment when it is imported.
"""

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.settings import Settings

if TYPE_CHECKING:
    from dagster import BaseAssetGraph, Definitions

    from pipelines.tidemark.lakehouse.tables import Table
    from pipelines.tidemark.sources.feed import Feed
    from pipelines.tidemark.streams.stream import Stream


class NoSampleFeed(Terminal):
    """The code location has no `demo.feed`, so there is nothing to write. `make dev FEED=none` starts without."""


def definitions(settings: Settings) -> "Definitions":
    """The definitions of the code location."""
    found: Definitions = _module(settings, "definitions").defs
    return found


def asset_graph(settings: Settings) -> "BaseAssetGraph[Any]":
    """The asset graph of the code location."""
    return definitions(settings).resolve_asset_graph()


def feeds(settings: Settings) -> "Sequence[Feed]":
    """What lands in the bucket."""
    found: Sequence[Feed] = _module(settings, "feeds").FEEDS
    return found


def streams(settings: Settings) -> "Sequence[Stream]":
    """What comes in as messages; a location without a package `streams` has none."""
    if find_spec(f"{settings.code_location}.streams") is None:
        return ()
    found: Sequence[Stream] = _module(settings, "streams").STREAMS
    return found


def tables(settings: Settings) -> "Mapping[str, Table]":
    """Every declared table by its name."""
    found: Sequence[Table] = _module(settings, "definitions").TABLES
    return {table.name: table for table in found}


def has_sample_feed(settings: Settings) -> bool:
    """Whether the code location brings data to look at."""
    demo = f"{settings.code_location}.demo"
    return find_spec(demo) is not None and find_spec(f"{demo}.feed") is not None


def first_round(settings: Settings) -> str:
    """Write the sample files that are due by now, once.

    Returns:
        How many they were, in a line.

    Raises:
        NoSampleFeed: the code location brings none.
    """
    said: str = _demo(settings, "feed").first_round(settings)
    return said


def feed_command(settings: Settings) -> Any:
    """The Typer app behind `pipelines feed`.

    Raises:
        NoSampleFeed: the code location brings none.
    """
    return _demo(settings, "command").app


def _demo(settings: Settings, name: str) -> Any:
    if not has_sample_feed(settings):
        raise NoSampleFeed(f"{settings.code_location} has no module `demo.feed`: there is no sample feed to start")
    return _module(settings, f"demo.{name}")


def _module(settings: Settings, name: str) -> Any:
    # What is in beta is used knowingly. `definitions` says so too, but feeds are also imported without it. By message,
    # as importing the class takes a second.
    warnings.filterwarnings("ignore", message=".* is currently in beta")
    return import_module(f"{settings.code_location}.{name}")
