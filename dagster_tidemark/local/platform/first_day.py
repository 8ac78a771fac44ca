"""The first day of a laptop's partitions: the Monday before its sample, so that the UI shows few empty partitions.

The day is chosen once for a new state folder and stored there: a different day would change the set of partitions.
Does not belong here: `TIDEMARK_START_DATE`, which takes precedence, and the default of other platforms (`settings`).
"""

from datetime import date, datetime, timedelta

from dagster_tidemark.settings import Settings

SAMPLE = timedelta(days=3)
"""Longest time before now that a sample feed may write data for."""


def with_first_day(settings: Settings, *, has_sample: bool, now: datetime) -> Settings:
    """Return the settings of a platform that is about to start, with its first day.

    Args:
        has_sample: True if it starts with the sample feed.
        now: The time in UTC.
    """
    if "start_date" in settings.model_fields_set:
        return settings
    kept = settings.state_dir / "first_day"
    if not kept.exists():
        if not has_sample or settings.platform_home.exists():
            return settings
        begins = (now - SAMPLE).date()
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        kept.write_text((begins - timedelta(days=begins.weekday())).isoformat())
    return settings.model_copy(update={"start_date": date.fromisoformat(kept.read_text())})
