// Shows new results without a reload: asks for their revision, and takes the page's content anew
// when it has changed. Keeps favourites in the browser, and links to them from the first page.
// Without this script a page is as it was when it was loaded.
"use strict";

const EVERY = 2000;
const PATIENCE = 60000;
const FAVOURITES = "sotto-favourite-metrics";
let wait = EVERY;

// Addresses and names of favourites, all versions of a plan together; none where a browser keeps
// nothing.
function favourites() {
  try {
    return new Map(JSON.parse(localStorage.getItem(FAVOURITES)));
  } catch {
    return new Map();
  }
}

function showFavourites() {
  const kept = favourites();
  // The newest version comes first, and is the one that is linked to.
  for (const each of [...document.querySelectorAll("button.star")].reverse()) {
    const { key, address, name } = each.dataset;
    each.setAttribute("aria-pressed", kept.has(key));
    if (kept.has(key)) kept.set(key, [address, name]);
    each.hidden = false;
  }
  const list = document.getElementById("favourites");
  if (!list) return;
  list.hidden = kept.size === 0;
  list.replaceChildren("Favourites: ");
  for (const [address, name] of kept.values()) {
    const link = document.createElement("a");
    [link.href, link.textContent] = [new URL(address, location.origin).pathname, name];
    list.append(...(list.childNodes.length > 1 ? [", ", link] : [link]));
  }
}

document.addEventListener("click", (event) => {
  const star = event.target.closest("button.star");
  if (!star) return;
  const { key, address, name } = star.dataset;
  const kept = favourites();
  if (!kept.delete(key)) kept.set(key, [address, name]);
  try {
    localStorage.setItem(FAVOURITES, JSON.stringify([...kept]));
  } catch {
    say("This browser keeps no favourites.");
  }
  showFavourites();
});

function revisionOf(page) {
  const meta = page.querySelector('meta[name="sotto-revision"]');
  return meta ? meta.content : null;
}

function say(text) {
  const live = document.getElementById("live");
  if (live && live.textContent !== text) live.textContent = text;
}

// A summary is known by the section that it is in, and by its text.
function nameOf(summary) {
  const section = summary.closest("[id]");
  return `${section ? section.id : ""} ${summary.textContent}`;
}

function replaceWith(page) {
  const open = new Set();
  for (const each of document.querySelectorAll("details[open] > summary")) open.add(nameOf(each));
  const focused = document.activeElement;
  const id = focused && focused.id;
  const summary = focused && focused.tagName === "SUMMARY" ? nameOf(focused) : null;
  const href = focused && focused.getAttribute("href");
  document.title = page.title;
  for (const name of ["header", "main", "footer"]) {
    const [old, fresh] = [document.querySelector(name), page.querySelector(name)];
    if (old && fresh) old.replaceWith(fresh);
  }
  showFavourites();
  const meta = document.querySelector('meta[name="sotto-revision"]');
  if (meta) meta.content = revisionOf(page) || "";
  for (const each of document.querySelectorAll("summary")) {
    if (open.has(nameOf(each))) each.parentElement.open = true;
    if (summary !== null && nameOf(each) === summary) each.focus();
  }
  if (id) document.getElementById(id)?.focus();
  else if (href) document.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

async function look() {
  if (document.hidden) return;
  const shown = revisionOf(document);
  // Who is choosing a window is not disturbed.
  if (document.activeElement && document.activeElement.tagName === "SELECT") return;
  const signal = AbortSignal.timeout?.(PATIENCE);
  const answer = await fetch("/revision", { headers: { "if-none-match": `"${shown}"` }, signal });
  if (answer.status === 401) return location.reload();
  if (answer.status >= 500 && shown) throw new Error("no revision");
  const { revision } = answer.status === 304 ? { revision: shown } : await answer.json();
  if (revision === shown) return say("");
  const fresh = await fetch(location.href, { signal });
  const page = new DOMParser().parseFromString(await fresh.text(), "text/html");
  // The page of an error has no script that would look again.
  if (fresh.status >= 500 && (shown || revisionOf(page) === null)) {
    return say("New results cannot be shown yet; this page shows what it had.");
  }
  // A page of another kind has to be loaded whole.
  if (!page.querySelector("main") || revisionOf(page) === null) return location.reload();
  replaceWith(page);
  if (revisionOf(page)) say("Updated: new results have been counted.");
}

async function watch() {
  try {
    await look();
    wait = EVERY;
  } catch {
    say("The server does not answer; this page shows what it had.");
    wait = Math.min(2 * wait, PATIENCE);
  }
  setTimeout(watch, wait);
}

showFavourites();
setTimeout(watch, EVERY);
