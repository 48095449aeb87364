// The page: one conversation, its tree beside it, the questions of tools as forms below it.
import { html, render, useEffect, useReducer, useRef, useState } from "./vendor.mjs";
import * as api from "./api.mjs";
import { afterEvent, empty, fromTree, leafBelow, textOf } from "./conversation.mjs";
import { Messages } from "./messages.mjs";
import { Question } from "./form.mjs";
import { Tree } from "./tree.mjs";

const threadInAddress = () => new URL(location.href).searchParams.get("thread");

function App() {
  const [thread, setThread] = useState(threadInAddress());
  const [state, dispatch] = useReducer((before, change) => change(before), undefined, empty);
  const [questions, setQuestions] = useState([]);
  const [connected, setConnected] = useState(true);
  const [listed, setListed] = useState([]);
  const [tools, setTools] = useState([]);
  const [sideOpen, setSideOpen] = useState(false);
  const [draft, setDraft] = useState("");
  const [parent, setParent] = useState(null);
  const [problem, setProblem] = useState("");
  const box = useRef(null);
  const end = useRef(null);

  const failed = (error) => setProblem(error.message);
  const read = async (name) => {
    const [tree, open] = await Promise.all([api.tree(name), api.pending(name)]);
    dispatch((before) => fromTree(tree, before));
    setQuestions(open);
    return tree.position;
  };

  useEffect(() => {
    api.threads().then(setListed, failed);
  }, [thread]);
  useEffect(() => {
    api.tools().then(setTools, failed);
    const back = () => setThread(threadInAddress());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  useEffect(() => {
    dispatch(empty);
    setQuestions([]);
    setProblem("");
    if (!thread) return undefined;
    let unfollow = () => {};
    let left = false;
    read(thread).then((position) => {
      if (!left) unfollow = api.follow(thread, position, (event) => dispatch((before) => afterEvent(before, event)), setConnected);
    }, failed);
    return () => {
      left = true;
      unfollow();
    };
  }, [thread]);
  useEffect(() => {
    if (state.outdated && thread) read(thread).catch(failed);
  }, [state.outdated]);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  }, [state.cursor, state.live, questions.length]);

  const open = (name) => {
    history.pushState(null, "", name ? `?thread=${encodeURIComponent(name)}` : "/");
    setThread(name);
    setSideOpen(false);
  };
  const send = async (event) => {
    event?.preventDefault();
    const text = draft.trim();
    if (!text) return;
    setDraft("");
    setProblem("");
    const at = parent ? parent.parent_id : state.cursor;
    setParent(null);
    try {
      if (thread) {
        if (parent) dispatch((before) => ({ ...before, cursor: parent.parent_id }));
        await api.say(thread, text, at);
      } else {
        const name = `thread_${crypto.randomUUID()}`;
        await api.say(name, text);
        open(name);
      }
    } catch (error) {
      setDraft(text);
      failed(error);
    }
  };
  const answer = async (body) => {
    await api.answer(thread, body);
    setQuestions((before) => before.filter((each) => each.interrupt_id !== body.interrupt_id));
  };
  const go = (id) => dispatch((before) => ({ ...before, cursor: id }));
  const edit = (node) => {
    setParent(node);
    setDraft(textOf(node));
    box.current?.focus();
  };
  const label = async (node) => {
    const name = prompt("Label for this node");
    if (name) await api.label(thread, node.id, name).then(() => read(thread), failed);
  };
  const onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    if (event.key === "Escape" && parent) {
      setParent(null);
      setDraft("");
    }
  };
  const tokens = [...state.nodes.values()].reduce(
    (sum, { usage }) => sum + (usage ? usage.input_tokens + usage.output_tokens : 0),
    0,
  );
  const atLeaf = state.cursor === null || leafBelow(state, state.cursor) === state.cursor;
  return html`<div class=${`page ${sideOpen ? "side-open" : ""}`}>
    <aside class="side" aria-label="Conversations">
      <button type="button" class="new" onClick=${() => open(null)}>New conversation</button>
      <ul class="threads">
        ${listed.map(
          (each) => html`<li key=${each.id}>
            <button type="button" aria-current=${each.id === thread ? "page" : undefined} onClick=${() => open(each.id)}>
              ${each.title || each.id}
            </button>
          </li>`,
        )}
      </ul>
      ${thread && html`<h2>Tree</h2><${Tree} state=${state} onGo=${go} onLabel=${label} />`}
    </aside>
    <main>
      <header class="bar">
        <button type="button" class="toggle" aria-expanded=${sideOpen} onClick=${() => setSideOpen(!sideOpen)}>Tree</button>
        <h1>anabranch</h1>
        <span class="status" role="status">
          ${!connected ? "Reconnecting…" : state.running ? "Working…" : tokens ? `${tokens.toLocaleString()} tokens` : ""}
        </span>
        ${state.running && html`<button type="button" onClick=${() => api.stop(thread).catch(failed)}>Stop</button>`}
      </header>
      ${thread ? html`<${Messages} state=${state} open=${new Set(questions.map((each) => each.interrupt_id))} onGo=${go} onEdit=${edit} />` : html`<${Welcome} tools=${tools} onTry=${setDraft} />`}
      ${questions.map((each) => html`<${Question} key=${each.interrupt_id} question=${each} onAnswer=${answer} />`)}
      ${(problem || state.error) && html`<p class="error" role="alert">${problem || state.error}</p>`}
      <div ref=${end}></div>
      <form class="composer" onSubmit=${send}>
        ${parent && html`<p class="hint">Your message will be another version of the one you edit. Escape leaves it.</p>`}
        ${!atLeaf && !parent && html`<p class="hint">You continue from here, on a branch of its own.</p>`}
        <textarea
          ref=${box}
          aria-label="Message"
          rows="2"
          placeholder="Say something, or /tool name=value"
          value=${draft}
          onInput=${(event) => setDraft(event.target.value)}
          onKeyDown=${onKey}
        ></textarea>
        <button class="primary">Send</button>
      </form>
    </main>
  </div>`;
}

function Welcome({ tools, onTry }) {
  return html`<section class="welcome" aria-label="Welcome">
    <p>Say something to the model, or call a tool yourself:</p>
    <ul>
      ${tools.map(
        (each) => html`<li key=${each.name}>
          <button type="button" class="quiet" onClick=${() => onTry(`/${each.name} `)}><code>/${each.name}</code></button>
          ${" "}${(each.description ?? "").split("\n")[0]}
        </li>`,
      )}
    </ul>
  </section>`;
}

render(html`<${App} />`, document.getElementById("app"));
