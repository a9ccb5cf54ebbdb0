# SPDX-License-Identifier: Apache-2.0
"""Where the tests of this folder find the environments of other MPIs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "install"))
