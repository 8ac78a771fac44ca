"""What a feed is: a prefix of the landing bucket, cut into partitions.

Belongs here: what a feed declares, and the way from a key to its partition and back. Does not belong here: what folders
are called (`layout`), the feeds themselves, and anything that talks to a server.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from itertools import pairwise
from numbers import Number

from dagster_tidemark.errors import Terminal
from dagster_tidemark.sources.columns import require_columns, require_names
from dagster_tidemark.sources.file_endings import ending_of, every_ending
from dagster_tidemark.sources.layout import Classified, Layout, Partition
from dagster_tidemark.sources.times import FOLDERS, Grain

__all__ = ["Feed", "Grain", "NewColumns", "OnRemoval", "OutsideLayout", "Partition", "refuse_overlaps"]

RESERVED = ("source_file", "source_version", "source_row", "arrived_at", "loaded_by")
"""Columns that a load gives to rows; names that begin with `_` are used while it runs."""


class OnRemoval(StrEnum):
    """What the disappearance of a file means for its rows."""

    FOLLOW = "follow"
    KEEP = "keep"


class NewColumns(StrEnum):
    """What becomes of a column that a feed's files have and its declaration does not."""

    IGNORE = "ignore"
    ADD = "add"
    FAIL = "fail"


_KINDS: dict[str, type] = {
    "columns": Mapping,
    "rules": Mapping,
    "keys": Mapping,
    "quarantine_share": Number,
    "follow_for": timedelta,
    "allow_empty": bool,
    "multiline": bool,
    "exact": bool,
}
_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crc", "._COPYING_", "~")


@dataclass(frozen=True, eq=False)  # each declaration is itself: feeds are keys of dictionaries
class Feed:
    """A declared part of the landing bucket.

    Args:
        name: The feed's name; its source asset is `raw/<name>`.
        prefix: Where its objects lie, ending in "/"; for an unpartitioned feed the key of its one object.
        grain: How its keys are cut into partitions by time; none where only `keys` cut them, or nothing does.
        columns: Column name to SQL type, as the feed promises them.
        suffixes: Endings of the keys that are data; by default (None) those of every format that is registered.
        required: Columns without which a row means nothing; a row with a null in one is rejected.
        rules: Reason code to a SQL condition that every good row meets.
        quarantine_share: Above this share of turned-away rows the check on the core asset fails; below it warns.
        removals: Whether the rows of a file that disappears go with it.
        follow_for: How long after its window's end a partition follows; later a disappearance is retention.
        allow_empty: Whether a feed of one object may lose all its rows to a new version of it. If not, a version that
            gives no row is named, and the rows of the last one stay.
        encoding: How its CSV and JSON files are encoded, by its Python name: UTF-8, UTF-16 or one byte a character
            (`latin-1`, `cp1252`). Declared, because bytes do not tell; kept by its canonical name.
        multiline: Whether a record may have several lines: line breaks in quotes (CSV), documents over lines (JSON).
            A file named `.json` whose first line is an opening bracket and nothing else is read so anyway.
        exact: Whether a text of which its type keeps a part only is of a wrong type: more places than those of a
            decimal, a leading zero of a number, the time of a `date`. If not, such a value is rounded or cut, and two
            keys may become one: 01 is 1.
        new_columns: What becomes of columns that its files have and `columns` does not, by their names to the letter.
            `ignore`: they are not taken; the check `quarantine` names them. `fail`: a file that has one is turned away
            as a whole. `add`: the table gets them as nullable text, and they are filled from then on; files that landed
            before are read for them when the asset's `code_version` changes. It adds names of letters, digits and `_`
            that differ from all others by more than case, up to 200 columns in a table; the check names the others.
            The asset's transform has to let such columns through. JSON has no header: a key that comes only behind the
            first 64 KB of a file may be missed, unless the table has it already.
        folders: The folders below the prefix, as `year=%Y/month=%m/day=%d` or `region={region}/dt=%Y-%m-%d`; by
            default those of the grain (`dt=%Y-%m-%d/hour=%H`, `dt=%Y-%m-%d`, `month=%Y-%m`, ...), and in them
            `name={name}` for each of `keys`.
        keys: By what else it is cut: a name, as `region`, to the keys there are of it, in a definition
            `REGIONS.get_partition_keys()`. A file of another key is misplaced until the feed has it.
        timezone: The zone that the folders' times are of, and the keys of its partitions definition. Of two times of
            one name, when clocks go back, a folder is of the first, unless it says the second's offset: `hour=02+0100`.
        time_name: What a definition of several dimensions calls that of time; by default as the grain, `day`.

    Raises:
        ValueError: something of it cannot be; the message names the feed and the value.
    """

    name: str
    prefix: str
    grain: Grain
    columns: dict[str, str]
    suffixes: tuple[str, ...] | None = None
    required: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    quarantine_share: float = 0.01
    removals: OnRemoval = OnRemoval.FOLLOW
    follow_for: timedelta = timedelta(days=90)
    allow_empty: bool = False
    encoding: str = "utf-8"
    multiline: bool = False
    exact: bool = False
    new_columns: NewColumns = NewColumns.IGNORE
    folders: str | None = None
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timezone: str = "UTC"
    time_name: str | None = None
    _layout: Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._require_kinds()
        default = "/".join([*filter(None, [FOLDERS[self.grain]]), *(f"{name}={{{name}}}" for name in self.keys)])
        folders = default if self.folders is None else self.folders
        try:
            layout = Layout(self.grain, folders, self.keys, self.timezone, self.time_name)
        except ValueError as error:
            raise ValueError(f"feed {self.name}: {error}") from error
        object.__setattr__(self, "_layout", layout)
        if self.is_one_object and (not self.prefix or self.prefix.endswith("/")):
            raise ValueError(f"feed {self.name}: prefix is the key of its one object, not {self.prefix!r}")
        if not self.is_one_object and self.prefix and not self.prefix.endswith("/"):
            raise ValueError(f"feed {self.name}: prefix ends in '/', unlike {self.prefix!r}")
        if "//" in self.prefix or self.prefix.startswith("/"):
            raise ValueError(f"feed {self.name}: Spark finds nothing below an empty folder name, as in {self.prefix!r}")
        self._require_columns()
        if not 0 <= self.quarantine_share <= 1:
            raise ValueError(f"feed {self.name}: quarantine_share is a share, 0 to 1, not {self.quarantine_share}")
        if self.follow_for < timedelta(0):
            raise ValueError(f"feed {self.name}: follow_for is counted from the window's end, not {self.follow_for}")
        object.__setattr__(self, "encoding", _readable_encoding(self.name, self.encoding))

    def _require_kinds(self) -> None:
        """See each setting be of its kind: a wrong one would be found by the first load, or never."""
        one_of: dict[str, type[StrEnum]] = {"grain": Grain, "removals": OnRemoval, "new_columns": NewColumns}
        for setting, known in one_of.items():
            value = getattr(self, setting)
            if value not in list(known):
                raise ValueError(f"feed {self.name}: {setting} is one of {', '.join(known)}, not {value!r}")
            object.__setattr__(self, setting, known(value))
        for setting, kind in _KINDS.items():
            if not isinstance(getattr(self, setting), kind):
                raise ValueError(
                    f"feed {self.name}: {setting} is a {kind.__name__.lower()}, not {getattr(self, setting)!r}"
                )

    def _require_columns(self) -> None:
        owner = f"feed {self.name}"
        require_columns(owner, self.columns, nested=False)
        if ours := [c for c in self.columns if c.startswith("_") or c.lower() in RESERVED]:
            raise ValueError(
                f"{owner}: {', '.join(map(repr, ours))}: a load itself has {', '.join(RESERVED)} and all names that "
                "begin with '_'; rename the column in the files, or leave it out"
            )
        require_names(owner, "required", self.required)
        if unknown := [c for c in self.required if c not in self.columns]:
            raise ValueError(
                f"{owner}: required column {', '.join(map(repr, unknown))} is not in columns; declare it there, or "
                f"take it out of required (columns are {', '.join(self.columns)})"
            )
        if self.suffixes is not None:
            require_names(owner, "suffixes", self.suffixes)
            if not self.suffixes:
                raise ValueError(
                    f"{owner}: suffixes is empty, so no file would be taken; leave it out, or name endings"
                )

    @property
    def layout(self) -> Layout:
        """Where the files of a partition lie below the prefix."""
        return self._layout

    @property
    def is_one_object(self) -> bool:
        """Whether it is one object that is overwritten, and so not cut into partitions."""
        return self._layout.depth == 0

    def partition_of(self, key: str) -> Partition:
        """The partition of a (decoded) object key.

        Raises:
            OutsideLayout: the key is not where this feed's objects lie.
        """
        if self.is_one_object and key == self.prefix:
            return None
        found, (folder, slash, name) = self.classify(key), key.rpartition("/")
        if found.partition is None or not name or folder + slash != self.prefix + found.folders:
            raise OutsideLayout(key, self)
        return found.partition

    def classify(self, key: str) -> Classified:
        """What the folders of a key below the prefix say, or those of a folder, which ends in "/"."""
        return self._layout.classify(key.removeprefix(self.prefix))

    @property
    def adds_columns(self) -> bool:
        """Whether its table gets the columns that only its files have."""
        return self.new_columns is NewColumns.ADD

    @property
    def endings(self) -> tuple[str, ...]:
        """Endings of the keys that are data. Asked for anew: a format may be registered after a feed is declared."""
        return every_ending() if self.suffixes is None else self.suffixes

    def prefix_of(self, partition: Partition) -> str:
        """The prefix below which the objects of a partition lie."""
        if partition is None:
            return self.prefix
        return self.prefix + self._layout.below(partition)

    def shared_prefix_of(self, partition: Partition) -> str:
        """The prefix below which the objects of a partition lie, and those of others of its day."""
        return self.prefix + self._layout.shared_by_day(partition) if partition is not None else self.prefix

    def prefixes_of_day(self, day: date) -> list[str]:
        """The prefixes below which all objects of a day lie; for a feed by week or month those of its week or month."""
        return [self.prefix + folders for folders in self._layout.of_day(day)]

    def partitions_of(self, day: date) -> list[Partition]:
        """The partitions of a day, or those it lies in; all of a feed that is not cut by time."""
        return self._layout.partitions_of(day)

    def is_named_like_data(self, key: str) -> bool:
        """Whether a key's name is one of data; writers leave markers (`_SUCCESS`, `.tmp`), consoles leave folders."""
        name = key.rpartition("/")[2]
        return bool(name) and name[0] not in "._" and name.endswith(self.endings)

    def is_meant_as_data(self, key: str) -> bool:
        """Whether somebody meant a key as data, be its ending right or wrong: it is no marker and no half upload."""
        name = key.rpartition("/")[2]
        return bool(name) and name[0] not in "._" and not name.endswith(_UNFINISHED)


def require_readable(feed: Feed) -> None:
    """Check that a registered format reads the files of a feed. Called when every module has registered its formats.

    Raises:
        ValueError: it declares no columns, or an ending that no format reads. The message gives the remedy.
    """
    if not feed.columns:
        raise ValueError(f"feed {feed.name}: it has no columns; declare those of its files that you need, at least one")
    # A key without any ending is read as CSV, as in `latest`.
    own = [feed.prefix.rpartition("/")[2]] if feed.is_one_object else []
    named = [name for name in own if "." in name] if feed.suffixes is None else list(feed.suffixes)
    for name in (name for name in named if ending_of(name) is None):
        ending = name[name.rfind(".") :] if "." in name else name
        likely = next((known for known in every_ending() if ending.lower() in (known, known.removeprefix("."))), None)
        remedy = f"write {likely!r}, and name the files so" if likely else "register a format for it (docs/feeds.md)"
        raise ValueError(
            f"feed {feed.name}: no format reads files that end in {ending!r}; {remedy}. "
            f"Known endings: {', '.join(every_ending())}"
        )


def _readable_encoding(feed: str, encoding: str) -> str:
    """The canonical name of an encoding in which lines can be told in a large file.

    Raises:
        ValueError: there is no such encoding, or it is none of these.
    """
    try:
        name = codecs.lookup(encoding).name
        name = {"utf-8-sig": "utf-8"}.get(name, name)
        if name in ("utf-8", "utf-16", "utf-16-le", "utf-16-be"):
            return name
        # ASCII as it is, no escapes to something else, and of every other byte at most one character.
        plain = "".join(map(chr, range(128))) + "\x1b$B!!"
        if not name.endswith("escape") and plain.encode("ascii").decode(name) == plain and _is_byte_by_byte(name):
            return name
    except (LookupError, UnicodeError, TypeError):
        pass
    raise ValueError(
        f"feed {feed}: encoding {encoding!r} cannot be read; declare utf-8, utf-16 or one of a byte a character, as "
        "latin-1 or cp1252, and have other files converted before they land"
    )


def _is_byte_by_byte(encoding: str) -> bool:
    every = bytes(range(128, 256))
    return [len(bytes([b, b]).decode(encoding, errors="replace")) for b in every] == [2] * len(every)


class OutsideLayout(Terminal):
    """A key that is not where the feed's objects lie. A retry does not help."""

    def __init__(self, key: str, feed: Feed) -> None:
        super().__init__(f"{key!r} is not in the layout of feed {feed.name} ({feed.prefix}, by {feed.layout.by})")
        self.key = key


def refuse_overlaps(feeds: Sequence[Feed]) -> None:
    """See that no object can be of two feeds.

    Raises:
        ValueError: it can; the message names the two.
    """
    ordered = sorted(feeds, key=lambda feed: feed.prefix)
    for outer, inner in pairwise(ordered):  # whatever begins with a prefix follows it
        if inner.prefix.startswith(outer.prefix):
            raise ValueError(
                f"feeds {outer.name} and {inner.name}: {inner.prefix!r} lies within {outer.prefix!r}; give each a "
                "prefix of its own"
            )
