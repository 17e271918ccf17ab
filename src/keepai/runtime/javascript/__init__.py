"""JavaScript: QuickJS as WebAssembly, in forked and locked-in worker processes."""
