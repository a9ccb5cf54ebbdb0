# SPDX-License-Identifier: Apache-2.0
"""Makes the files of this folder importable by each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "api"))  # file_store.py
