"""The conversation tree: what the main stream has been, in all its branches.

Owns words, projection and port. Who lives on the tree is in ``agents/``; where it is kept, in
``stores/``.

    nodes.py        threads, nodes, results of tools, refs
    projection.py   from a path to what a provider is sent (law 6)
    store.py        the port behind which threads are kept
    naming.py       what branches are called
    walking.py      up, down, to a sibling, to a fork, to the leaves
    drawing.py      a thread as a terminal shows it
    export.py       a thread as JSON, Mermaid, Markdown
    saving.py       a thread in a file, and back
"""

from anabranch.tree._nodes import HEAD, Kind, Node, Ref, Result, Role, Thread
from anabranch.tree._projection import project, project_each
from anabranch.tree._tree_store import Path, RefusedError, Tree, TreeStore

__all__ = [
    "HEAD",
    "Kind",
    "Node",
    "Path",
    "Ref",
    "RefusedError",
    "Result",
    "Role",
    "Thread",
    "Tree",
    "TreeStore",
    "project",
    "project_each",
]
