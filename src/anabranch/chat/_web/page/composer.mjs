// The box for the next message, and its effect: a new message, another version of one, or a branch from
// an earlier place.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor.mjs";
import * as drafts from "./drafts.mjs";
import { textOf } from "./conversation.mjs";
import { Attached, read } from "./files.mjs";
import { isComposing } from "./typing.mjs";

const TALLEST = 240;

/**
 * @param name of the draft, which survives a reload
 * @param leaves the names of the tools whose open questions a message leaves unanswered
 * @param asleep whether the run waits for a time, so that a message can be stored until the run has ended
 * @param wanted {text} to put into the box, or {edit: node}; a new object each time
 * @param onSend takes the text, the node that it replaces, and files; its promise is rejected on failure
 * @param filesOf returns a promise of the files of a node that is edited
 */
export function Composer({ name, wanted, leaves, running, asleep, atLeaf, onSend, onStop, onLatest, filesOf, onProblem }) {
  const [text, setText] = useState(() => drafts.read(name) ?? "");
  const [edited, setEdited] = useState(null);
  const [files, setFiles] = useState([]);
  const box = useRef(null);
  const chooser = useRef(null);

  const attach = (given) =>
    Promise.all([...given].map((file) => read(file))).then((more) => setFiles((before) => [...before, ...more]), onProblem);
  const enter = (entered) => {
    setText(entered);
    if (!edited) drafts.write(name, entered);
  };
  useEffect(() => {
    if (!wanted) return;
    setEdited(wanted.edit ?? null);
    if (wanted.edit) {
      setText(textOf(wanted.edit));
      setFiles([]);
      filesOf(wanted.edit).then(setFiles, onProblem);
    }
    else if (wanted.text !== undefined) enter(wanted.text);
    box.current.focus();
  }, [wanted]);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) box.current.focus(); // a touch screen would open its keyboard
  }, []);
  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(box.current.scrollHeight + 2, TALLEST)}px`;
  }, [text]);

  const leave = () => {
    setEdited(null);
    setText(drafts.read(name) ?? "");
    setFiles([]);
  };
  const send = async (event) => {
    event?.preventDefault();
    const said = text.trim();
    if ((!said && !files.length) || (running && !asleep)) return;
    setText("");
    setFiles([]);
    setEdited(null);
    drafts.write(name, undefined);
    try {
      await onSend(said, edited, files);
    } catch {
      enter(said);
      setFiles(files);
      setEdited(edited);
    }
  };
  const onKey = (event) => {
    if (isComposing(event)) return;
    if (event.key === "Enter" && !event.shiftKey) send(event);
    if (event.key !== "Escape" || !edited) return;
    event.preventDefault();
    leave();
  };
  const onPaste = (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const onDrop = (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    attach(event.dataTransfer.files);
  };
  const onChosen = (event) => {
    attach(event.target.files);
    event.target.value = ""; // lets the user choose the same file again
  };
  return html`<form class="composer" onSubmit=${send} onDragOver=${(event) => event.preventDefault()} onDrop=${onDrop}>
    ${edited
      ? html`<p class="place">Your message becomes a new version of the edited message. <button type="button" class="quiet" onClick=${leave}>Stop editing</button></p>`
      : !atLeaf && html`<p class="place">You continue from here, on a new branch. <button type="button" class="quiet" onClick=${onLatest}>Back to the latest</button></p>`}
    ${leaves.length > 0 && html`<p class="place leaves" id="leaves">Sending a message skips the ${leaves.length > 1 ? "questions" : "question"} of <b>${leaves.join(", ")}</b>. The ${leaves.length > 1 ? "tools continue" : "tool continues"} without an answer.</p>`}
    ${asleep && html`<p class="place">A tool waits until a set time. The model reads your message after the tool has ended.</p>`}
    ${files.length > 0 && html`<${Attached} files=${files} onRemove=${(file) => setFiles(files.filter((each) => each !== file))} />`}
    <div class="box">
      <input ref=${chooser} type="file" multiple hidden aria-label="Files" onChange=${onChosen} />
      <button type="button" class="quiet" aria-label="Attach files" title="Attach files" onClick=${() => chooser.current.click()}>+</button>
      <textarea
        ref=${box}
        aria-label="Message"
        rows="1"
        dir="auto"
        placeholder=${leaves.length ? "Or send another message" : "Message, or / and the name of a tool"}
        aria-describedby=${leaves.length ? "leaves" : undefined}
        value=${text}
        onInput=${(event) => enter(event.target.value)}
        onKeyDown=${onKey}
        onPaste=${onPaste}
      ></textarea>
      ${running && html`<button type="button" class="stop" onClick=${onStop}>Stop</button>`}
      <button class=${leaves.length ? "" : "primary"} disabled=${running && !asleep}>Send</button>
    </div>
  </form>`;
}
