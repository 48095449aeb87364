// The question of pick_card as cards on a table: a click answers. The form stays below, for those who
// would rather type the number.
export const form = true;

const style = new CSSStyleSheet();
style.replaceSync(`
  .hand { display: flex; flex-wrap: wrap; gap: clamp(.25rem, 1.5%, .6rem); padding: .6rem .25rem 1rem; }
  .playing-card {
    display: grid; grid-template-rows: auto 1fr; width: clamp(3.3rem, 17.5%, 4.6rem); aspect-ratio: .7; padding: .3rem .45rem; border-radius: .6rem;
    background: #fff; color: #17202a; border: 1px solid #c4cbcd; box-shadow: 0 2px 6px #0003; font-weight: 700; text-align: left;
  }
  .playing-card.red { color: #b3141c; }
  .playing-card b { font-size: 1.9rem; place-self: center; }
  @media (prefers-reduced-motion: no-preference) {
    .playing-card { transition: translate .15s ease-out, rotate .15s ease-out, box-shadow .15s; }
    .playing-card:is(:hover, :focus-visible) { translate: 0 -.5rem; rotate: 0deg !important; box-shadow: 0 8px 16px #0004; }
  }
`);
document.adoptedStyleSheets.push(style);

export default function show(element, { handoff }) {
  element.className = "hand";
  return new Promise((answer) => {
    handoff.cards.forEach((card, index) => {
      const button = document.createElement("button");
      const suit = document.createElement("b");
      button.type = "button";
      button.className = /[♥♦]/.test(card) ? "playing-card red" : "playing-card";
      button.ariaLabel = `Pick ${card}`;
      button.style.rotate = `${(index - (handoff.cards.length - 1) / 2) * 2.5}deg`;
      suit.textContent = card.slice(-1);
      button.append(card, suit);
      button.onclick = () => answer({ action: "accept", content: { cardNumber: index + 1 } });
      element.append(button);
    });
  });
}
