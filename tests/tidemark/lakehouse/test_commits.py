"""The policy of retries for commits."""

import pytest

from dagster_tidemark.lakehouse import commits
from dagster_tidemark.lakehouse.commits import ATTEMPTS, CommitConflict, SourceAdvanced, until_committed


class Writer:
    """Loses some commits, and records what it does."""

    def __init__(self, loses: int) -> None:
        self.loses, self.did = loses, list[str]()

    def decide(self) -> int:
        self.did.append("commit")
        if self.did.count("commit") <= self.loses:
            raise CommitConflict("a.b: another writer has committed\nby REST")
        return len(self.did)

    def look(self) -> None:
        self.did.append("look")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(commits.time, "sleep", found.append)
    return found


def test_writer_reads_the_table_again_only_before_a_retried_commit(waits: list[float]) -> None:
    writer = Writer(loses=2)
    assert until_committed(writer.decide, "a.b", look_again=writer.look) == 5
    assert writer.did == ["commit", "look", "commit", "look", "commit"]
    assert len(waits) == 2 and max(waits) <= 0.02


def test_writer_stops_after_the_maximum_number_of_commit_attempts(waits: list[float]) -> None:
    writer = Writer(loses=ATTEMPTS)
    with pytest.raises(CommitConflict, match=rf"a\.b: other writers won {ATTEMPTS} commits in a row: a\.b") as told:
        until_committed(writer.decide, "a.b")
    assert told.value.is_last and len(writer.did) == ATTEMPTS
    assert 0 < sum(waits) < 10, "no wait after the last attempt keeps a run for long"


def test_outer_commit_retry_does_not_repeat_an_exhausted_inner_retry() -> None:
    inner = Writer(loses=ATTEMPTS * 2)
    with pytest.raises(CommitConflict):
        until_committed(lambda: until_committed(inner.decide, "a.b"), "a.c")
    assert len(inner.did) == ATTEMPTS


@pytest.mark.parametrize("error", [SourceAdvanced("readings: another run has read on"), ValueError("no row")])
def test_commit_errors_other_than_conflicts_are_not_retried(error: Exception) -> None:
    done: list[str] = []

    def decide() -> None:
        done.append("commit")
        raise error

    with pytest.raises(type(error)):
        until_committed(decide, "a.b")
    assert done == ["commit"]
