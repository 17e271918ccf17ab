"""What is looked at: every answer that a door shows, read from the ledger. It writes nothing and knows no door."""
