// The memory room: lists, searches, shows and forgets the lessons from earlier work.
import { Brand } from "./brand.mjs";
import { html, useEffect, useRef, useState } from "./vendor.mjs";
import * as api from "./api.mjs";
import { Fact, when } from "./calls.mjs";

export function Memories({ address, go, links }) {
  const [drawer, setDrawer] = useState(false);
  const [query, setQuery] = useState("");
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState(null);
  const current = address.memory;
  const open = (memory) => {
    setDrawer(false);
    go({ room: "memory", ...(memory && { memory }) });
  };
  const searches = useRef(0);
  const search = () => {
    const number = ++searches.current;
    const ifLast = (set) => (value) => number === searches.current && set(value);
    api.get(`memories?${new URLSearchParams({ query })}`).then(ifLast(setFound), ifLast(setProblem));
  };
  const submit = (event) => {
    event.preventDefault();
    search();
  };
  useEffect(() => {
    document.title = "Memory";
    setProblem(null);
    search();
  }, [current]);
  return html`<div class=${`page ${drawer ? "threads-open" : ""}`}>
    <aside class="side threads-side" aria-label="Memories">
      <${Brand} />
      ${links}
      <form role="search" onSubmit=${submit}>
        <label class="hint" for="query">Search</label>
        <input id="query" type="search" maxlength="1000" value=${query} onInput=${(event) => setQuery(event.target.value)} />
      </form>
      <ul class="threads">
        ${(found ?? []).map(
          (each) => html`<li key=${each.id}>
            <button type="button" aria-current=${each.id === current ? "page" : undefined} onClick=${() => open(each.id)}>
              <span class="title">${each.title}</span><span class="hint">${each.scope}</span>
            </button>
          </li>`,
        )}
      </ul>
      <p class="hint" role="status">${found && `${found.length || "None"} found`}</p>
    </aside>
    <main>
      <header class="bar">
        <button type="button" class="toggle for-threads" aria-expanded=${drawer} onClick=${() => setDrawer(!drawer)}>Memories</button>
        <h1>Memory</h1>
      </header>
      <div class="scrolled" tabindex="0" role="region" aria-label="Memory">
        <div class="column calls-column">
          ${problem && html`<p class="error failure" role="alert">${problem.message}</p>`}
          ${current
            ? html`<${Memory} key=${current} name=${current} onForgotten=${() => open()} onProblem=${setProblem} />`
            : html`<p class="hint">Choose a note. Agents and branches read notes when they start similar work.</p>`}
        </div>
      </div>
    </main>
    <div class="backdrop" onClick=${() => setDrawer(false)}></div>
  </div>`;
}

function Memory({ name, onForgotten, onProblem }) {
  const [memory, setMemory] = useState(null);
  const dialog = useRef(null);
  useEffect(() => void api.get(`memories/${encodeURIComponent(name)}`).then(setMemory, onProblem), [name]);
  if (!memory) return null;
  const { source, branch_id: branch, outcome } = memory.provenance;
  const forget = () => {
    dialog.current.close();
    api.forget(name).then(onForgotten, onProblem);
  };
  return html`<article class="call" aria-label=${memory.title}>
    <h2>${memory.title}</h2>
    <p class="hint">${memory.description}</p>
    <p>${memory.content}</p>
    <dl>
      <${Fact} name="Confidence">${memory.confidence} (${memory.helpful} helpful, ${memory.unhelpful} unhelpful)<//>
      <${Fact} name="Visible to">${memory.scope === "user" ? "only you" : `the ${memory.scope}`}<//>
      <${Fact} name="Source">${[source, outcome && `from a ${outcome}`, branch].filter(Boolean).join(" · ")}<//>
      <${Fact} name="Since">${when(memory.created_at)}<//>
      ${memory.task && html`<${Fact} name="Task">${memory.task}<//>`}
    </dl>
    ${memory.writable && html`<div class="buttons"><button type="button" onClick=${() => dialog.current.showModal()}>Forget</button></div>`}
    <dialog ref=${dialog} aria-label="Forget">
      <p>Forget “${memory.title}”? You cannot undo this.</p>
      <div class="buttons">
        <button type="button" class="primary" onClick=${forget}>Forget</button>
        <button type="button" autofocus onClick=${() => dialog.current.close()}>Cancel</button>
      </div>
    </dialog>
  </article>`;
}
