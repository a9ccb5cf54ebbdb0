# SPDX-License-Identifier: Apache-2.0
"""Makes this folder's mpis.py importable by its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
