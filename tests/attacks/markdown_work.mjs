// Reads Markdown as the page does, and writes what that took. The texts come as JSON on standard input:
// [{pattern: [before, repeated, after], sizes: […]}]. For each size: the characters that regular expressions were
// given, the pieces, how deep the tokens are nested, and whether each character of the text is in them.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { DEEPEST, MOST, PIECE, pieces, tokens } = await import(pathToFileURL(process.argv[2]));

let steps = 0;
const { exec } = RegExp.prototype;
RegExp.prototype.exec = function counted(text) {
  steps += 1 + String(text).length;
  return exec.call(this, text);
};
const failures = [];
console.error = (...said) => failures.push(said.join(" "));

function* inside(each) {
  yield each.tokens ?? [];
  for (const item of each.items ?? []) yield item.tokens;
  for (const cell of [...(each.header ?? []), ...(each.rows ?? []).flat()]) yield cell.tokens;
}

const deepest = (all) => Math.max(0, ...all.map((each) => 1 + Math.max(0, ...[...inside(each)].map(deepest))));

function read(text) {
  steps = 0;
  const found = pieces(text);
  const drawn = found.map(tokens);
  return {
    steps,
    failures: failures.splice(0).map((each) => each.slice(0, 200)),
    longest: Math.max(0, ...found.filter(({ type }) => type === "markdown").map((each) => each.text.length)),
    deepest: Math.max(...drawn.map(deepest)),
    whole: found.map((each) => each.text).join("") === text,
    markdown: found.filter(({ type }) => type !== "plain").reduce((sum, each) => sum + each.text.length, 0),
  };
}

const asked = JSON.parse(readFileSync(0, "utf8"));
const results = asked.map(({ pattern: [before, repeated, after], sizes }) =>
  sizes.map((size) => read(before + repeated.repeat(Math.ceil(size / repeated.length)).slice(0, size) + after)),
);
console.log(JSON.stringify({ DEEPEST, MOST, PIECE, results }));
