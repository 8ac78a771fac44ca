"""How a feed's keys say which partition a file is in: folders of times, of names, of both, or one fixed key.

The one place that knows what such folders are called, and how a partition key is made up. Does not belong here: which
times there are (`times`), what a feed declares beside it (`feed`), and what becomes of keys that fit nowhere
(`misplaced`).
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
"""What Dagster puts between the dimensions of a key."""

_DIRECTIVE = r"(%.|\{[^{}]*\})"

_MANY = 1000
"""Folders of which is kept what they say."""

_Said = dict[str, str]
"""What a place or a key says: a directive to its digits, `{name}` to a key of that name."""


@dataclass(frozen=True)
class Classified:
    """What the folders of a key say, read as far as a partition's go, or to the first one that leads to none.

    Args:
        folders: Those that were read, each with the slash at its end.
        day: The day they are of, or the first one of their week or month; None where they do not say it.
        folders_of_day: Those of them down to the one that says the day.
        partition: The partition whose files lie there; None where there is none.
        unknown: Why there is none, where it is a key that the feed does not have: its name and the key.
        is_above: Whether there is none because the folders of partitions lie further below.
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
        grain: How it is cut by time.
        folders: Their names, each with the directives `%Y %m %d %H %M` it is made of, coarse before fine, or with one
            of the names of `keys` in braces.
        keys: Name to the keys there are of it.
        timezone: The zone of the folders' times, and of the keys'.
        time_name: What the dimension of time is called, where there are others; by default as the grain.

    Raises:
        ValueError: the folders do not say the grain's times, or the keys.
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
                f"folders of a feed by {self.grain} have the directives {needed}, once each, unlike {self}"
            )
        told = ["".join(re.findall(_DIRECTIVE, name)) for name in self._names]
        is_clear = all(of and not ("%" in of and "{" in of) for of in told)
        if found != sorted(found, key=list(DIRECTIVES).index) or not is_clear:
            raise ValueError(f"each folder names a time, coarse before fine, or a key, unlike {self}")
        if sorted(of for of in told if "{" in of) != sorted(map(_placeholder, self.keys)):
            names = ", ".join(self.keys) or "none"
            raise ValueError(
                f"folders name the keys that are declared ({names}), each in one of its own, unlike {self}"
            )
        for name, keys in self.keys.items():
            if isinstance(keys, str) or not keys:
                raise ValueError(f"keys of {name} are a list of texts, not {keys!r}")
            if wrong := [key for key in keys if not key or "/" in key or key in (".", "..")]:
                raise ValueError(f"{wrong[0]!r} of {name} cannot be the name of a folder")
        if self.dimension_of_time in self.keys:
            raise ValueError(f"time and keys need different names, unlike {self.dimension_of_time}")
        if len(self.dimensions) > 2:
            raise ValueError(f"Dagster knows partitions of two dimensions at most, unlike {', '.join(self.dimensions)}")
        object.__setattr__(self, "times", Times(self.grain, self.timezone))

    def __str__(self) -> str:
        return repr(self.folders)

    @property
    def depth(self) -> int:
        """How many folders lie between the prefix and a partition's files."""
        return len(self._names)

    @property
    def by(self) -> str:
        """What one partition is, in words."""
        time = [str(self.grain).replace("_", " ")] if self.grain is not Grain.NONE or not self.keys else []
        return " and ".join([*time, *self.keys])

    @property
    def dimension_of_time(self) -> str | None:
        """The name of the dimension of time; None where there is none."""
        return None if self.grain is Grain.NONE else self.time_name or str(self.grain)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the parts of a key, in their order."""
        time = self.dimension_of_time
        return tuple(sorted([*self.keys, *([time] if time else [])]))

    def classify(self, key: str) -> Classified:
        """What the folders of a key say, which is given as it goes on below the prefix; a folder's own ends in "/"."""
        return self._classified(tuple(key.split("/")[:-1][: self.depth]))

    def below(self, partition: str) -> str:
        """The folders of a partition, with the slash at their end."""
        return self._written(f"{self.folders}/", self._said_by(partition))

    def shared_by_day(self, partition: str) -> str:
        """What all keys of a partition begin with, and those of others of its day."""
        return self._written(self._of_day, self._said_by(partition))

    def of_day(self, day: date) -> list[str]:
        """What the keys of a day begin with, each of them with one of these; of a week or month, those of all of it."""
        named = [name for name in self.keys if _placeholder(name) in self._of_day]
        said = self.times.of_day(day)[0]
        return sorted(self._written(self._of_day, said | of) for of in self._every_key(named))

    def partitions_of(self, day: date) -> list[Partition]:
        """The partitions of a day, or those it lies in; all of a layout that is not cut by time."""
        times = [{}] if self.grain is Grain.NONE else self.times.of_day(day)
        return [self._key(time | of) for time in times for of in self._every_key(self.keys)]

    def has(self, partition: Partition, since: date = date.min) -> bool:
        """Whether a key is one of this layout's, and of this day or a later one."""
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
        """The UTC start and end of a partition's window; None where it has no time."""
        time = self.dimension_of_time
        return self.times.window(self._require_parts(partition)[time]) if time and partition else None

    @cached_property
    def _classified(self) -> Callable[[tuple[str, ...]], Classified]:
        return lru_cache(maxsize=_MANY)(self._read)  # asked of every file, and many lie in one folder

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
            raise ValueError(f"{partition!r} is no partition of a feed by {self.by}")
        return parts

    def _parts(self, partition: str) -> dict[str, str] | None:
        """The parts of a partition key by their dimensions."""
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
        """The folders up to the one that says the day; of that one what is fixed, where it says more than the day."""
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
        """Of each folder's name a pattern, and what its groups say."""
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
    """Folders as people write them: `dt=YYYY-MM-DD/hour=HH`."""
    for directive, letters in {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH", "%M": "MM"}.items():
        folders = folders.replace(directive, letters)
    return folders
