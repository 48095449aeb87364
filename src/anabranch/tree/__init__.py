"""The conversation tree: threads whose messages are nodes; each path is a conversation.

Agents (``anabranch.agents``) store conversations as trees. :func:`project` returns the messages
that a provider receives for a path. ``anabranch.stores`` implements :class:`TreeStore`.

    _threads.py       threads, nodes, results of tools, refs; the protocol of stores
    _projection.py    the messages of a path, and the message of each node
    _files.py         files of a thread and of results, and the references to them
    _left_out.py      the blocks that a provider does not receive: old reasoning, and refused blocks
    _finding.py       threads, nodes and branches by name, and the nodes around a node
    _user_view.py     nodes as a user reads them
    _export.py        a thread as JSON, Mermaid, Markdown
    _thread_file.py   a thread in a file, and back
"""

from anabranch.tree._export import (
    HERE,
    draw,
    local_time,
    messages_to_json,
    node_to_json,
    results_preview,
    to_markdown,
    to_mermaid,
    tree_to_json,
)
from anabranch.tree._files import (
    MOST_BYTES,
    digests_in,
    file_block,
    file_line,
    file_lines,
    load_files,
    result_blocks,
    store_files,
)
from anabranch.tree._finding import (
    LATEST,
    AmbiguousIdError,
    Branches,
    Navigator,
    cut,
    find_node,
    find_node_id,
    find_thread,
    glimpse,
    is_branch_name,
    match_id,
    name_branches,
    short_ids,
)
from anabranch.tree._left_out import (
    LEFT_OUT,
    Place,
    media_places,
    reasoning_places,
    text_places,
    with_reasoning_of_open_turn,
    without,
)
from anabranch.tree._projection import (
    ASIDE,
    NO_RESULT,
    NO_RESULT_CONTENT,
    Results,
    is_no_result,
    is_placeholder,
    project,
    project_each,
    provider_blocks,
    wire_name,
)
from anabranch.tree._thread_file import LoadedThread, thread_from_json, thread_to_json
from anabranch.tree._threads import (
    HEAD,
    NOT_MESSAGES,
    SHOWN,
    Kind,
    Node,
    Path,
    Ref,
    RefusedError,
    Result,
    Surroundings,
    Thread,
    Tree,
    TreeStore,
    TurnEnd,
    check_place,
    longer_path,
    surroundings_after,
)
from anabranch.tree._user_view import (
    CLOSED,
    CUT_OFF,
    ERROR,
    FILTERED,
    LEFT,
    SILENT,
    STOPPED,
    WAITS,
    is_said,
    open_questions,
    refused_blocks,
    state_of,
    state_of_reply,
    text_for_user,
)

__all__ = [
    "HEAD",
    "Branches",
    "Node",
    "Path",
    "Ref",
    "RefusedError",
    "Result",
    "Surroundings",
    "Thread",
    "Tree",
    "TreeStore",
    "TurnEnd",
    "draw",
    "messages_to_json",
    "name_branches",
    "project",
    "to_markdown",
    "to_mermaid",
    "tree_to_json",
]
