"""Forms of values for the columns of a feed, from the feed's declared format.

The run's process creates the forms and sends them to workers, because workers may lack a time zone database. Does not
belong here: reading values (`parsing.value_forms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagster_tidemark.lakehouse.parsing.value_forms import AnyForm, EpochForm, NumberForm, PatternForm, ValueForm
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, is_number, is_time
from dagster_tidemark.sources.time_patterns import EPOCHS, pattern_of
from dagster_tidemark.sources.zone_table import ZoneTable, zone_table

_ISO = "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.S]][X]]"


def forms_of(columns: Mapping[str, str], format: AnyText | None) -> dict[str, ValueForm]:
    """Return the declared forms, by column. Columns without a declared form are cast as they are written.

    Args:
        columns: Column name to the name of its type in Spark.
        format: The declared format of the files.
    """
    if format is None:
        return {}
    zone = zone_table(format.timezone) if format.timezone != "UTC" else None
    forms: dict[str, ValueForm] = {}
    for name, kind in columns.items():
        if is_time(kind) and (name in format.times or (zone and kind == "timestamp")):
            forms[name] = time_form(format.times.get(name), kind, zone)
        elif is_number(kind) and isinstance(format, Csv | FixedWidth) and format.is_number_written:
            forms[name] = NumberForm(format.decimal, format.thousands, has_places=_has_places(kind))
    return forms


def time_form(pattern: str | Sequence[str] | None, kind: str, zone: ZoneTable | None = None) -> ValueForm:
    """Return the form of dates and times.

    Args:
        pattern: One or more patterns or names of epoch forms (see `time_patterns`); None means ISO 8601.
        kind: The declared type.
        zone: The time zone of texts without a zone; None means UTC.
    """
    if pattern is not None and not isinstance(pattern, str):
        return AnyForm([time_form(each, kind, zone) for each in pattern])
    if pattern in EPOCHS:
        return EpochForm(pattern, EPOCHS[pattern], kind == "date")
    compiled = pattern_of(pattern or _ISO)
    return PatternForm(pattern or "ISO 8601", compiled.regex, compiled.parts, kind, zone)


def _has_places(kind: str) -> bool:
    return kind in ("float", "double") or (kind.startswith("decimal") and not kind.endswith(",0)"))
