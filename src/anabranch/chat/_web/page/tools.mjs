// A use of a tool in a message: its arguments, its progress, its branches next to each other, and its
// result.
import { html } from "./vendor.mjs";
import { isCall, textOf } from "./conversation.mjs";
import { moment } from "./formats.mjs";
import { Markdown } from "./markdown.mjs";
import { TotalUsage } from "./usage.mjs";
import { Returned } from "./values.mjs";

const WORDS = {
  running: "running",
  waiting: "waits for you",
  handed: "waits for the application",
  stopped: "stopped",
  elsewhere: "done on another branch",
  left: "not finished",
  failed: "failed",
  done: "done",
};

/** The blocks that a use of a tool returned, by its result on a path or by its events; undefined before. */
export const returnedBy = (tool, result) =>
  result?.content ?? (tool?.result === undefined || tool.interrupted ? undefined : [{ type: "text", text: tool.result }]);

/**
 * @param byUser whether the user called the tool, and not the model: its result is shown apart
  * @param tool the tool's state from events, if any
  * @param result the tool_result on this path, if any
  * @param running whether the run in progress may work on this use
  * @param stopped whether the user stopped the turn of this use
  * @param elsewhere whether this use has a result on another branch
  * @param asked the nodes of the tool's open questions
 * @param branches of the model: [{start, leaf, path, title, isFolded, waits, live}]
 */
export function ToolUse({ use, byUser, tool, result, running, stopped, elsewhere, asked, branches, onGo }) {
  const returned = returnedBy(elsewhere ? undefined : tool, result);
  const asks = asked.length > 0 || branches.some(({ waits }) => waits);
  const state = returned
    ? ((result?.is_error ?? tool?.failed) ? "failed" : "done")
    : asks ? "waiting" : tool?.interrupted || (stopped && !running) ? "stopped" : running ? "running" : elsewhere ? "elsewhere" : "left";
  const asleep = state === "running" && tool?.until * 1000 > Date.now();
  const isHanded = state === "waiting" && asked.some(isCall);
  const forked = branches.length > 0;
  const notices = tool?.notices ?? [];
  const inner = withAsking(tool?.branches, asked);
  const reports = notices.length + inner.size > 0;
  const open = !forked && (state === "running" || state === "failed" || (state === "waiting" && reports));
  return html`<div class="use">
    <details class=${`tool ${state}`} open=${open}>
      <summary>
        <span class="mark" aria-hidden="true"></span>
        <span class="tool-name">${use.name}</span>${" "}
        <span class="tool-state">${asleep ? `waits until ${moment(tool.until * 1000)}` : WORDS[isHanded ? "handed" : state]}</span>${" "}
        ${!forked && html`<span class="brief">${brief(use.input)}</span>`}
      </summary>
      ${reports && html`<${Report} name=${use.name} notices=${notices} branches=${inner} state=${state} asked=${asked} />`}
      ${Object.keys(use.input).length > 0 &&
      html`<pre tabindex="0" role="group" aria-label="Arguments">${JSON.stringify(use.input, null, 1)}</pre>`}
      ${returned && !forked && !(byUser && state === "done") && html`<${Returned} blocks=${returned} />`}
    </details>
    ${forked && html`<${Fork} branches=${branches} returned=${returned} failed=${state === "failed"} ended=${!running} stopped=${state === "stopped"} onGo=${onGo} />`}
    ${forked && returned && !isFolded(branches) && html`<${Recombined} how=${use.input.recombine ?? "none"} returned=${returned} />`}
  </div>`;
}

/** The branches inside a tool: those known from events, and those with questions. */
function withAsking(known, asked) {
  const paths = asked.flatMap(({ step_id = "" }) => step_id.split("/").slice(0, -1).map((_, at, all) => all.slice(0, at + 1).join("/")));
  return new Map([...(known ?? []), ...paths.filter((path) => path.includes("/")).map((path) => [path, true])]);
}

const brief = (input) =>
  Object.entries(input).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ");

/** The progress of a tool, its log, and its open branches. */
function Report({ name, notices, branches, state, asked }) {
  const progress = notices.findLast((each) => each.progress !== null);
  const logs = notices.filter((each) => each.progress === null);
  return html`
    ${progress &&
    html`<div class="progress">
      <progress
        max=${progress.total ?? undefined}
        value=${progress.total === null ? undefined : progress.progress}
        aria-label=${`Progress of ${name}`}
      ></progress>
      <span>${progress.message} ${progress.total !== null && html`<b>${progress.progress} / ${progress.total}</b>`}</span>
    </div>`}
    ${branches.size > 0 &&
    html`<ul class="inner" aria-label="Branches">
      ${[...branches].map(([path, open]) => {
        const names = path.split("/").slice(1);
        const asks = asked.some(({ step_id }) => step_id?.startsWith(`${path}/`));
        const is = !open ? "done" : asks ? "waiting" : state === "running" || state === "waiting" ? "open" : state;
        return html`<li key=${path} class=${`inset-${Math.min(names.length - 1, 4)} ${is}`}>
          <span class="mark" aria-hidden="true"></span>${names.at(-1)} <span class="tool-state">${WORDS[is] ?? is}</span>
        </li>`;
      })}
    </ul>`}
    ${logs.length > 0 &&
    html`<ul class="notices" aria-label="Log">
      ${logs.map((each, key) => html`<li key=${key} class=${each.level}><span class="level">${each.level}</span>${each.message}</li>`)}
    </ul>`}
  `;
}

/** Whether folding opened these branches: one for each use, which returns its conclusion. */
const isFolded = ([first]) => first.isFolded;

/** The branches of a model next to each other: the topic and place of each; for a folded one, its conclusion. */
function Fork({ branches, returned, failed, ended, stopped, onGo }) {
  return html`<div class="fork" role="group" aria-label="Branches">
    ${branches.map((branch, at) => {
      const { start, leaf, path, title, waits, live } = branch;
      const last = path.findLast((node) => node.kind === "assistant" && textOf(node));
      const steps = path.filter((node) => node.kind === "assistant").length;
      const isOver = returned || (last && path.at(-1) === last && live === undefined && !branch.isFolded);
      const hasFailed = last?.error !== undefined || (failed && branch.isFolded);
      const state = waits ? "waiting" : isOver ? (hasFailed ? "failed" : "done") : !ended ? "open" : stopped ? "stopped" : "left";
      const concluded = branch.isFolded && returned?.map(({ text }) => text ?? "").join("\n\n");
      const text = concluded || live || (last ? last.error ?? textOf(last) : "");
      return html`<section key=${start.id} class=${`branch ${state}`} aria-label=${`Branch ${at + 1}`}>
        <h3><span class="mark" aria-hidden="true"></span>Branch ${at + 1} <span class="tool-state">${WORDS[state] ?? state}</span></h3>
        <p class="prompt">${title}</p>
        <div class="said" tabindex="0" role="group" aria-label=${concluded ? "Conclusion" : "Reply"}>${text ? html`<${Markdown} text=${text} />` : state === "open" && html`<p class="hint">…</p>`}</div>
        <footer>
          <button type="button" class="quiet" onClick=${() => onGo(leaf)}>Open branch</button>
          ${steps > 1 && html`<span>${steps} replies</span>`}
          <${TotalUsage} nodes=${path} />
        </footer>
      </section>`;
    })}
  </div>`;
}

/** The outcome of the branches: a text made of them, if there is one; otherwise the branches show it. */
function Recombined({ how, returned }) {
  return html`<details class="recombined" open=${how.startsWith("llm_")}>
    <summary>Recombined <span class="tool-state">${how}</span></summary>
    <div tabindex="0" role="group" aria-label="Result">${returned.map(({ text }, key) => html`<${Markdown} key=${key} text=${text ?? ""} />`)}</div>
  </details>`;
}
