// A use of a tool in a message: its arguments, what it reports while it runs, the branches that it has
// opened, side by side, and what it returned.
import { html } from "./vendor.mjs";
import { textOf } from "./conversation.mjs";
import { moment } from "./formats.mjs";
import { Markdown } from "./markdown.mjs";
import { TotalUsage } from "./usage.mjs";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const WORDS = { running: "running", waiting: "waits for you", left: "not finished", failed: "failed", done: "done" };

/**
 * @param tool what its events have said of it, if any came
 * @param result its tool_result, if it has one on this path
 * @param asks whether it waits for the answer to a question
 * @param branches of the model: [{start, leaf, path, live}]
 */
export function ToolUse({ use, tool, result, running, asks, branches, onGo }) {
  const returned = result?.content ?? (tool?.result === undefined ? undefined : [{ type: "text", text: tool.result }]);
  const state = (result?.is_error ?? tool?.failed) ? "failed" : returned ? "done" : asks ? "waiting" : running ? "running" : "left";
  const asleep = !returned && tool?.until * 1000 > Date.now();
  const forked = branches.length > 0;
  const reports = tool !== undefined && tool.notices.length + tool.branches.size > 0;
  const open = state === "running" || state === "failed" || (state === "waiting" && reports);
  return html`<div class="use">
    <details class=${`tool ${state}`} open=${open}>
      <summary>
        <span class="mark" aria-hidden="true"></span>
        <span class="tool-name">${use.name}</span>${" "}
        <span class="tool-state">${asleep && !asks ? "waits" : WORDS[state]}${asleep && ` until ${moment(tool.until * 1000)}`}</span>${" "}
        <span class="brief">${brief(use.input)}</span>
      </summary>
      ${reports && html`<${Report} name=${use.name} tool=${tool} ended=${Boolean(returned)} />`}
      ${Object.keys(use.input).length > 0 &&
      html`<pre tabindex="0" role="group" aria-label="Arguments">${JSON.stringify(use.input, null, 1)}</pre>`}
      ${returned && !forked && html`<div class="result" role="group" aria-label="Result">${returned.map(block)}</div>`}
    </details>
    ${forked && html`<${Fork} branches=${branches} ended=${Boolean(returned) || !running} onGo=${onGo} />`}
    ${forked && returned && html`<${Recombined} how=${use.input.recombine ?? "none"} returned=${returned} />`}
  </div>`;
}

const brief = (input) =>
  Object.entries(input).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ");

function block(each, key) {
  if (each.type === "image" && IMAGES.has(each.mime_type)) {
    return html`<img key=${key} src=${`data:${each.mime_type};base64,${each.data}`} alt="Returned by the tool" />`;
  }
  return html`<pre key=${key} tabindex="0">${each.text === undefined ? `(${each.type})` : pretty(each.text)}</pre>`;
}

/** JSON set out in lines; any other text as it is. */
function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}

/** How far a tool is, what it logs, and the branches that are open in it. */
function Report({ name, tool, ended }) {
  const { notices, branches } = tool;
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
        return html`<li key=${path} class=${`inset-${Math.min(names.length - 1, 4)} ${open && !ended ? "open" : "done"}`}>
          <span class="mark" aria-hidden="true"></span>${names.at(-1)} <span class="tool-state">${open && !ended ? "open" : "done"}</span>
        </li>`;
      })}
    </ul>`}
    ${logs.length > 0 &&
    html`<ul class="notices" aria-label="Log">
      ${logs.map((each, key) => html`<li key=${key} class=${each.level}><span class="level">${each.level}</span>${each.message}</li>`)}
    </ul>`}
  `;
}

const PROMPT = /^\(self-prompt\): /;

/** The branches of a model, side by side: what each was to do, and where it is. */
function Fork({ branches, ended, onGo }) {
  return html`<div class="fork" role="group" aria-label="Branches">
    ${branches.map(({ start, leaf, path, live }, at) => {
      const last = path.findLast((node) => node.kind === "assistant" && textOf(node));
      const steps = path.filter((node) => node.kind === "assistant").length;
      const open = !ended && (live !== undefined || !last || path.at(-1) !== last);
      const text = live ?? (last ? textOf(last) : "");
      return html`<section key=${start.id} class=${`branch ${open ? "open" : "done"}`} aria-label=${`Branch ${at + 1}`}>
        <h3><span class="mark" aria-hidden="true"></span>Branch ${at + 1} <span class="tool-state">${open ? "open" : "done"}</span></h3>
        <p class="prompt">${textOf(start).replace(PROMPT, "")}</p>
        <div class="said" tabindex="0" role="group" aria-label="Reply">${text ? html`<${Markdown} text=${text} />` : open && html`<p class="hint">…</p>`}</div>
        <footer>
          <button type="button" class="quiet" onClick=${() => onGo(leaf)}>Open branch</button>
          ${steps > 1 && html`<span>${steps} replies</span>`}
          <${TotalUsage} nodes=${path} />
        </footer>
      </section>`;
    })}
  </div>`;
}

/** What became of the branches. A text that was made of them is shown at once; else the branches say it all. */
function Recombined({ how, returned }) {
  return html`<details class="recombined" open=${how.startsWith("llm_")}>
    <summary>Recombined <span class="tool-state">${how}</span></summary>
    <div tabindex="0" role="group" aria-label="Result">${returned.map(({ text }, key) => html`<${Markdown} key=${key} text=${text ?? ""} />`)}</div>
  </details>`;
}
