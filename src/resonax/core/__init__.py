"""Values, errors, linear algebra, intervals and result objects: what every room uses."""
