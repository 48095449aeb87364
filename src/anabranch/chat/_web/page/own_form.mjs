// A question that its tool shows with a module of the tool's author, which draws it and returns the
// answer. The module receives only the data that its plugin exposes.
//
//   export default async function show(element, question, signal)   draws into the element, and returns
//                          {action: "accept", content: {…}}, {action: "decline"} or {action: "cancel"}
//   export const form = true                                        leaves the form below it
//
// `question` is {message, schema, params, handoff, context, errors, draft}. When the server refuses an
// answer, the page calls the module again with the errors and the refused answer. The page aborts
// `signal` when the question is gone.
import { html, useEffect, useRef } from "./vendor.mjs";

const ACTIONS = ["accept", "decline", "cancel"];

/**
 * @param refused {errors, draft} of the last answer; a new object calls the module again
 * @param onSend takes the action and the content
 * @param onForm receives whether the module wants the form as well
 */
export function OwnForm({ question, refused, onSend, onForm }) {
  const place = useRef(null);
  useEffect(() => {
    const gone = new AbortController();
    const show = async () => {
      const module = await import(new URL(question.module, document.baseURI));
      if (gone.signal.aborted) return;
      onForm(module.form === true);
      const element = document.createElement("div");
      place.current.replaceChildren(element);
      const answer = await module.default(element, asked(question, refused), gone.signal);
      if (gone.signal.aborted) return;
      if (!ACTIONS.includes(answer?.action)) throw new TypeError("The module returned no answer.");
      onSend(answer.action, answer.action === "accept" ? answer.content : undefined);
    };
    show().catch((error) => {
      if (gone.signal.aborted) return;
      console.error(`The module for ${question.id.tool_name} failed.`, error);
      place.current.replaceChildren();
      onForm(true);
    });
    return () => gone.abort();
  }, [question.interrupt_id, refused]);
  return html`<div class="own" ref=${place}></div>`;
}

const asked = ({ message, schema, params, handoff, context }, refused) =>
  structuredClone({ message, schema, params, handoff, context, ...refused });
