"""Python imports this at its start wherever its folder is in PYTHONPATH: vLLM's processes then wait for each other asleep.

They wait in a loop around `sched_yield`, which is good where each has a core. On a machine with few cores they take all of
them, and some kernels (Linux 6.18) then keep everybody else off for seconds at a time: the client that measures, too.
"""

import os
import time


def rest():
    time.sleep(50e-6)


os.sched_yield = rest
