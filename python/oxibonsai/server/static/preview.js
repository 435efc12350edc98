// Previews of HTML, SVG and Mermaid's diagrams that a model wrote: in a frame of an origin of its own,
// from which nothing leads to the page, its storage or the network (see PREVIEW_POLICY in page.py).

import { element } from "./dom.js";
import { t } from "./words.js";

// What makes the document to show out of a block of code, by its language.
const asItIs = async (text) => text;
const DOCUMENTS = { html: asItIs, svg: asItIs, xml: asItIs, mermaid: diagram };

// The button that shows and hides the preview of a block of code; null where there is none of it.
export function previewButton(text, language, block) {
  const kind = language.toLowerCase();
  const isSvg = /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/i.test(text);
  if (!Object.hasOwn(DOCUMENTS, kind) || (["svg", "xml"].includes(kind) && !isSvg)) return null;
  const button = element("button", { type: "button", class: "quiet", "aria-expanded": "false" }, t`Preview`);
  let frame = null;
  button.addEventListener("click", () => {
    if (frame) {
      frame.remove();
      frame = null;
    } else {
      frame = framed(DOCUMENTS[kind](text));
      block.append(frame);
    }
    button.setAttribute("aria-expanded", String(Boolean(frame)));
  });
  return button;
}

// A document that draws a diagram by Mermaid, whose script the frame can't load itself.
async function diagram(text) {
  const answer = await fetch("ui/vendor/mermaid.min.js");
  if (!answer.ok) throw new Error(answer.statusText);
  const quoted = (value) => JSON.stringify(value).replaceAll("<", "\\u003c");
  return `<!doctype html><meta charset="utf-8"><style>body { font: 1rem sans-serif }</style><div id="drawn"></div>
<script>${await answer.text()}</script>
<script>
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });
  mermaid.render("diagram", ${quoted(text)}).then(
    ({ svg }) => { drawn.append(document.createRange().createContextualFragment(svg)); },
    (error) => { drawn.textContent = ${quoted(t`This is no diagram that Mermaid can draw:`)} + " " + error.message; },
  );
</script>`;
}

// A frame that shows the document that is promised.
function framed(text) {
  const attributes = { class: "preview", title: t`Preview`, sandbox: "allow-scripts", referrerpolicy: "no-referrer" };
  const frame = element("iframe", attributes);
  // Its origin is its own, so no other address can be named; the frame can't lead elsewhere either.
  const send = (shown) => frame.contentWindow?.postMessage(shown, "*");
  frame.addEventListener("load", () => text.then(send, (error) => send(error.message)), { once: true });
  frame.src = "ui/preview/frame.html";
  return frame;
}
