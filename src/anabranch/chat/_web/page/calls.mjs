// The calls room: recorded calls, and the course of each, round by round.
import { Brand } from "./brand.mjs";
import { html, useEffect, useRef, useState } from "./vendor.mjs";
import * as api from "./api.mjs";
import { Question } from "./form.mjs";
import { moment } from "./formats.mjs";

const PAGE = 50;
const STATUSES = {
  "": "All", open: "Open", ready: "Ready", running: "Running", waiting: "Waiting", undoing: "Undoing",
  done: "Done", failed: "Failed", expired: "Expired", stopped: "Stopped",
};
const ENDED = ["done", "failed", "expired", "stopped"];
const UNDO = { registered: "can be undone", due: "to be undone", done: "undone", "not needed": "" };
const ANSWERER = { client: "the client", page: "a page of the server", server: "the server's model" };
export const when = (seconds) => html`<time datetime=${new Date(seconds * 1000).toISOString()}>${moment(new Date(seconds * 1000))}</time>`;

export function Calls({ address, go, links }) {
  const [drawer, setDrawer] = useState(false);
  const [problem, setProblem] = useState(null);
  const open = (call) => {
    setDrawer(false);
    go({ room: "calls", ...(call && { call }) });
  };
  useEffect(() => {
    document.title = address.call ? `${address.call} – calls` : "Calls";
    setProblem(null);
  }, [address.call]);
  return html`<div class=${`page ${drawer ? "threads-open" : ""}`}>
    <${List} current=${address.call} onOpen=${open} links=${links} onProblem=${setProblem} />
    <main>
      <header class="bar">
        <button type="button" class="toggle for-threads" aria-expanded=${drawer} onClick=${() => setDrawer(!drawer)}>Calls</button>
        <h1>${address.call ?? "Recorded calls"}</h1>
      </header>
      <div class="scrolled" tabindex="0" role="region" aria-label="Call">
        <div class="column calls-column">
          ${problem && html`<p class="error failure" role="alert">${problem.message}</p>`}
          ${address.call
            ? html`<${Call} key=${address.call} name=${address.call} go=${go} onOpen=${open} onProblem=${setProblem} />`
            : html`<p class="hint">Choose a call. The page shows its recorded rounds, steps and questions.</p>`}
        </div>
      </div>
    </main>
    <div class="backdrop" onClick=${() => setDrawer(false)}></div>
  </div>`;
}

function List({ current, onOpen, links, onProblem }) {
  const [status, setStatus] = useState("");
  const [calls, setCalls] = useState([]);
  const [more, setMore] = useState(false);
  const latest = useRef(0);
  const read = async (before) => {
    const number = ++latest.current;
    const query = new URLSearchParams({ limit: PAGE });
    if (status) query.set("status", status);
    if (before.length) query.set("after", before[before.length - 1].id);
    const page = await api.get(`calls?${query}`);
    if (number !== latest.current) return;
    setCalls([...before, ...page.calls]);
    setMore(page.calls.length === PAGE);
  };
  useEffect(() => void read([]).catch(onProblem), [status, current]);
  return html`<aside class="side threads-side" aria-label="Calls">
    <${Brand} />
    ${links}
    <label class="hint" for="status">Status</label>
    <select id="status" value=${status} onChange=${(event) => setStatus(event.target.value)}>
      ${Object.entries(STATUSES).map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}
    </select>
    <ul class="threads">
      ${calls.map(
        (each) => html`<li key=${each.id}>
          <button type="button" aria-current=${each.id === current ? "page" : undefined} onClick=${() => onOpen(each.id)}>
            <span class="title">${each.tool} <span class="hint">${each.id}</span></span><span class="hint">${each.state}</span>
          </button>
        </li>`,
      )}
    </ul>
    ${calls.length === 0 && html`<p class="hint">No calls.</p>`}
    ${more && html`<button type="button" onClick=${() => read(calls).catch(onProblem)}>Older</button>`}
  </aside>`;
}

function Call({ name, go, onOpen, onProblem }) {
  const [call, setCall] = useState(null);
  const [round, setRound] = useState(null);
  useEffect(() => void api.get(`calls/${encodeURIComponent(name)}`).then(setCall, onProblem), [name]);
  if (!call) return null;
  const last = round ?? Math.max(0, ...call.rounds.map((each) => each.number));
  const follow = (event) => {
    event.preventDefault();
    go({ thread: call.thread });
  };
  return html`<article class="call" aria-label=${`Call ${call.id}`}>
    <h2>${call.tool} <span class=${`label ${call.state}`}>${call.state}</span></h2>
    <dl>
      <${Fact} name="Started">${when(call.started)}<//>
      <${Fact} name=${ENDED.includes(call.state) ? "Deleted after" : "Expires"}>${when(call.deadline)}<//>
      ${call.waits_for.length > 0 && html`<${Fact} name="Waits for">${call.waits_for.join(", ")}<//>`}
      ${call.waits_until && html`<${Fact} name="Continues at">${when(call.waits_until)}<//>`}
      ${call.lease && html`<${Fact} name="Run by">${call.lease.worker}, until ${when(call.lease.until)}<//>`}
      ${call.error && html`<${Fact} name="Failed">${call.error}<//>`}
      ${call.notices > 0 && html`<${Fact} name="Log and progress messages">${call.notices}<//>`}
      ${call.thread && html`<${Fact} name="Conversation"><a href=${`?thread=${encodeURIComponent(call.thread)}`} onClick=${follow}>${call.thread}</a><//>`}
      ${call.lines.length > 0 &&
      html`<${Fact} name="Copies of this call with other answers">${call.lines.map((each) => html`<button key=${each} type="button" class="quiet" onClick=${() => onOpen(each)}>${each}</button>`)}<//>`}
    </dl>
    ${!call.is_complete && html`<p class="hint">This release cannot read a part of this call, which another release recorded.</p>`}
    ${call.shows === "outline" && html`<p class="hint">This application hides the values of this call.</p>`}
    <${Value} title="Arguments" value=${call.arguments} />
    <${Value} title="Returned" value=${call.value} />
    <${Rounds} rounds=${call.rounds} shown=${last} onShow=${setRound} />
    <${Steps} call=${call} until=${last} onBegun=${({ id, thread }) => (thread ? go({ thread }) : onOpen(id))} />
  </article>`;
}

export const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

function Value({ title, value }) {
  if (value === null || value === undefined) return null;
  return html`<figure class="code">
    <figcaption class="code-head">${title}</figcaption>
    <pre tabindex="0" aria-label=${title}>${typeof value === "string" ? value : JSON.stringify(value, null, 1)}</pre>
  </figure>`;
}

function Rounds({ rounds, shown, onShow }) {
  if (!rounds.length) return null;
  const last = rounds[rounds.length - 1].number;
  return html`<section aria-label="Rounds">
    <h3>Rounds</h3>
    <ol class="rounds">
      ${rounds.map(
        (each) => html`<li key=${each.number}>
          <button type="button" aria-pressed=${each.number === shown} onClick=${() => onShow(each.number)}>
            <b>${each.number}</b> ${each.outcome} ${each.asks.join(", ")}
            <span class="hint">${each.ended !== null && when(each.ended)} ${each.worker && `in process ${each.worker}`}</span>
          </button>
        </li>`,
      )}
    </ol>
    ${shown < last && html`<p class="hint" role="status">The page shows the steps up to round ${shown}.</p>`}
  </section>`;
}

/** A step as of a round: later answers are still open. */
const asOf = (step, round) =>
  step.answered_in !== null && step.answered_in > round
    ? { ...step, state: "open", value: null, error: null, answered_by: null, tokens: null }
    : step;

function Steps({ call, until, onBegun }) {
  const steps = call.steps.filter((each) => each.round <= until);
  if (!steps.length) return null;
  return html`<section aria-label="Steps">
    <h3>Steps</h3>
    <ul class="steps">
      ${steps.map((each) => html`<${Step} key=${each.id} step=${asOf(each, until)} call=${call} onBegun=${onBegun} />`)}
    </ul>
  </section>`;
}

function Step({ step, call, onBegun }) {
  const [answering, setAnswering] = useState(false);
  const said = step.asked?.message ?? step.asked?.prompt;
  const isAsked = (step.kind === "elicit" || step.kind === "url") && Boolean(step.asked);
  const name = step.id.slice(step.id.lastIndexOf("/") + 1);
  return html`<li class=${`step inset-${Math.min(step.depth, 4)} ${step.state}`} aria-level=${step.depth + 1}>
    <p class="step-head">
      <span class="mark" aria-hidden="true"></span><span class="kind">${step.kind}</span> <b>${name}</b>
      <span class="hint">
        ${[
          `round ${step.round}`,
          step.state !== "done" && step.state,
          step.answered_by && `answered by ${ANSWERER[step.answered_by]}`,
          step.tokens !== null && `${step.tokens} tokens`,
          step.undo && UNDO[step.undo],
        ]
          .filter(Boolean)
          .join(" · ")}
      </span>
    </p>
    ${said && html`<p class="asked">${said}</p>`}
    ${step.error && html`<p class="error">${step.error}</p>`}
    ${step.value !== null && html`<${Value} title=${`Value of ${name}`} value=${step.value} />`}
    ${isAsked && call.shows === "values" && html`<${Differently} ...${{ step, call, answering, setAnswering, onBegun }} />`}
  </li>`;
}

function Differently({ step, call, answering, setAnswering, onBegun }) {
  if (call.thread && call.waits_for.includes(step.id)) return html`<p class="hint">This question is open: answer it in the conversation.</p>`;
  if (!call.answerable) return html`<p class="hint">This application does not have the tool, so you cannot change the answer here.</p>`;
  if (!answering)
    return html`<button type="button" class="quiet" aria-label=${`Answer ${step.id} differently here`} onClick=${() => setAnswering(true)}>Answer differently here</button>`;
  const question = {
    interrupt_id: `${call.id}:${step.id}`,
    id: { tool_name: call.tool },
    message: step.asked.message,
    schema: step.asked.requested_schema ?? null,
    url: step.asked.url,
  };
  const answer = async ({ action, content }) => {
    onBegun(await api.post(`calls/${encodeURIComponent(call.id)}/answers`, { step_id: step.id, action, content }));
  };
  return html`<p class="hint">Your answer starts a copy of this call. Effects before this question do not run again. Effects after this question really happen.</p>
    <${Question} question=${question} onAnswer=${answer} />
    <button type="button" class="quiet" onClick=${() => setAnswering(false)}>Keep the answer</button>`;
}
