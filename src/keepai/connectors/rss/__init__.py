"""Feeds in RSS and Atom: `rss_connector` is what scripts call, `feed_parser` reads a feed in its own process."""
