"""The first day of a laptop's partitions: chosen once, near the sample, and never against what somebody has set."""

from datetime import UTC, date, datetime
from pathlib import Path

from dagster_tidemark.local.platform.whole_platform import with_first_day
from dagster_tidemark.settings import Settings

SUNDAY = datetime(2026, 11, 22, 12, tzinfo=UTC)
MONDAY = datetime(2026, 11, 23, 12, tzinfo=UTC)
DEFAULT = date(2026, 9, 28)


def first_day(folder: Path, now: datetime = SUNDAY, *, has_sample: bool = True, **given: date) -> date:
    return with_first_day(Settings(state_dir=folder, **given), has_sample=has_sample, now=now).start_date


def test_first_day_of_a_new_platform_is_the_monday_before_its_sample(tmp_path: Path) -> None:
    assert first_day(tmp_path / "a") == date(2026, 11, 16)
    assert first_day(tmp_path / "b", MONDAY) == date(2026, 11, 16), "the sample begins on Friday"


def test_first_day_is_kept_with_the_state_folder(tmp_path: Path) -> None:
    first_day(tmp_path)
    assert first_day(tmp_path, datetime(2027, 3, 1, tzinfo=UTC)) == date(2026, 11, 16)
    assert first_day(tmp_path, has_sample=False) == date(2026, 11, 16)


def test_configured_start_date_overrides_the_first_day(tmp_path: Path) -> None:
    assert first_day(tmp_path, start_date=date(2026, 10, 5)) == date(2026, 10, 5)


def test_first_day_without_a_sample_or_with_older_state_is_the_default(tmp_path: Path) -> None:
    assert first_day(tmp_path / "none", has_sample=False) == DEFAULT
    Settings(state_dir=tmp_path / "old").platform_home.mkdir(parents=True)
    assert first_day(tmp_path / "old") == DEFAULT
