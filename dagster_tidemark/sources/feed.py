"""Feeds: prefixes of the landing bucket, divided into partitions.

Belongs here: the declaration of a feed, and the mapping between object keys and partitions. Does not belong here: the
names of folders (`layout`), the declared feeds, and requests to a server.
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
from dagster_tidemark.sources.file_endings import (
    Format,
    ending_of,
    endings_of,
    every_ending,
    every_format,
    is_registered,
)
from dagster_tidemark.sources.layout import Classified, Layout, Partition
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, Json, TextFormat
from dagster_tidemark.sources.times import FOLDERS, Grain

__all__ = ["Feed", "Grain", "NewColumns", "OnRemoval", "OutsideLayout", "Partition", "refuse_overlaps"]

RESERVED = ("source_file", "source_version", "source_row", "arrived_at", "loaded_by")
"""Columns that a load adds to rows. A load also uses names that begin with `_` while it runs."""


class OnRemoval(StrEnum):
    """Effect on the rows of a file when the file disappears."""

    FOLLOW = "follow"
    KEEP = "keep"


class NewColumns(StrEnum):
    """Handling of columns that are in a feed's files but not in its declaration."""

    IGNORE = "ignore"
    ADD = "add"
    FAIL = "fail"


_KINDS: dict[str, type] = {
    "columns": Mapping,
    "rules": Mapping,
    "keys": Mapping,
    "names": Mapping,
    "quarantine_share": Number,
    "follow_for": timedelta,
    "allow_empty": bool,
    "multiline": bool,
    "exact": bool,
}
FOLDER_OF_HADOOP = "_$folder$"
"""The ending of the empty objects that Hadoop and EMR write for folders, such as `orders_$folder$`."""

_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crc", "._copying_", "~")


@dataclass(frozen=True, eq=False)  # compared by identity: feeds are dictionary keys
class Feed:
    """A declared part of the landing bucket.

    Args:
        name: The feed's name; its source asset is `raw/<name>`.
        prefix: The prefix of its objects, ending in "/"; for an unpartitioned feed the key of its one object.
        grain: The length of its time partitions; `none` if the feed has no partitions, or only those of `keys`.
        columns: Column name to SQL type, as promised by the feed.
        suffixes: Endings of data files, compared without case; by default (None) the endings of `format`, or of every
            registered format.
        format: The format of all files, whatever their endings: `Csv(...)`, `Json(...)` or `FixedWidth(...)` with
            options, or the name of a registered format. By default (None) the ending of a file names its format.
        names: Other names of a column in files, such as `{"started_at": ["starttime", "Start Time"]}`. A file with
            two names of one column is refused, a JSON object with values under two names is rejected.
        required: Columns that every row needs. A row with a null in one is rejected.
        rules: Reason code to a SQL condition that every good row meets.
        quarantine_share: The check on the core asset fails above this share of rejected rows, and warns below it.
        removals: `follow` if rows are removed with their file, `keep` if they stay.
        follow_for: The time after a window's end during which removals are followed. Later ones count as retention.
        allow_empty: True if a new version of a feed's one object may remove all rows. If False, a version without rows
            is reported, and the rows of the previous version stay.
        encoding: Encoding of the CSV and JSON files, by its Python name: UTF-8, UTF-16 or one byte per character
            (`latin-1`, `cp1252`). Must be declared, because bytes do not reveal it. Stored as the canonical name.
        multiline: True if a record may span lines: line breaks in quotes (CSV), documents over several lines (JSON).
            A `.json` file whose first line is a lone opening bracket, or begins an array that continues in the next
            line, is always read this way.
        exact: True if a value has the wrong type when the declared type would lose a part of it: extra decimal
            places, a leading zero of a number, the time of a `date`. If False, such a value is rounded or shortened,
            and two keys may become equal: 01 becomes 1.
        new_columns: Handling of columns that are in the files but not in `columns`. Names are compared exactly.
            `ignore`: they are not read; the check `quarantine` names them. `fail`: a file with such a column is
            rejected as a whole. `add`: they are added to the table as nullable text, and filled from then on; earlier
            files are read again when the asset's `code_version` changes. A name is added if it has only letters, digits
            and `_`, differs from all others by more than case, and the table has fewer than 200 columns; the check
            names the columns that were not added. The asset's transform has to pass new columns through. JSON has no
            header: a key that first appears after the first 64 KB of a file may be missed, unless the table has it
            already.
        folders: The folders below the prefix, such as `year=%Y/month=%m/day=%d` or `region={region}/dt=%Y-%m-%d`; by
            default the folders of the grain (`dt=%Y-%m-%d/hour=%H`, `dt=%Y-%m-%d`, `month=%Y-%m`, ...), followed by
            `name={name}` for each of `keys`.
        keys: The keys of other dimensions, by a name such as `region`; for a partitions definition,
            `REGIONS.get_partition_keys()`. A file of an unknown key is misplaced until the feed declares the key.
        timezone: The zone of the folders' times and of the partition keys. When clocks go back and a time occurs twice,
            a folder means the first one, unless it has the offset of the second: `hour=02+0100`.
        time_name: The name of the time dimension next to other dimensions; by default the grain, such as `day`.

    Raises:
        ValueError: a setting is invalid. The message names the feed and the value.
    """

    name: str
    prefix: str
    grain: Grain
    columns: dict[str, str]
    suffixes: tuple[str, ...] | None = None
    format: AnyText | str | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
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
            raise ValueError(
                f"feed {self.name}: expected prefix to be the key of its one object, found {self.prefix!r}"
            )
        if not self.is_one_object and self.prefix and not self.prefix.endswith("/"):
            raise ValueError(f"feed {self.name}: expected prefix to end in '/', found {self.prefix!r}")
        if "//" in self.prefix or self.prefix.startswith("/"):
            raise ValueError(f"feed {self.name}: Spark finds nothing below an empty folder name, as in {self.prefix!r}")
        self._require_columns()
        if not 0 <= self.quarantine_share <= 1:
            raise ValueError(f"feed {self.name}: expected quarantine_share from 0 to 1, found {self.quarantine_share}")
        if self.follow_for < timedelta(0):
            raise ValueError(f"feed {self.name}: expected follow_for of at least 0, found {self.follow_for}")
        object.__setattr__(self, "encoding", _readable_encoding(self.name, self.encoding))
        self._require_format()
        self._require_other_names()

    def _require_format(self) -> None:
        owner = f"feed {self.name}"
        if isinstance(self.format, TextFormat):
            self.format.require_fits(owner, self.columns, multiline=self.multiline)
            if isinstance(self.format, Csv | FixedWidth) and self.format.fields:
                _require_known(owner, self.columns, self.format.fields, self.names)
        elif self.format is not None and not isinstance(self.format, str):
            raise ValueError(
                f"{owner}: expected format as Csv(...), Json(...), FixedWidth(...) or a registered format's name, "
                f"found {self.format!r}"
            )
        elif self.format == Format.FIXED_WIDTH:
            raise ValueError(f"{owner}: format {self.format!r} needs the places of values: let it say FixedWidth(...)")

    def _require_other_names(self) -> None:
        owner = f"feed {self.name}"
        taken: dict[str, str] = {column: column for column in self.columns}
        for column, others in self.names.items():
            if column not in self.columns:
                raise ValueError(f"{owner}: names has {column!r}, which is not in columns; add it there")
            require_names(owner, f"names of {column!r}", others)
            for other in others:
                if other in taken:
                    raise ValueError(
                        f"{owner}: {other!r} is a name of {column!r} and of {taken[other]!r}; remove one of the two"
                    )
                taken[other] = column

    @property
    def known_names(self) -> Mapping[str, str]:
        """The declared column for each name that a column may have in files."""
        others = {other: column for column, names in self.names.items() for other in names}
        return {column: column for column in self.columns} | others

    def is_new(self, name: str) -> bool:
        """Return True if a column of a file is neither declared nor named by the fields of the format."""
        fields = self.format.fields if isinstance(self.format, Csv | FixedWidth) else ()
        return name not in self.columns and name not in fields

    @property
    def text_format(self) -> AnyText | None:
        """The declared options of the feed's text files."""
        return self.format if isinstance(self.format, Csv | Json | FixedWidth) else None

    @property
    def format_name(self) -> str | None:
        """The name of the declared format; None if the endings of files determine it."""
        return self.format.name if isinstance(self.format, TextFormat) else self.format

    def _require_kinds(self) -> None:
        """Check the type of each setting. Otherwise a wrong type would fail only the first load, or have no effect."""
        one_of: dict[str, type[StrEnum]] = {"grain": Grain, "removals": OnRemoval, "new_columns": NewColumns}
        for setting, known in one_of.items():
            value = getattr(self, setting)
            if value not in list(known):
                raise ValueError(f"feed {self.name}: expected {setting} as one of {', '.join(known)}, found {value!r}")
            object.__setattr__(self, setting, known(value))
        for setting, kind in _KINDS.items():
            value = getattr(self, setting)
            if not isinstance(value, kind):
                raise ValueError(f"feed {self.name}: expected {setting} as a {kind.__name__.lower()}, found {value!r}")
        for reason, rule in self.rules.items():
            if not isinstance(rule, str):
                raise ValueError(
                    f"feed {self.name}: rule {reason!r}: expected a condition in SQL such as "
                    f"'quantity > 0', found {rule!r}"
                )

    def _require_columns(self) -> None:
        owner = f"feed {self.name}"
        require_columns(owner, self.columns, nested=False)
        if ours := [c for c in self.columns if c.startswith("_") or c.lower() in RESERVED]:
            raise ValueError(
                f"{owner}: {', '.join(map(repr, ours))}: the names {', '.join(RESERVED)}, and all that begin with '_', "
                "are reserved for the load's own columns; rename the column in the files, or leave it out"
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
            if patterns := [suffix for suffix in self.suffixes if "*" in suffix or "/" in suffix]:
                raise ValueError(
                    f"{owner}: expected suffixes as endings of names such as '.csv', found {patterns[0]!r}, which no "
                    "name ends in"
                )

    @property
    def layout(self) -> Layout:
        """The layout of partitions in folders below the prefix."""
        return self._layout

    @property
    def is_one_object(self) -> bool:
        """True if the feed is one object that is overwritten, and so has no partitions."""
        return self._layout.depth == 0

    def partition_of(self, key: str) -> Partition:
        """Return the partition of a (decoded) object key.

        Raises:
            OutsideLayout: the key does not match the feed's layout.
        """
        if self.is_one_object and key == self.prefix:
            return None
        found, (folder, slash, name) = self.classify(key), key.rpartition("/")
        if found.partition is None or not name or folder + slash != self.prefix + found.folders:
            raise OutsideLayout(key, self)
        return found.partition

    def classify(self, key: str) -> Classified:
        """Return the classification of a key, or of a folder (ending in "/"), by its folders below the prefix."""
        return self._layout.classify(key.removeprefix(self.prefix))

    @property
    def adds_columns(self) -> bool:
        """True if undeclared columns of files are added to the table."""
        return self.new_columns is NewColumns.ADD

    @property
    def endings(self) -> tuple[str, ...]:
        """Endings of data files. Not cached: a format may be registered after a feed is declared."""
        if self.suffixes is not None:
            return self.suffixes
        return every_ending() if self.format_name is None else endings_of(self.format_name)

    def prefix_of(self, partition: Partition) -> str:
        """Return the prefix of a partition's objects."""
        if partition is None:
            return self.prefix
        return self.prefix + self._layout.below(partition)

    def shared_prefix_of(self, partition: Partition) -> str:
        """Return the common prefix of the objects of a partition and of other partitions of its day."""
        return self.prefix + self._layout.shared_by_day(partition) if partition is not None else self.prefix

    def prefixes_of_day(self, day: date) -> list[str]:
        """Return the prefixes of a day's objects; for a weekly or monthly feed, those of the whole week or month."""
        return [self.prefix + folders for folders in self._layout.of_day(day)]

    def partitions_of(self, day: date) -> list[Partition]:
        """Return the partitions that overlap a day; all partitions of a feed without a time dimension."""
        return self._layout.partitions_of(day)

    def is_named_like_data(self, key: str) -> bool:
        """Return True if a key is named like data, unlike a folder key or a marker of a writer (`_SUCCESS`, `.tmp`)."""
        return not is_marker(key) and key.lower().endswith(tuple(ending.lower() for ending in self.endings))

    def is_meant_as_data(self, key: str) -> bool:
        """Return True if a key was meant as data, whatever its ending: it is no marker and no unfinished upload."""
        return not is_marker(key) and not key.lower().endswith(_UNFINISHED)


def is_marker(key: str) -> bool:
    """Return True if a key is a folder, or a file that a writer adds to its data, such as `_SUCCESS`."""
    name = key.rpartition("/")[2]
    return not name or name[0] in "._" or name.endswith(FOLDER_OF_HADOOP)


def require_readable(feed: Feed) -> None:
    """Check that a registered format reads the files of a feed. Call it after all modules registered their formats.

    Raises:
        ValueError: the feed declares no columns, or an ending that no format reads. The message gives the remedy.
    """
    if not feed.columns:
        raise ValueError(f"feed {feed.name}: it has no columns; declare those of its files that you need, at least one")
    if feed.format_name is not None:
        if not is_registered(feed.format_name):
            known = ", ".join(every_format())
            raise ValueError(f"feed {feed.name}: format {feed.format_name!r} is not registered; there are {known}")
        return
    # A key without any ending is read as CSV, as in `latest`.
    own = [feed.prefix.rpartition("/")[2]] if feed.is_one_object else []
    named = [name for name in own if "." in name] if feed.suffixes is None else list(feed.suffixes)
    for name in (name for name in named if ending_of(name) is None):
        ending = name[name.rfind(".") :] if "." in name else name
        likely = next((known for known in every_ending() if ending.lower() in (known, known.removeprefix("."))), None)
        others = "let the feed say format=Csv(...), Json(...) or a format's name, or register a format (docs/feeds.md)"
        remedy = f"write {likely!r}, and name the files so" if likely else others
        raise ValueError(
            f"feed {feed.name}: no format reads files that end in {ending!r}; {remedy}. "
            f"Known endings: {', '.join(every_ending())}"
        )


def _require_known(
    owner: str, columns: Mapping[str, str], fields: Sequence[str], names: Mapping[str, Sequence[str]]
) -> None:
    """Check that the fields of files without a header have all declared columns.

    Raises:
        ValueError: a column is not among the fields. The message names it.
    """
    if missing := [c for c in columns if not {c, *names.get(c, ())}.intersection(fields)]:
        raise ValueError(
            f"{owner}: {', '.join(map(repr, missing))} is in columns and not in fields of its format; fields names "
            "every value of a line, in the order of the file"
        )


def _readable_encoding(feed: str, encoding: str) -> str:
    """Return the canonical name of an encoding whose lines can be split in a large file.

    Raises:
        ValueError: the encoding is unknown, or its lines cannot be split.
    """
    try:
        name = codecs.lookup(encoding).name
        name = {"utf-8-sig": "utf-8"}.get(name, name)
        if name in ("utf-8", "utf-16", "utf-16-le", "utf-16-be"):
            return name
        # Accept encodings with unchanged ASCII, without escape sequences, and with one character for each other byte.
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
    """A key that does not match the feed's layout. A retry does not help."""

    def __init__(self, key: str, feed: Feed) -> None:
        super().__init__(f"{key!r} is not in the layout of feed {feed.name} ({feed.prefix}, by {feed.layout.by})")
        self.key = key


def refuse_overlaps(feeds: Sequence[Feed]) -> None:
    """Check that no object can belong to two feeds.

    Raises:
        ValueError: two prefixes overlap. The message names both feeds.
    """
    ordered = sorted(feeds, key=lambda feed: feed.prefix)
    for outer, inner in pairwise(ordered):  # a prefix that extends another sorts right after it
        if inner.prefix.startswith(outer.prefix):
            raise ValueError(
                f"feeds {outer.name} and {inner.name}: {inner.prefix!r} lies within {outer.prefix!r}; give each a "
                "prefix of its own"
            )
