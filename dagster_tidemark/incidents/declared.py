"""The channels that a code location declares, kept for commands such as `tidemark alert test`."""

from collections.abc import Sequence

from dagster_tidemark.incidents.channels.channel import Channel, distinct

_declared: dict[str, tuple[Channel, ...]] = {}


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
