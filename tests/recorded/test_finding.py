"""A call is found by its id, or by any unique beginning of the id."""

import pytest

from anabranch._durable import NoSuchCallError, find_call
from tests.durable.stores import Modelled
from tests.suites.call_samples import a_call


async def several(*names: str) -> Modelled:
    store = Modelled()
    for name in names:
        await store.begin(a_call(name))
    return store


@pytest.mark.parametrize("name", ["call_ab1", "call_ab", "ab1", "ab", "call_ab1~0.ff", "ab1~"])
async def test_a_unique_prefix_finds_a_call(name: str) -> None:
    lines = "~" in name
    store = await several(*(["call_ab1~0.ff"] if lines else ["call_ab1"]), "call_b")
    assert (await find_call(store, name)).call_id.startswith("call_ab1")


async def test_a_whole_id_finds_its_call_although_lines_begin_with_it() -> None:
    store = await several("call_a", "call_a~0.ff", "call_a~1.ee")
    assert (await find_call(store, "call_a")).call_id == "call_a"
    assert (await find_call(store, "a")).call_id == "call_a"


async def test_a_prefix_of_several_calls_lists_them() -> None:
    store = await several(*(f"call_a{number}" for number in range(7)))
    with pytest.raises(NoSuchCallError, match=r"several calls: call_a6, .*call_a2, …\. Type more"):
        await find_call(store, "a")


@pytest.mark.parametrize("name", ["", "nothing", "call_"])
async def test_a_prefix_of_no_call_is_refused(name: str) -> None:
    with pytest.raises(NoSuchCallError):
        await find_call(await several(), name)
