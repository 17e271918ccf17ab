"""`python -m tests.certify`: does `keep certify` find every fault, and nothing in what is right? One table.

`--each N` tries N scripts of each kind; `--speed` measures the template and a thousand trials.
"""

import argparse
import sys

from tests.certify.table import faulty, right, speed

parser = argparse.ArgumentParser(prog="python -m tests.certify", description=__doc__)
parser.add_argument("--each", type=int, default=1_000, metavar="N")
parser.add_argument("--speed", action="store_true")
chosen = parser.parse_args()
sys.exit(speed() if chosen.speed else max(faulty(chosen.each), right()))
