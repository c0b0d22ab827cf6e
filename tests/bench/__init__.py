"""What the product costs, beside what else one could do: ``make bench``. No test of `make test`
is timed; ratios to the comparison in the same run are what counts."""
