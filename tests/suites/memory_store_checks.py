"""The suite for stores of memories: one check for each promise of ``MemoryStore``."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import anyio

from anabranch.memory import (
    Filter,
    FinishedBranch,
    Learned,
    Memory,
    MemoryStore,
    Provenance,
    QueuedBranch,
    Scope,
    Scopes,
    words_of,
)
from tests.suites.expectations import expect, no, opened, refused, yes

OpenMemoryStore: TypeAlias = Callable[[], MemoryStore]
"""Opens a store of memories."""

MemoryStoreCheck: TypeAlias = Callable[[OpenMemoryStore], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""

_OURS, _THEIRS = Scope(name="ours"), Scope(name="theirs")
_TEAM = Scope(level="team", name="ours")
_DAY = 24 * 3600.0


def _a_memory(memory_id: str, content: str = "", **changes: Any) -> Memory:
    fields: dict[str, Any] = {
        "id": memory_id,
        "title": "A title",
        "description": "A description",
        "content": content or f"What {memory_id} says",
        "scope": _OURS,
        "created_at": 100.0,
    }
    return Memory(**{**fields, **changes})


def _queued(branch_id: str, queued_at: float = 100.0) -> QueuedBranch:
    branch = FinishedBranch(branch_id=branch_id, description="Look it up", transcript="a\nb")
    return QueuedBranch(branch=branch, scopes=Scopes(project="ours"), queued_at=queued_at)


def _ids(memories: Sequence[Memory]) -> str:
    return " ".join(memory.id for memory in memories)


async def a_memory_is_read_as_it_was_added(open_store: OpenMemoryStore) -> None:
    """All fields come back; an unknown memory is not found."""
    async with opened(open_store) as store:
        rich = _a_memory(
            "rich",
            "Zoë 東京 'quoted' \"twice\" %s {} \n\t;--",
            scope=Scope(level="org", name="org: Ω"),
            task="The task",
            prior=0.25,
            helpful=3,
            unhelpful=1,
            provenance=Provenance(source="distilled", branch_id="br_1", outcome="failure"),
            created_at=1.5,
        )
        expect(await store.add([rich, _a_memory("plain")]), [rich, _a_memory("plain")], "are added")
        expect(await store.find("rich"), rich, "a memory is found")
        expect(await store.find("plain"), _a_memory("plain"), "the other is found")
        expect(await store.find("unknown"), None, "nothing is found")
        expect(await store.rate("unknown", helpful=True, voter="v"), None, "nothing is rated")
        no(await store.forget("unknown"), "nothing is forgotten")


async def a_scope_has_each_content_once(open_store: OpenMemoryStore) -> None:
    """Case and white space make no difference; another scope may have the same content."""
    async with opened(open_store) as store:
        first = _a_memory("first", "Say  it\nonce")
        await store.add([first])
        await store.rate("first", helpful=True, voter="v")
        stored = await store.add([_a_memory("again", "say it ONCE"), _a_memory("new")])
        expect(stored, [first.rated(helpful=True), _a_memory("new")], "the one that is there")
        expect(await store.find("again"), None, "nothing is added")
        await store.add([_a_memory("theirs", "say it once", scope=_THEIRS)])
        expect(_ids(await store.newest(Filter())), "theirs new first", "another scope has it, too")


async def the_newest_memory_comes_first(open_store: OpenMemoryStore) -> None:
    """Memories come in the order of their addition, if the filter accepts them."""
    async with opened(open_store) as store:
        await store.add([_a_memory("a"), _a_memory("b", prior=0.5), _a_memory("c", scope=_TEAM)])
        await store.add([_a_memory("d", scope=_THEIRS)])
        expect(_ids(await store.newest(Filter())), "d c b a", "the newest first")
        expect(_ids(await store.newest(Filter(limit=2))), "d c", "no more than the limit")
        expect(_ids(await store.newest(Filter((_OURS, _TEAM)))), "c b a", "of these scopes")
        expect(_ids(await store.newest(Filter((_OURS,), 0.6))), "a", "of enough confidence")
        expect(_ids(await store.newest(Filter(()))), "", "of no scope")


async def words_find_memories(open_store: OpenMemoryStore) -> None:
    """Each text of a memory is searched, with any word ending; the more relevant memory comes first."""
    async with opened(open_store) as store:
        await store.add(
            [
                _a_memory("title", title="Parsing dates"),
                _a_memory("description", description="When you parse a config"),
                _a_memory("content", "The parser reads a file twice"),
                _a_memory("task", task="Make parsing faster"),
                _a_memory("other", "Nothing of this"),
            ]
        )
        found = _ids(await store.search(["parsing"], Filter()))
        expect(found.split()[0], "title", "a title counts for more")
        expect(sorted(found.split()), ["description", "task", "title"], "all that have it")
        expect(_ids(await store.search(["parse", "dates"], Filter(limit=1))), "title", "both words")
        expect(_ids(await store.search(["date"], Filter())), "title", "another ending")
        expect(_ids(await store.search([], Filter())), "", "no words")
        expect(_ids(await store.search(["unknown", "or", "near"], Filter())), "", "no such word")


async def a_phrase_finds_its_memory_in_any_script(open_store: OpenMemoryStore) -> None:
    """Scripts without spaces work, also next to Latin words, and in any Unicode normalization."""
    texts = {
        "chinese": "重启docker容器之前请先备份数据库",
        "japanese": "サーバーを再起動する前にバックアップを取る",
        "korean": "서버를 다시 시작하기 전에 백업하세요",
        "thai": "รีเซ็ตรหัสผ่านก่อนเริ่มระบบใหม่",
        "hindi": "सर्वर को फिर से चालू करें",
        "russian": "Перезапусти сервер ещё раз",
        "arabic": "أعد تشغيل الخادم",
        "latin": "De\ufb01ne the re\u0301sume\u0301 in Stra\u00dfe se\u00adcond",
    }
    phrases = {
        "chinese": ("备份数据库", "容器", "docker", "库"),
        "japanese": ("再起動", "ﾊﾞｯｸｱｯﾌﾟ", "バックアップを取る"),
        "korean": ("서버", "백업하세요"),
        "thai": ("รหัสผ่าน", "เริ่มระบบ"),
        "hindi": ("सर्वर", "चालू"),
        "russian": ("сервер", "ЕЩЕ"),
        "arabic": ("الخادم", "اعد"),
        "latin": ("define", "Résumé", "STRASSE", "second"),
    }
    async with opened(open_store) as store:
        await store.add([_a_memory(name, text) for name, text in texts.items()])
        for name, each in phrases.items():
            for phrase in each:
                found = await store.search(words_of(phrase), Filter())
                expect(_ids(found), name, f"{phrase!r} finds its memory")
        await store.forget("chinese")
        expect(await store.search(words_of("备份数据库"), Filter()), [], "it is gone")


async def a_rare_word_counts_for_more(open_store: OpenMemoryStore) -> None:
    """A memory with a rare word comes before memories with a common word."""
    async with opened(open_store) as store:
        await store.add([_a_memory(f"{n}", f"A build of part {n}") for n in range(50)])
        await store.add([_a_memory("rare", "A linker of parts")])
        found = await store.search(["build", "linker"], Filter(limit=3))
        expect(found[0].id, "rare", "the rare word comes first")
        expect(len(found), 3, "the others follow")


async def a_search_sees_only_memories_that_its_filter_accepts(open_store: OpenMemoryStore) -> None:
    """Memories that the filter excludes take no place in the results, however many there are."""
    async with opened(open_store) as store:
        await store.add([_a_memory("ours", "Deploy on Fridays")])
        await store.add([_a_memory("weak", "Deploy with care", prior=0.5)])
        many = [_a_memory(f"{n}", f"Deploy, deploy, deploy {n}", scope=_THEIRS) for n in range(60)]
        await store.add(many)
        which = Filter((_OURS, _TEAM), 0.7, 5)
        expect(_ids(await store.search(["deploy"], which)), "ours", "only what it may see")
        expect(_ids(await store.search(["deploy"], Filter((_TEAM,)))), "", "nothing")


async def votes_move_the_confidence(open_store: OpenMemoryStore) -> None:
    """All votes count, also simultaneous votes; the filter uses the new confidence."""
    async with opened(open_store) as store:
        await store.add([_a_memory("m", "Ship it")])
        async with anyio.create_task_group() as group:
            for number in range(20):

                async def work(number: int = number) -> None:
                    await store.rate("m", helpful=number % 4 == 0, voter=f"user:{number}")

                group.start_soon(work)
        found = await store.find("m")
        wanted = _a_memory("m", "Ship it", helpful=5, unhelpful=15)
        expect(found, wanted, "every vote is counted")
        expect(await store.search(["ship"], Filter(min_confidence=0.7)), [], "it is filtered")
        expect(await store.search(["ship"], Filter(min_confidence=0.3)), [wanted], "not below")


async def a_voter_has_one_vote(open_store: OpenMemoryStore) -> None:
    """A second vote on a memory replaces the first, also if both are simultaneous or part of learning."""
    async with opened(open_store) as store:
        await store.add([_a_memory("m", helpful=2), _a_memory("n")])
        async with anyio.create_task_group() as group:
            for _ in range(10):

                async def work() -> None:
                    await store.rate("m", helpful=False, voter="Zoë; --")

                group.start_soon(work)
        voted = _a_memory("m", helpful=2, unhelpful=1)
        expect(await store.find("m"), voted, "it is counted once")
        expect(await store.rate("m", helpful=False, voter="Zoë; --"), voted, "and once more")
        changed = _a_memory("m", helpful=3)
        expect(await store.rate("m", helpful=True, voter="Zoë; --"), changed, "it is changed")
        expect(await store.find("n"), _a_memory("n"), "another memory has none")
        await store.queue(_queued("br_1"))
        await store.lease("me", 100.0, 200.0)
        learned = Learned(contradicted=["m"], confirmed=["n"], voter="Zoë; --")
        yes(await store.finish("br_1", "me", learned), "the work ends")
        expect(await store.find("m"), voted, "a lesson is a vote of the same voter")
        expect(await store.find("n"), _a_memory("n", helpful=1), "also one that confirms")
        await store.forget("m")
        await store.add([_a_memory("m")])
        voted = _a_memory("m", unhelpful=1)
        expect(await store.rate("m", helpful=False, voter="Zoë; --"), voted, "votes are forgotten")


async def a_forgotten_memory_is_gone(open_store: OpenMemoryStore) -> None:
    """A forgotten memory is in no search, and can be learned again."""
    async with opened(open_store) as store:
        await store.add([_a_memory("m", "Lock the door")])
        yes(await store.forget("m"), "it existed")
        no(await store.forget("m"), "it is gone")
        expect(await store.search(["door"], Filter()), [], "no word finds it")
        expect(await store.newest(Filter()), [], "it is not listed")
        expect(_ids(await store.add([_a_memory("n", "Lock the door")])), "n", "it is learned again")
        expect(_ids(await store.search(["door"], Filter())), "n", "and found")


async def a_branch_is_queued_once(open_store: OpenMemoryStore) -> None:
    """A branch is not queued again after the work on it has ended; after a month, the store forgets it."""
    async with opened(open_store) as store:
        yes(await store.queue(_queued("br_1")), "it is new")
        no(await store.queue(_queued("br_1", 200.0)), "it is queued already")
        leased = await store.lease("me", 300.0, 400.0)
        expect(leased, _queued("br_1").model_copy(update={"attempts": 1}), "it is as it was queued")
        yes(await store.finish("br_1", "me", Learned()), "its work ends")
        no(await store.queue(_queued("br_1", 29 * _DAY)), "it was done already")
        expect(await store.waiting(), 0, "nothing waits")
        yes(await store.queue(_queued("br_2", 31 * _DAY)), "another one")
        yes(await store.queue(_queued("br_1", 31 * _DAY)), "its traces are deleted")
        expect(await store.waiting(), 2, "both wait")
        yes(await store.queue(_queued("br_3", 62 * _DAY)), "a month later, a third one")
        expect(await store.waiting(), 1, "what no one has learned from is deleted, too")


async def a_lease_belongs_to_one_worker(open_store: OpenMemoryStore) -> None:
    """A lease lasts until its end; the branch that has waited longest is leased first."""
    async with opened(open_store) as store:
        await store.queue(_queued("late", 120.0))
        await store.queue(_queued("early", 110.0))
        expect(await store.lease("one", 100.0, 200.0), None, "not before it is queued")
        expect(_name(await store.lease("one", 150.0, 200.0)), "early", "the first")
        expect(_name(await store.lease("two", 150.0, 250.0)), "late", "the next")
        expect(await store.lease("three", 199.0, 300.0), None, "both are leased")
        again = await store.lease("three", 200.0, 300.0)
        expect((_name(again), again and again.attempts), ("early", 2), "a lease has ended")
        learned = Learned(added=[_a_memory("m")])
        no(await store.finish("early", "one", learned), "it is no longer one's")
        no(await store.retry("early", "one", 0.0, "no"), "nor to be retried")
        expect(await store.find("m"), None, "nothing is written")


async def a_lesson_is_added_once(open_store: OpenMemoryStore) -> None:
    """One transaction ends the work, adds memories, counts votes and replaces old memories."""
    async with opened(open_store) as store:
        await store.add([_a_memory("known"), _a_memory("wrong"), _a_memory("old", "Say it")])
        await store.queue(_queued("br_1"))
        await store.lease("me", 100.0, 200.0)
        learned = Learned(
            added=[_a_memory("new", "Say it"), _a_memory("newer")],
            confirmed=["known", "unknown"],
            contradicted=["wrong", "gone"],
            replaced=["old", "never"],
            voter="v",
        )
        yes(await store.finish("br_1", "me", learned), "the work ends")
        expect(_ids(await store.newest(Filter())), "newer new wrong known", "all is added")
        expect(await store.find("known"), _a_memory("known", helpful=1), "it is confirmed")
        expect(await store.find("wrong"), _a_memory("wrong", unhelpful=1), "it is contradicted")
        expect(await store.find("old"), None, "it is replaced")
        again = Learned(added=[_a_memory("third")], contradicted=["known"], voter="w")
        no(await store.finish("br_1", "me", again), "it has ended")
        expect(_ids(await store.newest(Filter())), "newer new wrong known", "nothing is done twice")
        expect(await store.find("known"), _a_memory("known", helpful=1), "nor voted")


async def a_failed_branch_is_retried(open_store: OpenMemoryStore) -> None:
    """A branch is retried after its pause, and never once it is given up."""
    async with opened(open_store) as store:
        await store.queue(_queued("br_1"))
        await store.lease("me", 100.0, 500.0)
        yes(await store.retry("br_1", "me", 300.0, "the model failed"), "it is the owner's")
        expect(await store.lease("me", 299.0, 500.0), None, "not yet")
        expect(_name(await store.lease("me", 300.0, 500.0)), "br_1", "now")
        yes(await store.retry("br_1", "me", None, "the model failed"), "it is given up")
        expect(await store.lease("me", 10_000.0, 20_000.0), None, "never again")
        no(await store.queue(_queued("br_1", 400.0)), "it was queued once")


async def simultaneous_workers_lease_different_branches(open_store: OpenMemoryStore) -> None:
    """No branch is leased to two workers at once, and each branch is leased."""
    async with opened(open_store) as store:
        for number in range(20):
            await store.queue(_queued(f"br_{number}", 100.0 + number))
        leased: list[str] = []

        async def work(owner: str) -> None:
            while branch := await store.lease(owner, 200.0, 300.0):
                leased.append(branch.branch.branch_id)

        async with anyio.create_task_group() as group:
            for name in "abcd":
                group.start_soon(work, name)
        expect(sorted(leased), sorted(f"br_{n}" for n in range(20)), "each was leased once")


async def a_closed_memory_store_refuses_operations(open_store: OpenMemoryStore) -> None:
    """Closing the store twice is harmless; operations on a closed store fail."""
    async with opened(open_store) as store:
        await store.add([_a_memory("m")])
        await store.close()
        await refused(store.find("m"), "reading from a closed store")
        await refused(store.add([_a_memory("n")]), "writing to a closed store")


def _name(branch: QueuedBranch | None) -> str | None:
    return None if branch is None else branch.branch.branch_id


MEMORY_STORE_CHECKS: tuple[MemoryStoreCheck, ...] = (
    a_memory_is_read_as_it_was_added,
    a_scope_has_each_content_once,
    the_newest_memory_comes_first,
    words_find_memories,
    a_phrase_finds_its_memory_in_any_script,
    a_rare_word_counts_for_more,
    a_search_sees_only_memories_that_its_filter_accepts,
    votes_move_the_confidence,
    a_voter_has_one_vote,
    a_forgotten_memory_is_gone,
    a_branch_is_queued_once,
    a_lease_belongs_to_one_worker,
    a_lesson_is_added_once,
    a_failed_branch_is_retried,
    simultaneous_workers_lease_different_branches,
    a_closed_memory_store_refuses_operations,
)
"""The checks that open a store once."""
