// The fields of a form, as the flat JSON Schemas of MCP describe them: their initial values, their
// display, and the entered values as an answer. The server decides whether an answer fits.
import { html } from "./vendor.mjs";

const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };
const LONG = 200;

const YES_OR_NO = [[true, "Yes"], [false, "No"]];

/** The choices of a field, as [value, title]; null for a typed field. */
function choices(schema) {
  if (schema.type === "boolean") return YES_OR_NO;
  const titled = schema.oneOf ?? schema.anyOf;
  if (titled?.every((each) => "const" in each)) return titled.map((each) => [each.const, each.title ?? each.const]);
  return schema.enum?.map((value, at) => [value, schema.enumNames?.[at] ?? value]) ?? null;
}

/** Whether a boolean is a box to tick; an optional one without a default is a choice. */
const isTicked = ({ type, default: preset }, required) => type === "boolean" && (required || typeof preset === "boolean");
/** Whether a field is a list with typed entries, one per line. */
const isTyped = ({ type, items }) => type === "array" && !choices(items ?? {})?.length;

/** The entries of a list: the chosen ones, or the typed lines. */
function entries(schema, value) {
  if (!isTyped(schema)) return value;
  const lines = value.split("\n").map((line) => line.trim()).filter(Boolean);
  return isNumber(schema.items ?? {}) ? lines.map((line) => (Number.isNaN(Number(line)) ? line : Number(line))) : lines;
}

const isNumber = ({ type }) => type === "integer" || type === "number";
const isLong = (schema) =>
  schema.maxLength >= LONG || (typeof schema.default === "string" && schema.default.includes("\n"));

/**
 * The parameters of a tool as a flat form, and a function that turns the form's content into arguments.
 * The field of a nested parameter holds JSON.
 */
export function flat({ properties = {}, required = [], $defs = {} }) {
  const shown = {};
  const nested = [];
  for (const [name, given] of Object.entries(properties)) {
    const { anyOf = [], allOf, $ref, ...rest } = given;
    const [one, more] = anyOf.filter(({ type }) => type !== "null");
    const only = { ...(anyOf.length && !more ? one : {}), ...($ref && { $ref }) };
    const plain = { ...$defs[only.$ref?.split("/").pop()], ...only, ...rest, title: given.title ?? name };
    const isFlat = !more && ((plain.type === "boolean" && !(one && required.includes(name))) || plain.type === "string" || isNumber(plain) || choices(plain.items ?? {}));
    if (!isFlat) nested.push(name);
    shown[name] = isFlat
      ? plain
      : { title: plain.title, description: [given.description, "JSON"].filter(Boolean).join(" · "), type: "string", maxLength: LONG, default: given.default && JSON.stringify(given.default) };
  }
  const read = (content) => {
    const values = { ...content };
    for (const name of nested.filter((each) => each in values)) {
      try {
        values[name] = JSON.parse(values[name]);
      } catch (error) {
        throw Object.assign(error, { field: name });
      }
    }
    return values;
  };
  return [{ properties: shown, required }, read];
}

/** The initial value of a field. */
export function initial(schema, required) {
  if (isTicked(schema, required)) return schema.default ?? false;
  if (isTyped(schema)) return (schema.default ?? []).join("\n");
  if (schema.type === "array") return schema.default ?? [];
  if (schema.default === undefined || schema.default === null) return "";
  return schema.format === "date-time" ? localTime(schema.default) : String(schema.default);
}

/** A moment in the form of the browser's field: local, without a zone. */
function localTime(text) {
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) return "";
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/**
 * The entered values as an answer, without empty optional fields. A list stays if the user emptied its
 * default.
 */
export function content(properties, values, required) {
  const answer = {};
  for (const [name, schema] of Object.entries(properties)) {
    const value = values[name];
    if (isLeftOut(schema, value, required.includes(name))) continue;
    if (schema.type === "array") answer[name] = entries(schema, value);
    else if (typeof value === "boolean") answer[name] = value;
    else if (choices(schema)) answer[name] = choices(schema).find(([each]) => String(each) === value)[0];
    else if (isNumber(schema)) answer[name] = Number(value);
    else if (schema.format === "date-time") answer[name] = new Date(value).toISOString();
    else answer[name] = value;
  }
  return answer;
}

const isLeftOut = ({ type, minItems, default: preset }, value, required) =>
  !required && !value.length && (type === "array" ? minItems > 0 || !preset?.length : value === "");

/** The faults that the browser finds in the fields of a form, by name. */
export function problems(form, properties, values, required) {
  const found = {};
  for (const field of form.elements) {
    if (field.name && !field.validity.valid) found[field.name] = field.validationMessage;
  }
  for (const [name, schema] of Object.entries(properties)) {
    const { type, minItems = 0, maxItems = Infinity } = schema;
    if (isLeftOut(schema, values[name], required.includes(name))) continue;
    const number = type === "array" ? entries(schema, values[name]).length : minItems;
    const verb = isTyped(schema) ? "Give" : "Choose";
    if (number < minItems) found[name] = `${verb} at least ${minItems}.`;
    if (number > maxItems) found[name] = `${verb} at most ${maxItems}.`;
  }
  return found;
}

/** The values that a field accepts, in words; empty if they are obvious. */
function bounds(schema) {
  const { type, minimum, maximum, minLength, maxLength, minItems, maxItems } = schema;
  const range = (from, to, what) => {
    if (from !== undefined && to !== undefined) return from === to ? `${from}${what}` : `${from} to ${to}${what}`;
    return from !== undefined ? `at least ${from}${what}` : to !== undefined ? `at most ${to}${what}` : "";
  };
  if (type === "integer" || type === "number") return range(minimum, maximum, "");
  if (isTyped(schema)) return ["one entry per line", range(minItems || undefined, maxItems, " entries")].filter(Boolean).join(" · ");
  if (type === "array") return range(minItems || undefined, maxItems, " choices");
  return range(minLength > 1 ? minLength : undefined, maxLength < LONG ? maxLength : undefined, " characters");
}

export function Field({ id, name, schema, required, value, error, onValue }) {
  const title = schema.title ?? name;
  const hint = [schema.description, bounds(schema)].filter(Boolean).join(" · ");
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  const ticked = isTicked(schema, required);
  const common = {
    id,
    name,
    "aria-invalid": error ? "true" : undefined,
    "aria-describedby": described || undefined,
    required: required && !ticked,
    dir: "auto",
  };
  const label = html`<label for=${id}>${title}</label>
    ${!required && !ticked && html`<span class="optional" aria-hidden="true">optional</span>`}`;
  const around = html`${error && html`<p class="error" id=${`${id}-error`}>${error}</p>`}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}`;
  if (schema.type === "array" && !isTyped(schema)) {
    const choose = (each, chosen) => onValue(chosen ? [...value, each] : value.filter((one) => one !== each));
    return html`<fieldset class="field" dir="auto" aria-describedby=${described || undefined}>
      <legend>${title}</legend>
      ${(choices(schema.items ?? {}) ?? []).map(
        ([each, shown], at) => html`<label class="choice" dir="auto" key=${each}>
          <input
            type="checkbox"
            id=${at ? undefined : id}
            aria-invalid=${common["aria-invalid"]}
            checked=${value.includes(each)}
            onChange=${(event) => choose(each, event.target.checked)}
          />
          <span>${shown}</span>
        </label>`,
      )}
      ${around}
    </fieldset>`;
  }
  if (ticked) {
    return html`<div class="field">
      <div class="choice" dir="auto">
        <input type="checkbox" ...${common} checked=${value} onChange=${(event) => onValue(event.target.checked)} />
        ${label}
      </div>
      ${around}
    </div>`;
  }
  const onInput = (event) => onValue(event.target.value);
  return html`<div class="field">${label}${control(schema, common, required, value, onInput)}${around}</div>`;
}

function control(schema, common, required, value, onInput) {
  const offered = choices(schema);
  if (offered) {
    return html`<select ...${common} value=${value} onChange=${onInput}>
      ${(value === "" || !required) && html`<option value="">${required ? "Choose…" : "–"}</option>`}
      ${offered.map(([each, shown]) => html`<option key=${each} value=${each}>${shown}</option>`)}
    </select>`;
  }
  if (isNumber(schema)) {
    const step = schema.type === "integer" ? 1 : "any";
    const limits = { min: schema.minimum, max: schema.maximum, step, inputmode: "decimal" };
    return html`<input type="number" ...${common} ...${limits} value=${value} onInput=${onInput} />`;
  }
  const lengths = { minlength: schema.minLength, maxlength: schema.maxLength };
  if (isLong(schema) || isTyped(schema)) return html`<textarea rows="4" ...${common} ...${lengths} value=${value} onInput=${onInput}></textarea>`;
  const type = FORMATS[schema.format] ?? "text";
  return html`<input type=${type} step=${type === "datetime-local" ? 1 : undefined} autocomplete="off" ...${common} ...${lengths} value=${value} onInput=${onInput} />`;
}
