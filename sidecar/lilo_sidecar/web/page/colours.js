// The colours of the style sheet, for canvases, and when they change.

const dark = matchMedia("(prefers-color-scheme: dark)");
let style = getComputedStyle(document.documentElement);

/** The value of a custom property. */
export const css = (name) => style.getPropertyValue(name).trim();

/** Device pixels for each of the style sheet's. */
export const pixels = () => window.devicePixelRatio || 1;

/** Call back when colours or pixels are others. */
export function onChange(redraw) {
  dark.addEventListener("change", redraw);
  const watch = () => {
    matchMedia(`(resolution: ${pixels()}dppx)`).addEventListener("change", () => {
      redraw();
      watch();
    }, { once: true });
  };
  watch();
}

const OPERATIONS = 8; // colours of the style sheet; with more operations they come again
const known = new Map();

/** The colour of an operation: the same one as long as the page is open. */
export function operationColour(name) {
  if (!known.has(name)) known.set(name, known.size % OPERATIONS);
  return css(`--operation-${known.get(name)}`);
}
