"""sigmax: predictive distributions you can trust.

Names and modules, which ``__init__.pyi`` lists, are imported when they are first used, so that
``import sigmax`` itself costs nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
