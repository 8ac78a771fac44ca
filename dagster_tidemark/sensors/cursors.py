"""Reading the cursor of a sensor, which another release or a person may have written.

Does not belong here: what a cursor holds, which each sensor knows.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import dagster as dg

from dagster_tidemark.dagster_internals.instance_store import UNREADABLE

T = TypeVar("T")


def cursor_of(context: dg.SensorEvaluationContext, read: Callable[[Any], T], default: T, then: str) -> T:
    """Return what the cursor of a sensor holds. An unreadable cursor is ignored, and logged as a warning.

    Args:
        read: Converts the parsed JSON. It raises an error if the JSON has another form.
        default: The result without a readable cursor.
        then: Consequence of an unreadable cursor, for the warning.
    """
    if not context.cursor:
        return default
    try:
        return read(json.loads(context.cursor))
    except (*UNREADABLE, OverflowError) as error:
        shown = context.cursor if len(context.cursor) <= 80 else f"{context.cursor[:80]}..."
        context.log.warning(
            f"the cursor of this sensor is ignored, because this release cannot read it ({type(error).__name__}): "
            f"{shown}; {then}"
        )
        return default
