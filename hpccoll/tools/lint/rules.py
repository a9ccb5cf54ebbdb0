# SPDX-License-Identifier: Apache-2.0
"""All rules, and their application to a script."""

from hpccoll.tools.lint import lsf_rules, script_rules, slurm_rules
from hpccoll.tools.lint.diagnostics import Diagnostic, Rule
from hpccoll.tools.lint.script import read

RULES: dict[str, list[Rule]] = {
    "slurm": script_rules.RULES + slurm_rules.RULES,
    "lsf": script_rules.RULES + lsf_rules.RULES,
}


def check(text: str) -> list[Diagnostic]:
    """Apply all rules to the text of a job script.

    :returns: the problems, in the order of their lines; a script without directives is a problem too
    """
    script = read(text)
    if not script.scheduler:
        return [
            Diagnostic(
                "no-directives", "error", 1, "there is no #SBATCH and no #BSUB line, so this is no job script",
                "see `hpccoll submit --site NAME --dry-run`",
            )
        ]  # fmt: skip
    diagnostics = [
        Diagnostic(rule.name, rule.severity, *problem)
        for rule in RULES[script.scheduler]
        for problem in rule.find(script)
    ]
    return sorted(diagnostics, key=lambda diagnostic: (diagnostic.line, diagnostic.severity, diagnostic.rule))
