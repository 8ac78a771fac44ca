"""When the keys of dynamic partitions appeared and disappeared, which no event records."""

from collections.abc import Collection
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Target


@dataclass
class DynamicKeys:
    """Facts about partition keys, noticed by comparing the keys at two times.

    Args:
        existing: Keys at the planner's last check, by name of the dynamic partitions definition.
        removed: Time when the removal of a partition was noticed (Unix seconds).
        appeared: Two times between which a new partition appeared (Unix seconds).
        declared: Time when a deploy declared a partition key that had events before (Unix seconds).
    """

    existing: dict[str, Collection[str]] = field(default_factory=dict)
    removed: dict[Target, float] = field(default_factory=dict)
    appeared: dict[Target, tuple[float, float]] = field(default_factory=dict)
    declared: dict[Target, float] = field(default_factory=dict)
