// Requests to the server. A refusal becomes a Refused with the server's sentence. Addresses are
// relative to the page, which may be mounted anywhere.

export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `The server answered with ${status}.`);
    this.status = status;
    this.reason = body.reason;
    this.errors = body.errors ?? [];
  }

  /** Whether the same request can succeed later: the server was unreachable or too busy. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
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

const read = async (path, options) => (await request(path, options)).json();

export const get = (path) => read(path);
export const post = (path, body) =>
  read(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });

const at = (thread, what) => `threads/${encodeURIComponent(thread)}/${what}`;

export const threads = () => get("threads");
export const tools = () => get("tools");
export const tree = (thread) => get(at(thread, "tree"));
export const pending = (thread) => get(at(thread, "pending"));
export const stop = (thread) => post(at(thread, "stop"), {});
export const retry = (thread, node_id) => post(at(thread, "retry"), { node_id });
export const label = (thread, node_id, name) => post(at(thread, "labels"), { node_id, label: name });
export const unlabel = (thread, name) =>
  read(at(thread, `labels/${encodeURIComponent(name)}`), { method: "DELETE" });
export const forget = (memory) => read(`memories/${encodeURIComponent(memory)}`, { method: "DELETE" });
export const answer = (thread, body) => post(at(thread, "answers"), body);

/** The address of a file of a thread. */
export const addressOf = (thread, digest) => at(thread, `files/${digest}`);

/** Start a run with a message, of a text or of parts. The thread's events report what follows. */
export const say = (thread, content, headNodeId) =>
  post("agui", {
    threadId: thread,
    runId: `run_${unique()}`,
    messages: [{ id: `message_${unique()}`, role: "user", content }],
    tools: [],
    context: [],
    state: {},
    forwardedProps: headNodeId === undefined ? {} : { headNodeId },
  });

/** A name that no one guesses. `crypto.randomUUID` is missing in a page that came without TLS. */
export const unique = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const BATCH = 16; // milliseconds: events of one frame are shown together
const RETRY = 2000;

/** Follow a thread from `position` on, for ever; return a function that stops. */
export function follow(thread, position, onEvents, onConnected) {
  let source, retry;
  let seen = position;
  let waiting = [];
  let ended = false;
  const flush = () => {
    const events = waiting;
    waiting = [];
    if (!ended) onEvents(events);
  };
  const open = () => {
    source = new EventSource(`${at(thread, "events")}?after=${encodeURIComponent(seen)}`);
    source.onmessage = (message) => {
      seen = message.lastEventId;
      if (waiting.push(JSON.parse(message.data)) === 1) setTimeout(flush, BATCH);
    };
    source.onopen = () => onConnected(true);
    source.onerror = () => {
      onConnected(false);
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY); // the browser gave up
    };
  };
  open();
  return () => {
    ended = true;
    clearTimeout(retry);
    source.close();
  };
}
