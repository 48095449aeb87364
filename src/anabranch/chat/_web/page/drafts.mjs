// Drafts: entered but unsent text, which survives a reload of the page. The storage of this tab holds
// the drafts, and ends with the tab.

const PREFIX = "anabranch:draft:";

/** The draft under a name; undefined if there is none. */
export function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name)) ?? undefined;
  } catch {
    return undefined; // the browser allows no storage here
  }
}

/** Store a draft, or remove an empty one. */
export function write(name, draft) {
  try {
    if (draft) sessionStorage.setItem(PREFIX + name, JSON.stringify(draft));
    else sessionStorage.removeItem(PREFIX + name);
  } catch {
    // Only this draft is lost with a reload.
  }
}
