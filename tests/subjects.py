"""Checks that commit subjects are imperative, short, and about one change.

``python -m tests.subjects FILE`` checks the message in FILE (the ``commit-msg`` hook); without FILE, the subjects of all
commits after the one that added the hook (``make lint``).
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HOOK = ".githooks/commit-msg"
LONGEST = 65
NO_VERBS = frozenset(
    {
        "a",
        "all",
        "an",
        "any",
        "as",
        "at",
        "by",
        "each",
        "every",
        "for",
        "from",
        "how",
        "in",
        "it",
        "its",
        "no",
        "not",
    }
    | {
        "nothing",
        "of",
        "on",
        "one",
        "our",
        "some",
        "that",
        "the",
        "these",
        "this",
        "those",
        "to",
        "what",
        "when",
    }
    | {"where", "which", "who", "whoever", "why", "with"}
)
VERBS_IN_ED = frozenset({"embed", "feed", "need", "seed", "shed", "speed"})
GENERATED = re.compile(r"Merge (branch|tag|commit|remote-tracking)|Revert \"")


def faults(subject: str) -> list[str]:
    """Return a sentence for each rule that ``subject`` breaks."""
    if GENERATED.match(subject):
        return []
    first = subject.split(" ", 1)[0]
    found = []
    if len(subject) > LONGEST:
        found.append(f"It has {len(subject)} characters. Shorten it to {LONGEST}.")
    if not _is_imperative(first):
        found.append(f'It starts with "{first}". Start with a verb: "Reject …", "Add …".')
    if ";" in subject or subject.endswith("."):
        found.append(
            'It has a ";" or ends with a full stop. Name one change, and put the reason into the body.'
        )
    return found


def _is_imperative(word: str) -> bool:
    past = word.endswith("ed") and word.lower() not in VERBS_IN_ED
    return bool(re.fullmatch(r"[A-Z][a-z]+", word)) and word.lower() not in NO_VERBS and not past


def subjects() -> list[tuple[str, str]]:
    """Return the commit and subject of every commit after the one that added the hook, newest first."""
    added = _git("log", "--diff-filter=A", "--format=%H", "--", HOOK).split()
    lines = _git("log", "--format=%h %s", f"{added[-1]}..HEAD").splitlines() if added else []
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in lines)]


def _git(*arguments: str) -> str:
    command = [shutil.which("git") or "git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print the faults of one message, or of the commits after the hook, and exit with 1 if there are any."""
    if len(sys.argv) > 1:
        message = Path(sys.argv[1]).read_text(encoding="utf-8")
        checked = [("subject", message.strip().partition("\n")[0])]
    else:
        checked = subjects()
    for commit, subject in checked:
        for fault in faults(subject):
            sys.stderr.write(f"{commit} {subject!r}: {fault}\n")
    sys.exit(any(faults(subject) for _, subject in checked))


if __name__ == "__main__":
    main()
