"""Messages as data: streams, deliveries, alerts and answers. Long-lived runs handle the messages (`shift`).

The public names are in `__init__.pyi`; they declare streams. The modules are private.
"""

import lazy_loader

# Imported at first use: a declaration of alerts does not need the imports of a delivery.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
