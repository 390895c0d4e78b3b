"""leapmpi, but for a rest of some milliseconds at every change of phase: none is too short to be met from outside.

jobs/mpirun/local 3 python -m tests.soak.slowed train DATA ...
"""

import sys
import time

from leapmpi.cli.main import main
from leapmpi.system.phase_timers import PhaseTimers

REST = 0.003
genuine = PhaseTimers._switch


def switch(phases, phase):
    """The genuine change of phase, and a rest in the new one."""
    left = genuine(phases, phase)
    time.sleep(REST)
    return left


PhaseTimers._switch = switch

if __name__ == "__main__":
    sys.exit(main())
