"""`python -m tests.chaos.standby`: kill, stop and cut off the active server of a pair two hundred times."""

import sys
from statistics import median

from tests.chaos.campaign import Report
from tests.chaos.command import run_campaign
from tests.chaos.takeovers import takeovers


def table(report: Report) -> str:
    """The report as a table in Markdown."""
    lines = ["| failure | takeovers | median | slowest |", "| --- | --- | --- | --- |"]
    every = [second for seconds in report.seconds.values() for second in seconds]
    for kind, seconds in {**report.seconds, "all": every}.items():
        if seconds:
            lines.append(f"| {kind} | {len(seconds)} | {median(seconds):.2f} s | {max(seconds):.2f} s |")
    counts = (
        f"{report.failures} takeovers in {report.runs} runs: lost {report.lost}, doubled {report.doubled}, "
        f"rounds closed differently by a replaced server {report.forked}, runs that ended with another model "
        f"{report.different}; {report.late} words of replaced servers came late."
    )
    return "\n".join([*lines, "", counts])


def main() -> int:
    """Run the campaign; exit code 1 if anything was lost, doubled or different."""
    report: Report = run_campaign(
        "tests.chaos.standby", __doc__, takeovers, failures=200, rounds=60, per_run=20
    )
    print(f"\n{table(report)}")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
