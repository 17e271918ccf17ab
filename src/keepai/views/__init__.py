"""What is looked at: reads the ledger, writes only through engine.commands."""
