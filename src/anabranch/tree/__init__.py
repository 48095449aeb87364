"""The conversation tree: threads of immutable nodes, and the messages to a provider for a path.

Agents (``anabranch.agents``) write conversations as trees. ``anabranch.stores`` implements the protocol
``TreeStore``, and ``tests/suites`` has the checks that each implementation must pass.

    _threads.py       threads, nodes, results of tools, refs; the protocol of stores
    _projection.py    the messages of a path, and which of them each node accounts for (law 6)
    _files.py         files of a thread, and the references to them
    _left_out.py      what a provider is not sent: old reasoning, and refused blocks
    _names.py         names of branches; threads and nodes by id, short id, or ``last``
    _navigator.py     up, down, to a sibling, to a fork, to the leaves
    _user_view.py   nodes as a user reads them
    _export.py        a thread as JSON, Mermaid, Markdown
    _thread_file.py   a thread in a file, and back
"""

from anabranch.tree._export import HERE as HERE
from anabranch.tree._export import (
    draw,
    messages_to_json,
    to_markdown,
    to_mermaid,
    tree_to_json,
)
from anabranch.tree._export import local_time as local_time
from anabranch.tree._export import node_to_json as node_to_json
from anabranch.tree._export import results_preview as results_preview
from anabranch.tree._files import MOST_BYTES as MOST_BYTES
from anabranch.tree._files import (
    FileStore,
    file_lines,
    load_files,
    store_files,
)
from anabranch.tree._files import digests_in as digests_in
from anabranch.tree._files import file_block as file_block
from anabranch.tree._files import file_line as file_line
from anabranch.tree._left_out import LEFT_OUT as LEFT_OUT
from anabranch.tree._left_out import Place as Place
from anabranch.tree._left_out import media_places as media_places
from anabranch.tree._left_out import reasoning_places as reasoning_places
from anabranch.tree._left_out import text_places as text_places
from anabranch.tree._left_out import with_reasoning_of_open_turn as with_reasoning_of_open_turn
from anabranch.tree._left_out import without as without
from anabranch.tree._names import LATEST as LATEST
from anabranch.tree._names import (
    AmbiguousIdError,
    Branches,
    name_branches,
)
from anabranch.tree._names import find_node as find_node
from anabranch.tree._names import find_node_id as find_node_id
from anabranch.tree._names import find_thread as find_thread
from anabranch.tree._names import is_branch_name as is_branch_name
from anabranch.tree._names import match_id as match_id
from anabranch.tree._names import short_ids as short_ids
from anabranch.tree._navigator import Navigator
from anabranch.tree._navigator import cut as cut
from anabranch.tree._navigator import glimpse as glimpse
from anabranch.tree._projection import ASIDE as ASIDE
from anabranch.tree._projection import NO_RESULT as NO_RESULT
from anabranch.tree._projection import NO_RESULT_CONTENT as NO_RESULT_CONTENT
from anabranch.tree._projection import Results as Results
from anabranch.tree._projection import is_no_result as is_no_result
from anabranch.tree._projection import is_placeholder as is_placeholder
from anabranch.tree._projection import project
from anabranch.tree._projection import project_each as project_each
from anabranch.tree._projection import provider_blocks as provider_blocks
from anabranch.tree._projection import wire_name as wire_name
from anabranch.tree._thread_file import LoadedThread as LoadedThread
from anabranch.tree._thread_file import thread_from_json as thread_from_json
from anabranch.tree._thread_file import thread_to_json as thread_to_json
from anabranch.tree._threads import (
    HEAD,
    Node,
    Path,
    Ref,
    RefusedError,
    Result,
    Surroundings,
    Thread,
    Tree,
    TreeStore,
)
from anabranch.tree._threads import SHOWN as SHOWN
from anabranch.tree._threads import Kind as Kind
from anabranch.tree._threads import check_place as check_place
from anabranch.tree._user_view import CLOSED as CLOSED
from anabranch.tree._user_view import ERROR as ERROR
from anabranch.tree._user_view import LEFT as LEFT
from anabranch.tree._user_view import STOPPED as STOPPED
from anabranch.tree._user_view import WAITS as WAITS
from anabranch.tree._user_view import TurnEnd as TurnEnd
from anabranch.tree._user_view import clear_turn_end as clear_turn_end
from anabranch.tree._user_view import is_said as is_said
from anabranch.tree._user_view import open_questions as open_questions
from anabranch.tree._user_view import refused_blocks as refused_blocks
from anabranch.tree._user_view import state_of as state_of
from anabranch.tree._user_view import store_turn_end as store_turn_end
from anabranch.tree._user_view import text_for_user as text_for_user
from anabranch.tree._user_view import turn_ends_in as turn_ends_in
from anabranch.tree._user_view import turn_has_ended as turn_has_ended

__all__ = [
    "HEAD",
    "AmbiguousIdError",
    "Branches",
    "FileStore",
    "Navigator",
    "Node",
    "Path",
    "Ref",
    "RefusedError",
    "Result",
    "Surroundings",
    "Thread",
    "Tree",
    "TreeStore",
    "draw",
    "file_lines",
    "load_files",
    "messages_to_json",
    "name_branches",
    "project",
    "store_files",
    "to_markdown",
    "to_mermaid",
    "tree_to_json",
]
