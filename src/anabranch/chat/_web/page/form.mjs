// A question of a tool: what it asks, and the form for the answer. What was entered stays when the
// server refuses it, and when the page is loaded again.
import { html, useEffect, useMemo, useRef, useState } from "./vendor.mjs";
import * as drafts from "./drafts.mjs";
import { Field, content, initial, problems } from "./fields.mjs";
import { Markdown } from "./markdown.mjs";
import { OwnForm } from "./own_form.mjs";

/**
 * @param question as /pending has it
 * @param onAnswer takes {interrupt_id, action, content}; its promise is rejected with a Refused
 */
export function Question({ question, onAnswer }) {
  const { interrupt_id: id, schema, url } = question;
  const [errors, setErrors] = useState({});
  const [problem, setProblem] = useState("");
  const [sending, setSending] = useState(false);
  const [refused, setRefused] = useState({ errors: [], draft: null });
  const [formed, setFormed] = useState(!question.module);

  const send = async (action, given) => {
    setSending(true);
    setProblem("");
    setErrors({});
    try {
      await onAnswer({ interrupt_id: id, action, content: given });
      drafts.write(id, undefined);
    } catch (error) {
      const found = Object.fromEntries((error.errors ?? []).map(({ field, message }) => [field, message]));
      setErrors(found);
      if (!formed || !Object.keys(found).some((name) => name in (schema?.properties ?? {}))) setProblem(error.message);
      setRefused({ errors: error.errors ?? [], draft: given ?? null });
      setSending(false);
    }
  };
  return html`<section class="question" aria-label=${question.message} aria-busy=${sending}>
    <p class="asks"><b>${question.id.tool_name}</b> asks</p>
    <${Markdown} text=${question.message} />
    ${url && html`<${Link} url=${url} />`}
    ${problem && html`<p class="error" role="alert">${problem}</p>`}
    ${question.module && html`<${OwnForm} question=${question} refused=${refused} onSend=${send} onForm=${setFormed} />`}
    ${formed
      ? html`<${Form} question=${question} errors=${errors} onErrors=${setErrors} sending=${sending} onSend=${send} />`
      : html`<div class="buttons">
          <${Refusals} sending=${sending} onSend=${send} />
          <button type="button" class="quiet" onClick=${() => setFormed(true)}>Answer by form</button>
        </div>`}
  </section>`;
}

function Link({ url }) {
  const safe = /^https?:/i.test(url);
  return html`<p class="url">It asks you to open ${safe ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${url}</a>` : html`<code>${url}</code>`}</p>`;
}

function Form({ question, errors, onErrors, sending, onSend }) {
  const { interrupt_id: id, schema } = question;
  const properties = schema?.properties ?? {};
  const required = schema?.required ?? [];
  const form = useRef(null);
  const start = useMemo(() => {
    const draft = drafts.read(id) ?? {};
    return Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, draft[name] ?? initial(each)]));
  }, [id]);
  const [values, setValues] = useState(start);

  useEffect(() => {
    const wrong = form.current.querySelector('[aria-invalid="true"]');
    wrong?.focus();
  }, [errors]);

  const enter = (name, value) => {
    const entered = { ...values, [name]: value };
    setValues(entered);
    drafts.write(id, entered);
  };
  const accept = (event) => {
    event.preventDefault();
    const found = problems(event.target, properties, values);
    if (Object.keys(found).length) onErrors(found);
    else onSend("accept", schema ? content(properties, values, required) : undefined);
  };
  const fields = Object.entries(properties).map(
    ([name, each]) => html`<${Field}
      key=${name}
      id=${`${id}-${name}`}
      name=${name}
      schema=${each}
      required=${required.includes(name)}
      value=${values[name]}
      error=${errors[name]}
      onValue=${(value) => enter(name, value)}
    />`,
  );
  return html`<form onSubmit=${accept} novalidate ref=${form}>
    ${fields}
    <div class="buttons">
      <button class="primary" disabled=${sending}>Accept</button>
      <${Refusals} sending=${sending} onSend=${onSend} />
    </div>
  </form>`;
}

/** The ways to answer without an answer, which no module takes away. */
const Refusals = ({ sending, onSend }) => html`
  <button type="button" disabled=${sending} onClick=${() => onSend("decline")}>Decline</button>
  <button type="button" disabled=${sending} onClick=${() => onSend("cancel")}>Cancel</button>
`;
