# SPDX-License-Identifier: Apache-2.0
"""What will go wrong with a job script, before it waits in a queue for it: `hpccoll lint`.

`shell` reads the script as a shell would, as far as words and commands go; `options` reads a command's options by a
table of its grammar (`slurm`, `lsf`, `jsrun`); `job` puts both together; each rule of `script_rules`, `slurm_rules`
and `lsf_rules` is a function that looks at the job and says what is wrong, where, and what to do.
"""

from hpccoll.tools.lint.findings import Finding, Rule
from hpccoll.tools.lint.rules import RULES, check

__all__ = ["RULES", "Finding", "Rule", "check"]
