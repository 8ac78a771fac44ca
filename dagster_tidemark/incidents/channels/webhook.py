"""A webhook: JSON with the signature of Standard Webhooks (HMAC-SHA-256). Receivers have libraries for it."""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from dagster_tidemark.incidents.channels.channel import (
    UNSET,
    Channel,
    Delivery,
    post,
    raise_for,
    require_secret,
    require_url,
    unsendable,
)
from dagster_tidemark.incidents.incident import Incident

_PREFIX = "whsec_"
MOST_ASSETS = 200
"""Assets in a message: SQS accepts 256 KB, and an outage may make thousands of assets late."""


@dataclass(frozen=True, kw_only=True)
class Webhook(Channel):
    """A web address that gets each message as JSON.

    The headers are those of Standard Webhooks: `webhook-id` (the id of the message), `webhook-timestamp` and
    `webhook-signature`, which signs id, timestamp and body.

    Args:
        url: The address, or the variable with it if it holds a secret.
        secret: The variable with the key of the signature: any text, or `whsec_` and Base64.

    Raises:
        ChannelRefused: the secret is not given as a variable, or the address is not a web address.
    """

    url: str | dg.EnvVar
    secret: dg.EnvVar = field(repr=False)

    def __post_init__(self) -> None:
        require_secret("Webhook", "secret", self.secret)
        if not isinstance(self.url, dg.EnvVar):
            require_url("Webhook", self.url)

    @property
    def kind(self) -> str:
        return f"webhook {self.url.env_var_name if isinstance(self.url, dg.EnvVar) else self.url}"

    @property
    def secrets(self) -> tuple[dg.EnvVar | None, ...]:
        return (self.secret, self.url if isinstance(self.url, dg.EnvVar) else None)

    def problem(self) -> str:
        if why := super().problem() or (unsendable(self.url) if isinstance(self.url, dg.EnvVar) else ""):
            return why
        secret = self.secret.get_value("") or ""
        if secret.startswith(_PREFIX) and _decoded(secret) is None:
            return f"{self.secret.env_var_name} {UNSET} to {_PREFIX} and Base64; correct it for the code server"
        return ""

    def send(self, delivery: Delivery) -> str:
        url = (self.url.get_value("") or "") if isinstance(self.url, dg.EnvVar) else self.url
        id_, at = delivery.message.id, str(int(delivery.now))
        body = json.dumps(document(delivery)).encode()
        headers = {
            "Content-Type": "application/json",
            "webhook-id": id_,
            "webhook-timestamp": at,
            "webhook-signature": signature(self.secret.get_value("") or "", id_, at, body),
        }
        raise_for(post(url, body, headers))
        return delivery.message.incident.id


def signature(secret: str, id_: str, at: str, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    key = (_decoded(secret) if secret.startswith(_PREFIX) else None) or secret.encode()
    signed = hmac.new(key, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def _decoded(secret: str) -> bytes | None:
    """Return the key in a secret of Standard Webhooks; None if it is not Base64."""
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None


def document(delivery: Delivery) -> dict[str, Any]:
    """Return a message as the webhook and the queue send it. Times are Unix seconds."""
    message = delivery.message
    return {
        "id": message.id,
        "kind": message.kind,
        "written_at": message.at,
        "sent_at": delivery.now,
        "title": delivery.report.title,
        "text": delivery.report.text,
        "link": delivery.report.link,
        "code_location": delivery.settings.code_location,
        "incident": described(message.incident, most_assets=MOST_ASSETS),
    }


def described(incident: Incident, most_assets: int | None = None) -> dict[str, Any]:
    """Return an incident as `tidemark incidents --json` and the channels show it.

    Args:
        most_assets: Number of assets to describe, late ones first. The others are only counted.
    """
    assets = sorted(incident.assets, key=lambda each: each.recovered_at is not None)
    shown = assets[:most_assets]
    named = {each.asset for each in shown}
    return {
        "id": incident.id,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "is_late": incident.is_late,
        "cause": asdict(incident.cause),
        "assets": [asdict(each) for each in shown],
        **({"assets_left_out": len(assets) - len(shown)} if len(shown) < len(assets) else {}),
        "still_late_by": {name: id_ for name, id_ in incident.still_late_by.items() if name in named},
        "owners": list(incident.owners),
        "acknowledged": asdict(incident.acknowledged) if incident.acknowledged else None,
    }
