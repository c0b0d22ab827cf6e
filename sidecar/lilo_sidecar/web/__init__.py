"""HTTP: the figures, the page and the metrics, for whoever may ask."""
