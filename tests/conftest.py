"""Settings of the whole suite."""

import os

from hypothesis import HealthCheck, settings

# For the programs that tests start: google-api-core warns of a Python near its end of life on
# stderr, which must otherwise stay empty.
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

# The duration of one example depends on the machine, which others use as well.
settings.register_profile("pullstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullstream")
