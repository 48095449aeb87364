// The chat: one conversation, next to the other conversations and its tree, with questions of tools as forms.
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor.mjs";
import * as api from "./api.mjs";
import { Composer } from "./composer.mjs";
import { afterEvents, empty, fromTree, isCall, leafBelow, leftBy, placeOf, retriedAt, textOf, wakesAt } from "./conversation.mjs";
import { InThread, part, readAgain } from "./files.mjs";
import { Call, Question } from "./form.mjs";
import { timeOrDay } from "./formats.mjs";
import { Labels } from "./labels.mjs";
import { Messages } from "./messages.mjs";
import { Sidebar } from "./sidebar.mjs";
import { Tree } from "./tree.mjs";
import { TotalUsage } from "./usage.mjs";
import { isComposing } from "./typing.mjs";

const NEAR = 120; // pixels from the end within which the page follows new text
const MARGIN = 16;

/** A thread on the server: its state, its open questions, and a function that reads both again. */
function useThread(thread, onProblem) {
  const [state, dispatch] = useReducer((before, change) => change(before), undefined, empty);
  const [questions, setQuestions] = useState([]);
  const [connected, setConnected] = useState(true);
  const latest = useRef(0);

  const read = async () => {
    const number = ++latest.current;
    const tree = await api.tree(thread);
    const open = await api.pending(thread); // after the tree: later questions come as events
    if (number !== latest.current) return undefined; // another reading has started
    dispatch((before) => fromTree(tree, before));
    setQuestions(open);
    return tree.position;
  };
  useEffect(() => {
    dispatch(empty);
    setQuestions([]);
    setConnected(true);
    if (!thread) return undefined;
    let unfollow = () => {};
    read().then((position) => {
      if (position === undefined) return;
      unfollow = api.follow(thread, position, (events) => dispatch((before) => afterEvents(before, events)), setConnected);
    }, onProblem);
    return () => {
      latest.current += 1;
      unfollow();
    };
  }, [thread]);
  useEffect(() => {
    if (state.outdated) read().catch(onProblem);
  }, [state.outdated]);
  const answered = (id) => setQuestions((before) => before.filter((each) => each.interrupt_id !== id));
  return { state, dispatch, questions, answered, connected, read };
}

export function Chat({ address, go, links, loaded }) {
  const thread = address.thread ?? null;
  const [threads, setThreads] = useState([]);
  const [tools, setTools] = useState([]);
  const [drawer, setDrawer] = useState("");
  const [wanted, setWanted] = useState(null);
  const [labelled, setLabelled] = useState(null);
  const [problem, setProblem] = useState(null);
  const { state, dispatch, questions, answered, connected, read } = useThread(thread, setProblem);
  const asked = useMemo(() => questions.filter((each) => !isCall(each)), [questions]);
  const waiting = useMemo(() => new Set(questions.map((each) => each.interrupt_id)), [questions]);

  const list = () => api.threads().then(setThreads, setProblem);
  useEffect(() => void api.tools().then(setTools, setProblem), [loaded]);
  useEffect(() => {
    setProblem(null);
    list();
    addEventListener("focus", list);
    return () => removeEventListener("focus", list);
  }, [thread]);

  const title = threads.find(({ id }) => id === thread)?.title || thread || "New conversation";
  useEffect(() => {
    document.title = `${asked.length ? `(${asked.length}) ` : ""}${thread ? title : "anabranch"}`;
  }, [title, thread, asked.length]);

  const open = (name) => {
    setDrawer("");
    setWanted(null);
    go(name ? { thread: name } : {});
  };
  const place = (id) => dispatch((before) => ({ ...before, cursor: id }));
  const said = useRef(null);
  const retried = useRef(null);
  const acts = useMemo(
    () => ({
      go: place,
      stay: (id) => {
        place(id);
        setDrawer("");
        setWanted({});
      },
      edit: (node) => setWanted({ edit: node }),
      again: (node) => said.current(textOf(node), node).catch(() => {}),
      retry: (node) => retried.current(node),
      label: (node) => setLabelled(node.id),
    }),
    [],
  );
  const say = async (text, edited, files = []) => {
    setProblem(null);
    const content = files.length ? [...files.map(part), ...(text ? [{ type: "text", text }] : [])] : text;
    try {
      if (thread) {
        const at = edited ? edited.parent_id : state.cursor;
        place(at);
        await api.say(thread, content, at);
      } else {
        const name = `thread_${api.unique()}`;
        await api.say(name, content);
        open(name);
      }
    } catch (error) {
      setProblem(error);
      throw error;
    }
  };
  said.current = say;
  retried.current = (node) => {
    setProblem(null);
    place(retriedAt(state, node.id)); // the page shows events after that node as they come
    api.retry(thread, node.id).catch(setProblem);
  };
  const stop = () => api.stop(thread).catch(setProblem);
  const onEscape = useRef(null);
  onEscape.current = (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || isComposing(event) || document.querySelector("dialog[open]")) return;
    if (drawer) setDrawer("");
    else if (state.running) stop();
  };
  useEffect(() => {
    const listener = (event) => onEscape.current(event);
    document.addEventListener("keydown", listener);
    return () => document.removeEventListener("keydown", listener);
  }, []);
  const answer = async (body) => {
    await api.answer(thread, body);
    answered(body.interrupt_id);
  };
  const relabel = (work) => work.then(read);
  const atLeaf = state.cursor === null || leafBelow(state, state.cursor) === state.cursor;
  const announced = !connected ? "Reconnecting…" : state.running ? working(wakesAt(state)) : asked.length ? `${asked[0].id.tool_name} asks` : "";
  const failure = problem?.message ?? state.error;
  const nodes = useMemo(() => [...state.nodes.values()], [state.nodes]);
  const leaves = useMemo(() => [...new Set(leftBy(state, questions).map(({ id }) => id.tool_name))], [state.nodes, state.head, questions]);
  return html`<div class=${`page ${drawer}`}>
    <${Sidebar} threads=${threads} current=${thread} onOpen=${open} links=${links} />
    <div class="backdrop" onClick=${() => setDrawer("")}></div>
    <main>
      <header class="bar">
        <button type="button" class="toggle for-threads" aria-expanded=${drawer === "threads-open"} aria-label="Conversations" onClick=${() => setDrawer("threads-open")}>☰</button>
        <h1>${title}</h1>
        <span class="status" role="status">${announced}</span>
        <${TotalUsage} nodes=${nodes} />
        ${thread && html`<button type="button" class="toggle for-tree" aria-expanded=${drawer === "tree-open"} onClick=${() => setDrawer("tree-open")}>Tree</button>`}
      </header>
      <${Scrolled} key=${thread} asked=${asked[0]?.interrupt_id} follow=${[state.cursor, state.live, state.tools, questions.length, state.loaded, failure]}>
        ${!thread
          ? html`<${Welcome} tools=${tools} onCall=${say} />`
          : state.loaded
            ? html`<${InThread.Provider} value=${thread}><${Messages} state=${state} open=${waiting} acts=${acts} /><//>`
            : !failure && html`<${Skeleton} />`}
        ${asked.map(
          (each, at) => html`<${Question}
            key=${each.interrupt_id}
            question=${each}
            place=${placeOf(state, each)}
            takesFocus=${at === 0}
            onAnswer=${answer}
          />`,
        )}
        ${failure && html`<p class="failure error" role="alert">${failure}</p>`}
      <//>
      <${Composer}
        key=${thread}
        name=${thread ?? "new"}
        wanted=${wanted}
        leaves=${leaves}
        running=${state.running}
        asleep=${wakesAt(state) > 0}
        atLeaf=${atLeaf}
        onSend=${say}
        filesOf=${(node) => readAgain(thread, node)}
        onProblem=${setProblem}
        onStop=${stop}
        onLatest=${() => place(leafBelow(state, state.cursor))}
      />
    </main>
    ${thread &&
    html`<aside class="side tree-side" aria-label="Tree">
      <h2>Tree</h2>
      <${Tree} state=${state} open=${waiting} acts=${acts} />
    </aside>`}
    ${labelled &&
    html`<${Labels}
      names=${state.labels.get(labelled) ?? []}
      onSet=${(name) => relabel(api.label(thread, labelled, name))}
      onRemove=${(name) => relabel(api.unlabel(thread, name))}
      onClose=${() => setLabelled(null)}
    />`}
  </div>`;
}

/**
 * A scrolling element. It follows its end, or the first open question, while the reader is near it, and
 * moves to a question when the question opens.
 */
function Scrolled({ asked, follow, children }) {
  const box = useRef(null);
  const [away, setAway] = useState(false);
  const newest = () => {
    const { scrollHeight, clientHeight } = box.current;
    const question = box.current.querySelector("section.question");
    return Math.min(question ? question.offsetTop - MARGIN : Infinity, scrollHeight - clientHeight);
  };
  const toNewest = () => box.current.scrollTo({ top: newest() });
  const onScroll = () => box.current && setAway(box.current.scrollTop < newest() - NEAR);
  useLayoutEffect(() => {
    if (!away) toNewest();
  }, follow);
  useLayoutEffect(() => {
    if (asked) toNewest();
  }, [asked]);
  return html`<div class="scrolled" ref=${box} onScroll=${onScroll} tabindex="-1">
    <div class="column">${children}</div>
    ${away && html`<button type="button" class="latest" onClick=${toNewest}>↓ Latest</button>`}
  </div>`;
}

const working = (wakes) => (wakes ? `Waits until ${timeOrDay(wakes)}` : "Working…");

const Skeleton = () => html`<div class="skeleton" role="status" aria-label="Loading"><i></i><i></i><i></i></div>`;

function Welcome({ tools, onCall }) {
  const [chosen, setChosen] = useState("");
  return html`<section class="welcome" aria-label="Welcome">
    <h2>What shall we do?</h2>
    <p>Send the model a message, or call a tool yourself.</p>
    <ul>
      ${tools.map(
        (tool) => html`<li key=${tool.name}>
          <button type="button" aria-expanded=${chosen === tool.name} onClick=${() => setChosen(chosen === tool.name ? "" : tool.name)}>
            <code>/${tool.name}</code><span>${(tool.description ?? "").split("\n")[0]}</span>
          </button>
          ${chosen === tool.name && html`<${Call} ...${tool} onCall=${onCall} />`}
        </li>`,
      )}
    </ul>
  </section>`;
}
