// The labels of a node in a dialog: each with a button that removes it, and a field for another.
import { html, useEffect, useRef, useState } from "./vendor.mjs";

export function Labels({ names, onSet, onRemove, onClose }) {
  const dialog = useRef(null);
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const attempt = (work) => work.then(() => setProblem(""), (error) => setProblem(error.message));
  const set = async (event) => {
    event.preventDefault();
    if (name.trim()) await attempt(onSet(name.trim()).then(onClose));
  };
  return html`<dialog ref=${dialog} aria-label="Labels" onClose=${onClose}>
    <form onSubmit=${set}>
      ${names.length > 0 &&
      html`<ul class="label-list">
        ${names.map(
          (each) => html`<li key=${each}>
            <span class="label">${each}</span>
            <button type="button" class="quiet" aria-label=${`Remove ${each}`} onClick=${() => attempt(onRemove(each))}>Remove</button>
          </li>`,
        )}
      </ul>`}
      <label>Label<input type="text" autofocus maxlength="200" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
      ${problem && html`<p class="error" role="alert">${problem}</p>`}
      <div class="buttons">
        <button class="primary">Save</button>
        <button type="button" onClick=${() => dialog.current.close()}>Close</button>
      </div>
    </form>
  </dialog>`;
}
