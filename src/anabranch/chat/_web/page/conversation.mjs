// The state of a conversation as the page shows it: pure functions over nodes and events.

export const empty = () => ({
  title: "",
  loaded: false,
  nodes: new Map(),
  children: new Map(),
  head: null,
  cursor: null,
  live: new Map(),
  tools: new Map(),
  labels: new Map(),
  running: null, // not known: the tree says it
  error: "",
  outdated: 0,
});

/** The state from the tree that the server exports; the place that is shown stays, if it is there. */
export function fromTree(tree, before) {
  const state = { ...before, nodes: new Map(), children: new Map(), labels: new Map() };
  for (const node of tree.nodes) add(state, node);
  for (const node of before.nodes.values()) add(state, node); // what has happened since it was read
  for (const [name, id] of Object.entries(tree.refs)) {
    if (name === "head") state.head = id;
    else state.labels.set(id, [...(state.labels.get(id) ?? []), name]);
  }
  const stays = before.loaded && (before.cursor === null || state.nodes.has(before.cursor));
  return { ...state, loaded: true, running: state.running ?? tree.running, cursor: stays ? before.cursor : leafBelow(state, state.head) };
}

function add(state, node) {
  if (state.nodes.has(node.id)) return;
  state.nodes.set(node.id, node);
  const siblings = state.children.get(node.parent_id) ?? [];
  state.children.set(node.parent_id, [...siblings, node.id]);
}

/** The state after some AG-UI events. */
export const afterEvents = (state, events) => events.reduce(afterEvent, state);

function afterEvent(state, event) {
  const branch = event.subagentRunId;
  switch (event.type) {
    case "RUN_STARTED":
      return { ...state, running: true, error: "" };
    case "RUN_FINISHED":
      return { ...state, running: false, live: new Map(), outdated: state.outdated + 1 };
    case "RUN_ERROR":
      return { ...state, running: false, live: new Map(), outdated: state.outdated + 1, error: event.message };
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
      return withTool(state, event.toolCallId, { name: event.toolCallName });
    case "TOOL_CALL_RESULT":
      return withTool(state, event.toolCallId, { result: event.content, failed: event.metadata?.isError });
    case "CUSTOM":
      return afterCustom(state, event);
    default:
      return state;
  }
}

function withTool(state, id, change) {
  const tool = { name: "", notices: [], branches: new Map(), ...state.tools.get(id), ...change };
  return { ...state, tools: new Map(state.tools).set(id, tool) };
}

/** A branch inside a tool has opened, or has ended; the branches that a model opens are nodes of the tree. */
function withBranch(state, { toolCallId, path, open }) {
  const branches = new Map(state.tools.get(toolCallId)?.branches).set(path, open);
  return withTool(state, toolCallId, { branches });
}

function afterCustom(state, { name, value }) {
  if (name === "anabranch.missed") return { ...state, running: null, outdated: state.outdated + 1 };
  if (name === "anabranch.notice") {
    const notices = [...(state.tools.get(value.toolCallId)?.notices ?? []), value].slice(-50);
    return withTool(state, value.toolCallId, { notices });
  }
  if (name === "anabranch.branch") return withBranch(state, value);
  if (name === "anabranch.sleep") return withTool(state, value.toolCallId, { until: value.until });
  if (name !== "anabranch.node" || state.nodes.has(value.id)) return state;
  const next = { ...state, nodes: new Map(state.nodes), children: new Map(state.children) };
  add(next, value);
  if (!isInBranch(next, value)) next.head = value.id;
  if (value.kind !== "branch" && state.cursor === value.parent_id) next.cursor = value.id;
  return next;
}

function isInBranch(state, node) {
  for (let at = node; at; at = state.nodes.get(at.parent_id)) if (at.kind === "branch") return true;
  return false;
}

/** The time, in seconds, for which a run waits in which all that is unfinished sleeps; 0 for any other. */
export function wakesAt(state) {
  const times = [...state.tools.values()].filter(({ result }) => result === undefined).map(({ until }) => until);
  const sleeps = state.running && times.length && !state.live.size && times.every((each) => each * 1000 > Date.now());
  return sleeps ? Math.min(...times) : 0;
}

/** The nodes from the root to `id`. */
export function pathTo(state, id) {
  const path = [];
  for (let node = state.nodes.get(id); node; node = state.nodes.get(node.parent_id)) path.push(node);
  return path.reverse();
}

const childrenOf = (state, id) => (state.children.get(id) ?? []).map((each) => state.nodes.get(each));

/** The newest leaf at or below a node. */
export function leafBelow(state, id) {
  let at = id;
  for (;;) {
    const next = childrenOf(state, at).findLast(({ kind }) => kind !== "branch");
    if (!next) return at;
    at = next.id;
  }
}

/** The versions of a node, itself among them, the oldest first. Branches of a model are none. */
export const versions = (state, node) =>
  childrenOf(state, node.parent_id).filter(({ kind }) => kind === node.kind && kind !== "branch");

/** The branches that a use of a tool has opened, each with the path to its newest leaf. */
export function branchesOf(state, node, use) {
  return childrenOf(state, node.id)
    .filter(({ kind, tool_use_id }) => kind === "branch" && (tool_use_id ?? use.id) === use.id)
    .map((start) => {
      const leaf = leafBelow(state, start.id);
      const path = pathTo(state, leaf);
      return { start, leaf, path: path.slice(path.indexOf(start)) };
    });
}

export const textOf = (node) =>
  node.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

/** What each tool on a path returned, by the id of its use. */
export function resultsOn(path) {
  const results = new Map();
  for (const node of path) {
    for (const block of node.content) if (block.type === "tool_result") results.set(block.tool_use_id, block);
  }
  return results;
}

/** The rows of the tree: a chain stays at its depth; versions, and branches of a model, are set in. */
export function rows(state) {
  const found = [];
  const stack = [...childrenOf(state, null)].reverse().map((node) => [node, 0]);
  while (stack.length) {
    const [node, depth] = stack.pop();
    if (node.kind !== "results" && node.kind !== "answer") found.push({ node, depth });
    const below = childrenOf(state, node.id);
    const forks = below.filter(({ kind }) => kind !== "branch").length > 1;
    for (const each of below.reverse()) stack.push([each, depth + (forks || each.kind === "branch" ? 1 : 0)]);
  }
  return found;
}
