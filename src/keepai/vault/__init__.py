"""Where secrets rest: an encrypted file beside the ledger, whose key stands elsewhere. It rests on `model` alone."""
