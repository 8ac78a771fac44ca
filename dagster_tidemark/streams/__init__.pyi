from .alert_declaration import Alerting as Alerting
from .alert_identity import Episode as Episode
from .answer_declaration import Answering as Answering
from .delivery_declaration import Deliveries as Deliveries
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
