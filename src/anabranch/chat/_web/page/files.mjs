// Files of a conversation: shows them in messages and results, and attaches them to a message.
import { createContext, html, useContext } from "./vendor.mjs";
import { addressOf } from "./api.mjs";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** The thread of the shown files. */
export const InThread = createContext(null);

/** A file of the thread, or a link to a file at another address, which the page does not load. */
export function File({ mime_type, digest, url, name }) {
  const thread = useContext(InThread);
  const title = name || (mime_type.startsWith("image/") ? "An image" : "A file");
  if (!digest) return /^https?:\/\//.test(url) && html`<p class="file"><a href=${url} target="_blank" rel="noreferrer noopener">${url}</a></p>`;
  const address = addressOf(thread, digest);
  if (IMAGES.has(mime_type)) return html`<a class="file" href=${address} target="_blank"><img src=${address} alt=${title} /></a>`;
  return html`<p class="file"><a href=${address} download=${name || true}>${title}</a> <span class="hint">${mime_type}</span></p>`;
}

/** The files of a message's node. */
export const Files = ({ node }) =>
  node.content.filter(({ type }) => type === "file").map((each, key) => html`<${File} key=${key} ...${each} />`);

/** An attached file: its name, type and bytes, as a data URL. */
export const read = (file, name = file.name) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name, type: file.type, url: reader.result });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

/** The files of a node, attached to another version of it; those at other addresses stay there. */
export async function readAgain(thread, node) {
  const blocks = node.content.filter(({ type }) => type === "file");
  return Promise.all(
    blocks.map(async ({ digest, url, name, mime_type }) => {
      if (!digest) return { name: name ?? url, type: mime_type, url };
      return read(await (await fetch(addressOf(thread, digest))).blob(), name);
    }),
  );
}

const KINDS = new Set(["image", "audio", "video"]);

/** A file as a part of an AG-UI message. */
export function part({ name, type, url }) {
  const kind = type.split("/")[0];
  const [, data] = url.match(/^data:[^,]*,(.*)$/s) ?? [];
  const mimeType = type || "application/octet-stream";
  const source = data === undefined ? { type: "url", value: url, mimeType } : { type: "data", value: data, mimeType };
  return { type: KINDS.has(kind) ? kind : "document", source, metadata: { filename: name } };
}

/** The files of the next message, each with a button that removes it. */
export const Attached = ({ files, onRemove }) => html`<ul class="attached" aria-label="Attached files">
  ${files.map(
    (file) => html`<li key=${file}>
      ${IMAGES.has(file.type) && file.url.startsWith("data:") ? html`<img src=${file.url} alt="" />` : null}
      <span>${file.name || "A file"}</span>
      <button type="button" class="quiet" aria-label=${`Remove ${file.name || "the file"}`} onClick=${() => onRemove(file)}>×</button>
    </li>`,
  )}
</ul>`;
