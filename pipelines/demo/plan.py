"""The files of the sample feed as plain data: keys, due times, and functions that return their bytes.

Belongs here: the files of an hour or a day, and their names. Does not belong here: S3 and the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random

from pipelines.demo import formats, grocer
from pipelines.feeds.customers import CUSTOMERS
from pipelines.feeds.orders import ORDERS
from pipelines.feeds.prices import PRICES

HOUR = timedelta(hours=1)
FILES_AN_HOUR = 3

# File numbers within an hour: each kind has its own range. A correction must sort after the file that it corrects: if
# two files arrive in the same second, the later name wins.
_MISHAPS = 900
_FIRST_LIVE = 1_000
_LIVE_SLOT = timedelta(milliseconds=100)
_CORRECTION = 90_000

# Names as cash desks and spreadsheets write them: some have a space, a plus or an umlaut.
_NAMES = ("orders", "orders", "orders", "orders", "web orders", "store+web", "café", "Filiale Köln + Süd")


@dataclass(frozen=True)
class FileToWrite:
    """An object that must exist in the landing bucket after `due`."""

    key: str
    due: datetime
    content: Callable[[], bytes]
    is_correction: bool = False


def plan_hours(start: datetime, hours: int, seed: int) -> list[FileToWrite]:
    """Return all files of some whole hours: orders, the prices of each day touched, the customers of the last day.

    Args:
        start: The first hour (UTC); minutes are cut off.
        hours: Number of hours.
        seed: The world's seed; the same seed gives the same keys and bytes.
    """
    starts = _hours(start, hours)
    days = sorted({hour.date() for hour in starts})
    files = [_prices(seed, day) for day in days]
    if days:
        files.append(_customers(seed, days[-1]))
    return files + [file for hour in starts for file in _orders(seed, hour)]


def plan_between(since: datetime, until: datetime, seed: int) -> list[FileToWrite]:
    """Return the files that become due after `since` and up to `until`, mishaps included."""
    first = since - HOUR  # the last files of an hour are due at its end
    hours = -(-(until - first) // HOUR) + 1
    files = plan_hours(first, hours, seed) + mishaps(first, hours, seed)
    return [file for file in files if since < file.due <= until]


def mishaps(start: datetime, hours: int, seed: int) -> list[FileToWrite]:
    """Return the damaged files of some hours, which arrive in addition to the good ones.

    In one hour of any three days, one file lacks a required column and one has a few bad rows.
    """
    damages = (("till 7", formats.orders_csv_without_prices), ("typed by hand", formats.orders_csv_with_typing_errors))
    return [
        FileToWrite(
            key=f"{_folder(hour)}{index:05d}-{name}.csv",
            due=hour + HOUR / FILES_AN_HOUR,
            content=partial(_mishap_bytes, seed, hour, index, encode),
        )
        for hour in _hours(start, hours)
        if grocer.has_mishap(seed, hour)
        for index, (name, encode) in enumerate(damages, start=_MISHAPS)
    ]


def live_file(at: datetime, seed: int) -> FileToWrite:
    """Return the small order file of a moment, with orders of the last two minutes within its hour."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    slot = (at - hour) // _LIVE_SLOT
    end = hour + (slot + 1) * _LIVE_SLOT
    window = (max(hour, end - timedelta(minutes=2)), end)
    return _order_file(seed, hour, _FIRST_LIVE + slot, window, share=15)


def _hours(start: datetime, hours: int) -> list[datetime]:
    first = start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return [first + number * HOUR for number in range(hours)]


def _orders(seed: int, hour: datetime) -> list[FileToWrite]:
    """Return the files of an hour, each due at the end of its part of the hour, and the hour's correction if any."""
    part = HOUR / FILES_AN_HOUR
    windows = [(hour + number * part, hour + (number + 1) * part) for number in range(FILES_AN_HOUR)]
    files = [_order_file(seed, hour, index, window, share=100) for index, window in enumerate(windows)]
    if grocer.has_correction(seed, hour):
        files.append(
            FileToWrite(
                key=f"{_folder(hour)}{_CORRECTION:05d}-correction.csv",
                due=hour + HOUR,
                content=partial(_correction_bytes, seed, hour, windows[0]),
                is_correction=True,
            )
        )
    return files


def _order_file(seed: int, hour: datetime, index: int, window: grocer.Window, *, share: int) -> FileToWrite:
    random = Random(f"{seed}/{hour.isoformat()}/{index}/file")
    # A random rotation per hour, so that the files of an hour differ in format.
    turn = Random(f"{seed}/{hour.isoformat()}/formats").randrange(len(formats.ORDER_FORMATS))
    suffix, encode = formats.ORDER_FORMATS[(turn + index) % len(formats.ORDER_FORMATS)]

    def content() -> bytes:
        lines = grocer.order_lines(seed, hour, index, window, share)
        return encode(lines, Random(f"{seed}/{hour.isoformat()}/{index}/format"))

    return FileToWrite(
        key=f"{_folder(hour)}{index:05d}-{random.choice(_NAMES)}{suffix}", due=window[1], content=content
    )


def _correction_bytes(seed: int, hour: datetime, window: grocer.Window) -> bytes:
    lines = grocer.order_lines(seed, hour, 0, window, 100)
    return formats.orders_csv(grocer.corrected(seed, lines, hour), Random(f"{seed}/{hour.isoformat()}/correction"))


def _mishap_bytes(seed: int, hour: datetime, index: int, encode: formats.Encoder) -> bytes:
    lines = grocer.order_lines(seed, hour, index, (hour, hour + HOUR / FILES_AN_HOUR), 100)
    return encode(lines, Random(f"{seed}/{hour.isoformat()}/{index}/format"))


def _prices(seed: int, day: date) -> FileToWrite:
    return FileToWrite(
        key=f"{PRICES.prefix_of(day.isoformat())}prices.csv",
        due=datetime(day.year, day.month, day.day, tzinfo=UTC),
        content=lambda: formats.prices_csv(grocer.unit_costs(seed, day)),
    )


def _customers(seed: int, day: date) -> FileToWrite:
    return FileToWrite(
        key=CUSTOMERS.prefix,
        due=datetime(day.year, day.month, day.day, tzinfo=UTC),
        content=lambda: formats.customers_csv(grocer.customers(seed, day)),
    )


def _folder(hour: datetime) -> str:
    return ORDERS.prefix_of(hour.strftime("%Y-%m-%d-%H:00"))
