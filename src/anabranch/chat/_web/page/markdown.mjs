// Markdown as elements. Text becomes text nodes only: the page never parses HTML of a model, a tool or
// a server, and makes links only to the web and to mail addresses.
import { html, useErrorBoundary, useMemo, useState } from "./vendor.mjs";
import { pieces, tokens } from "./tokens.mjs";

const SAFE = /^(https?:|mailto:)/i;
const SHOWN = 200_000; // characters of plain text

/** A text; if it cannot be drawn, the page shows its source, and its neighbours stay intact. */
export function Markdown({ text }) {
  const [error] = useErrorBoundary((thrown) => console.error("Cannot draw a text; the page shows its source.", thrown));
  const found = error ? [{ type: "plain", text }] : pieces(text);
  return html`<div class="markdown">${found.map((each, at) => html`<${Piece} key=${at} ...${each} />`)}</div>`;
}

/** One piece, drawn once: a growing text adds more pieces. */
const Piece = ({ type, text }) => useMemo(() => blocks(tokens({ type, text })), [type, text]);

function Plain({ text }) {
  const left = text.length - SHOWN;
  return html`<p class="plain">${text.slice(0, SHOWN)}</p>
    ${left > 0 && html`<p class="hint">The page leaves out ${left} more characters.</p>`}`;
}

const blocks = (tokens) => tokens.map((token, key) => html`<${Block} key=${key} token=${token} />`);

function Block({ token }) {
  switch (token.type) {
    case "heading": {
      const tag = `h${Math.min(token.depth + 2, 6)}`;
      return html`<${tag}>${inline(token.tokens)}<//>`;
    }
    case "paragraph":
      return html`<p>${inline(token.tokens)}</p>`;
    case "text":
      return html`<span>${token.tokens ? inline(token.tokens) : token.text}</span>`;
    case "code":
      return html`<${Code} text=${token.text} language=${token.lang} />`;
    case "blockquote":
      return html`<blockquote dir="auto">${blocks(token.tokens)}</blockquote>`;
    case "list": {
      const items = token.items.map((item, key) => html`<li key=${key}>${blocks(item.tokens)}</li>`);
      return token.ordered
        ? html`<ol dir="auto" start=${token.start || 1}>${items}</ol>`
        : html`<ul dir="auto">${items}</ul>`;
    }
    case "table":
      return html`<${Table} token=${token} />`;
    case "plain":
      return html`<${Plain} text=${token.text} />`;
    case "hr":
      return html`<hr />`;
    case "space":
    case "def":
      return null;
    default:
      return html`<p>${token.raw}</p>`;
  }
}

function Table({ token }) {
  const head = token.header.map((cell, key) => html`<th key=${key}>${inline(cell.tokens)}</th>`);
  const rows = token.rows.map(
    (row, key) =>
      html`<tr key=${key}>${row.map((cell, at) => html`<td key=${at}>${inline(cell.tokens)}</td>`)}</tr>`,
  );
  return html`<div class="wide" tabindex="0" role="region" aria-label="Table">
    <table dir="auto"><thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table>
  </div>`;
}

const inline = (tokens = []) => tokens.map((token, key) => html`<${Inline} key=${key} token=${token} />`);

function Inline({ token }) {
  switch (token.type) {
    case "strong":
      return html`<strong>${inline(token.tokens)}</strong>`;
    case "em":
      return html`<em>${inline(token.tokens)}</em>`;
    case "del":
      return html`<del>${inline(token.tokens)}</del>`;
    case "codespan":
      return html`<code dir="ltr">${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return SAFE.test(token.href)
        ? html`<a href=${token.href} target="_blank" rel="noopener noreferrer nofollow">${inline(token.tokens)}</a>`
        : html`<span>${token.raw}</span>`;
    case "text":
      return html`<span>${token.tokens ? inline(token.tokens) : token.text}</span>`;
    case "escape":
      return token.text;
    default:
      return token.raw;
  }
}

function Code({ text, language }) {
  return html`<div class="code" dir="ltr">
    <div class="code-head">
      <span>${(language ?? "").slice(0, 40)}</span>
      <${Copy} text=${text} />
    </div>
    <pre tabindex="0"><code>${text}</code></pre>
  </div>`;
}

/** A button that puts text on the clipboard. */
function Copy({ text }) {
  const [copied, setCopied] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied("Copied");
    } catch {
      setCopied("The browser refused"); // by the browser without TLS, or by the user
    }
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${copied || "Copy"}</button>`;
}
