"""The page `resonax explore`: a local server, its JSON API and the work behind them."""
