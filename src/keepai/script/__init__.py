"""The author's side: what a script declares, what is wrong with it, and the graph of its topics."""
