"""Will SGD with momentum blow up because of the order in which the data arrives?

What the README and the guides use is here, by the list in ``__init__.pyi``, and is loaded on first
use, so that importing resonax costs nothing. All else is imported from its room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
