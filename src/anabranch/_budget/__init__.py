"""Limits, accounts of tokens, and shares of a server: the usage of a branch, an agent or a caller."""

from anabranch._budget.account import Account, BudgetError, Reservation
from anabranch._budget.limits import UNLIMITED, FullShareError, Limits, Shares, by_address
