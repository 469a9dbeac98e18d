"""Four devices, made of this host's cores in a process of its own, against one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("devices_worker.py")


@pytest.mark.parametrize("rows", [1210, pytest.param(200_003, marks=pytest.mark.slow)])
def test_four_devices_find_and_compress_what_one_does(rows):
    done = subprocess.run(
        [sys.executable, str(WORKER), str(rows)],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("devices") == 4
    assert all(value == 0 for name, value in told.items() if name.endswith("rows")), told
    assert all(value < 1e-5 for name, value in told.items() if name.endswith("error")), told
