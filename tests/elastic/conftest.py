# SPDX-License-Identifier: Apache-2.0
"""Where the modules of these tests are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
