"""`python -m tests.prove`: see program.py."""

import sys

from tests.prove.program import main

sys.exit(main())
