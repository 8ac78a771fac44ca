"""Assets of toys: what their bodies do, and how a test tells them what to do.

An asset's value is the values of what it reads, joined by "+". Sources have the values a test lands. What a body was
asked to build and what it built it writes down, a line each, and files in the room say what it does: while
`closed/<asset>@<partition>` is there it waits once it has read; with `broken/` it then fails, with `killed/` it dies.
Does not belong here: which assets there are (`tests.proof.shapes_location`, `tests.proof.shapes_elsewhere`).
"""

import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import dagster as dg

from dagster_tidemark.planner import run_retries
from dagster_tidemark.tags import CONTENT

# As in `pipelines.definitions`: used knowingly, and said by every run it would drown what matters.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
warnings.filterwarnings("ignore", message="Non-built-in PartitionMappings")

Reads = Callable[[str | None], Iterable[tuple[str, str | None]]]

if "SHAPES_ROOM" in os.environ:  # only where the location is loaded: a story has no minute for each failure
    run_retries.FIRST_PAUSE = 10.0

MINUTE = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=1))
SOON: dict[str, Any] = {"tags": {"tidemark/pace": "asap"}, "freshness_policy": MINUTE}


def room() -> Path:
    """Where values, notes and orders are."""
    return Path(os.environ["SHAPES_ROOM"])


def named(asset: str, partition: str | None) -> str:
    """The name of a file about a partition."""
    return quote(f"{asset}@{partition}", safe="")


def value_of(folder: Path, asset: str, partition: str | None) -> str | None:
    """The value of a partition; None if there is none."""
    path = folder / "values" / named(asset, partition)
    return path.read_text() if path.exists() else None


def put(folder: Path, asset: str, partition: str | None, value: str) -> None:
    """Give a partition a value, all at once."""
    path = folder / "values" / named(asset, partition)
    path.with_suffix(".new").write_text(value)
    path.with_suffix(".new").rename(path)


def source(name: str, by: dg.PartitionsDefinition | None = None, **more: Any) -> dg.AssetSpec:
    """Data from outside."""
    return dg.AssetSpec(dg.AssetKey.from_user_string(name), partitions_def=by, **more)


def table(
    name: str,
    *inputs: str | dg.AssetDep,
    by: dg.PartitionsDefinition | None = None,
    reads: Reads | None = None,
    single: bool = False,
    **more: Any,
) -> dg.AssetsDefinition:
    """An asset of the planner, soon, unless it says otherwise.

    Args:
        reads: From a partition to what is read for it; by default the same partition of each input.
        single: Its body asks for its one partition, and it has no backfill policy.
    """
    deps = [dg.AssetKey.from_user_string(read) if isinstance(read, str) else read for read in inputs]
    settings = SOON | more
    if by is not None and not single:
        settings.setdefault("backfill_policy", dg.BackfillPolicy.single_run())

    @dg.asset(key=dg.AssetKey.from_user_string(name), deps=deps, partitions_def=by, **settings)
    def _body(context: dg.AssetExecutionContext) -> None:
        partitions = [context.partition_key] if single else partitions_of(context)
        made = build(name, partitions, reads or (lambda p: [(str(read), p) for read in inputs]), context.run_id)
        for partition, value in made.items():
            context.add_asset_metadata({CONTENT: value}, partition_key=partition)

    return _body


def partitions_of(context: Any) -> Sequence[str | None]:
    """What a run is asked to build."""
    return list(context.partition_keys) if context.has_partition_key or context.has_partition_key_range else [None]


def build(name: str, partitions: Sequence[str | None], reads: Reads, run: str) -> dict[str | None, str]:
    """Read, wait or fail as the room says, and write: from each partition to its value."""
    _note("asked", asset=name, partitions=list(partitions), run=run)
    made: dict[str | None, str] = {}
    for partition in partitions:
        found = [value_of(room(), *read) for read in reads(partition)]
        made[partition] = "+".join(value for value in found if value is not None)
    for partition in partitions:
        _obey(named(name, partition))
    for partition, value in made.items():
        put(room(), name, partition, value)
    _note("built", asset=name, partitions=list(partitions), run=run, values=list(made.values()))
    return made


def _obey(name: str) -> None:
    deadline = time.monotonic() + 240
    while (room() / "closed" / name).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if (room() / "killed" / name).exists():
        (room() / "killed" / name).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (room() / "broken" / name).exists():
        raise dg.Failure(f"{unquote(name)} is broken")


def _note(what: str, **facts: Any) -> None:
    line = json.dumps({"at": time.time(), **facts}) + "\n"
    with (room() / f"{what}.jsonl").open("a") as notes:
        notes.write(line)  # one write: runs do not mix their lines


def all_of(*assets: str) -> Reads:
    """All values there are of these assets."""

    def _reads(_: str | None) -> Iterable[tuple[str, str | None]]:
        for asset in assets:
            names = sorted(unquote(path.name) for path in (room() / "values").glob(f"{quote(asset + '@', safe='')}*"))
            yield from ((asset, name.removeprefix(f"{asset}@")) for name in names if not name.endswith(".new"))

    return _reads
