// Values in readable form: results of tools, and answers to their questions.
import { html } from "./vendor.mjs";
import { File } from "./files.mjs";
import { Markdown } from "./markdown.mjs";

/** A table of named values. */
export const Fields = ({ fields }) => html`<dl>
  ${fields.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${shown(value)}</dd></div>`)}
</dl>`;

const shown = (value) =>
  typeof value === "boolean" ? (value ? "yes" : "no") : String([value].flat().join(", ")) || "–";

/** The result of a tool: Markdown and fields for a user who called the tool, the raw text for a model. */
export const Returned = ({ blocks, forPerson = false }) => html`<div class="result" role="group" aria-label="Result">
  ${blocks.map((each, key) => html`<${Block} key=${key} ...${each} forPerson=${forPerson} />`)}
</div>`;

function Block({ type, text, forPerson, ...file }) {
  if (type === "file") return html`<${File} ...${file} />`;
  if (text === undefined) return html`<pre tabindex="0">(${type})</pre>`;
  const value = parsed(text);
  if (value === undefined) return forPerson ? html`<${Markdown} text=${text} />` : html`<pre tabindex="0">${text}</pre>`;
  const fields = Array.isArray(value) ? [] : Object.entries(value);
  const isFlat = fields.length > 0 && fields.every(([, each]) => each === null || typeof each !== "object");
  return forPerson && isFlat ? html`<${Fields} fields=${fields} />` : html`<pre tabindex="0">${JSON.stringify(value, null, 1)}</pre>`;
}

/** The list or object that a text encodes as JSON; undefined for any other text. */
function parsed(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
