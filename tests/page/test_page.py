"""The page in a real browser. Against the fake service, or with PAGE_URL and PAGE_ADMIN_TOKEN against a real one, which shows itself
without a caller token and has a budget: then what needs the fake's controls is skipped. What a button did is judged at the service."""

import unittest

from doing import Doing
from looking import Looking
from parts import Parts
from telling import Hostile, Lost, Morning, Moving, Off, StoreOut, Tokens

__all__ = ["Doing", "Hostile", "Looking", "Lost", "Morning", "Moving", "Off", "Parts", "StoreOut", "Tokens"]

if __name__ == "__main__":
    unittest.main()
