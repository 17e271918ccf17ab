"""The command `keep`. Importing any of it imports nothing heavy: the engine comes when a command needs it."""
