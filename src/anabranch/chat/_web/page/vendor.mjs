// The page's imports from other projects, in one place. vendor/VENDORED.json names each file's source.
import { createContext, h, render, Fragment } from "./vendor/preact.mjs";
import { useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { Lexer, Tokenizer, defaults } from "./vendor/marked.mjs";

export const html = htm.bind(h);
export { Fragment, Lexer, Tokenizer, createContext, defaults, h, render, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState };
