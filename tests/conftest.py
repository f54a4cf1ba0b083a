"""Settings of the whole suite."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell starts background jobs with Ctrl-C ignored, and the programs that tests start and then
# interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For the programs that tests start: google-api-core warns on stderr about a Python near its end of
# life, and stderr must stay empty.
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

# The duration of one example depends on the machine, which others use as well.
settings.register_profile("pullstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullstream")
