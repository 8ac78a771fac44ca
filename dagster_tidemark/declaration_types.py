"""Check of the arguments of `extend` and `build_definitions` by type, so that an error names the argument.

Does not belong here: whether the declarations fit each other (`location_parts`).
"""

from collections.abc import Iterable, Mapping
from inspect import isfunction
from typing import Any

from dagster_tidemark.errors import shown
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.table_partitions import DeclarationRefused

_KINDS: Mapping[str, tuple[type, ...]] = {"tables": (Table,), "feeds": (Feed,), "streams": (Stream, Deliveries)}


def lists_of(
    settings: Any, *, assets: Any, tables: Any, feeds: Any, streams: Any, notify: Any
) -> tuple[list[Any], list[Any], list[Any], list[Any], list[Any]]:
    """Return the declarations as lists, in the order of the parameters. Each argument may be an iterator.

    Raises:
        DeclarationRefused: an argument has the wrong type. The message names the argument, its value and the remedy.
    """
    if not isinstance(settings, Settings):
        raise DeclarationRefused(f"settings: expected load_settings(), found {shown(settings)}")
    given = {"assets": assets, "tables": tables, "feeds": feeds, "streams": streams, "notify": notify}
    for name, found in given.items():
        if not isinstance(found, Iterable):
            raise DeclarationRefused(f"{name}: expected a list, found {shown(found)}: write {name}=[...]")
    lists = {name: list(found) for name, found in given.items()}
    for each in lists["assets"]:
        if type(each) in (list, tuple):  # an AssetSpec is a tuple too
            raise DeclarationRefused("assets: expected assets and checks, found a list: write *feed_assets(...)")
        if isfunction(each) or isinstance(each, (Table, Feed, Stream, Deliveries)):
            raise DeclarationRefused(f"assets: expected assets and checks, found {shown(each)}")
    for name, kinds in _KINDS.items():
        for each in lists[name]:
            if not isinstance(each, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise DeclarationRefused(f"{name}: expected {wanted}, found {shown(each)}")
    return lists["assets"], lists["tables"], lists["feeds"], lists["streams"], lists["notify"]
