"""The meaning of the numbers: events in, figures out. Pure: no I/O, no clock, no lock."""
