"""The search for memories of a branch, among 100,000 of one project on SQLite, and the quality of its hits.

Speed: ``recall`` for descriptions of tasks of some twenty words, in turns with one bare query of
the same full-text index for all of the same words. Words of memories and tasks have the frequencies of a
natural language (Zipf's law), so that nearly every memory has some of the words.

Quality: the docstrings of the packages that are installed here. The summary line of a docstring is the
task, and the rest is the one memory among 3,000 that answers the task. Hits are answers among the first ten;
the reciprocal rank tells their place. A task is hard if it shares one word at most with its answer. Other
versions of the packages give other numbers. The hybrid adds the ranking of an embedder that learns meanings
from the memories alone (``latent.py``); a trained model knows more. Twenty tasks each in Chinese and
Japanese are searched among 620 notes (``unspaced_notes.py``).
"""

from __future__ import annotations

import ast
import asyncio
import math
import random
import sqlite3
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import mean, quantiles
from time import perf_counter

from anabranch.memory import Draft, Memory, ReasoningBank, Scope, words_of
from anabranch.stores import open_memory_store
from anabranch.stores._memory_tables import memory_row
from bench.latent import LatentEmbedder
from bench.measure import Row
from bench.unspaced_notes import LABELLED, others

NAME = "memory"
MEMORIES, TASKS = 100_000, 100
DOCUMENTS, QUERIES = 3_000, 600


def a_memory(number: int, title: str, content: str) -> Memory:
    return Memory(
        id=f"mem_{number}",
        title=title,
        description=title,
        content=content,
        scope=Scope(),
        created_at=0.0,
    )


# -- speed -----------------------------------------------------------------------------------


class Language:
    """Words by Zipf's law: the second is half as frequent as the first, and so on."""

    def __init__(self) -> None:
        self._random = random.Random(11)
        letters = "bcdfghklmnprstvz"
        self._words = sorted(
            {
                "".join(
                    self._random.choice(letters) + self._random.choice("aeiou") for _ in range(n)
                )
                for n in range(2, 6)
                for _ in range(8_000)
            },
            key=lambda _: self._random.random(),
        )
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self._words) + 1)))

    def text(self, length: int) -> str:
        """Return a text of this number of words."""
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))


async def speed() -> list[Row]:
    language = Language()
    with tempfile.TemporaryDirectory() as folder:
        store = open_memory_store(f"sqlite:///{folder}/memory.db?synchronous=normal")
        await store.find("")  # creates the tables
        bare = sqlite3.connect(f"{folder}/memory.db")
        rows = (
            memory_row(a_memory(n, language.text(5), language.text(40))) for n in range(MEMORIES)
        )
        names = list(memory_row(a_memory(0, "-", "-")))
        values = ", ".join(f":{name}" for name in names)
        with bare:  # a transaction of the driver; through the store this takes minutes
            bare.executemany(
                f"INSERT INTO anabranch_memory ({', '.join(names)}) VALUES ({values})", rows
            )
        bank = ReasoningBank(store)
        tasks = [language.text(20) for _ in range(TASKS)]
        ours: list[float] = []
        theirs: list[float] = []
        for task in [*tasks[:5], *tasks]:
            start = perf_counter()
            await bank.recall(task, allowance=2_000)
            ours.append(perf_counter() - start)
            start = perf_counter()
            query = " OR ".join(words_of(task))
            sql = (
                "SELECT rowid FROM anabranch_memory_words WHERE anabranch_memory_words MATCH ?"
                " ORDER BY rank LIMIT 20"
            )
            bare.execute(sql, (query,)).fetchall()
            theirs.append(perf_counter() - start)
        bare.close()
        await store.close()
    p50, p95 = percentiles(ours[5:])
    bare_p50, bare_p95 = percentiles(theirs[5:])
    measured = f"injection among {MEMORIES:,} memories"
    return [
        Row(NAME, f"{measured}, p95 / a bare query of all words", p95 / bare_p95),
        Row(NAME, f"{measured}, p50", p50 * 1e3, "ms"),
        Row(NAME, f"{measured}, p95", p95 * 1e3, "ms", goal=20),
        Row(NAME, f"{measured}: a bare query of all words, p50", bare_p50 * 1e3, "ms"),
        Row(NAME, f"{measured}: a bare query of all words, p95", bare_p95 * 1e3, "ms"),
    ]


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(seconds, n=20)
    return cuts[9], cuts[18]


# -- quality ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """A task, and the text that answers it."""

    task: str
    answer: str

    @property
    def is_hard(self) -> bool:
        """Return whether the two share one word at most."""
        return len(set(words_of(self.task)) & set(words_of(self.answer))) <= 1


def docstrings() -> list[Labelled]:
    """Return the docstrings of functions and classes of the installed packages, shuffled."""
    found: dict[str, Labelled] = {}
    site = Path(sysconfig.get_paths()["purelib"])
    for path in sorted(site.glob("*/**/*.py")):
        if path.stat().st_size > 300_000:
            continue
        try:
            tree = ast.parse(path.read_text("utf-8", errors="replace"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                summary, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                task, answer = " ".join(summary.split()), " ".join(rest.split())[:4_000]
                if 25 <= len(task) <= 200 and len(answer) >= 80:
                    found.setdefault(answer, Labelled(task, answer))
    every = sorted(found.values(), key=lambda each: each.answer)
    random.Random(5).shuffle(every)
    return every[:DOCUMENTS]


async def quality() -> list[Row]:
    labelled = docstrings()
    store = open_memory_store("memory:")
    await store.add([a_memory(n, "-", each.answer) for n, each in enumerate(labelled)])
    meanings = LatentEmbedder([each.answer for each in labelled])
    rows: list[Row] = []
    for name, bank in (
        ("words", ReasoningBank(store)),
        ("words and meanings", ReasoningBank(store, embedder=meanings)),
    ):
        await bank.embed_missing()
        ranks = [await rank_of(bank, each) for each in labelled[:QUERIES]]
        hard = [rank for rank, each in zip(ranks, labelled, strict=False) if each.is_hard]
        measured = f"docstrings by {name}"
        rows += [
            Row(NAME, f"{measured}: recall@10", mean(rank <= 10 for rank in ranks), ""),
            Row(NAME, f"{measured}: MRR", mean(1 / rank for rank in ranks), ""),
            Row(NAME, f"{measured}: recall@10, hard", mean(rank <= 10 for rank in hard), ""),
        ]
    await store.close()
    return rows


async def unspaced() -> list[Row]:
    rows: list[Row] = []
    for language, pairs in LABELLED.items():
        store = open_memory_store("memory:")
        contents = [*(note for _, note in pairs), *others(language)]
        await store.add([a_memory(n, "-", content) for n, content in enumerate(contents)])
        bank = ReasoningBank(store)
        ranks = [await rank_of(bank, Labelled(task, note)) for task, note in pairs]
        await store.close()
        found = mean(rank <= 10 for rank in ranks)
        rows.append(Row(NAME, f"{language} by words: recall@10", found, ""))
    return rows


async def rank_of(bank: ReasoningBank, each: Labelled) -> float:
    found = [memory.content for memory in await bank.search(each.task, limit=20)]
    answer = Draft(title="-", description="-", content=each.answer).content
    return found.index(answer) + 1 if answer in found else math.inf


async def _measure() -> list[Row]:
    return [*await quality(), *await unspaced(), *await speed()]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(_measure())
