// The state of a conversation as the page shows it: pure functions over nodes and events.

export const empty = () => ({
  nodes: new Map(),
  children: new Map(),
  head: null,
  cursor: null,
  live: new Map(),
  tools: new Map(),
  labels: new Map(),
  running: false,
  error: "",
  outdated: false,
});

/** The state from the tree that the server exports; the place that is shown stays, if it is there. */
export function fromTree(tree, before = empty()) {
  const state = { ...empty(), running: before.running, error: before.error };
  for (const node of tree.nodes) add(state, node);
  for (const [name, id] of Object.entries(tree.refs)) {
    if (name === "head") state.head = id;
    else state.labels.set(id, name);
  }
  state.cursor = before.cursor && state.nodes.has(before.cursor) ? before.cursor : leafBelow(state, state.head);
  return state;
}

function add(state, node) {
  if (state.nodes.has(node.id)) return;
  state.nodes.set(node.id, node);
  const siblings = state.children.get(node.parent_id) ?? [];
  state.children.set(node.parent_id, [...siblings, node.id]);
}

/** The state after one AG-UI event. */
export function afterEvent(state, event) {
  const branch = event.subagentRunId;
  switch (event.type) {
    case "RUN_STARTED":
      return { ...state, running: true, error: "" };
    case "RUN_FINISHED":
      return { ...state, running: false, live: new Map(), outdated: true };
    case "RUN_ERROR":
      return { ...state, running: false, live: new Map(), outdated: true, error: event.message };
    case "TEXT_MESSAGE_START":
      return { ...state, live: new Map(state.live).set(event.messageId, { text: "", branch }) };
    case "TEXT_MESSAGE_CONTENT": {
      const text = (state.live.get(event.messageId)?.text ?? "") + event.delta;
      return { ...state, live: new Map(state.live).set(event.messageId, { text, branch }) };
    }
    case "TEXT_MESSAGE_END": {
      const live = new Map(state.live);
      live.delete(event.messageId);
      return { ...state, live };
    }
    case "TOOL_CALL_START":
      return withTool(state, event.toolCallId, { name: event.toolCallName, done: false, notices: [] });
    case "TOOL_CALL_RESULT":
      return withTool(state, event.toolCallId, { done: true, result: event.content });
    case "CUSTOM":
      return afterCustom(state, event);
    default:
      return state;
  }
}

function withTool(state, id, change) {
  const tool = { name: "", done: false, notices: [], ...state.tools.get(id), ...change };
  return { ...state, tools: new Map(state.tools).set(id, tool) };
}

function afterCustom(state, { name, value }) {
  if (name === "anabranch.missed") return { ...state, outdated: true };
  if (name === "anabranch.notice") {
    const notices = [...(state.tools.get(value.toolCallId)?.notices ?? []), value].slice(-50);
    return withTool(state, value.toolCallId, { notices });
  }
  if (name !== "anabranch.node") return state;
  const next = { ...state, nodes: new Map(state.nodes), children: new Map(state.children) };
  add(next, value);
  const inBranch = value.kind === "branch" || isInBranch(next, value);
  if (!inBranch) {
    next.head = value.id;
    if (state.cursor === value.parent_id) next.cursor = value.id;
  }
  return next;
}

function isInBranch(state, node) {
  for (let at = node; at; at = state.nodes.get(at.parent_id)) if (at.kind === "branch") return true;
  return false;
}

/** The nodes from the root to `id`. */
export function pathTo(state, id) {
  const path = [];
  for (let node = state.nodes.get(id); node; node = state.nodes.get(node.parent_id)) path.push(node);
  return path.reverse();
}

/** The newest leaf at or below a node. */
export function leafBelow(state, id) {
  let at = id;
  for (;;) {
    const below = (state.children.get(at) ?? []).filter((each) => state.nodes.get(each).kind !== "branch");
    if (!below.length) return at;
    at = below[below.length - 1];
  }
}

/** A node's siblings, itself among them, the oldest first. */
export const siblings = (state, node) => state.children.get(node.parent_id) ?? [];

export const textOf = (node) =>
  node.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

/** The rows of the tree: a chain stays at its depth, what branches off is set in. */
export function rows(state) {
  const found = [];
  const stack = [...(state.children.get(null) ?? [])].reverse().map((id) => [id, 0]);
  while (stack.length) {
    const [id, depth] = stack.pop();
    const node = state.nodes.get(id);
    if (node.kind !== "results" && node.kind !== "answer") found.push({ node, depth });
    const below = state.children.get(id) ?? [];
    const branches = below.length > 1;
    for (const each of [...below].reverse()) {
      stack.push([each, depth + (branches ? 1 : 0)]);
    }
  }
  return found;
}
