"""Settings for all tests."""

from hypothesis import settings

# No time limit per example: a busy machine is no failure. A failing example prints itself. CI draws
# at random like everybody else (hypothesis would always take the same examples there).
settings.register_profile("lilo", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("lilo")
