"""`python -m tests.shadow`: does the gate of repairs let a bad one in, and is an unchanged script the same? One table.

`--repairs N` makes N bad repairs, `--runs N` records N runs, `--budget 5m` makes further bad repairs until then.
"""

import argparse
import asyncio
import sys

from tests.prove.program import seconds_of
from tests.shadow.table import bad_repairs, unchanged

parser = argparse.ArgumentParser(prog="python -m tests.shadow", description=__doc__)
parser.add_argument("--repairs", type=int, default=200, metavar="N")
parser.add_argument("--runs", type=int, default=5_000, metavar="N")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--budget", type=seconds_of, default=0.0, metavar="TIME")
chosen = parser.parse_args()
sys.exit(max(asyncio.run(bad_repairs(chosen.repairs, chosen.seed, chosen.budget)), asyncio.run(unchanged(chosen.runs))))
