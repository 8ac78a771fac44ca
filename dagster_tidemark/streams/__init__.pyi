from .alerts.declaration import Alerting as Alerting
from .alerts.identity import Episode as Episode
from .answers.declaration import Answering as Answering
from .deliveries.declaration import Deliveries as Deliveries
from .stream_declaration import Stream as Stream
from .stream_declaration import StreamContext as StreamContext

__all__ = [
    "Alerting",
    "Answering",
    "Deliveries",
    "Episode",
    "Stream",
    "StreamContext",
]
