# SPDX-License-Identifier: Apache-2.0
"""Makes namespaces.py importable by the tests of this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "images"))
sys.path.insert(0, str(Path(__file__).parents[1] / "install"))
