// Previews of HTML and SVG that a model wrote: in a frame of an origin of its own, from which nothing
// leads to the page, its storage or the network (see PREVIEW_POLICY in page.py).

import { element } from "./dom.js";
import { t } from "./words.js";

const KINDS = ["html", "svg", "xml"];

// The button that shows and hides the preview of a block of code; null where there is none of it.
export function previewButton(text, language, block) {
  const isSvg = /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/i.test(text);
  if (!KINDS.includes(language.toLowerCase()) || (language !== "html" && !isSvg)) return null;
  const button = element("button", { type: "button", class: "quiet", "aria-expanded": "false" }, t`Preview`);
  let frame = null;
  button.addEventListener("click", () => {
    if (frame) {
      frame.remove();
      frame = null;
    } else {
      frame = framed(text);
      block.append(frame);
    }
    button.setAttribute("aria-expanded", String(Boolean(frame)));
  });
  return button;
}

function framed(text) {
  const attributes = { class: "preview", title: t`Preview`, sandbox: "allow-scripts", referrerpolicy: "no-referrer" };
  const frame = element("iframe", attributes);
  // Its origin is its own, so no other address can be named; the frame can't lead elsewhere either.
  frame.addEventListener("load", () => frame.contentWindow.postMessage(text, "*"), { once: true });
  frame.src = "ui/preview/frame.html";
  return frame;
}
