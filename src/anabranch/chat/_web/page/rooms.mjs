// The rooms of the page. Each has a name, which is `?room=NAME` in the address (the first room needs
// none), a title for the links between rooms, and a component that fills the page. The component
// is given {address, go, links}: the parameters of the address, what changes them, and the links.
import { Calls } from "./calls.mjs";
import { Chat } from "./chat.mjs";
import { Memories } from "./memory.mjs";

// The chat is always there; `/rooms` names the others that this application has.
export const rooms = [
  { name: "chat", title: "Chat", Room: Chat },
  { name: "calls", title: "Calls", Room: Calls },
  { name: "memory", title: "Memory", Room: Memories },
];
