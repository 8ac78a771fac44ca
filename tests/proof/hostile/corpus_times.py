"""Feed `orders`: the column `ordered_at` in every form people send, in and out of its hour."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tests.proof.hostile.corpus_model import FileCase, Sent, at, bad, each, fine, rows

QUARTER = {"ordered_at": timedelta(minutes=15)}
LAST = timedelta(hours=1) - timedelta(microseconds=1)


def epoch(units: int) -> Callable[[datetime], str]:
    """A time in the hour of the case as the count of its seconds (or parts of seconds) since 1970."""
    return lambda start: str((int(start.timestamp()) + 900) * units)


def quarter(*patterns: str, **delta: float) -> list[Sent]:
    """One stored row per form of a quarter past the hour; `delta` is how far the written clock is ahead of UTC."""
    return [fine(QUARTER, ordered_at=at(pattern, minutes=15, **delta)) for pattern in patterns]


TIME_CASES: tuple[FileCase, ...] = (
    rows(
        "times_of_every_allowed_form",
        [
            *quarter("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"),
            *quarter(
                "%Y-%m-%dT%H:%M:%S+00:00", "%Y-%m-%d %H:%M:%S-00:00", "%Y-%m-%dT%H:%M:%S.0Z", "%Y-%m-%d %H:%M:%S.000000"
            ),
        ],
    ),
    rows("offset_that_moves_the_hour_in", quarter("%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m-%d %H:%M:%S+02:00", hours=2)),
    rows("negative_offset_that_moves_the_hour_in", quarter("%Y-%m-%dT%H:%M:%S-07:00", hours=-7)),
    rows("offset_of_a_half_hour", quarter("%Y-%m-%dT%H:%M:%S+05:30", hours=5.5)),
    rows("offset_of_three_quarters", quarter("%Y-%m-%dT%H:%M:%S+05:45", hours=5.75)),
    rows(
        "offsets_that_change_the_day",
        [*quarter("%Y-%m-%dT%H:%M:%S+14:00", hours=14), *quarter("%Y-%m-%dT%H:%M:%S-12:00", hours=-12)],
    ),
    rows(
        "offset_that_moves_the_hour_out",
        [
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00+02:00")),
            bad("wrong_hour", ordered_at=at("%Y-%m-%d %H:15:00-01:00")),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00+05:30")),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:29:59.999999+00:30")),
        ],
    ),
    rows(
        "offset_of_a_half_hour_that_stays_in",
        [fine({"ordered_at": timedelta(minutes=10)}, ordered_at=at("%Y-%m-%dT%H:40:00+00:30"))],
    ),
    rows(
        "offset_without_colon",
        quarter("%Y-%m-%dT%H:%M:%S+0200", "%Y-%m-%d %H:%M:%S+0200", hours=2),
        "ISO 8601 knows +0200 only in its basic format, yet many programs write it so; unambiguous, so kept",
    ),
    rows(
        "offset_of_hours_only", quarter("%Y-%m-%dT%H:%M:%S+02", hours=2), "ISO 8601 allows +02; not named in the design"
    ),
    rows(
        "blank_before_the_offset",
        quarter("%Y-%m-%d %H:%M:%S +02:00", hours=2),
        "not ISO 8601 to the letter, but what databases print; unambiguous, so kept",
    ),
    rows(
        "impossible_offsets",
        each(
            "bad_type",
            "ordered_at",
            at("%Y-%m-%dT%H:15:00+25:00"),
            at("%Y-%m-%dT%H:15:00+02:75"),
            at("%Y-%m-%dT%H:15:00+"),
            at("%Y-%m-%dT%H:15:00ZZ"),
            at("%Y-%m-%dT%H:15:00Z+02:00"),
        ),
    ),
    rows(
        "fractions_of_seconds",
        [
            fine({"ordered_at": timedelta(minutes=15, microseconds=us)}, ordered_at=at(f"%Y-%m-%dT%H:15:00.{text}Z"))
            for text, us in (("5", 500_000), ("12", 120_000), ("123", 123_000), ("123456", 123_456), ("000001", 1))
        ],
    ),
    rows(
        "fractions_beyond_microseconds",
        [
            fine(
                {"ordered_at": timedelta(minutes=15, microseconds=123_456)},
                ordered_at=at("%Y-%m-%dT%H:15:00.123456789Z"),
            ),
            fine({"ordered_at": LAST}, ordered_at=at("%Y-%m-%dT%H:59:59.9999999Z")),
        ],
        "finer than the column: cut, not rounded (rounding moves the last one into the next hour) and not rejected",
    ),
    rows(
        "fraction_after_a_comma",
        [fine({"ordered_at": timedelta(minutes=15, milliseconds=250)}, ordered_at=at("%Y-%m-%dT%H:15:00,250Z"))],
        "ISO 8601 prefers the comma; the design says ISO 8601, so kept",
    ),
    rows(
        "times_without_seconds",
        quarter("%Y-%m-%dT%H:%MZ", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M+00:00"),
        "ISO 8601 allows hours and minutes only; kept",
    ),
    rows(
        "edges_of_the_hour",
        [
            fine({"ordered_at": timedelta(0)}, ordered_at=at("%Y-%m-%dT%H:00:00Z")),
            fine({"ordered_at": LAST}, ordered_at=at("%Y-%m-%dT%H:59:59.999999Z")),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:00:00Z", hours=1)),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:59:59.999999Z", hours=-1)),
        ],
    ),
    rows(
        "same_hour_of_another_day",
        [
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00Z", days=1)),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00Z", days=-1)),
            bad("wrong_hour", ordered_at=at("%Y-%m-%dT%H:15:00Z", days=-364)),
        ],
    ),
    rows(
        "years_at_the_ends_of_the_calendar",
        each(
            "wrong_hour",
            "ordered_at",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "1900-01-01 00:00:00",
            "1970-01-01T00:00:00Z",
            "1582-10-10T00:00:00Z",
        ),
    ),
    rows(
        "years_beyond_the_calendar_by_their_offset",
        each("wrong_hour", "ordered_at", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"),
        "well-formed, but in UTC they fall into year 10000 and year 0: could be bad_type",
    ),
    rows(
        "years_of_odd_length",
        each(
            "bad_type",
            "ordered_at",
            "12026-10-05T07:15:00Z",
            "+12026-10-05T07:15:00Z",
            "26-10-05T07:15:00Z",
            "-2026-10-05T07:15:00Z",
            "2026-10-05-07T15:00:00Z",
        ),
        "expanded years are ISO 8601 by agreement only; as times they would be wrong_hour",
    ),
    rows(
        "days_that_do_not_exist",
        each(
            "bad_type",
            "ordered_at",
            "2026-02-30T07:15:00Z",
            "2026-02-29 07:15:00",
            "2026-13-01T07:15:00Z",
            "2026-00-10T07:15:00Z",
            "2026-10-00T07:15:00Z",
            "2026-09-31T07:15:00",
            "0000-00-00 00:00:00",
        ),
    ),
    rows(
        "clock_times_that_do_not_exist",
        each("bad_type", "ordered_at", at("%Y-%m-%dT25:15:00Z"), at("%Y-%m-%dT%H:60:00Z"), at("%Y-%m-%dT%H:15:61Z")),
    ),
    rows(
        "midnight_as_24_00",
        each("bad_type", "ordered_at", at("%Y-%m-%dT24:00:00Z"), at("%Y-%m-%d 24:00:00")),
        "older ISO 8601 has 24:00 for the next midnight, which would be wrong_hour",
    ),
    rows(
        "leap_second",
        each("bad_type", "ordered_at", at("%Y-%m-%dT%H:59:60Z")),
        "second 60 exists in ISO 8601; no column can hold it",
    ),
    rows(
        "date_only",
        each("bad_type", "ordered_at", at("%Y-%m-%d")),
        "a date is no time; read as midnight it would be wrong_hour",
    ),
    rows("time_only", each("bad_type", "ordered_at", at("%H:15:00"), at("T%H:15:00Z"), at("%H:15"))),
    rows(
        "epoch_numbers_as_time",
        each("bad_type", "ordered_at", epoch(1), epoch(1000), "1790000000", "1790000000.5", "46300.3", "0", "-1"),
    ),
    rows(
        "times_of_other_countries",
        each(
            "bad_type",
            "ordered_at",
            at("%m/%d/%Y %H:15:00"),
            at("%d.%m.%Y %H:15"),
            at("%d/%m/%Y %H:15:00"),
            at("%Y/%m/%d %H:15:00"),
            at("%b %d %Y %H:15:00"),
            at("%a, %d %b %Y %H:15:00 GMT"),
            at("%Y-%m-%d %I:15:00 %p"),
        ),
    ),
    rows(
        "times_with_zone_names",
        each(
            "bad_type",
            "ordered_at",
            at("%Y-%m-%dT%H:15:00 Europe/Berlin"),
            at("%Y-%m-%d %H:15:00 CET"),
            at("%Y-%m-%dT%H:15:00Z[UTC]"),
            at("%Y-%m-%d %H:15:00 PST"),
            at("%Y-%m-%dT%H:15:00UTC+2"),
        ),
        "zone names are not ISO 8601, though some casts accept them (Berlin would then be wrong_hour)",
    ),
    rows(
        "times_that_say_utc_or_gmt",
        each("bad_type", "ordered_at", at("%Y-%m-%d %H:15:00 UTC"), at("%Y-%m-%d %H:15:00 GMT")),
        "unambiguous, but not ISO 8601; a cast that knows zone names keeps them",
    ),
    rows(
        "times_in_basic_format",
        each("bad_type", "ordered_at", at("%Y%m%dT%H1500Z"), at("%Y%m%d%H1500"), at("%Y%m%d")),
        "the first is ISO 8601 basic format; the design's variations are only `T` or space and the offset",
    ),
    rows(
        "week_and_ordinal_dates",
        each("bad_type", "ordered_at", at("%G-W%V-%uT%H:15:00Z"), at("%Y-%jT%H:15:00Z")),
        "ISO 8601 too, but nobody sends them; rejected rather than guessed",
    ),
    rows(
        "times_with_single_digits",
        each("bad_type", "ordered_at", at("%Y-%-m-%-dT%-H:5:0Z"), at("%Y-%m-%d %-H:5:00")),
        "ISO 8601 wants two digits; a lenient cast would keep them (hours from 10 on still have a single-digit minute)",
    ),
    rows(
        "lower_case_t_and_z",
        each("bad_type", "ordered_at", at("%Y-%m-%dt%H:15:00z")),
        "RFC 3339 allows lower case; the design names `T`",
    ),
    rows(
        "blanks_around_times",
        [fine(QUARTER, ordered_at=at(" %Y-%m-%dT%H:15:00Z")), fine(QUARTER, ordered_at=at("%Y-%m-%d %H:15:00Z  "))],
        "blanks around a value are not mentioned; the value is clear, so it is kept",
    ),
    rows(
        "two_blanks_inside_a_time",
        each("bad_type", "ordered_at", at("%Y-%m-%d  %H:15:00Z"), at("%Y-%m-%d T %H:15:00Z")),
        "a lenient parser could keep them",
    ),
    rows(
        "times_of_magic_words",
        each("bad_type", "ordered_at", "now", "today", "yesterday", "epoch", "tomorrow", "CURRENT_TIMESTAMP"),
        "some SQL casts understand these words; they are no ISO 8601",
    ),
    rows(
        "times_with_text_behind",
        each(
            "bad_type",
            "ordered_at",
            at("%Y-%m-%dT%H:15:00Zulu"),
            at("%Y-%m-%dT%H:15:00Z;"),
            at("%Y-%m-%dT%H:15:00Z %Y-%m-%d"),
            at("%Y-%m-%dT%H:15:00.Z"),
            at("%Y-%m-%dT%H.15.00Z"),
        ),
    ),
    rows(
        "time_in_digits_of_another_script",
        each(
            "bad_type",
            "ordered_at",
            "\uff12\uff10\uff12\uff16-10-05T07:15:00Z",
            "\u0662\u0660\u0662\u0666-\u0661\u0660-\u0660\u0665T\u0660\u0667:\u0661\u0665:\u0660\u0660Z",
        ),
    ),
)
