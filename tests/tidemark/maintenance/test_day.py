"""A day of a file a second, in simulated time: no contract is missed, and the small files stay few.

The decisions are the library's. The queue, the loads and the clock are the test's.
"""

import random
from dataclasses import dataclass, field

import pytest

from dagster_tidemark.lakehouse.maintenance.due import Action, LastAction, MaintenancePolicy, TableFacts, due_actions
from dagster_tidemark.maintenance.spare_time import OpenRuns, why_not_now
from dagster_tidemark.planner.decisions import Decision, Plan, State

DAY = 86_400.0
POLICY = MaintenancePolicy()
TABLES = 12


@dataclass
class Platform:
    """Loads of twelve tables with an hour's contract each, a stream with a file a second, and two slots."""

    random: random.Random
    slots: int = 2
    now: float = 0.0
    loads: dict[str, float] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    maintenance_until: float = 0.0
    small: float = 0.0
    last: dict[Action, LastAction] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)
    maintained: int = 0
    most_small: float = 0.0

    def __post_init__(self) -> None:
        self.due = {f"core/t{n}": self.random.uniform(0, 3600) for n in range(TABLES)}

    def second(self) -> None:
        self.now += 1
        self.small += 1
        self.most_small = max(self.most_small, self.small)
        self.loads = {asset: until for asset, until in self.loads.items() if until > self.now}
        for asset in sorted(self.due, key=self.due.__getitem__):
            if self.due[asset] > self.now:
                break
            if len(self.loads) + self.is_maintaining < self.slots:
                self.late += [self.now - self.due[asset]] if self.now - self.due[asset] > 60 else []
                self.loads[asset] = self.now + self.random.uniform(5, 30)
                self.due[asset] += 3600

    @property
    def is_maintaining(self) -> bool:
        return self.maintenance_until > self.now

    def tick(self) -> None:
        """Do what the sensor does every half a minute."""
        queued = sum(due <= self.now for due in self.due.values())
        running = ("r",) if self.is_maintaining else ()
        if OpenRuns(queued, len(self.loads), self.slots, self.now, {}, running).why_busy():
            return
        facts = TableFacts("raw.readings", 0.0, small_files=int(self.small), last=self.last)
        due = [each for each in due_actions(facts, POLICY, self.now) if each.action is Action.COMPACT]
        decisions = {
            (asset, None): Decision(asset, None, State.NOT_DUE, "", due_at=at) for asset, at in self.due.items()
        }
        if not due or why_not_now(Plan(self.now, decisions), max(60.0, due[0].usual_seconds * 1.5)):
            return
        seconds = self.random.uniform(5, 45) + self.small / 500
        self.maintenance_until = self.now + seconds
        self.last[Action.COMPACT] = LastAction(self.maintenance_until, seconds)
        self.small, self.maintained = 0.0, self.maintained + 1


@pytest.mark.parametrize("seed", range(3))
def test_a_day_of_a_file_a_second_misses_no_contract(seed: int) -> None:
    platform = Platform(random.Random(seed))
    while platform.now < DAY:
        platform.second()
        if platform.now % 30 == 0:
            platform.tick()
    assert platform.late == []
    assert platform.maintained > 200 and platform.most_small < 1_500
