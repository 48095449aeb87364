// The form for a question: a flat JSON Schema as labelled fields, and what was entered as an answer.
import { html, useMemo, useState } from "./vendor.mjs";
import { Markdown } from "./markdown.mjs";

const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** What a field offers to choose from, as [value, title]; null where it is typed. */
function choices(schema) {
  if (schema.oneOf ?? schema.anyOf) {
    return (schema.oneOf ?? schema.anyOf).map((each) => [each.const, each.title ?? each.const]);
  }
  if (!schema.enum) return null;
  return schema.enum.map((value, at) => [value, schema.enumNames?.[at] ?? value]);
}

function initial(name, schema) {
  if (schema.type === "boolean") return schema.default ?? false;
  if (schema.type === "array") return schema.default ?? [];
  return schema.default === undefined ? "" : String(schema.default);
}

/** What was entered, as the answer has it: an empty field that may be left out is left out. */
function content(properties, values, required) {
  const answer = {};
  for (const [name, schema] of Object.entries(properties)) {
    const value = values[name];
    if (schema.type === "boolean" || schema.type === "array") answer[name] = value;
    else if (value === "" && !(schema.type === "string" && required.includes(name))) continue;
    else if (schema.type === "integer" || schema.type === "number") answer[name] = Number(value);
    else if (schema.format === "date-time") answer[name] = new Date(value).toISOString();
    else answer[name] = value;
  }
  return answer;
}

/**
 * @param question as /pending has it
 * @param onAnswer takes {action, content}; its promise is rejected with a Refused
 */
export function Question({ question, onAnswer }) {
  const schema = question.schema ?? { properties: {} };
  const properties = schema.properties ?? {};
  const required = schema.required ?? [];
  const start = useMemo(
    () => Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, initial(name, each)])),
    [question.interrupt_id],
  );
  const [values, setValues] = useState(start);
  const [errors, setErrors] = useState({});
  const [problem, setProblem] = useState("");
  const [sending, setSending] = useState(false);

  const send = async (action) => {
    setSending(true);
    setProblem("");
    setErrors({});
    try {
      const given = action === "accept" && question.schema ? content(properties, values, required) : undefined;
      await onAnswer({ interrupt_id: question.interrupt_id, action, content: given });
    } catch (error) {
      const found = Object.fromEntries((error.errors ?? []).map((each) => [each.field, each.message]));
      setErrors(found);
      if (!Object.keys(found).some((name) => name in properties)) setProblem(error.message);
      setSending(false);
    }
  };
  const accept = (event) => {
    event.preventDefault();
    const found = {};
    for (const field of event.target.elements) {
      if (field.name && !field.validity.valid) found[field.name] = field.validationMessage;
    }
    setErrors(found);
    const [first] = Object.keys(found);
    if (first) event.target.elements[first].focus();
    else send("accept");
  };
  const fields = Object.entries(properties).map(
    ([name, each]) => html`<${Field}
      key=${name}
      id=${`${question.interrupt_id}-${name}`}
      name=${name}
      schema=${each}
      required=${required.includes(name)}
      value=${values[name]}
      error=${errors[name]}
      onValue=${(value) => setValues((before) => ({ ...before, [name]: value }))}
    />`,
  );
  return html`<section class="question" aria-label=${question.message}>
    <p class="asks">${question.id.tool_name} asks</p>
    <${Markdown} text=${question.message} />
    ${question.url &&
    html`<p class="url">It asks you to open <a href=${/^https?:/i.test(question.url) ? question.url : undefined} target="_blank" rel="noopener noreferrer">${question.url}</a></p>`}
    <form onSubmit=${accept} novalidate>
      ${fields}
      ${problem && html`<p class="error" role="alert">${problem}</p>`}
      <div class="buttons">
        <button class="primary" disabled=${sending}>Accept</button>
        <button type="button" disabled=${sending} onClick=${() => send("decline")}>Decline</button>
        <button type="button" disabled=${sending} onClick=${() => send("cancel")}>Cancel</button>
      </div>
    </form>
  </section>`;
}

function Field({ id, name, schema, required, value, error, onValue }) {
  const title = schema.title ?? name;
  const described = [schema.description && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  const common = {
    id,
    name,
    "aria-invalid": error ? "true" : undefined,
    "aria-describedby": described || undefined,
    required: required && schema.type !== "boolean",
  };
  const label = html`<label for=${id}>${title}${required && html`<span class="required" aria-hidden="true"> *</span>`}</label>`;
  const around = html`${schema.description && html`<p class="hint" id=${`${id}-hint`}>${schema.description}</p>`}
    ${error && html`<p class="error" id=${`${id}-error`} role="alert">${error}</p>`}`;
  if (schema.type === "array") {
    return html`<fieldset class="field" aria-describedby=${described || undefined}>
      <legend>${title}</legend>
      ${choices(schema.items).map(
        ([each, shown]) => html`<label class="choice" key=${each}>
          <input
            type="checkbox"
            checked=${value.includes(each)}
            onChange=${(event) =>
              onValue(event.target.checked ? [...value, each] : value.filter((one) => one !== each))}
          />
          ${shown}
        </label>`,
      )}
      ${around}
    </fieldset>`;
  }
  if (schema.type === "boolean") {
    return html`<div class="field">
      <div class="choice">
        <input type="checkbox" ...${common} checked=${value} onChange=${(event) => onValue(event.target.checked)} />
        ${label}
      </div>
      ${around}
    </div>`;
  }
  const offered = choices(schema);
  return html`<div class="field">${label}
    ${offered
      ? html`<select ...${common} value=${value} onChange=${(event) => onValue(event.target.value)}>
          ${value === "" && html`<option value="">Choose…</option>`}
          ${offered.map(([each, shown]) => html`<option key=${each} value=${each}>${shown}</option>`)}
        </select>`
      : html`<input ...${common} ...${limits(schema)} value=${value} onInput=${(event) => onValue(event.target.value)} />`}
    ${around}
  </div>`;
}

/** How the browser helps while one types; the server decides. */
function limits(schema) {
  if (schema.type === "integer" || schema.type === "number") {
    const step = schema.type === "integer" ? 1 : "any";
    return { type: "number", min: schema.minimum, max: schema.maximum, step, inputmode: "decimal" };
  }
  return {
    type: FORMATS[schema.format] ?? "text",
    minlength: schema.minLength,
    maxlength: schema.maxLength,
    autocomplete: "off",
  };
}
