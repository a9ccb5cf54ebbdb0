# SPDX-License-Identifier: Apache-2.0
"""All rules, and their application to a script."""

from hpccoll.tools.lint import job, lsf_rules, script_rules, slurm_rules
from hpccoll.tools.lint.findings import Finding, Rule

RULES: dict[str, list[Rule]] = {
    "slurm": script_rules.RULES + slurm_rules.RULES,
    "lsf": script_rules.RULES + lsf_rules.RULES,
}


def check(text: str) -> list[Finding]:
    """What is wrong with a job script, in the order of its lines; a script for no scheduler is a finding, too."""
    script = job.read(text)
    if not script.scheduler:
        return [
            Finding(
                "no-directives", "error", 1, "there is no #SBATCH and no #BSUB line, so this is no job script",
                "see `hpccoll submit --site NAME --dry-run`",
            )
        ]  # fmt: skip
    found = [
        Finding(rule.name, rule.severity, *said)
        for rule in RULES[script.scheduler]
        for said in rule.find(script)
    ]
    return sorted(found, key=lambda finding: (finding.line, finding.severity, finding.rule))
