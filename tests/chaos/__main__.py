"""`make chaos`: kill server, aggregators, devices and broker and cut connections, five hundred times."""

import sys

from tests.chaos.campaign import Report, campaign
from tests.chaos.command import run_campaign


def main() -> int:
    """Run the campaign; exit code 1 if a run differs from the undisturbed one."""
    report: Report = run_campaign("tests.chaos", __doc__, campaign, failures=500, rounds=12, per_run=60)
    print(f"\n{'failure':<8} {'recoveries':>10} {'median':>9} {'maximum':>9}")
    for kind, count, middle, most in report.rows():
        print(f"{kind:<8} {count:>10} {middle:>7.2f} s {most:>7.2f} s")
    print(
        f"\n{report.failures} failures in {report.runs} runs: lost {report.lost}, doubled {report.doubled}, ",
        end="",
    )
    print(f"runs that ended with another model {report.different}")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
