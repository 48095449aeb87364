// A question of a tool with the form for its answer, and the form that calls a tool. Entered values
// survive a refusal by the server and a reload of the page.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor.mjs";
import * as drafts from "./drafts.mjs";
import { moment } from "./formats.mjs";
import { Field, content, flat, initial, problems } from "./fields.mjs";
import { Markdown } from "./markdown.mjs";
import { OwnForm } from "./own_form.mjs";
import { isComposing } from "./typing.mjs";

const AGAIN = [1000, 2000, 5000, 10_000]; // milliseconds until an unsent answer is sent again

/**
 * @param question an entry of /pending
 * @param place the names of the branches around the question, outermost first
 * @param takesFocus whether the user should answer this question now
 * @param onAnswer takes {interrupt_id, action, content}; its promise is rejected with a Refused
 */
export function Question({ question, place = [], takesFocus = false, onAnswer }) {
  const { interrupt_id: id, schema, url } = question;
  const [errors, setErrors] = useState({});
  const [problem, setProblem] = useState("");
  const [sending, setSending] = useState(false);
  const [refused, setRefused] = useState({ errors: [], draft: null });
  const [formed, setFormed] = useState(!question.module);
  const box = useRef(null);
  const later = useRef(null); // the timer of an unsent answer
  const gone = useRef(false);
  useFocus(box, takesFocus);
  useEffect(() => () => {
    gone.current = true;
    clearTimeout(later.current);
  }, []);

  const send = async (action, given, attempt = 0) => {
    clearTimeout(later.current);
    setSending(true);
    if (!attempt) setProblem("");
    setErrors({});
    try {
      await onAnswer({ interrupt_id: id, action, content: given });
      drafts.write(id, undefined);
    } catch (error) {
      if (gone.current) return; // the user left the question
      setSending(false);
      if (error.isPassing) {
        setProblem(`Your answer is not sent yet. The page will send it again. ${error.message}`);
        later.current = setTimeout(() => send(action, given, attempt + 1), AGAIN[Math.min(attempt, AGAIN.length - 1)]);
        return;
      }
      const found = Object.fromEntries((error.errors ?? []).map(({ field, message }) => [field, message]));
      setErrors(found);
      const isAtField = formed && Object.keys(found).some((name) => name in (schema?.properties ?? {}));
      setProblem(isAtField ? "" : error.message);
      setRefused({ errors: error.errors ?? [], draft: given ?? null });
    }
  };
  return html`<section class="question" aria-label=${question.message} aria-busy=${sending} tabindex="-1" ref=${box}>
    <p class="asks"><b>${question.id.tool_name}</b> asks${place.length > 0 && html`, in the branch <strong>${place.join(" › ")}</strong>`}</p>
    <${Markdown} text=${question.message} />
    ${url && html`<${Link} url=${url} />`}
    ${question.continues_at
      ? html`<p class="hint">Without an answer, the tool continues at ${moment(question.continues_at * 1000)}.</p>`
      : question.expires_at && html`<p class="hint">You can answer until ${moment(question.expires_at * 1000)}.</p>`}
    ${question.module && html`<${OwnForm} question=${question} refused=${refused} onSend=${send} onForm=${setFormed} />`}
    ${formed
      ? html`<${Form} id=${id} schema=${schema} errors=${errors} onErrors=${setErrors} sending=${sending} onSend=${send}><${Refusals} sending=${sending} onSend=${send} problem=${problem} /><//>`
      : html`<div class="buttons">
          <${Refusals} sending=${sending} onSend=${send} problem=${problem} />
          <button type="button" class="quiet" onClick=${() => setFormed(true)}>Answer by form</button>
        </div>`}
  </section>`;
}

/**
 * Focus a question when its turn comes, unless the user is typing. The focus goes to the first required
 * field, or else to the question itself, so that no key meant for another element accepts anything.
 */
function useFocus(box, takesFocus) {
  useLayoutEffect(() => {
    const { activeElement } = document;
    if (!takesFocus || activeElement?.value || activeElement?.closest("dialog")) return;
    const hasKeys = matchMedia("(pointer: fine)").matches; // a touch screen would open its keyboard
    const field = hasKeys && box.current.querySelector("input:invalid, select:invalid, textarea:invalid");
    (field || box.current).focus({ preventScroll: true });
  }, [takesFocus]);
}

function Link({ url }) {
  const safe = /^https?:/i.test(url);
  return html`<p class="url">The tool asks you to open ${safe ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${url}</a>` : html`<code>${url}</code>`}</p>`;
}

/** A form that calls a tool: its parameters, and their faults. */
export function Call({ name, input_schema, onCall }) {
  const [errors, setErrors] = useState({});
  const [schema, read] = useMemo(() => flat(input_schema), [input_schema]);
  const call = (_, given) => {
    setErrors({});
    try {
      const text = JSON.stringify(read(given ?? {}));
      onCall(text === "{}" ? `/${name}` : `/${name} ${text}`).catch(() => {}); // the chat shows the error
    } catch (error) {
      setErrors({ [error.field]: error.message });
    }
  };
  return html`<${Form} key=${JSON.stringify(schema)} id=${`call-${name}`} verb="Call" schema=${schema} errors=${errors} onErrors=${setErrors} onSend=${call} />`;
}

function Form({ id, schema, verb = "Accept", errors, onErrors, sending, onSend, children }) {
  const properties = schema?.properties ?? {};
  const required = schema?.required ?? [];
  const form = useRef(null);
  const start = useMemo(() => {
    const draft = drafts.read(id) ?? {};
    return Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, draft[name] ?? initial(each, required.includes(name))]));
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
    const found = problems(event.target, properties, values, required);
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
  const onKey = (event) => {
    if (event.key === "Enter" && isComposing(event)) event.preventDefault(); // it would send the form
  };
  return html`<form onSubmit=${accept} onKeyDown=${onKey} novalidate ref=${form}>
    ${fields}
    <div class="buttons">
      <button class="primary" disabled=${sending}>${verb}</button>
      ${children}
    </div>
  </form>`;
}

/** Buttons that decline or cancel, which no module can remove, and the reason of a refused answer. */
const Refusals = ({ sending, onSend, problem }) => html`
  <button type="button" disabled=${sending} onClick=${() => onSend("decline")}>Decline</button>
  <button type="button" disabled=${sending} onClick=${() => onSend("cancel")}>Cancel</button>
  ${problem && html`<p class="error" role="alert">${problem}</p>`}
`;
