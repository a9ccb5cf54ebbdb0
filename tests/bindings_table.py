# SPDX-License-Identifier: Apache-2.0
"""bindings/table.toml and the traits of ext/core/hc.h, as the generator of the bindings reads them."""

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("_table", Path(__file__).parents[1] / "bindings/generator/table.py")
assert _SPEC and _SPEC.loader
table = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(table)

OPERATIONS = {one.name: one for one in table.WRAPPED}
"""Those of all languages, by their names."""
PARAMETERS: dict[str, dict[str, str]] = table.PARAMETERS
