"""Estimates how hard a secret is to guess, in bits, from its characters. It never outputs a secret.

A script can find out a guessable secret, because it notices when the host replaces or refuses it. So Keep warns people
who store one. The estimate counts every character as random, except common words, years, and characters that repeat or
count up or down.
"""

from __future__ import annotations

import math
import re

BITS_LEAST = 50  #: fewer are guessable: ten lower-case letters, or eight letters and digits

_WORD_BITS = 7.0  # one of about a hundred common words
_POOLS = (("[a-z]", 26), ("[A-Z]", 26), ("[0-9]", 10), ("[^a-zA-Z0-9]", 33))
_LOOKS_LIKE = str.maketrans("013457@$", "oleastas")
_WORDS = re.compile("|".join(sorted((
    "abc", "access", "account", "admin", "api", "april", "asdf", "august", "autumn", "baseball", "batman",
    "changeme", "company", "computer", "database", "december", "default", "demo", "dragon", "example", "february",
    "football", "friday", "google", "guest", "hallo", "hello", "hunter", "iloveyou", "internet", "january", "july",
    "june", "keep", "letmein", "login", "london", "love", "mail", "march", "master", "monday", "monkey", "november",
    "october", "office", "oracle", "pass", "passwd", "password", "passwort", "postgres", "princess", "private",
    "qazwsx", "qwerty", "qwertz", "root", "saturday", "secret", "september", "server", "shadow", "slack", "sommer",
    "spring", "summer", "sunday", "sunshine", "superman", "swordfish", "sysadmin", "temp", "test", "thursday",
    "token", "trustno", "tuesday", "user", "wednesday", "welcome", "winter", "yxcv", "zxcv",
), key=len, reverse=True)))
_YEAR = re.compile("(?:19|20)[0-9]{2}")


def bits(secret: str) -> int:
    """About how many bits are unknown to a guesser; each bit halves the chance of a guess."""
    pool = sum(size for kind, size in _POOLS if re.search(kind, secret))
    if not pool:
        return 0
    rest, usual = _without_usual(secret.lower())
    # A character that repeats the previous one, or counts up or down from it, adds nothing.
    chosen = sum(n == 0 or abs(ord(rest[n]) - ord(rest[n - 1])) > 1 for n in range(len(rest)))
    return int(usual * _WORD_BITS + chosen * math.log2(pool))


def _without_usual(text: str) -> tuple[str, int]:
    """The text without common words and years, and how many there were. Digits may replace letters."""
    plain, years = _YEAR.subn("\0", text)
    spans = [match.span() for match in _WORDS.finditer(plain.translate(_LOOKS_LIKE))]
    for start, end in reversed(spans):
        plain = plain[:start] + "\0" + plain[end:]
    return plain.replace("\0", ""), years + len(spans)
