"""The user's code location. The library imports it by name when it is needed, never by an import statement.

The package that `TIDEMARK_CODE_LOCATION` names (such as `pipelines`) has `definitions.defs`. A single file, or a
package without that module, has `defs` itself. The only definitions of a module may have another name. The package may
list its declarations in `definitions.TABLES`, `feeds.FEEDS` and `streams.STREAMS`: then commands that need no Dagster
start faster. It may have a sample feed in `demo`: `demo.feed.first_round(settings)` writes the due files once, and
returns a line about them. `demo.command.app` is the command `tidemark feed`, which adds files until it is stopped.

Commands must import this module inside a function: a code location reads the environment when it is imported.

Each module that cannot be imported and each refused declaration is reported in one line. Commands that need the whole
code (`plan`, `lock`) fail with these lines. Commands that only read use `without_broken_parts`, and print the lines.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from dagster_tidemark.discovery import in_words, leaving_out, refusing
from dagster_tidemark.errors import Terminal, TidemarkError
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import refuse_overlaps

if TYPE_CHECKING:
    from dagster import Definitions

    from dagster_tidemark.component_declarations import Declaration
    from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
    from dagster_tidemark.incidents.channels.channel import Channel
    from dagster_tidemark.lakehouse.table import Table
    from dagster_tidemark.sources.feed import Feed
    from dagster_tidemark.streams.deliveries.declaration import Deliveries
    from dagster_tidemark.streams.stream_declaration import Stream

_Read = TypeVar("_Read")


class LocationBroken(Terminal):
    """Modules or declarations of the code location are broken. The message has a line for each."""


_BROKEN: dict[str, list[str]] = {}
"""Broken parts by code location. They stay broken, because a process imports a module only once."""


_is_partial: ContextVar[bool] = ContextVar("_is_partial", default=False)


@contextmanager
def without_broken_parts() -> Iterator[None]:
    """Skip broken modules and declarations whenever the block reads the code location; see `broken_parts`."""
    token = _is_partial.set(True)
    try:
        yield
    finally:
        _is_partial.reset(token)


def broken_parts(settings: Settings) -> "Sequence[str]":
    """Return a line for each module or declaration that was left out so far."""
    return tuple(_BROKEN.get(settings.code_location, ()))


def definitions(settings: Settings) -> "Definitions":
    """Return the definitions of the code location.

    Raises:
        LocationBroken: a part is broken, or within `without_broken_parts` nothing can be loaded.
    """
    return _read(settings, lambda: _loaded(_only_definitions_of(import_module(_definitions_module(settings)))))


def _definitions_module(settings: Settings) -> str:
    """Return the module of the definitions: `definitions` in the package, else the package or the single file."""
    name, own = f"{settings.code_location}.definitions", settings.code_location
    is_split = name in sys.modules or _spec(name) is not None
    holds_itself = own in sys.modules and (
        not hasattr(sys.modules[own], "__path__") or _definitions_in(sys.modules[own])
    )
    return own if holds_itself and not is_split else name


def _only_definitions_of(module: ModuleType) -> Any:
    """Return `defs` of a module, or its only definitions under another name, as Dagster finds them.

    Raises:
        LocationBroken: there are none, or several without one named `defs`.
    """
    found = _definitions_in(module)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise LocationBroken(f"module {module.__name__}: expected one dg.Definitions, found {names}; name it `defs`")
    return next(iter(found.values()))


def _definitions_in(module: ModuleType) -> dict[str, Any]:
    """Return the definitions of a module by name; only `defs` if it exists."""
    from dagster import Definitions, definitions

    kinds = (Definitions, type(definitions(lambda: Definitions())))
    named = {name: value for name, value in vars(module).items() if isinstance(value, kinds)}
    return {"defs": module.defs} if hasattr(module, "defs") else named


def _loaded(defs: "Definitions | Callable[[], Definitions]") -> "Definitions":
    """Return definitions. If they are a function (`@dg.definitions`), call it once."""
    return _called(defs) if callable(defs) else defs


@cache
def _called(function: "Callable[[], Definitions]") -> "Definitions":
    return function()


def asset_graph(settings: Settings) -> "AnyGraph":
    """Return the asset graph of the code location. For errors see `definitions`."""
    found = definitions(settings)
    try:
        return found.resolve_asset_graph()
    except Exception as error:  # Dagster has many error types for definitions that do not fit together
        raise LocationBroken("\n".join([*broken_parts(settings), in_words(error)])) from error


def sensor_names(settings: Settings) -> frozenset[str]:
    """Return the names of the code location's sensors. For errors see `definitions`."""
    return frozenset(sensor.name for sensor in definitions(settings).sensors or ())


def feeds(settings: Settings) -> "Sequence[Feed]":
    """Return the declared feeds: `FEEDS` of a package `feeds` and the feeds of components, or those of the definitions.

    If several feeds have the same name, only the first is returned. For errors see `definitions`.
    """
    from dagster_tidemark.sources.feed import Feed

    listed = _listed(settings, "feeds", "FEEDS", Feed)
    if listed is None:
        found = [*_of_definitions(settings, "feeds")]
    else:
        found = [*listed, *(each.feed for each in _of_components(settings) if each.feed)]
    first = {feed.name: feed for feed in reversed(found)}
    return [feed for feed in found if feed is first[feed.name]]


def streams(settings: Settings) -> "Sequence[Stream | Deliveries]":
    """Return the declared streams: `STREAMS` of a package `streams`, or those of the definitions.

    A location that lists feeds and no streams has none. For errors see `definitions`.
    """
    if _has(settings, "streams"):
        from dagster_tidemark.streams.deliveries.declaration import Deliveries
        from dagster_tidemark.streams.stream_declaration import Stream

        if (listed := _listed(settings, "streams", "STREAMS", (Stream, Deliveries))) is not None:
            return listed
    return () if _lists_feeds(settings) else _of_definitions(settings, "streams")


def channels(settings: Settings) -> "Sequence[Channel]":
    """Return the channels for messages about late data. For errors see `definitions`."""
    return _of_definitions(settings, "notify")


def tables(settings: Settings) -> "Mapping[str, Table]":
    """Return every declared table by name: `TABLES` and the tables of components, or those of the definitions.

    For errors see `definitions`.
    """
    from dagster_tidemark.lakehouse.table import Table

    listed = _listed(settings, "definitions", "TABLES", Table)
    if listed is None:
        return {table.name: table for table in _of_definitions(settings, "tables")}
    return {table.name: table for table in (*listed, *(each.table for each in _of_components(settings)))}


def _listed(settings: Settings, module: str, name: str, kind: "type | tuple[type, ...]") -> Sequence[Any] | None:
    """Return a list of declarations in a module of the code location.

    None if there is no such list: an existing location may use the names of module and list for something else.
    """
    if not _has(settings, module):
        return None
    found = getattr(_module(settings, module), name, None)
    is_list = isinstance(found, list | tuple) and all(isinstance(each, kind) for each in found)
    return found if is_list else None


def _lists_feeds(settings: Settings) -> bool:
    """Return True if the package `feeds` lists Tidemark's feeds. Its text is read, because its import takes seconds."""
    module = _spec(f"{settings.code_location}.feeds") if _has(settings, "feeds") else None
    if module is None or module.origin is None:
        return False
    text = Path(module.origin).read_text(encoding="utf-8", errors="replace")
    return "FEEDS" in text and "dagster_tidemark" in text


def _of_definitions(settings: Settings, kind: str) -> Sequence[Any]:
    """Return the feeds, tables, streams or channels that the definitions pass to `extend` or `build_definitions`."""
    definitions(settings)
    from dagster_tidemark.location_parts import declarations_of

    found = declarations_of(settings.code_location)
    return getattr(found, kind) if found else ()


def _of_components(settings: Settings) -> "Sequence[Declaration]":
    if not _has_components(settings):
        return ()
    from dagster_tidemark.component_declarations import declared_by

    return tuple(declared_by(definitions(settings).assets or ()).by_asset.values())


def _has_components(settings: Settings) -> bool:
    """Return True if the code location holds a `defs.yaml`.

    Most projects have none. Their feeds can be read without importing Dagster or loading assets, which takes seconds.
    """
    try:
        package = _spec(settings.code_location)
    except ImportError:
        return False
    folders = (package.submodule_search_locations if package else None) or ()
    return any(any(Path(folder).rglob("defs.y*ml")) for folder in folders)


@contextmanager
def _components_one_by_one(settings: Settings) -> Iterator[None]:
    """Load components one by one, so that a broken component or file does not break the others in its folder."""
    if not _has_components(settings):
        yield
        return
    from dagster_tidemark.dagster_internals import components

    with components.components_one_by_one(lambda path: _refusing_component(settings, path)):
        yield


@contextmanager
def _refusing_component(settings: Settings, path: Path) -> Iterator[None]:
    """Record the error of a component with its file; see `discovery.refusing`."""
    with refusing(settings.code_location):
        try:
            yield
        except TidemarkError:
            raise
        except Exception as error:  # a component is user code
            said = in_words(error, settings.code_location)
            files = [path / name for name in ("defs.yaml", "defs.yml", "component.yaml") if (path / name).exists()]
            if not files or files[0].name in said:
                raise
            raise LocationBroken(_in_file(files[0], said.removeprefix(f"module {settings.code_location}: "))) from error


def _in_file(file: Path, said: str) -> str:
    """Return Dagster's error about a YAML file, with the line of the name that it quotes."""
    if "No components found" in said:
        return f"{file}:1: it declares no component; write type and attributes, or remove the file"
    if "codec can't decode" in said:
        return f"{file}:1: {said}; save the file as UTF-8"
    said = re.sub(r"^\w+(Error|Exception): ", "", said).rstrip(".")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for word in reversed(re.findall(r"[`'\"]([\w.]+)[`'\"]", said)):
        if found := [number for number, line in enumerate(lines, 1) if word in line]:
            return f"{file}:{found[0]}: {said}; correct the name, or install what is missing"
    return f"{file}:1: {said}"


def taken_by(settings: Settings, feed: "Feed", table: "Table") -> str:
    """Return the reason why a new feed or its table conflicts with an existing declaration; empty if it does not.

    Broken parts of the code location are ignored.
    """
    with without_broken_parts():
        try:
            known, others = feeds(settings), tables(settings)
        except LocationBroken:
            return ""
    if feed.name in {each.name for each in known}:
        return f"feed {feed.name} already exists"
    if table.name in others:
        return f"table {table.name} already exists"
    for each in known:
        try:
            refuse_overlaps([each, feed])
        except ValueError as error:
            return str(error)
    return ""


def has_sample_feed(settings: Settings) -> bool:
    """Return True if the code location has a sample feed."""
    return _has(settings, "demo") and _has(settings, "demo.feed")


def has_feed_command(settings: Settings) -> bool:
    """Return True if the sample feed has a command, which adds files until it is stopped."""
    return has_sample_feed(settings) and _has(settings, "demo.command")


def first_round(settings: Settings) -> str:
    """Write the sample files that are due by now, once.

    Returns:
        A line with their number.

    Raises:
        Terminal: the code location has no sample feed.
    """
    said: str = _demo(settings, "feed").first_round(settings)
    return said


def feed_command(settings: Settings) -> Any:
    """Return the Typer app behind `tidemark feed`.

    Raises:
        Terminal: the code location has no sample feed, or only `demo.feed`.
    """
    return _demo(settings, "command").app


def _demo(settings: Settings, name: str) -> Any:
    if not has_sample_feed(settings):
        raise Terminal(f"{settings.code_location} has no module `demo.feed`: there is no sample feed to start")
    if not _has(settings, f"demo.{name}"):
        raise Terminal(f"{settings.code_location} has no module `demo.{name}`: use `tidemark up` instead")
    return _module(settings, f"demo.{name}")


def _has(settings: Settings, name: str) -> bool:
    module = f"{settings.code_location}.{name}"
    try:
        return module in sys.modules or _spec(module) is not None
    except Exception as error:  # this imports the packages above it
        raise LocationBroken(in_words(error, settings.code_location)) from error


def _spec(module: str) -> ModuleSpec | None:
    """Return the spec of a module; None if there is no such module, or if it was created in memory."""
    try:
        return find_spec(module)
    except ValueError:
        return None
    except ModuleNotFoundError:
        above = sys.modules.get(module.rpartition(".")[0])
        if above is None or hasattr(above, "__path__"):
            raise
        return None  # a single file has no modules in it


def _module(settings: Settings, name: str) -> Any:
    return _read(settings, lambda: import_module(f"{settings.code_location}.{name}"))


def _read(settings: Settings, read: Callable[[], _Read]) -> _Read:
    """Return the result of reading user code.

    Raises:
        LocationBroken: a part is broken, or within `without_broken_parts` nothing can be loaded.
    """
    # Beta features are used on purpose. User definitions filter this warning too, but feeds are also imported without
    # definitions. The filter is by message, because importing the class of the warning takes a second.
    warnings.filterwarnings("ignore", message=".* is currently in beta")
    broken = _BROKEN.setdefault(settings.code_location, [])
    with leaving_out() as found:
        try:
            with _components_one_by_one(settings):
                given = read()
        except (LocationBroken, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a module may raise anything, SystemExit too
            said = [_from_root(settings, line) for line in [*found, in_words(error, settings.code_location)]]
            raise LocationBroken("\n".join(dict.fromkeys([*broken, *said]))) from error
        finally:
            lines = [_from_root(settings, line) for line in found]
            broken += [line for line in dict.fromkeys(lines) if line not in broken]
    if broken and not _is_partial.get():
        raise LocationBroken("\n".join(broken))
    return given


def _from_root(settings: Settings, line: str) -> str:
    """Return a line of an error with paths relative to the project's root."""
    return line.replace(f"{settings.project}/", "") if settings.project else line
