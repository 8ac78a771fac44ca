"""Readings as they are sent: missing, corrected, late, out of order; dense around the limits of the rule too_warm.

Belongs here: what is sent, and in which order it is received. Does not belong here: batches, and what is received again
(`alert_histories`).
"""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
_STEPS = (1, 1, 2, 2.5, 2.5, 3, 5, 5, 7, 9.99, 10, 14.99, 15, 15.01)  # minutes, dense around 10 and 15
_DEGREES = {"hot": (8.1, 8.000001, 12.0), "warm": (6.0, 7.0, 8.0), "cool": (5.999999, 2.0)}

Message = Mapping[str, Any]


def messages_of(dice: random.Random) -> list[Message]:
    """Everything that is ever sent, in the order in which it is."""
    sent: list[dict[str, Any]] = []
    for device in "abc"[: dice.choice((1, 1, 2, 3))]:
        at, mood = NOON + timedelta(minutes=dice.randrange(90)), "hot"
        for _ in range(dice.randrange(4, 36)):
            at += timedelta(minutes=dice.choice(_STEPS))
            if dice.random() < 0.3:
                mood = dice.choice(("hot", "hot", "warm", "cool"))
            reading = {"device_id": device, "store_id": dice.randrange(3), "read_at": at}
            for times in range(dice.choices((0, 1, 2, 3), (1, 5, 5, 2))[0]):  # missing, read once, corrected
                said = mood if dice.random() < (0.85, 0.3, 0.3)[times] else dice.choice(("hot", "warm", "cool", "cool"))
                sent.append(reading | {"temperature_c": dice.choice(_DEGREES[said]), "times": times})
    lateness, later = dice.choice((0, 3, 12, 1000)), dice.choice((0, 30, 60))  # in messages, out of its place
    sent.sort(key=lambda each: each["read_at"])
    stragglers = dice.choice((0, 0.2))
    late = [
        dice.uniform(0, lateness) + each.pop("times") * dice.uniform(0, later) + 200 * (dice.random() < stragglers)
        for each in sent
    ]
    order = sorted(range(len(sent)), key=lambda place: place + late[place])
    for number, each in enumerate(sent):  # the broker's time is not the order in which they are received
        each["message_id"] = f"{dice.randrange(10**6):06}"
        each["sent_at"] = NOON + timedelta(seconds=dice.choice((number, number // 3, dice.randrange(1 + len(sent)))))
        each["hour"] = each["read_at"].replace(minute=0, second=0, microsecond=0)
    unique = {each["message_id"]: place for place, each in enumerate(sent)}
    return [sent[place] for place in order if unique[sent[place]["message_id"]] == place]
