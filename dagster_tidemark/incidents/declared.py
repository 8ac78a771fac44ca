"""The channels and expected arrivals that a code location declares, kept for commands.

`tidemark alert test` needs the channels, and `tidemark plan` the expected arrivals.
"""

from collections.abc import Sequence

from dagster_tidemark.incidents.channels.channel import Channel, distinct
from dagster_tidemark.incidents.expected import ExpectedArrival

_declared: dict[str, tuple[Channel, ...]] = {}
_expected: dict[str, tuple[ExpectedArrival, ...]] = {}


def declare_channels(location: str, channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """Remember and return the channels of a code location.

    Raises:
        ChannelRefused: two have the same name, or a value is not a channel.
    """
    _declared[location] = distinct(channels)
    return _declared[location]


def channels_of(location: str) -> tuple[Channel, ...]:
    """Return the channels of a code location whose definitions this process has loaded."""
    return _declared.get(location, ())


def declare_expected(location: str, expected: Sequence[ExpectedArrival]) -> None:
    """Remember the expected arrivals of a code location."""
    _expected[location] = tuple(expected)


def expected_of(location: str) -> tuple[ExpectedArrival, ...]:
    """Return the expected arrivals of a code location whose definitions this process has loaded."""
    return _expected.get(location, ())
