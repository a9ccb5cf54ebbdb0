# SPDX-License-Identifier: Apache-2.0
"""A progress bar on standard error, where that is a terminal and tqdm is installed; otherwise nothing."""

import sys
from typing import Any


class Bar:
    """Counts finished steps."""

    def __init__(self, total: int, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, file=sys.stderr, leave=False, mininterval=0.5)

    def step(self, what: str) -> None:
        """Show the step that has just finished."""
        if self._bar is not None:
            self._bar.set_description(what, refresh=False)
            self._bar.update()

    def write(self, text: str) -> None:
        """Print a line on standard output, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
