"""Settings for all tests."""

from hypothesis import settings

# No time limit per example: a busy machine is no failure. A failing example prints itself.
settings.register_profile("lilo", deadline=None, print_blob=True)
settings.load_profile("lilo")
