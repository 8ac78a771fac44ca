"""The first day of a laptop's partitions: the Monday before its sample, so that the UI shows few that nobody will fill.

Chosen once, when a state folder is new, and kept there: another first day would be another set of partitions. Does not
belong here: what `TIDEMARK_START_DATE` says, which comes first, and the default of every other platform (`settings`).
"""

from datetime import date, datetime, timedelta

from dagster_tidemark.settings import Settings

SAMPLE = timedelta(days=3)
"""How far back a sample feed may write."""


def with_first_day(settings: Settings, *, has_sample: bool, now: datetime) -> Settings:
    """The settings of a platform that is about to start.

    Args:
        has_sample: Whether it starts with the sample feed.
        now: In UTC.
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
