// The messages along one path: texts, tool calls, questions and results, and the end of a turn without
// a reply.
import { html, useMemo, useState } from "./vendor.mjs";
import { branchesAround, branchesOf, described, hasEndedElsewhere, isCall, leafBelow, pathTo, resultsOn, textOf, versions, wakesAt } from "./conversation.mjs";
import { Files } from "./files.mjs";
import { Markdown } from "./markdown.mjs";
import { ToolUse, returnedBy } from "./tools.mjs";
import { NodeUsage } from "./usage.mjs";
import { Fields, Returned } from "./values.mjs";

const SHOWN = 100;
const WHO = { user: "You", assistant: "Model", branch: "Branch", question: "Question", answer: "Your answer" };
const GIVEN = { decline: "Declined", cancel: "Cancelled" };

const questionOf = (answer) => answer.question ?? answer.parent_id;

/**
 * @param open the ids of open questions, which have separate forms
 * @param acts the functions that act on a node: {go, edit, again, retry, label}
 */
export function Messages({ state, open, acts }) {
  const [more, setMore] = useState(0);
  const path = useMemo(() => pathTo(state, state.cursor), [state.nodes, state.cursor]);
  const onHead = useMemo(() => new Set(pathTo(state, state.head)), [state.nodes, state.head]);
  const results = useMemo(() => resultsOn(path), [path]);
  const asking = useMemo(() => [...open].map((id) => state.nodes.get(id)).filter(Boolean), [open, state.nodes]);
  const answers = useMemo(() => new Map(path.filter(({ kind }) => kind === "answer").map((node) => [questionOf(node), node])), [path]);
  const first = Math.max(0, path.length - SHOWN - more);
  // The arriving message changes with every word; earlier messages are redrawn only when they change.
  const said = useMemo(() => {
    const asked = new Set(path.map(({ id }) => id));
    const isShown = (node) => !open.has(node.id) && !isCall(node) && !(node.kind === "answer" && asked.has(questionOf(node)));
    const shown = [];
    path.forEach((node, at) => {
      if (at < first) return;
      const isActive = state.running && (onHead.has(node) || branchesAround(state, node).length > 0);
      const own = { node, state, results, asking, answer: answers.get(node.id), stopped: wasStopped(state, path, at), isActive, acts };
      if (isShown(node)) shown.push(html`<${Message} key=${node.id} ...${own} />`);
      for (const { use, blocks } of answersOf(state, path, at, results)) {
        shown.push(html`<article class="message assistant" key=${`result-${use.id}`} aria-label=${use.name}><${Returned} blocks=${blocks} forPerson /></article>`);
      }
      const end = state.ends.get(node.id);
      const next = path[at + 1];
      if (end && (next ? next.kind === "user" : !state.running)) {
        shown.push(html`<${End} key=${`end-${node.id}`} error=${end.error} onRetry=${!next && (() => acts.retry(node))} />`);
      }
    });
    return shown;
  }, [path, onHead, first, results, answers, asking, state.ends, state.labels, state.tools, state.running, branchText(state.live)]);
  // The tree may have a whole reply whose text still arrives.
  const stored = new Set(path.filter(({ kind }) => kind === "assistant").map((node) => `after-${node.parent_id}`));
  const live = [...state.live].filter(([id, { branch }]) => !stored.has(id) && (!branch || !state.nodes.has(branch)));
  return html`<div class="messages" role="log" aria-label="Messages" aria-busy=${state.live.size > 0}>
    ${first > 0 &&
    html`<button class="earlier" type="button" onClick=${() => setMore(more + SHOWN)}>Show earlier messages (${first})</button>`}
    ${said}
    ${live.map(([id, { text }]) => html`<article class="message assistant live" key=${id} aria-label="Model"><${Markdown} text=${text} /></article>`)}
    ${state.running && !state.live.size && !wakesAt(state) && html`<p class="thinking" aria-hidden="true"><i></i><i></i><i></i></p>`}
  </div>`;
}

/** Changes whenever a branch adds text. */
const branchText = (live) =>
  [...live.values()].reduce((length, { text, branch }) => length + (branch ? text.length : 0), 0);

const isAside = (node) => node?.kind === "question" || node?.kind === "answer";

/** Whether the user stopped the turn at a place of a path, or at the questions and answers after it. */
function wasStopped(state, path, at) {
  let last = at;
  while (isAside(path[last + 1])) last += 1;
  return path.slice(at, last + 1).some(({ id }) => state.ends.get(id)?.error === null);
}

/** The results of tools that the user called: the answers, placed at the last of their questions. */
function answersOf(state, path, at, results) {
  if (isAside(path[at + 1])) return [];
  let first = at;
  while (isAside(path[first])) first -= 1;
  if (path[first]?.by !== "user") return [];
  return path[first].content
    .filter(({ type, id }) => type === "tool_use" && !(results.get(id)?.is_error ?? state.tools.get(id)?.failed))
    .map((use) => ({ use, blocks: returnedBy(state.tools.get(use.id), results.get(use.id)) }))
    .filter(({ use, blocks }) => blocks && !branchesOf(state, path[first], use).length);
}

/** The end of a turn without a reply. */
const End = ({ error, onRetry }) => html`<div class=${`end ${error === null ? "stopped" : "failed"}`} role=${error === null ? "status" : "alert"}>
  <p>${error ?? "Stopped by you."}</p>
  ${onRetry && html`<button type="button" onClick=${onRetry}>Retry</button>`}
</div>`;

function Message({ node, state, results, asking, answer, stopped, isActive, acts }) {
  const text = shownText(state, node);
  const uses = node.content.filter((block) => block.type === "tool_use");
  if (node.kind === "results" && !text) return null;
  const isOwn = node.kind === "user" && !node.error;
  const who = isOwn || !node.error ? (WHO[node.kind] ?? "Model") : "Branch";
  const labels = state.labels.get(node.id) ?? [];
  const isPlain = isOwn || (node.kind === "assistant" && !node.error);
  const use = (block) => {
    const branches = branchesOf(state, node, block);
    const live = [...state.live.values()];
    const waits = (path) => asking.some((each) => path.includes(each) || branchesAround(state, each).includes(path[0]));
    return html`<${ToolUse}
      key=${block.id}
      use=${block}
      byUser=${node.by === "user"}
      tool=${state.tools.get(block.id)}
      result=${results.get(block.id)}
      running=${isActive}
      stopped=${stopped}
      elsewhere=${hasEndedElsewhere(state, node, block)}
      asked=${asking.filter(({ tool_use_id }) => tool_use_id === block.id)}
      branches=${branches.map((each) => ({
        ...each,
        ...described(state, each.start),
        waits: waits(each.path),
        live: live.find(({ branch }) => branch === each.start.id)?.text,
      }))}
      onGo=${acts.go}
    />`;
  };
  return html`<article class=${`message ${isOwn || node.kind !== "user" ? node.kind : "branch"}`} aria-label=${who}>
    ${(!isPlain || labels.length > 0) &&
    html`<header>
      ${!isPlain && html`<span class="who">${who}</span>`}
      ${labels.map((label) => html`<span class="label" key=${label}>${label}</span>`)}
    </header>`}
    <${Files} node=${node} />
    ${node.kind === "answer" ? html`<${Answer} node=${node} />` : text && html`<${Markdown} text=${text} />`}
    ${node.state && html`<p class="hint">${node.state[0].toUpperCase() + node.state.slice(1)}.</p>`}
    ${node.kind === "question" && html`<${Answered} answer=${answer} state=${state} isActive=${isActive} onGo=${acts.go} />`}
    ${uses.map(use)}
    <footer>
      <${Switcher} node=${node} state=${state} onGo=${acts.go} />
      <${NodeUsage} node=${node} />
      <span class="acts">
        ${isOwn && html`<button type="button" class="quiet" onClick=${() => acts.edit(node)}>Edit</button>`}
        ${isOwn && text.startsWith("/") && html`<button type="button" class="quiet" disabled=${state.running} onClick=${() => acts.again(node)}>Call again</button>`}
        <button type="button" class="quiet" onClick=${() => acts.label(node)}>Label</button>
      </span>
    </footer>
  </article>`;
}

/** The text of a node for users: the text of a branch, and of its end, is for the model. */
function shownText(state, node) {
  if (node.kind === "branch") return described(state, node).title;
  if (node.error) return node.kind === "user" ? `The branch reached a limit: ${node.error}` : `The branch failed: ${node.error}`;
  return textOf(node);
}

/** The answer to a question, next to it. */
function Answered({ answer, state, isActive, onGo }) {
  if (!answer) return !isActive && html`<p class="hint">No answer on this branch.</p>`;
  const isGiven = !answer.left && !answer.time_over;
  return html`<div class="answered" role="group" aria-label=${isGiven ? WHO.answer : "No answer"}>
    ${isGiven && html`<span class="who">${WHO.answer}</span>`}
    <${Answer} node=${answer} />
    <${Switcher} node=${answer} state=${state} onGo=${onGo} />
  </div>`;
}

function Answer({ node }) {
  const text = textOf(node);
  if (node.left) return html`<p class="none">Left unanswered</p>`;
  if (node.time_over) return html`<p class="none">No answer in time</p>`;
  if (node.action && node.action !== "accept") return html`<p>${GIVEN[node.action]}</p>`;
  let fields;
  try {
    fields = Object.entries(JSON.parse(text));
  } catch {
    return html`<p>${node.action === "accept" ? "Accepted" : text}</p>`; // a link
  }
  return fields.length ? html`<${Fields} fields=${fields} />` : html`<p>Accepted</p>`;
}

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
