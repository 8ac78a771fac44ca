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


def test_a_writer_looks_again_before_each_further_commit_and_not_before_the_first(waits: list[float]) -> None:
    writer = Writer(loses=2)
    assert until_committed(writer.decide, "a.b", look_again=writer.look) == 5
    assert writer.did == ["commit", "look", "commit", "look", "commit"]
    assert len(waits) == 2 and max(waits) <= 0.02


def test_a_writer_that_loses_always_gives_up_with_the_number_of_attempts(waits: list[float]) -> None:
    writer = Writer(loses=ATTEMPTS)
    with pytest.raises(CommitConflict, match=rf"a\.b: other writers won {ATTEMPTS} commits in a row: a\.b") as told:
        until_committed(writer.decide, "a.b")
    assert told.value.is_last and len(writer.did) == ATTEMPTS
    assert 0 < sum(waits) < 10, "no wait after the last attempt keeps a run for long"


def test_a_policy_around_one_that_gave_up_does_not_start_again() -> None:
    inner = Writer(loses=ATTEMPTS * 2)
    with pytest.raises(CommitConflict):
        until_committed(lambda: until_committed(inner.decide, "a.b"), "a.c")
    assert len(inner.did) == ATTEMPTS


@pytest.mark.parametrize("error", [SourceAdvanced("readings: another run has read on"), ValueError("no row")])
def test_other_errors_are_raised_at_once(error: Exception) -> None:
    done: list[str] = []

    def decide() -> None:
        done.append("commit")
        raise error

    with pytest.raises(type(error)):
        until_committed(decide, "a.b")
    assert done == ["commit"]
