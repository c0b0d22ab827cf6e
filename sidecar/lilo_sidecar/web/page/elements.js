// What is put into the document. Text is set as text, never as markup: ids are what clients chose.

/** An element with properties, attributes (those with a dash, and role) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Set the text if it is another one: what a screen reader was told, it is not told again. */
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/** A model's id, whichever direction it is written in. */
export const identifier = (id) => element("bdi", { className: "id", title: id, textContent: id });
