// Drafts: what was entered and not yet sent, which a reload of the page leaves as it is. They are in
// the storage of this tab, and gone with it.

const PREFIX = "anabranch:draft:";

/** The draft under a name; undefined if there is none. */
export function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name)) ?? undefined;
  } catch {
    return undefined; // no storage is allowed here
  }
}

/** Store a draft; an empty one is removed. */
export function write(name, draft) {
  try {
    if (draft) sessionStorage.setItem(PREFIX + name, JSON.stringify(draft));
    else sessionStorage.removeItem(PREFIX + name);
  } catch {
    // It is lost with a reload, and nothing else is.
  }
}
