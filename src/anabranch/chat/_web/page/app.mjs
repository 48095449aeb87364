// The page: the room that the address names, and the links between the rooms.
import { html, render, useEffect, useState } from "./vendor.mjs";
import * as api from "./api.mjs";
import { rooms as known } from "./rooms.mjs";

const addressed = () => Object.fromEntries(new URL(location.href).searchParams);

function App() {
  const [address, setAddress] = useState(addressed);
  const [rooms, setRooms] = useState(known.slice(0, 1));
  const [loaded, setLoaded] = useState({ number: 0, problem: "" }); // the tools: how often, and why they could not be
  useEffect(() => {
    const back = () => setAddress(addressed());
    addEventListener("popstate", back);
    let source;
    const has = (offered) => {
      setRooms(known.filter(({ name }, at) => at === 0 || offered.includes(name)));
      if (!offered.includes("dev")) return;
      source = new EventSource("dev/events");
      source.onmessage = ({ data }) => setLoaded(JSON.parse(data));
    };
    api.get("rooms").then(has, () => {}); // the chat itself says what is wrong
    return () => {
      removeEventListener("popstate", back);
      source?.close();
    };
  }, []);
  const go = (parameters) => {
    const search = new URLSearchParams(parameters).toString();
    history.pushState(null, "", search ? `?${search}` : location.pathname);
    setAddress(addressed());
  };
  const here = rooms.find(({ name }) => name === address.room) ?? rooms[0];
  const links = rooms.length > 1 && html`<${Links} rooms=${rooms} here=${here} go=${go} />`;
  return html`<${here.Room} address=${address} go=${go} links=${links} loaded=${loaded.number} />
    ${loaded.problem && html`<div class="unloaded" role="alert"><p><b>The changed code cannot be loaded. The page still calls the earlier tools.</b></p><pre>${loaded.problem}</pre></div>`}`;
}

function Links({ rooms, here, go }) {
  const follow = (event, parameters) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // into another tab
    event.preventDefault();
    go(parameters);
  };
  return html`<nav class="rooms" aria-label="Views">
    ${rooms.map((room, at) => {
      const parameters = at ? { room: room.name } : {};
      return html`<a
        key=${room.name}
        href=${at ? `?room=${room.name}` : location.pathname}
        aria-current=${room === here ? "page" : undefined}
        onClick=${(event) => follow(event, parameters)}
      >${room.title}</a>`;
    })}
  </nav>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
