"""The oracle on cases small enough to see."""

from tests.tidemark.planner.lag_oracle import Miss, Oracle, RunRecord, Target, sample

RAW: Target = ("raw", "a")
CORE: Target = ("core", "a")
MART: Target = ("mart", "a")
PRICES: Target = ("prices", None)
READS = {RAW: [], CORE: [[RAW]], MART: [[CORE]], PRICES: [], ("margin", "a"): [[CORE], [PRICES]]}


def oracle(arrivals: list[tuple[float, Target]], *runs: tuple[float, dict[Target, float]]) -> Oracle:
    return Oracle(arrivals, [RunRecord(*run) for run in runs], lambda target: READS[target])


def test_oracle_counts_data_before_run_creation_as_contained_once_written() -> None:
    found = oracle([(10, RAW)], (20, {CORE: 30}))
    assert [found.lacks_since(CORE, at) for at in (9, 10, 29, 30)] == [None, 10, 10, None]


def test_oracle_does_not_count_data_that_arrives_during_a_run() -> None:
    found = oracle([(10, RAW), (25, RAW)], (20, {CORE: 30}))
    assert found.lacks_since(CORE, 40) == 25


def test_oracle_reader_contains_its_input_as_of_run_creation() -> None:
    found = oracle([(10, RAW)], (20, {CORE: 30}), (29, {MART: 40}))
    assert found.lacks_since(MART, 50) == 10, "its input was written after"
    found = oracle([(10, RAW)], (20, {CORE: 30}), (31, {MART: 40}))
    assert found.lacks_since(MART, 50) is None


def test_oracle_reader_in_the_same_run_contains_the_new_input() -> None:
    found = oracle([(10, RAW)], (20, {CORE: 30, MART: 40}))
    assert [found.lacks_since(MART, at) for at in (39, 40)] == [10, None]


def test_oracle_loses_newer_data_when_an_older_run_ends_last() -> None:
    found = oracle([(10, RAW), (25, RAW)], (20, {CORE: 60}), (30, {CORE: 40}))
    assert [found.lacks_since(CORE, at) for at in (50, 60)] == [None, 25]


def test_oracle_counts_an_unbuilt_partition_as_lacking_since_its_last_input() -> None:
    found = oracle([(10, RAW), (50, PRICES)], (20, {CORE: 30}))
    assert [found.lacks_since(("margin", "a"), at) for at in (40, 60)] == [None, 50]


def test_oracle_counts_samples_after_the_deadline_as_misses() -> None:
    found = oracle([(0, RAW)], (90, {CORE: 100}))
    looked, lacking, misses = sample(found, {CORE: lambda arrival: arrival + 60}, [30, 60, 61, 100])
    assert (looked, lacking, misses) == (4, 3, [Miss(CORE, 61, 61)])


def test_oracle_ignores_an_arrival_that_does_not_concern_the_partition() -> None:
    counts = {10.0: True, 25.0: False}
    found = Oracle([(10, RAW), (25, RAW)], [RunRecord(20, {CORE: 30})], lambda t: READS[t], lambda t, s, a: counts[a])
    assert found.lacks_since(CORE, 40) is None
