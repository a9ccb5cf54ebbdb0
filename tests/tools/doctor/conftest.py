# SPDX-License-Identifier: Apache-2.0
"""Makes reports.py of this folder and namespaces.py of tests/netns importable."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "netns")]
