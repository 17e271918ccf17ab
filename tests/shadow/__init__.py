"""Bad repairs made by rule, and many recorded runs: what `keep shadow` and the gate of repairs must show."""
