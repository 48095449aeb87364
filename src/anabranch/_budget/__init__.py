"""Limits of branches, accounts of tokens, and each caller's share of a server's places."""

from anabranch._budget.account import Account, BudgetError, Reservation
from anabranch._budget.limits import UNLIMITED, FullShareError, Limits, Shares, by_address
