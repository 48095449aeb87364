// What the page uses of others, in one place. vendor/VENDORED.json says where each file is from.
import { h, render, Fragment } from "./vendor/preact.mjs";
import { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { Lexer, Tokenizer, defaults } from "./vendor/marked.mjs";

export const html = htm.bind(h);
export { Fragment, Lexer, Tokenizer, defaults, h, render, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState };
