// The rooms of the page. Each has a name, which the address holds as `?room=NAME` (the first room needs
// none), a title for the links between rooms, and a component that fills the page. The component
// receives {address, go, links}: the address's parameters, a function that changes them, and the links.
import { Calls } from "./calls.mjs";
import { Chat } from "./chat.mjs";
import { Memories } from "./memory.mjs";

// The page always has the chat; `/rooms` names the other rooms of this application.
export const rooms = [
  { name: "chat", title: "Chat", Room: Chat },
  { name: "calls", title: "Calls", Room: Calls },
  { name: "memory", title: "Memory", Room: Memories },
];
