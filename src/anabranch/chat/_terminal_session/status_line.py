"""The line below the prompt of a chat: model, thread, place, tokens and cost."""

from __future__ import annotations

from anabranch.chat._chat_session import Session
from anabranch.errors import StoreError
from anabranch.models import price_of
from anabranch.tree import Node, short_ids

NO_MODEL = "none"


async def status_line(session: Session) -> str:
    """Return the line for where the session is now; tokens and cost are those of the way there."""
    thread_id, node_id = session.cursor.thread_id, session.cursor.node_id
    model = session.state.model_name.rpartition("/")[2]  # the line is short
    parts = ["no model" if model == NO_MODEL else model, short_ids([thread_id])[thread_id]]
    try:
        walk = await session.cursor.look()
    except StoreError:  # the next line reports it, if the store still fails then
        walk = None
    if walk is None or node_id is None or node_id not in walk.nodes:
        return " · ".join([*parts, "at the beginning"])
    path = walk.path(node_id)
    place = walk.branch_of(node_id) or "main line"
    labels = ", ".join(walk.labels.get(node_id, ()))
    parts.append(f"{place} ({labels})" if labels else place)
    tokens = sum(node.usage.total_tokens for node in path if node.usage is not None)
    parts += [f"{tokens:,} tokens"] if tokens else []
    costs = [cost for node in path if (cost := _cost(node)) is not None]
    parts += [f"${sum(costs):.4f}"] if costs else []
    return " · ".join(parts)


def _cost(node: Node) -> float | None:
    model = node.data.get("model")
    if node.usage is None or not isinstance(model, str):
        return None
    return price_of(model, node.usage)
