// The tree next to the conversation. Only the rows in view are drawn, so a long thread stays quick.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor.mjs";
import { branchesAround, described, isCall, pathTo, rows, textOf } from "./conversation.mjs";

const ROW = 32;
const SPARE = 8;
const DEEPEST = 12;
const KIND = { user: "You", assistant: "Model", branch: "Branch", question: "Question" };

/**
 * @param open the ids of open questions
  * @param acts the functions that act on a node: {go, stay, label}; stay continues from the node
 */
export function Tree({ state, open, acts }) {
  const all = useMemo(() => rows(state), [state.nodes]);
  const onPath = useMemo(
    () => new Set(pathTo(state, state.cursor).map(({ id }) => id)),
    [state.nodes, state.cursor],
  );
  const waits = useMemo(() => {
    const asking = [...open].map((id) => state.nodes.get(id)).filter(Boolean);
    return new Set(asking.flatMap((node) => [node, ...branchesAround(state, node)]));
  }, [state.nodes, open]);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [focus, setFocus] = useState(-1);
  const list = useRef(null);
  const here = useMemo(() => lastShown(all, onPath), [all, onPath]);
  const current = focus >= 0 ? Math.min(focus, all.length - 1) : Math.max(here, 0);

  const measure = () => list.current && setView({ top: list.current.scrollTop, height: list.current.clientHeight });
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(list.current);
    return () => observer.disconnect();
  }, []);
  const show = (index) => {
    const box = list.current;
    const y = index * ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + ROW - box.clientHeight;
  };
  useLayoutEffect(() => {
    if (here >= 0) show(here);
  }, [here, all.length, view.height]);
  const move = (index) => {
    const next = Math.max(0, Math.min(index, all.length - 1));
    setFocus(next);
    show(next);
    requestAnimationFrame(() => list.current?.querySelector(`[data-row="${next}"]`)?.focus());
  };
  const onKey = (event) => {
    const { node, depth } = all[current] ?? {};
    if (!node || event.target.closest("button")) return;
    const outer = all.findLastIndex((each, at) => at < current && each.depth < depth);
    const to = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      ArrowRight: current + 1,
      ArrowLeft: outer < 0 ? current - 1 : outer,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (to !== undefined) move(to);
    else if (event.key === "Enter" || event.key === " ") acts.go(node.id);
    else if (event.key === "l" || event.key === "F2") acts.label(node);
    else return;
    event.preventDefault();
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
  const last = Math.min(all.length, Math.ceil((view.top + view.height) / ROW) + SPARE);
  const drawn = all.slice(first, last).map(
    ({ node, depth }, at) => html`<${Row}
      key=${node.id}
      node=${node}
      index=${first + at}
      count=${all.length}
      depth=${depth}
      text=${preview(state, node)}
      waits=${waits.has(node)}
      labels=${state.labels.get(node.id) ?? []}
      selected=${first + at === here}
      current=${first + at === current}
      onPath=${onPath.has(node.id)}
      acts=${acts}
      onFocus=${setFocus}
    />`,
  );
  return html`<div class="tree" role="tree" aria-label="Conversation" ref=${list} onKeyDown=${onKey} onScroll=${measure}>
    <svg class="spacer" aria-hidden="true" width="1" height=${first * ROW}></svg>
    ${drawn}
    <svg class="spacer" aria-hidden="true" width="1" height=${(all.length - last) * ROW}></svg>
  </div>`;
}

/** The row of the shown place; results and answers have no row, so the one before them. */
const lastShown = (all, onPath) => all.findLastIndex(({ node }) => onPath.has(node.id));

function Row({ node, text, waits, index, count, depth, labels, selected, current, onPath, acts, onFocus }) {
  const kind = node.error ? "Branch" : (KIND[node.kind] ?? node.kind);
  return html`<div
    role="treeitem"
    data-row=${index}
    aria-level=${depth + 1}
    aria-posinset=${index + 1}
    aria-setsize=${count}
    aria-selected=${selected}
    tabindex=${current ? 0 : -1}
    class=${`row ${node.kind} ${onPath ? "on-path" : ""} indent-${Math.min(depth, DEEPEST)}`}
    onClick=${() => acts.go(node.id)}
    onFocus=${() => onFocus(index)}
  >
    <span class="kind">${kind}</span>
    ${labels.map((label) => html`<span class="label" key=${label}>${label}</span>`)}
    ${waits && html`<span class="waits">${isCall(node) ? "waits for the application" : "waits for you"}</span>`}
    <span class="preview">${text}</span>
    <button
      type="button"
      class="here"
      tabindex=${current ? 0 : -1}
      aria-label="Continue from here"
      title="Continue from here"
      onClick=${(event) => {
        event.stopPropagation();
        acts.stay(node.id);
      }}
    >↳</button>
  </div>`;
}

function preview(state, node) {
  const text = node.error ?? (node.kind === "branch" ? described(state, node).title : textOf(node)).trim();
  if (text) return text.slice(0, 120).replace(/[*#`]+/g, "");
  const used = node.content.filter((block) => block.type === "tool_use").map((block) => block.name);
  return used.length ? `calls ${used.join(", ")}` : "";
}
