"""A token account alone: enclosing budgets, reservations, and waits for returned tokens."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._budget import Account, BudgetError, Reservation
from tests.randomised import examples


def nested(*budgets: int | None) -> list[Account]:
    accounts: list[Account] = []
    for number, budget in enumerate(budgets):
        outer = accounts[-1] if accounts else None
        accounts.append(Account(f"a{number}", outer, max_tokens=budget))
    return accounts


def test_spent_tokens_count_in_every_enclosing_account_and_the_innermost_budget_is_named() -> None:
    outer, middle, inner = nested(10, None, 6)
    inner.settle(None, 5)
    assert [account.tokens for account in (outer, middle, inner)] == [5, 5, 5]
    for least in (2, 6):  # the second amount exceeds the outer budget as well
        with pytest.raises(BudgetError) as refused:
            inner.reserve(least, 9)
        found = (refused.value.account, refused.value.what, refused.value.wanted)
        assert found == (inner, "tokens", 5 + least)
    middle.settle(None, 6)
    middle.settle(None, 0, cost=2.0)
    with pytest.raises(BudgetError, match="a0"):
        middle.check()
    with pytest.raises(BudgetError, match="a0"):
        inner.check()
    assert (outer.tokens, outer.cost, inner.tokens) == (11, 2.0, 5)


def test_reserved_tokens_are_neither_spent_nor_free() -> None:
    outer, inner = nested(10, None)
    assert (nested(None)[0].left, nested(None)[0].is_limited) == (None, False)
    assert (inner.left, inner.is_limited) == (10, True)
    first = inner.reserve(1, 4)
    assert (outer.left, outer.tokens, outer.reserved) == (6, 0, 4)
    second = inner.reserve(1, 20)
    assert (second.tokens, inner.left) == (6, 0)
    with pytest.raises(BudgetError):
        outer.reserve(1, 1)
    inner.settle(first, 1)
    second.release()
    second.release()
    assert (inner.left, outer.tokens, inner.tokens, outer.reserved) == (9, 1, 1, 0)


def test_a_known_part_of_a_cost_is_reserved() -> None:
    account = Account("a", max_cost=2.0)
    assert account.is_limited
    reservation = account.reserve(1, 10, cost=5.0)
    with pytest.raises(BudgetError) as refused:
        account.reserve(1, 10)
    assert refused.value.what == "cost"
    account.settle(reservation, 10, cost=1.5)
    account.settle(account.reserve(1, 10, cost=5.0), 10, cost=1.5)
    with pytest.raises(BudgetError):
        account.reserve(1, 1)
    assert (account.cost, account.reserved_cost, account.tokens) == (3.0, 0.0, 20)


def test_each_account_warns_once_at_80_percent() -> None:
    outer, _, inner = nested(100, None, 50)
    assert inner.settle(None, 39) == []
    assert inner.settle(None, 1) == [inner]
    assert inner.settle(None, 39) == []
    assert inner.settle(None, 1, cost=3.0) == [outer]
    assert outer.settle(None, 90) == []


def test_an_account_is_exhausted_when_a_reservation_no_longer_fits() -> None:
    [account] = nested(100)
    assert not nested(None)[0].is_exhausted
    held = account.reserve(90, 90)
    account.settle(None, 10)
    assert not account.is_exhausted
    assert account.is_busy(1)
    account.settle(None, 1)
    assert account.is_exhausted
    account.settle(held, 89)
    assert (account.is_exhausted, account.is_busy(1)) == (True, False)


def test_a_recorded_reservation_is_settled_like_a_new_one() -> None:
    account = Account("a", max_tokens=100, tokens=10, reserved=60, has_warned=True)
    assert account.left == 30
    assert account.settle(account.reserved_before(60), 75) == []
    assert (account.tokens, account.reserved, account.left) == (85, 0, 15)


async def test_a_waiting_request_gets_returned_tokens() -> None:
    outer, inner = nested(100, None)
    first = outer.reserve(1, 80)
    waiting = [asyncio.create_task(inner.reserve_in_turn(1, 50)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    outer.settle(first, 10)
    one = await waiting[0]
    assert (one.tokens, outer.left, waiting[1].done()) == (50, 40, False)
    inner.settle(one, 60)
    two = await waiting[1]
    assert two.tokens == 30, "no one is left who could give anything back"
    outer.settle(two, 30)
    with pytest.raises(BudgetError):
        await inner.reserve_in_turn(1, 50)


async def test_a_request_does_not_wait_for_spent_tokens() -> None:
    account = Account("a", max_cost=1.0)
    first = await account.reserve_in_turn(1, 1, cost=0.9)
    second = asyncio.create_task(account.reserve_in_turn(1, 1, cost=0.9))
    await asyncio.sleep(0)
    assert not second.done()
    account.settle(first, 1, cost=1.0)
    with pytest.raises(BudgetError):
        await second


_BUDGETS = st.lists(st.none() | st.integers(0, 300), min_size=1, max_size=4)
_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "release"]),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(1, 120),
    ),
    max_size=40,
)


class Requests:
    """Requests in nested accounts, and the expected balance of each account."""

    def __init__(self, accounts: list[Account]) -> None:
        self.accounts = accounts
        self.made: list[tuple[Account, Reservation]] = []
        self.settled = dict.fromkeys(accounts, 0)
        self.beyond = dict.fromkeys(accounts, 0)

    def around(self, account: Account) -> list[Account]:
        return self.accounts[: self.accounts.index(account) + 1]

    def reserve(self, place: int, prompt: int, reply: int) -> None:
        account = self.accounts[place % len(self.accounts)]
        left = account.left
        if left is not None and left < prompt + 1:
            with pytest.raises(BudgetError) as refused:
                account.reserve(prompt + 1, prompt + reply)
            assert refused.value.account in self.around(account)
            return
        made = account.reserve(prompt + 1, prompt + reply)
        assert made.tokens == min(prompt + reply, prompt + reply if left is None else left)
        self.made.append((account, made))

    def settle(self, place: int, _: int, used: int) -> None:
        if self.made:
            account, made = self.made.pop(place % len(self.made))
            account.settle(made, used)
            for each in self.around(account):
                self.beyond[each] += max(0, used - made.tokens)
                self.settled[each] += used

    def release(self, place: int, *_: int) -> None:
        if self.made:
            self.made.pop(place % len(self.made))[1].release()

    def check(self) -> None:
        for account in self.accounts:
            held = [made.tokens for other, made in self.made if account in self.around(other)]
            assert (account.tokens, account.reserved) == (self.settled[account], sum(held))
            if account.max_tokens is not None:
                taken = account.tokens + account.reserved
                assert taken <= account.max_tokens + self.beyond[account]


@examples(300, gate=100)
@given(_BUDGETS, _ACTIONS)
def test_spent_and_reserved_tokens_exceed_a_budget_by_at_most_one_reply_each(
    budgets: list[int | None], actions: list[tuple[str, int, int, int]]
) -> None:
    """The invariant: settled and reserved tokens fit into the budget, except for replies above
    their reservations.
    """
    requests = Requests(nested(*budgets))
    for what, *numbers in actions:
        getattr(requests, what)(*numbers)
        requests.check()
