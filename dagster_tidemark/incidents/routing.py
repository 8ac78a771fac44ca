"""Which channel gets which incident, and when: owners, groups, asset keys, quiet hours, mutes.

Pure. Does not belong here: sending (`incidents.channels`, `incidents.sender`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dagster_tidemark.errors import Terminal
from dagster_tidemark.incidents.incident import Incident, Mute
from dagster_tidemark.sources.times import time_of_day

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def unknown_day(days: Iterable[str]) -> str:
    """Return why days of the week are invalid; empty if all are known."""
    unknown = next((day for day in days if day not in WEEKDAYS), None)
    return "" if unknown is None else f"unknown day {unknown!r}; expected some of {', '.join(WEEKDAYS)}"


class ChannelRefused(Terminal):
    """A channel is declared wrongly."""


@dataclass(frozen=True)
class QuietHours:
    """Hours when a channel sends nothing. Messages wait until the hours end.

    An incident that opens and closes within the hours is not sent.

    Args:
        begin: Time of day when they begin: `22:00`.
        end: Time of day when they end; on the next day if it is not after `begin`.
        timezone: Time zone of both: `Europe/Berlin`.
        days: Days on which they begin: `("sat", "sun")`; by default every day.

    Raises:
        ChannelRefused: a time, time zone or day is unknown.
    """

    begin: str
    end: str
    timezone: str = "UTC"
    days: Sequence[str] = WEEKDAYS

    def __post_init__(self) -> None:
        try:
            _ = (time_of_day(self.begin), time_of_day(self.end), ZoneInfo(self.timezone))
        except (ValueError, ZoneInfoNotFoundError) as error:
            raise ChannelRefused(
                f"QuietHours({self.begin!r}, {self.end!r}, timezone={self.timezone!r}): {error}; write times as 22:00 "
                "and the zone as Europe/Berlin"
            ) from error
        if why := unknown_day(self.days):
            raise ChannelRefused(f"QuietHours: {why}")

    def end_after(self, now: float) -> float | None:
        """Return the end of the quiet hours that hold a time (Unix seconds); None if none do."""
        zone, begin, end = ZoneInfo(self.timezone), time_of_day(self.begin), time_of_day(self.end)
        today = datetime.fromtimestamp(now, zone).date()
        for day in (today - timedelta(days=1), today):
            if WEEKDAYS[day.weekday()] not in self.days:
                continue
            until = datetime.combine(day if end > begin else day + timedelta(days=1), end, zone)
            if datetime.combine(day, begin, zone).timestamp() <= now < until.timestamp():
                return until.timestamp()
        return None


@dataclass(frozen=True)
class Route:
    """Filters of a channel. It gets every incident that matches one of them; without filters, every incident.

    Args:
        name: Name of the channel.
        owners: Owners as the assets declare them: `team:core`, `ada@acme.com`.
        groups: Groups of assets.
        assets: Patterns of asset keys: `marts/*`.
    """

    name: str
    owners: Collection[str] = ()
    groups: Collection[str] = ()
    assets: Collection[str] = ()
    quiet: QuietHours | None = None

    def takes(self, incident: Incident) -> bool:
        """Return True if the channel gets an incident, because of a late asset or of the asset at fault."""
        return self.takes_asset(incident.cause.asset, (), "") or any(
            self.takes_asset(each.asset, each.owners, each.group) for each in incident.assets
        )

    def takes_asset(self, asset: str, owners: Iterable[str], group: str) -> bool:
        """Return True if a filter of the channel matches an asset, or if it has no filter."""
        if not (self.owners or self.groups or self.assets):
            return True
        by_key = bool(asset) and any(fnmatchcase(asset, pattern) for pattern in self.assets)
        return by_key or group in self.groups or not set(self.owners).isdisjoint(owners)

    def silent_until(self, now: float) -> float | None:
        """Return the end of the present quiet hours; None outside of quiet hours."""
        return self.quiet.end_after(now) if self.quiet else None


def muted_by(incident: Incident, mutes: Iterable[Mute], now: float) -> Mute | None:
    """Return the mute that suppresses an incident: a mute of its id, of its cause, or of all its late assets."""
    active = [mute for mute in mutes if mute.since <= now < mute.until]
    for mute in active:
        if mute.what in (incident.id, incident.cause.subject):
            return mute
    late = [each.asset for each in incident.still_late]
    by_asset = [next((mute for mute in active if fnmatchcase(asset, mute.what)), None) for asset in late]
    return by_asset[0] if by_asset and all(by_asset) else None
