// Markdown as tokens, at a cost that grows only with the length of the text. Texts of models and tools
// are hostile: the lexer takes quadratic time over some, and recurses as deep as quotes and lists nest.
// So this module gives the lexer pieces of a bounded length, and stops at a bounded depth.
import { Lexer, Tokenizer, defaults } from "./vendor.mjs";

export const PIECE = 8_000; // characters that the lexer reads at a time
export const MOST = 64_000; // characters that are read as Markdown; the rest is plain text
export const DEEPEST = 12; // nested quotes, lists and emphases; deeper ones are plain text

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const CLOSED = /^ {0,3}(`{3,}|~{3,})\s*$/;
const PARAGRAPH = /^(?![-*+]\s|\d+[.)]\s)\S/; // it belongs to no list that is above it

const CJK = "[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Hang}]";
const BEFORE_CJK = new RegExp(`(?![*_~\`])[\\p{P}\\p{S}](?=(?:\\*+|~~)${CJK})`, "gu");
const IS_CJK = new RegExp(`${CJK}$`, "u");

/**
 * Reads emphasis and struck text in Chinese, Japanese and Korean, which have no spaces around it: CommonMark takes the
 * stars of `**注意：**请` for text, since punctuation is inside them and a letter outside
 * (commonmark-spec#650).
 */
class CjkTokenizer extends Tokenizer {
  masked = "";
  eased = "";

  emStrong(text, masked, before = "") {
    return super.emStrong(text, this.ease(masked), text[0] === "*" && IS_CJK.test(before) ? "" : before);
  }

  del(text, masked, before = "") {
    return super.del(text, this.ease(masked), text.startsWith("~~") && IS_CJK.test(before) ? "" : before);
  }

  /** The masked text with letters in place of the punctuation before marks that a letter follows. */
  ease(masked) {
    if (masked !== this.masked) {
      this.masked = masked;
      this.eased = masked.replace(BEFORE_CJK, (mark) => "a".repeat(mark.length));
    }
    return this.eased;
  }
}

class BoundedLexer extends Lexer {
  depth = 0;

  blockTokens(text, tokens = [], ...rest) {
    return this.deeper(text, tokens, () => super.blockTokens(text, tokens, ...rest));
  }

  inlineTokens(text, tokens = []) {
    return this.deeper(text, tokens, () => super.inlineTokens(text, tokens));
  }

  deeper(text, tokens, read) {
    if (this.depth === DEEPEST) {
      tokens.push({ type: "text", raw: text, text });
      return tokens;
    }
    this.depth += 1;
    try {
      return read();
    } finally {
      this.depth -= 1;
    }
  }
}

/** A text in pieces, each {type, text}; while a text grows, only its last piece changes. */
export function pieces(text) {
  const found = [];
  let begin = 0; // start of the piece
  let gap = 0; // start of a paragraph after an empty line
  let isEmpty = true; // whether the previous line is empty
  let fence = null; // the open code block: {mark, at}
  const cut = (to, type = "markdown") => {
    if (to > begin) found.push({ type, text: text.slice(begin, to) });
    begin = gap = to;
  };
  const most = text.length > MOST ? text.lastIndexOf("\n", MOST - 1) + 1 || MOST : text.length;
  for (let at = 0, next; at < most; at = next) {
    next = text.indexOf("\n", at) + 1 || most;
    next = Math.min(next, most);
    const line = text.slice(at, next).trimEnd();
    if (fence) {
      const isClosed = CLOSED.exec(line)?.[1].startsWith(fence.mark);
      if (next - begin > PIECE) cut(fence.at);
      if (isClosed && next - begin > PIECE) cut(next, "code");
      if (isClosed) fence = null;
    } else {
      if (isEmpty && PARAGRAPH.test(line)) gap = at;
      const mark = FENCE.exec(line)?.[1];
      if (mark) fence = { mark, at };
      else while (next - begin > PIECE) cut(gap > begin ? gap : at > begin ? at : begin + PIECE);
    }
    isEmpty = !line;
  }
  if (fence && most - begin > PIECE) {
    cut(fence.at);
    cut(most, "code");
  }
  cut(most);
  cut(text.length, "plain");
  return found;
}

/** The tokens of a piece, or its text if the lexer fails. */
export function tokens({ type, text }) {
  if (type === "code") return [codeBlock(text)];
  if (type === "markdown") {
    try {
      return new BoundedLexer({ ...defaults, tokenizer: new CjkTokenizer() }).lex(text);
    } catch (error) {
      console.error("Cannot read the Markdown of a text; the page shows its source.", error);
    }
  }
  return [{ type: "plain", text }];
}

function codeBlock(text) {
  const [first, ...lines] = text.trimEnd().split("\n");
  const mark = FENCE.exec(first)[1];
  if (CLOSED.exec(lines.at(-1) ?? "")?.[1].startsWith(mark)) lines.pop();
  return { type: "code", lang: first.trim().slice(mark.length).trim(), text: lines.join("\n") };
}
