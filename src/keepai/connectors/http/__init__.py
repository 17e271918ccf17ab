"""HTTP as such, for services that have no connector of their own."""
