// The name of the project, with its icon.
import { html } from "./vendor.mjs";

const ICON = new URL("./icon.svg", import.meta.url).href;

export const Brand = () => html`<p class="brand"><img src=${ICON} alt="" width="22" height="22" />anabranch</p>`;
