"""The main stream: a conversation that branches, and the agent that lives on it.

tree.py         threads, nodes, results of tools, refs
projection.py   from a path to what a provider is sent (law 6)
store.py        the port behind which threads are kept
"""

from anabranch.tree.projection import project
from anabranch.tree.store import Path, Tree, TreeStore
from anabranch.tree.nodes import Node, Ref, Result, Thread

__all__ = ["Node", "Path", "Ref", "Result", "Thread", "Tree", "TreeStore", "project"]
