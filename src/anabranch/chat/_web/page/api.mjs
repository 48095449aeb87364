// Requests to the server. What it refuses becomes a Refused, with its own sentence.

export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `The server answered with ${status}.`);
    this.status = status;
    this.reason = body.reason;
    this.errors = body.errors ?? [];
  }
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, { error: "The server cannot be reached. It may be restarting." });
  }
  if (response.ok) return response;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // The status says enough.
  }
  throw new Refused(response.status, body);
}

const get = async (path) => (await request(path)).json();

const post = (path, body) =>
  request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });

const at = (thread, what) => `/threads/${encodeURIComponent(thread)}/${what}`;

export const threads = () => get("/threads");
export const tools = () => get("/tools");
export const tree = (thread) => get(at(thread, "tree"));
export const pending = (thread) => get(at(thread, "pending"));
export const stop = (thread) => post(at(thread, "stop"), {});
export const label = (thread, node_id, name) => post(at(thread, "labels"), { node_id, label: name });
export const answer = (thread, body) => post(at(thread, "answers"), body);

/** Begin a run with a message. What happens is read from the thread's events. */
export const say = (thread, text, headNodeId) =>
  post("/agui", {
    threadId: thread,
    runId: `run_${crypto.randomUUID()}`,
    messages: [{ id: `message_${crypto.randomUUID()}`, role: "user", content: text }],
    tools: [],
    context: [],
    state: {},
    forwardedProps: headNodeId === undefined ? {} : { headNodeId },
  });

/** Follow a thread from `position` on. The browser comes back by itself, with the last id it had. */
export function follow(thread, position, onEvent, onConnected) {
  const source = new EventSource(`${at(thread, "events")}?after=${encodeURIComponent(position)}`);
  source.onmessage = (message) => onEvent(JSON.parse(message.data));
  source.onopen = () => onConnected(true);
  source.onerror = () => onConnected(false);
  return () => source.close();
}
