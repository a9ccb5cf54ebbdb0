# SPDX-License-Identifier: Apache-2.0
"""`hpccoll lint`: finds the errors of a job script before the script waits in a queue.

`shell` splits the script into commands and words as a shell would; `options` parses a command's options by a table of
its grammar (`slurm`, `lsf`, `jsrun`); `script` combines both. Each rule of `script_rules`, `slurm_rules` and
`lsf_rules` is a function that takes the parsed script and yields its problems: the line, what is wrong, what to do.
"""

from hpccoll.tools.lint.diagnostics import Diagnostic, Rule
from hpccoll.tools.lint.rules import RULES, check

__all__ = ["RULES", "Diagnostic", "Rule", "check"]
