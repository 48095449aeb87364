"""Nearly equal notes: a changed fact, and one lesson in several wordings."""

import pytest

from anabranch.memory import Draft, Memory, MemoryStore, ReasoningBank
from anabranch.memory._words import is_near, stems_of
from anabranch.testing import ManualClock

DAY = 24 * 3600.0
WORDINGS = [
    "Run migrations before deploying.",
    "Always run the database migrations before a deploy.",
    "Before deploying, run migrations first.",
    "A deploy needs its migrations to be run first.",
]


@pytest.fixture
def bank(store: MemoryStore) -> ReasoningBank:
    return ReasoningBank(store, clock=ManualClock(DAY))


async def record(bank: ReasoningBank, day: int, title: str, content: str) -> Memory:
    view = ReasoningBank(bank.store, clock=ManualClock(day * DAY))
    draft = Draft(title=title, description="When work is deployed", content=content)
    return await view.record(draft)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Staging is at A", "Staging is at B"),
        ("Staging is at blue.example.com", "Staging is at green.example.com"),
        ("Clear the cache.", "Do not clear the cache."),
        ("预发布环境在10.0.0.5", "预发布环境在10.0.0.9"),
        ("Le déploiement échoue le vendredi", "LE DEPLOIEMENT ECHOUE LE LUNDI VENDREDI"),
        *((WORDINGS[0], other) for other in WORDINGS[1:]),
    ],
)
def test_texts_that_share_most_words_are_nearly_the_same(one: str, other: str) -> None:
    first, second = stems_of(one), stems_of(other)

    assert is_near(first, second)
    assert is_near(second, first)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Staging is at blue.example.com", "Deploy to staging with make stage"),
        ("Deploy to staging with make stage", "Deploy to production with make prod"),
        ("and so on", "and so on"),
        ("服务器在北京", "客户端在上海"),
    ],
)
def test_texts_about_other_subjects_differ(one: str, other: str) -> None:
    assert not is_near(stems_of(one), stems_of(other))


async def test_the_newer_version_of_a_fact_is_injected_with_its_day(bank: ReasoningBank) -> None:
    await record(bank, 10, "Staging", "Staging is at blue.example.com.")
    new = await record(bank, 20, "Staging", "Staging is at green.example.com.")
    await record(bank, 15, "Staging", "Staging is at red.example.com.")

    recall = await bank.recall("where is staging?", allowance=1_000)

    assert [(item.id, item.recorded) for item in recall.items] == [(new.id, "1970-01-21")]
    assert '"recorded": "1970-01-21"' in recall.text


async def test_one_lesson_in_four_wordings_is_injected_once(bank: ReasoningBank) -> None:
    for day, wording in enumerate(WORDINGS):
        await record(bank, day, "Migrations", wording)
    other = await record(bank, 9, "Deploys on Friday", "Wait until Monday.")

    recall = await bank.recall("deploy with migrations", allowance=1_000, limit=2)

    assert [item.content for item in recall.items[:1]] == [WORDINGS[-1]]
    assert [item.id for item in recall.items[1:]] == [other.id]


async def test_the_older_note_is_injected_if_the_newer_does_not_fit(bank: ReasoningBank) -> None:
    short = await record(bank, 1, "Staging", "Staging is at blue.example.com.")
    await record(bank, 2, "Staging", "Staging is at green.example.com. " * 100)

    recall = await bank.recall("where is staging?", allowance=200)

    assert [item.id for item in recall.items] == [short.id]


async def test_a_recorded_note_names_similar_notes(bank: ReasoningBank) -> None:
    first = await record(bank, 1, "Staging", "Staging is at blue.example.com.")
    await record(bank, 1, "Lunch", "The canteen is closed on Monday.")
    second = await record(bank, 2, "Staging", "Staging is at red.example.com.")
    third = await record(bank, 3, "Staging", "Staging is at green.example.com.")

    assert await bank.similar_to(third) == [second, first]
    assert await bank.of("ann").similar_to(third) == []
    lunch = Draft(title="Tea", description="In the afternoon", content="There is none.")
    assert await bank.similar_to(await bank.record(lunch)) == []
