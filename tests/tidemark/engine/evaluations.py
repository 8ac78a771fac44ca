"""Dagster's own evaluation of automation conditions, tick after tick, without a daemon."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import dagster as dg


def evaluations(
    definitions: dg.Definitions, instance: dg.DagsterInstance, assets: Sequence[str], times: Iterable[datetime]
) -> Iterator[list[tuple[str, str | None]]]:
    """Yield, for each time, the sorted partitions of these assets that their conditions ask for.

    Events that the caller reports between two times are seen by the next evaluation.
    """
    keys, cursor = [dg.AssetKey(name) for name in assets], None
    for time in times:
        result = dg.evaluate_automation_conditions(
            definitions,
            instance,
            asset_selection=dg.AssetSelection.assets(*keys),
            cursor=cursor,
            evaluation_time=time,
        )
        cursor = result.cursor
        asked = [
            (key.to_user_string(), partition) for key in keys for partition in result.get_requested_partitions(key)
        ]
        yield sorted(asked, key=lambda each: (each[0], str(each[1])))
