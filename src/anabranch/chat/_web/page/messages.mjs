// The messages along one path: what was said, the tools that were called, and what they returned.
import { html, useState } from "./vendor.mjs";
import { Markdown } from "./markdown.mjs";
import { leafBelow, pathTo, siblings, textOf } from "./conversation.mjs";

const SHOWN = 100;

export function Messages({ state, open, onGo, onEdit }) {
  const path = pathTo(state, state.cursor);
  const [more, setMore] = useState(0);
  const first = Math.max(0, path.length - SHOWN - more);
  const results = new Map();
  for (const node of path) {
    for (const block of node.content) if (block.type === "tool_result") results.set(block.tool_use_id, block);
  }
  const live = [...state.live.entries()];
  const main = live.filter(([, each]) => !each.branch);
  const branches = live.filter(([, each]) => each.branch);
  return html`<div class="messages" role="log" aria-label="Messages" aria-live="polite">
    ${first > 0 &&
    html`<button class="earlier" type="button" onClick=${() => setMore(more + SHOWN)}>Show ${first} earlier</button>`}
    ${path.slice(first).filter((node) => !open.has(node.id)).map(
      (node) => html`<${Message} key=${node.id} node=${node} state=${state} results=${results} onGo=${onGo} onEdit=${onEdit} />`,
    )}
    ${branches.length > 0 &&
    html`<div class="branches" role="group" aria-label="Open branches">
      ${branches.map(([id, each]) => html`<div class="branch-live" key=${id}><${Markdown} text=${each.text} /></div>`)}
    </div>`}
    ${main.map(([id, each]) => html`<article class="message assistant live" key=${id}><${Markdown} text=${each.text} /></article>`)}
  </div>`;
}

function Message({ node, state, results, onGo, onEdit }) {
  const text = textOf(node);
  const uses = node.content.filter((block) => block.type === "tool_use");
  if (node.kind === "results" && !text) return null;
  const who = { user: "You", branch: "Branch", question: "A tool asks", answer: "You answered" }[node.kind] ?? "Model";
  return html`<article class=${`message ${node.kind}`} aria-label=${who}>
    <header>
      <span class="who">${who}</span>
      ${state.labels.has(node.id) && html`<span class="label">${state.labels.get(node.id)}</span>`}
      <${Switcher} node=${node} state=${state} onGo=${onGo} />
      ${node.kind === "user" &&
      html`<button type="button" class="quiet" onClick=${() => onEdit(node)}>Edit</button>`}
      ${node.usage && html`<span class="usage">${node.usage.input_tokens} + ${node.usage.output_tokens} tokens</span>`}
    </header>
    ${text && (node.kind === "answer" ? html`<${Answer} text=${text} />` : html`<${Markdown} text=${text} />`)}
    ${uses.map((use) => html`<${ToolUse} key=${use.id} use=${use} tool=${state.tools.get(use.id)} result=${results.get(use.id)} />`)}
  </article>`;
}

function Answer({ text }) {
  let fields;
  try {
    fields = Object.entries(JSON.parse(text));
  } catch {
    return html`<p>${text}</p>`; // declined, or cancelled
  }
  return html`<dl>
    ${fields.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${[value].flat().join(", ")}</dd></div>`)}
  </dl>`;
}

function Switcher({ node, state, onGo }) {
  const all = siblings(state, node);
  if (all.length < 2) return null;
  const at = all.indexOf(node.id);
  const go = (index) => onGo(leafBelow(state, all[index]));
  return html`<span class="switcher" role="group" aria-label="Versions">
    <button type="button" aria-label="Previous version" disabled=${at === 0} onClick=${() => go(at - 1)}>‹</button>
    <span>${at + 1} / ${all.length}</span>
    <button type="button" aria-label="Next version" disabled=${at === all.length - 1} onClick=${() => go(at + 1)}>›</button>
  </span>`;
}

function ToolUse({ use, tool, result }) {
  const notices = tool?.notices ?? [];
  const progress = notices.findLast((each) => each.progress !== null);
  const returned = result ? result.content.map((block) => block.text ?? `(${block.type})`).join("\n") : tool?.result;
  const failed = result?.is_error;
  const state = returned === undefined ? "running" : failed ? "failed" : "done";
  return html`<details class=${`tool ${state}`} open=${state === "running" || failed}>
    <summary><span class="tool-name">${use.name}</span> <span class="tool-state">${state}</span></summary>
    <pre tabindex="0" aria-label="Arguments">${JSON.stringify(use.input, null, 1)}</pre>
    ${progress &&
    html`<progress max=${progress.total ?? undefined} value=${progress.total === null ? undefined : progress.progress} aria-label=${`Progress of ${use.name}`}></progress>`}
    ${notices.length > 0 && html`<ul class="notices">${notices.map((each, key) => html`<li key=${key}>${each.level ? `${each.level}: ` : ""}${each.message}</li>`)}</ul>`}
    ${returned !== undefined && html`<pre class="result" tabindex="0" aria-label="Result">${returned}</pre>`}
  </details>`;
}
