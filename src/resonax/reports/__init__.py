"""Reports: pages that stand alone, from the templates in ``resonax/templates``."""
