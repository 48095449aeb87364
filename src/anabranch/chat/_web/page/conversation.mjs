// The state of a conversation in the page: pure functions over nodes and events.

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
  ends: new Map(), // turns that ended without a reply, by their last nodes: {error}, null for a stop
  running: null, // unknown until the tree is read
  error: "",
  outdated: 0,
});

/** The state from the tree that the server exports; the shown place stays if the tree has it. */
export function fromTree(tree, before) {
  const state = { ...before, nodes: new Map(), children: new Map(), labels: new Map() };
  for (const node of tree.nodes) add(state, node);
  for (const node of before.nodes.values()) add(state, node); // events since the tree was read
  for (const [name, id] of Object.entries(tree.refs)) {
    if (name === "head") state.head = id;
    else state.labels.set(id, [...(state.labels.get(id) ?? []), name]);
  }
  const stays = before.loaded && (before.cursor === null || state.nodes.has(before.cursor));
  const ends = new Map(Object.entries(tree.ends ?? {}));
  const cursor = stays ? before.cursor : leafBelow(state, state.head);
  const isShown = ends.get(state.head)?.error === before.error && pathTo(state, cursor).some(({ id }) => id === state.head);
  return {
    ...state,
    ends,
    loaded: true,
    error: isShown ? "" : before.error,
    running: state.running ?? tree.running,
    cursor,
  };
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
      return withTool(state, event.toolCallId, {
        result: event.content,
        failed: event.metadata?.isError,
        interrupted: event.metadata?.isInterrupted,
      });
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

/** Opens or ends a branch inside a tool; the branches that a model opens are nodes of the tree. */
function withBranch(state, { toolCallId, path, open }) {
  const branches = new Map(state.tools.get(toolCallId)?.branches).set(path, open);
  return withTool(state, toolCallId, { branches });
}

function afterCustom(state, { name, value }) {
  if (name === "anabranch.missed") return { ...state, running: null, live: new Map(), outdated: state.outdated + 1 };
  if (name === "anabranch.notice") {
    const notices = [...(state.tools.get(value.toolCallId)?.notices ?? []), value].slice(-50);
    return withTool(state, value.toolCallId, { notices });
  }
  if (name === "anabranch.branch") return withBranch(state, value);
  if (name === "anabranch.sleep") return withTool(state, value.toolCallId, { until: value.until });
  if (name !== "anabranch.node") return state;
  const next = { ...state };
  if (!state.nodes.has(value.id)) { // otherwise the tree was read after the node was added
    next.nodes = new Map(state.nodes);
    next.children = new Map(state.children);
    add(next, value);
    if (!branchesAround(next, value).length) next.head = value.id;
  }
  if (value.kind !== "branch" && state.cursor === value.parent_id) next.cursor = value.id;
  return next;
}

/** The time, in seconds, until which a run waits whose unfinished tools all sleep; 0 for any other. */
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

/** The versions of a node, itself included, oldest first. Branches of a model have none. */
export const versions = (state, node) =>
  childrenOf(state, node.parent_id).filter(({ kind }) => kind === node.kind && kind !== "branch");

/** The branches that a use of a tool opened, each with the path to its newest leaf. */
export function branchesOf(state, node, use) {
  return childrenOf(state, node.id)
    .filter(({ kind, tool_use_id }) => kind === "branch" && (tool_use_id ?? use.id) === use.id)
    .map((start) => {
      const leaf = leafBelow(state, start.id);
      const path = pathTo(state, leaf);
      return { start, leaf, path: path.slice(path.indexOf(start)) };
    });
}

/** The branches of a model that a node is in, the innermost first. */
export function branchesAround(state, node) {
  const found = [];
  for (let at = node; at; at = state.nodes.get(at.parent_id)) if (at.kind === "branch") found.push(at);
  return found;
}

const PROMPT = /^\(self-prompt\): /;

/** The topic of a branch for users, and whether folding opened it: the rest of its first node is for the model. */
export function described(state, start) {
  const uses = state.nodes.get(start.parent_id)?.content.filter(({ type }) => type === "tool_use") ?? [];
  const { description } = (uses.find(({ id }) => id === start.tool_use_id) ?? uses[0])?.input ?? {};
  return description ? { title: description, isFolded: true } : { title: textOf(start).replace(PROMPT, ""), isFolded: false };
}

/** The names of the branches around a question, outermost first: the model's, then those in its tool. */
export function placeOf(state, question) {
  const node = state.nodes.get(question.interrupt_id);
  if (!node) return [];
  const around = branchesAround(state, node).map((start) => described(state, start).title);
  return [...around.reverse(), ...(node.step_id?.split("/").slice(1, -1) ?? [])];
}

/** Whether a question is the call of a tool that another front end offers and runs. */
export const isCall = ({ kind, asks }) => kind === "call" || asks === "call";

/** The open questions that a message at the head leaves: those on its path, and in the branches of its tools. */
export function leftBy(state, questions) {
  const path = new Set(pathTo(state, state.head).map(({ id }) => id));
  return questions.filter(({ interrupt_id }) => {
    const node = state.nodes.get(interrupt_id);
    return node && path.has(branchesAround(state, node).at(-1)?.parent_id ?? node.id);
  });
}

/** The node from which the server retries a turn that ended at another. */
export const retriedAt = (state, id) =>
  pathTo(state, id).findLast(({ kind }) => kind === "user" || kind === "results")?.id ?? null;

/** Whether a use of a tool has a result on a line other than the shown one. */
export function hasEndedElsewhere(state, node, use) {
  return childrenOf(state, node.id).some((each) => {
    const isIts = ({ type, tool_use_id }) => type === "tool_result" && tool_use_id === use.id;
    if (each.kind === "question" || each.kind === "answer") return hasEndedElsewhere(state, each, use);
    return each.content.some(isIts) && !each.interrupted?.includes(use.id);
  });
}

export const textOf = (node) =>
  node.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

/**
 * The result of each tool on a path, by the id of its use; nothing for a tool that did not end there.
 * A notice replaces content that the model's provider refused.
 */
export function resultsOn(path) {
  const results = new Map();
  const refused = path.flatMap((node) => node.refused ?? []);
  for (const node of path) {
    node.content.forEach((block, at) => {
      if (block.type !== "tool_result" || node.interrupted?.includes(block.tool_use_id)) return;
      const lines = new Map(refused.filter((each) => each.node === node.id && each.block === at).map(({ part, line }) => [part, line]));
      const content = block.content.map((each, part) => (lines.has(part) ? { type: "text", text: lines.get(part) } : each));
      results.set(block.tool_use_id, lines.size ? { ...block, content } : block);
    });
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
