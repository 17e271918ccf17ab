"""`python -m tests.attack`: see program.py."""

import sys

from tests.attack.program import main

sys.exit(main())
