// Tokens and costs as text: of one node, and of all nodes of a conversation.
import { html } from "./vendor.mjs";
import { count, price, short } from "./formats.mjs";

/** The sum over nodes: {input, output, cost}; the cost is unknown unless a node has one. */
export function total(nodes) {
  const sum = { input: 0, output: 0, cost: null };
  for (const { usage, cost } of nodes) {
    sum.input += usage?.input_tokens ?? 0;
    sum.output += usage?.output_tokens ?? 0;
    if (typeof cost === "number") sum.cost = (sum.cost ?? 0) + cost;
  }
  return sum;
}

const costs = (cost) => (typeof cost === "number" ? ` · cost ${price(cost)}` : "");

/** The usage of one node; nothing if it is unknown. */
export function NodeUsage({ node }) {
  const { usage, cost, model } = node;
  if (!usage && typeof cost !== "number") return null;
  const read = usage?.cache_read_tokens ? `, ${count(usage.cache_read_tokens)} of them from the prompt cache` : "";
  const title = usage && `${count(usage.input_tokens)} input tokens${read}, ${count(usage.output_tokens)} output tokens${model ? ` by ${model}` : ""}`;
  return html`<span class="usage" title=${title}>
    ${usage && `${count(usage.input_tokens)} + ${count(usage.output_tokens)} tokens`}${costs(cost)}
  </span>`;
}

/** The total usage of a conversation. */
export function TotalUsage({ nodes }) {
  const { input, output, cost } = total(nodes);
  if (!input && !output && cost === null) return null;
  const title = `In all branches: ${count(input)} input tokens, ${count(output)} output tokens`;
  return html`<span class="usage" title=${title}>${short(input + output)} tokens${costs(cost)}</span>`;
}
