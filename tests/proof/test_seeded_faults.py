"""The histories can fail: a defect seeded in what looks or loads turns some of them red."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.proof.test_seeded_defects import Defect, seed
from tests.tidemark.sensors.test_histories import ARCHIVED, HISTORIES, judge

_EXAMPLES = 3_000

DEFECTS = [
    # The message of a partition that could not be looked at is deleted with the others.
    Defect("sensors.landing:take", "if not looks & found.failed.keys()]", "]", judge),
    # What differs and was listed earlier, with a clock that was set back, is taken for old.
    Defect(
        "sensors.change_detection:observe",
        "if (again := patience.look(feed, partition)) is not None:",
        "if False:",
        judge,
    ),
    # A file counts as known for the rows of it that were turned away.
    Defect("lakehouse.loading.load_plan:_step", "if k.where is not Where.REJECTED_ROWS} - again", "}", judge),
]

NOT_GIVEN_AND_GONE = Defect("lakehouse.loading.load_state:LoadState.without", "fates[file.partition] = ", "_ = ", judge)


def test_unavailable_file_counted_as_deleted_fails_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    seed(NOT_GIVEN_AND_GONE, monkeypatch)
    with pytest.raises(AssertionError):
        judge(ARCHIVED)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.where)
def test_seeded_defect_fails_a_history(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(defect, monkeypatch)

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(HISTORIES)
    def histories(history: list[tuple[Any, ...]]) -> None:
        judge(history)

    with pytest.raises(AssertionError):
        histories()
