"""A failing day made small, and told in a few lines."""

from collections.abc import Callable
from dataclasses import replace

from tests.tidemark.planner.random_graphs.shapes import World

Wrong = Callable[[World], list[str]]


def kind_of(wrong: str) -> str:
    """What sort of finding it is."""
    return wrong.partition(":")[0]


def shrunk(world: World, wrong: Wrong, kind: str, *, most: int = 60) -> World:
    """The world without the tables and events that the finding does not need.

    Args:
        wrong: Judges a world.
        kind: Of the finding that has to stay.
        most: So many worlds are tried.
    """
    left = [most]

    def _still(candidate: World) -> bool:
        left[0] -= 1
        return left[0] >= 0 and any(kind_of(found) == kind for found in wrong(candidate))

    read = {r.key for t in world.tables for r in t.reads if r.key != t.key}
    for table in sorted(world.tables, key=lambda t: t.key in read):
        candidate = _without_table(world, table.key)
        if candidate is not None and candidate.tables and _still(candidate):
            world = candidate
    size = max(1, len(world.events) // 2)
    while size and left[0] > 0:
        start = 0
        while start < len(world.events) and left[0] > 0:
            events = world.events[:start] + world.events[start + size :]
            candidate = replace(world, events=events, _by_key={})
            if _still(candidate):
                world = candidate
            else:
                start += size
        size //= 2
    return world


def _without_table(world: World, key: str) -> World | None:
    if any(r.key == key for t in world.tables for r in t.reads if t.key != key):
        return None
    tables = tuple(t for t in world.tables if t.key != key)
    names = {t.key for t in tables}
    events = tuple(e for e in world.events if not (e.of and str(e.of[0])[:1] in "rtp" and _gone(e.of[0], key, names)))
    return replace(world, tables=tables, events=events, _by_key={})


def _gone(name: object, key: str, names: set[str]) -> bool:
    return name == key and name not in names


def told(world: World, *, last: int = 12) -> str:
    """A world in a few lines: its tables, and the last events."""
    lines = [f"seed {world.seed}, {world.begin:%Y-%m-%d %H:%M}, {world.zone}, end_offset {world.offset}, {world.keys}"]
    for t in world.tables:
        default = type(t)(t.key, t.grain)
        more = {n: v for n, v in vars(t).items() if n not in ("key", "grain", "reads") and v != getattr(default, n)}
        reads = ", ".join(f"{r.key}[{_of(r)}]" for r in t.reads)
        lines.append(f"  {t.key} by {t.grain} from {reads or 'nothing'} {more or ''}")
    if len(world.events) > last:
        lines.append(f"  ... {len(world.events) - last} events before")
    lines += [f"  {e.at / 3600:.3f} h {e.what} {e.of}" for e in world.events[-last:]]
    return "\n".join(lines)


def _of(read: object) -> str:
    found = vars(read)
    return ", ".join(f"{n}={v}" if n != "way" else str(v) for n, v in found.items() if n != "key" and v)
