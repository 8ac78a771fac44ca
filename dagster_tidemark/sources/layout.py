"""Layout of a feed's keys: how folders that name a time, a dimension's key or both determine a file's partition.

Belongs here: the names of these folders, and the format of partition keys. Does not belong here: windows of time
(`times`), other settings of a feed (`feed`), and keys that fit no partition (`misplaced`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property, lru_cache
from itertools import product

from dagster_tidemark.sources.times import DIRECTIVES, NEEDED, OFFSET, Grain, Times

Partition = str | None
"""A partition key as Dagster writes it (`2026-09-28-07:00`, `2026-09-28`, `emea`, `2026-09-28|emea`), or None for an
unpartitioned feed."""

SEPARATOR = "|"
"""Dagster's separator between the dimensions of a partition key."""

_DIRECTIVE = r"(%.|\{[^{}]*\})"

_MANY = 1000
"""Number of folders whose classification is cached."""

_Said = dict[str, str]
"""Values in folders or in a partition key: digits by directive (`%Y`), and keys by placeholder (`{name}`)."""


@dataclass(frozen=True)
class Classified:
    """Classification of a key by its folders, read down to the partition or to the first folder that fits no partition.

    Args:
        folders: The folders that were read, each with a trailing slash.
        day: The day that the folders name, or the first day of their week or month; None if they name no day.
        folders_of_day: The folders down to the day.
        partition: The partition that the folders name; None if no partition fits.
        unknown: A dimension and its undeclared key, if this key is the reason why no partition fits.
        is_above: True if no partition fits because the key has too few folders.
    """

    folders: str
    day: date | None = None
    folders_of_day: str = ""
    partition: Partition = None
    unknown: tuple[str, str] | None = None
    is_above: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """Folders below a prefix.

    Args:
        grain: The length of a time partition.
        folders: The folder names. Each has either directives (`%Y %m %d %H %M`, coarse before fine) or one name of
            `keys` in braces.
        keys: The keys of each dimension, by the name of the dimension.
        timezone: The zone of the times in folders and in partition keys.
        time_name: The name of the time dimension next to other dimensions; by default the grain.

    Raises:
        ValueError: the folders do not determine the grain's times or the keys.
    """

    grain: Grain
    folders: str
    keys: Mapping[str, Collection[str]] = field(default_factory=dict)
    timezone: str = "UTC"
    time_name: str | None = None
    times: Times = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = re.findall("%.", self.folders)
        if set(found) != NEEDED[self.grain] or len(found) != len(set(found)):
            needed = " ".join(sorted(NEEDED[self.grain])) or "none"
            raise ValueError(
                f"folders of a feed by {self.grain}: expected the directives {needed}, once each, found {self}"
            )
        told = ["".join(re.findall(_DIRECTIVE, name)) for name in self._names]
        is_clear = all(of and not ("%" in of and "{" in of) for of in told)
        if found != sorted(found, key=list(DIRECTIVES).index) or not is_clear:
            raise ValueError(f"folders: expected each to name a time, coarse before fine, or a key, found {self}")
        if sorted(of for of in told if "{" in of) != sorted(map(_placeholder, self.keys)):
            names = ", ".join(self.keys) or "none"
            raise ValueError(f"folders: expected one for each of the declared keys ({names}), found {self}")
        for name, keys in self.keys.items():
            if isinstance(keys, str) or not keys:
                raise ValueError(f"keys of {name}: expected a list of strings, found {keys!r}")
            if wrong := [key for key in keys if not key or "/" in key or key in (".", "..")]:
                raise ValueError(f"key {wrong[0]!r} of {name} cannot be the name of a folder")
        if self.dimension_of_time in self.keys:
            raise ValueError(f"time and keys need different names, both are named {self.dimension_of_time}")
        if len(self.dimensions) > 2:
            raise ValueError(f"Dagster allows partitions of at most two dimensions, found {', '.join(self.dimensions)}")
        object.__setattr__(self, "times", Times(self.grain, self.timezone))

    def __str__(self) -> str:
        return repr(self.folders)

    @property
    def depth(self) -> int:
        """Number of folders between the prefix and a partition's files."""
        return len(self._names)

    @property
    def by(self) -> str:
        """Description of one partition, in words."""
        time = [str(self.grain).replace("_", " ")] if self.grain is not Grain.NONE or not self.keys else []
        return " and ".join([*time, *self.keys])

    @property
    def dimension_of_time(self) -> str | None:
        """Name of the time dimension; None if there is none."""
        return None if self.grain is Grain.NONE else self.time_name or str(self.grain)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the parts of a partition key, in their order."""
        time = self.dimension_of_time
        return tuple(sorted([*self.keys, *([time] if time else [])]))

    def classify(self, key: str) -> Classified:
        """Return the classification of a key, or of a folder (ending in "/"), given relative to the prefix."""
        return self._classified(tuple(key.split("/")[:-1][: self.depth]))

    def below(self, partition: str) -> str:
        """Return the folders of a partition, with a trailing slash."""
        return self._written(f"{self.folders}/", self._said_by(partition))

    def shared_by_day(self, partition: str) -> str:
        """Return the common beginning of the keys of a partition and of other partitions of its day."""
        return self._written(self._of_day, self._said_by(partition))

    def of_day(self, day: date) -> list[str]:
        """Return the possible beginnings of a day's keys; for a weekly or monthly grain, of the day's week or month."""
        named = [name for name in self.keys if _placeholder(name) in self._of_day]
        said = self.times.of_day(day)[0]
        return sorted(self._written(self._of_day, said | of) for of in self._every_key(named))

    def partitions_of(self, day: date) -> list[Partition]:
        """Return the partitions that overlap a day; all partitions of a layout without a time dimension."""
        times = [{}] if self.grain is Grain.NONE else self.times.of_day(day)
        return [self._key(time | of) for time in times for of in self._every_key(self.keys)]

    def has(self, partition: Partition, since: date = date.min) -> bool:
        """Return True if a partition key fits this layout and its window ends after the day `since` began."""
        if partition is None or not self.dimensions:
            return partition is None and not self.dimensions
        if not self.keys:
            return self.times.is_key(partition, since)
        parts = self._parts(partition)
        if parts is None or any(parts[name] not in self._known[name] for name in self.keys):
            return False
        time = self.dimension_of_time
        return time is None or self.times.is_key(parts[time], since)

    def window(self, partition: Partition) -> tuple[datetime, datetime] | None:
        """Return the UTC start and end of a partition's window; None if it has no time dimension."""
        time = self.dimension_of_time
        return self.times.window(self._require_parts(partition)[time]) if time and partition else None

    @cached_property
    def _classified(self) -> Callable[[tuple[str, ...]], Classified]:
        return lru_cache(maxsize=_MANY)(self._read)  # called for every file, and many files share a folder

    def _read(self, folders: tuple[str, ...]) -> Classified:
        said: _Said = {}
        found = Classified("")
        for (regex, names), folder in zip(self._patterns, folders, strict=False):
            found = replace(found, folders=f"{found.folders}{folder}/")
            if (match := regex.fullmatch(folder)) is None:
                return found
            said |= {name: text for name, text in zip(names, match.groups(), strict=True) if text}
            try:
                day = self.times.day_of(said) if "%Y" in said else None
            except ValueError:
                return found
            if day and found.day is None:
                found = replace(found, day=day, folders_of_day=found.folders)
            for name in self.keys:
                key = said.get(_placeholder(name))
                if key and key not in self._known[name]:
                    return replace(found, unknown=(name, key))
        if len(folders) < self.depth:
            return replace(found, is_above=True)
        return replace(found, partition=self._key(said))

    def _key(self, said: _Said) -> Partition:
        parts = {name: said[_placeholder(name)] for name in self.keys}
        if time := self.dimension_of_time:
            parts[time] = self.times.key(said)
        return SEPARATOR.join(parts[name] for name in self.dimensions) if parts else None

    def _said_by(self, partition: str) -> _Said:
        parts, time = self._require_parts(partition), self.dimension_of_time
        return {_placeholder(name): parts[name] for name in self.keys} | (
            self.times.digits(parts[time]) if time else {}
        )

    def _require_parts(self, partition: str) -> dict[str, str]:
        parts = self._parts(partition)
        if parts is None:
            raise ValueError(f"{partition!r} is not a partition of a feed by {self.by}")
        return parts

    def _parts(self, partition: str) -> dict[str, str] | None:
        """Return the parts of a partition key by dimension; None if their number is wrong."""
        parts = partition.split(SEPARATOR) if len(self.dimensions) > 1 else [partition]
        return dict(zip(self.dimensions, parts, strict=True)) if len(parts) == len(self.dimensions) else None

    def _every_key(self, names: Iterable[str]) -> list[_Said]:
        named = [[(_placeholder(name), key) for key in self.keys[name]] for name in names]
        return [dict(of) for of in product(*named)]

    def _written(self, folders: str, said: _Said) -> str:
        def _text(match: re.Match[str]) -> str:
            return said[match[0]] + (said.get(OFFSET, "") if match[0] == self.times.finest else "")

        return re.sub(_DIRECTIVE, _text, folders)

    @cached_property
    def _of_day(self) -> str:
        """The folder names up to the day, with the fixed text that follows the day in the same name."""
        if self.grain is Grain.NONE:
            return f"{self.folders}/"
        told = max(self.folders.index(d) + len(d) for d in NEEDED[self.grain] - {"%H", "%M"})
        rest = f"{self.folders[told:]}/".partition("/")[0]
        fixed = re.split(_DIRECTIVE, rest)[0]
        return self.folders[:told] + fixed + ("/" if fixed == rest else "")

    @cached_property
    def _known(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(keys) for name, keys in self.keys.items()}

    @cached_property
    def _names(self) -> list[str]:
        return self.folders.split("/") if self.folders else []

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], list[str]]]:
        """Pattern of each folder's name, with the directive or placeholder of each group."""
        found = []
        for name in self._names:
            text, says = "", list[str]()
            for part in re.split(_DIRECTIVE, name):
                is_told = re.fullmatch(_DIRECTIVE, part)
                text += f"({DIRECTIVES.get(part, '.+')})" if is_told else re.escape(part)
                says += [part] if is_told else []
                if part and part == self.times.finest and self.times.has_offsets:
                    text, says = rf"{text}([+-]\d{{4}})?", [*says, OFFSET]
            found.append((re.compile(text, re.ASCII | re.DOTALL), says))
        return found


def _placeholder(name: str) -> str:
    return f"{{{name}}}"


def folders_in_words(folders: str) -> str:
    """Return folders in the notation for users: `dt=YYYY-MM-DD/hour=HH`."""
    for directive, letters in {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH", "%M": "MM"}.items():
        folders = folders.replace(directive, letters)
    return folders
