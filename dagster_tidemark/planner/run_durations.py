"""Durations of the runs of assets, learned from the event log.

Belongs here: samples, and what they predict. Does not belong here: deadlines (`planner.contracts`).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import median

SAMPLES = 20
"""Number of run durations kept for an asset."""

DEFAULT_SECONDS = 60.0
"""Assumed duration of a run, and per partition, for an asset without samples."""

FEW = 8
"""Most partitions of a sampled run. A larger run does not show how long a few partitions take."""

_TOO_FEW_FOR_AN_OUTLIER = 3

_NEWEST = 4
"""Number of runs in a row that show a new level, or growth. A single slow run does not."""


@dataclass
class RunDurations:
    """Durations by asset.

    Args:
        samples: Seconds of the last runs over a few partitions.
        per_partition: Seconds per partition in the latest run.
        ranges: Seconds of the latest run over many partitions.
    """

    samples: dict[str, deque[float]] = field(default_factory=dict)
    per_partition: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, float] = field(default_factory=dict)

    def add(self, partitions: Mapping[str, int], seconds: float) -> None:
        """Record a run that has succeeded, with the number of partitions it built by asset."""
        for asset, count in partitions.items():
            self.per_partition[asset] = seconds / count
            if count <= FEW:
                self.samples.setdefault(asset, deque(maxlen=SAMPLES)).append(seconds)
            else:
                self.ranges[asset] = seconds

    def is_known(self, asset: str) -> bool:
        """Return True if a run of the asset was recorded."""
        return asset in self.per_partition

    def of_run(self, asset: str) -> float:
        """Return the seconds of a run over a few partitions: the longest sample, unless it is an outlier.

        The longest sample counts, because data promised for nine o'clock must be ready even if the run is slow again.
        From four samples on, the result is at most twice the second longest. Otherwise a single run that hung for an
        hour would make the next twenty runs start an hour too early.

        Without samples, the latest run over many partitions counts: perhaps every run is over many, such as those of
        hours that read a whole day. After a first load, one run then starts too early, and is the first sample.
        """
        samples = self.samples.get(asset)
        if not samples:
            return self.ranges.get(asset, DEFAULT_SECONDS)
        *_, second, longest = [0.0, *sorted(samples)]
        return min(longest, 2 * second) if len(samples) > _TOO_FEW_FOR_AN_OUTLIER else longest

    def usual(self, asset: str) -> float:
        """Return the usual seconds of a run over a few partitions; 0 without samples.

        It is the median, unless the last four samples are all longer: then it is the shortest of them. If each of them
        is longer than the one before, the next run is expected to be longer again, by their smallest step. The median
        alone follows a growing table ten runs late.
        """
        samples = list(self.samples.get(asset, ()))
        if not samples:
            return 0.0
        newest = list(islice(reversed(samples), _NEWEST))
        if len(newest) < _NEWEST:
            return median(samples)
        step = min(later - earlier for later, earlier in pairwise(newest))
        return max(median(samples), newest[0] + step if step > 0 else min(newest))

    def of_partition(self, asset: str) -> float:
        """Return the seconds per partition in the asset's latest run."""
        return self.per_partition.get(asset, DEFAULT_SECONDS)
