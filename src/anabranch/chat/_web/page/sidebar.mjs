// The conversations, the latest first, and a button for a new one.
import { Brand } from "./brand.mjs";
import { html, useState } from "./vendor.mjs";
import { timeOrDay } from "./formats.mjs";

const MANY = 8;

export function Sidebar({ threads, current, onOpen, links }) {
  const [wanted, setWanted] = useState("");
  const shown = threads.filter(({ id, title }) => (title || id).toLowerCase().includes(wanted.toLowerCase()));
  return html`<aside class="side threads-side" aria-label="Conversations">
    <${Brand} />
    ${links}
    <button type="button" class="new" onClick=${() => onOpen(null)}>New conversation</button>
    ${threads.length > MANY &&
    html`<input type="search" aria-label="Find a conversation" placeholder="Find" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />`}
    <ul class="threads">
      ${shown.map(
        ({ id, title, created_at }) => html`<li key=${id}>
          <button type="button" aria-current=${id === current ? "page" : undefined} onClick=${() => onOpen(id)}>
            <span class="title">${title || id}</span><time>${timeOrDay(created_at)}</time>
          </button>
        </li>`,
      )}
    </ul>
  </aside>`;
}
