"""Changed copies of Dagster's records, such as run requests, definitions and specs."""

from typing import Any, TypeVar

from dagster_shared.record import replace

_T = TypeVar("_T")


def changed(record: _T, **attributes: Any) -> _T:
    """Return a copy of a Dagster record with some attributes changed.

    Raises:
        Exception: the record has no such attribute, or Dagster refuses the value.
    """
    copy: _T = replace(record, **attributes)
    return copy
