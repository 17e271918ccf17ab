"""The pages, one module each; see the package above for what a page is."""
