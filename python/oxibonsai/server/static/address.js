// The address of a conversation: behind the "#", which no server sees.

const MARK = "#chat=";

// The id in the page's address; "" where it has none.
export function loadedAddress() {
  return location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : "";
}

// A step back in the browser leads to the conversation before.
export function showAddress(id) {
  if (loadedAddress() === id) return;
  history.pushState(null, "", id ? MARK + id : location.pathname + location.search);
}
