"""Messages as data: streams, what is committed of them, and what is answered. Long-lived runs do it (`shift`).

Public are the names of `__init__.pyi`, which declare streams. The modules are private.
"""

import lazy_loader

# Imported when first asked for: a declaration of alerts needs none of what a delivery imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
