// The messages along one path: what was said, the tools that were called, and what they returned.
import { html, useMemo, useState } from "./vendor.mjs";
import { branchesOf, leafBelow, pathTo, resultsOn, textOf, versions, wakesAt } from "./conversation.mjs";
import { Markdown } from "./markdown.mjs";
import { ToolUse } from "./tools.mjs";
import { NodeUsage } from "./usage.mjs";

const SHOWN = 100;
const WHO = { user: "You", assistant: "Model", branch: "Branch", question: "Question", answer: "Your answer" };

/**
 * @param open the ids of open questions, which have forms of their own
 * @param acts what can be done with a node: {go, edit, again, label}
 */
export function Messages({ state, open, acts }) {
  const [more, setMore] = useState(0);
  const path = useMemo(() => pathTo(state, state.cursor), [state.nodes, state.cursor]);
  const results = useMemo(() => resultsOn(path), [path]);
  const asked = useMemo(() => new Set([...open].map((id) => state.nodes.get(id)?.tool_use_id)), [open, state.nodes]);
  const first = Math.max(0, path.length - SHOWN - more);
  // What is said now changes with every word; what has been said is drawn again when it changes.
  const said = useMemo(
    () =>
      path.slice(first).filter(({ id }) => !open.has(id)).map(
        (node) => html`<${Message} key=${node.id} ...${{ node, state, results, asked, acts }} />`,
      ),
    [path, first, results, asked, state.labels, state.tools, state.running, branchText(state.live)],
  );
  const live = [...state.live].filter(([, { branch }]) => !branch || !state.nodes.has(branch));
  return html`<div class="messages" role="log" aria-label="Messages" aria-busy=${state.live.size > 0}>
    ${first > 0 &&
    html`<button class="earlier" type="button" onClick=${() => setMore(more + SHOWN)}>Show earlier messages (${first})</button>`}
    ${said}
    ${live.map(([id, { text }]) => html`<article class="message assistant live" key=${id} aria-label="Model"><${Markdown} text=${text} /></article>`)}
    ${state.running && !state.live.size && !wakesAt(state) && html`<p class="thinking" aria-hidden="true"><i></i><i></i><i></i></p>`}
  </div>`;
}

/** Changes whenever a branch has said more. */
const branchText = (live) =>
  [...live.values()].reduce((length, { text, branch }) => length + (branch ? text.length : 0), 0);

function Message({ node, state, results, asked, acts }) {
  const text = textOf(node);
  const uses = node.content.filter((block) => block.type === "tool_use");
  if (node.kind === "results" && !text) return null;
  const who = WHO[node.kind] ?? "Model";
  const labels = state.labels.get(node.id) ?? [];
  const use = (block) => {
    const branches = branchesOf(state, node, block);
    const live = [...state.live.values()];
    return html`<${ToolUse}
      key=${block.id}
      use=${block}
      tool=${state.tools.get(block.id)}
      result=${results.get(block.id)}
      running=${state.running}
      asks=${asked.has(block.id)}
      branches=${branches.map((each) => ({ ...each, live: live.find(({ branch }) => branch === each.start.id)?.text }))}
      onGo=${acts.go}
    />`;
  };
  return html`<article class=${`message ${node.kind}`} aria-label=${who}>
    ${(node.kind !== "assistant" && node.kind !== "user" || labels.length > 0) &&
    html`<header>
      ${node.kind !== "assistant" && node.kind !== "user" && html`<span class="who">${who}</span>`}
      ${labels.map((label) => html`<span class="label" key=${label}>${label}</span>`)}
    </header>`}
    ${text && (node.kind === "answer" ? html`<${Answer} text=${text} />` : html`<${Markdown} text=${text} />`)}
    ${uses.map(use)}
    <footer>
      <${Switcher} node=${node} state=${state} onGo=${acts.go} />
      <${NodeUsage} node=${node} />
      <span class="acts">
        ${node.kind === "user" && html`<button type="button" class="quiet" onClick=${() => acts.edit(node)}>Edit</button>`}
        ${node.kind === "user" && text.startsWith("/") && html`<button type="button" class="quiet" disabled=${state.running} onClick=${() => acts.again(node)}>Call again</button>`}
        <button type="button" class="quiet" onClick=${() => acts.label(node)}>Label</button>
      </span>
    </footer>
  </article>`;
}

function Answer({ text }) {
  let fields;
  try {
    fields = Object.entries(JSON.parse(text));
  } catch {
    return html`<p>${text}</p>`; // declined, or cancelled
  }
  if (!fields.length) return html`<p>Accepted</p>`;
  return html`<dl>
    ${fields.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${shown(value)}</dd></div>`)}
  </dl>`;
}

const shown = (value) =>
  typeof value === "boolean" ? (value ? "yes" : "no") : [value].flat().join(", ") || "–";

function Switcher({ node, state, onGo }) {
  const all = versions(state, node);
  if (all.length < 2) return null;
  const at = all.indexOf(node);
  const go = (index) => onGo(leafBelow(state, all[index].id));
  return html`<span class="switcher" role="group" aria-label="Versions">
    <button type="button" aria-label="Previous version" disabled=${at === 0} onClick=${() => go(at - 1)}>‹</button>
    <span>${at + 1} / ${all.length}</span>
    <button type="button" aria-label="Next version" disabled=${at === all.length - 1} onClick=${() => go(at + 1)}>›</button>
  </span>`;
}
