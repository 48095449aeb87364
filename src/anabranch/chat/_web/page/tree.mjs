// The tree beside the conversation. Only the rows in view are drawn, so a long thread stays quick.
import { html, useEffect, useMemo, useRef, useState } from "./vendor.mjs";
import { pathTo, rows, textOf } from "./conversation.mjs";

const ROW = 30;
const SPARE = 8;
const SYMBOL = { user: "You", assistant: "Model", branch: "Branch", question: "Question" };

export function Tree({ state, onGo, onLabel }) {
  const all = useMemo(() => rows(state), [state.nodes, state.children]);
  const onPath = useMemo(
    () => new Set(pathTo(state, state.cursor).map((node) => node.id)),
    [state.nodes, state.cursor],
  );
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [focus, setFocus] = useState(-1);
  const list = useRef(null);
  const here = all.findIndex(({ node }) => node.id === state.cursor);
  const current = focus >= 0 ? Math.min(focus, all.length - 1) : Math.max(here, 0);

  useEffect(() => {
    const box = list.current;
    const measure = () => setHeight(box.clientHeight);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (here >= 0) show(here);
  }, [here, all.length]);

  const show = (index) => {
    const box = list.current;
    const y = index * ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + ROW - box.clientHeight;
  };
  const move = (index) => {
    const next = Math.max(0, Math.min(index, all.length - 1));
    setFocus(next);
    show(next);
    requestAnimationFrame(() => list.current.querySelector(`[data-row="${next}"]`)?.focus());
  };
  const onKey = (event) => {
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) move(to);
    else if (event.key === "Enter" || event.key === " ") onGo(all[current].node.id);
    else if (event.key === "l") onLabel(all[current].node);
    else return;
    event.preventDefault();
  };
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const last = Math.min(all.length, Math.ceil((top + height) / ROW) + SPARE);
  const drawn = all.slice(first, last).map(({ node, depth }, at) => {
    const index = first + at;
    return html`<div
      key=${node.id}
      role="treeitem"
      data-row=${index}
      aria-level=${depth + 1}
      aria-posinset=${index + 1}
      aria-setsize=${all.length}
      aria-selected=${node.id === state.cursor}
      tabindex=${index === current ? 0 : -1}
      class=${`row ${node.kind} ${onPath.has(node.id) ? "on-path" : ""} indent-${Math.min(depth, 12)}`}
      onClick=${() => onGo(node.id)}
      onFocus=${() => setFocus(index)}
      title="Continue from here"
    >
      <span class="kind">${SYMBOL[node.kind] ?? node.kind}</span>
      ${state.labels.has(node.id) && html`<span class="label">${state.labels.get(node.id)}</span>`}
      <span class="preview">${preview(node)}</span>
    </div>`;
  });
  return html`<div class="tree" role="tree" aria-label="Conversation" ref=${list} onKeyDown=${onKey}
      onScroll=${(event) => setTop(event.target.scrollTop)}>
    <svg class="spacer" aria-hidden="true" width="1" height=${first * ROW}></svg>
    ${drawn}
    <svg class="spacer" aria-hidden="true" width="1" height=${(all.length - last) * ROW}></svg>
  </div>`;
}

function preview(node) {
  const text = textOf(node).trim();
  if (text) return text.slice(0, 120);
  const used = node.content.filter((block) => block.type === "tool_use").map((block) => block.name);
  return used.length ? `calls ${used.join(", ")}` : "";
}
