"""A call is found by its name, or by as much of it as no other call has."""

import pytest

from anabranch._recorded import NoSuchCallError, find_call
from tests.durable.stores import Modelled
from tests.suites.call_samples import a_call


async def several(*names: str) -> Modelled:
    store = Modelled()
    for name in names:
        await store.begin(a_call(name))
    return store


@pytest.mark.parametrize("name", ["call_ab1", "call_ab", "ab1", "ab", "call_ab1~0.ff", "ab1~"])
async def test_a_name_may_be_short(name: str) -> None:
    lines = "~" in name
    store = await several(*(["call_ab1~0.ff"] if lines else ["call_ab1"]), "call_b")
    assert (await find_call(store, name)).call_id.startswith("call_ab1")


async def test_a_whole_name_is_not_the_beginning_of_a_line() -> None:
    store = await several("call_a", "call_a~0.ff", "call_a~1.ee")
    assert (await find_call(store, "call_a")).call_id == "call_a"
    assert (await find_call(store, "a")).call_id == "call_a"


async def test_a_name_of_several_calls_names_them() -> None:
    store = await several(*(f"call_a{number}" for number in range(7)))
    with pytest.raises(NoSuchCallError, match=r"several calls: call_a6, .*call_a2, …\. Type more"):
        await find_call(store, "a")


@pytest.mark.parametrize("name", ["", "nothing", "call_"])
async def test_a_name_of_none_is_refused(name: str) -> None:
    with pytest.raises(NoSuchCallError):
        await find_call(await several(), name)
