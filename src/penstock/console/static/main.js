// The console's frame: which page is shown, the strip of what happens now, theme and sign-in.

import { key } from "./api.js";
import { el, problem, show } from "./dom.js";
import { count, rate } from "./format.js";
import { live } from "./live.js";
import { decoded } from "./paths.js";
import { chooseTimes } from "./times.js";
import * as captures from "./captures.js";
import * as deployments from "./deployments.js";
import * as effects from "./effects.js";
import * as entities from "./entities.js";
import * as erasures from "./erasures.js";
import * as flow from "./flow.js";
import * as hosts from "./hosts.js";
import * as overview from "./overview.js";
import * as performance from "./performance.js";
import * as reference from "./reference.js";
import * as requests from "./requests.js";
import * as search from "./search.js";
import * as sql from "./sql.js";
import * as streams from "./streams.js";
import * as trying from "./try.js";
import * as views from "./views.js";

const PAGES = [
  ["overview", "Overview", overview],
  ["performance", "Performance", performance],
  ["entities", "Entities", entities],
  ["sql", "SQL", sql],
  ["streams", "Streams", streams],
  ["requests", "Requests", requests],
  ["views", "Views", views],
  ["captures", "Changes", captures],
  ["effects", "Effects", effects],
  ["search", "Search", search],
  ["flow", "Flow", flow],
  ["deployments", "Deployments", deployments],
  ["hosts", "Hosts", hosts],
  ["erasures", "Erasures", erasures],
  ["try", "Try it", trying],
  ["api", "API", reference],
];

/** Pages that only some applications need. */
const USED = {
  streams: (plan) => plan.stream_operators.length > 0,
  erasures: (plan) => erasures.personalOf(plan).length > 0,
  effects: (_plan, status) => Boolean(status?.effects),
  captures: (_plan, status) => status?.captures?.length > 0,
  views: (_plan, status) => status?.views.length > 0,
  hosts: (_plan, status) => Boolean(status?.lease),
  search: (_plan, status) => search.searchedOf(status?.views ?? []).length > 0,
};

/** Pages that need no more than a key, although the strip above them needs the scope `admin`. */
const FOR_EVERYBODY = new Set(["try", "api"]);

const at = (id) => document.getElementById(id);
const main = at("main");
let page = { close() {} };
let shown = "";
let noticed;

/** Read `#/entities/Item/i1?find=x` into its parts. */
function route() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return {
    name: name || "overview",
    rest: rest.filter(Boolean).map(decoded),
    search: new URLSearchParams(search),
  };
}

async function open() {
  const asked = route();
  const [name, title, module] = PAGES.find((each) => each[0] === asked.name) ?? PAGES[0];
  if (page.follow?.(asked, name)) return;
  page.close?.();
  page = { close() {} };
  const moved = shown !== "" && shown !== location.hash;
  shown = location.hash || "#/";
  markPage(name);
  document.title = `${title} · Penstock`;
  const body = el("div", { class: "page", id: `page-${name}` });
  const heading = el("h1", { tabindex: -1 }, title);
  show(main, heading, body);
  if (moved) heading.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  try {
    page = (await module.open(body, asked, heading)) ?? page;
  } catch (failure) {
    show(body, problem(failure));
  }
}

/** Show the links of the pages that the application needs now; a deployment may change that. */
function showLinks() {
  if (live.plan === null) return;
  for (const [name, isUsed] of Object.entries(USED))
    at("pages").querySelector(`[data-page="${name}"]`).parentElement.hidden = !isUsed(live.plan, live.status);
}

function markPage(name) {
  for (const link of at("pages").querySelectorAll("a"))
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
}

function strip() {
  const { status, failure } = live;
  document.body.dataset.live = failure ? "no" : "yes";
  const told = failure?.code === "forbidden" && FOR_EVERYBODY.has(route().name) ? null : failure;
  if (told?.message !== noticed) show(at("notice"), told ? problem(told) : null);
  noticed = told?.message; // said once, not every second
  if (!status) return;
  at("app-name").textContent = status.app;
  const driver = live.driver();
  const state = driver ? (status.lag || status.requests_per_s ? "processing" : "idle") : "absent";
  const entries = [
    ["driver", "Driver", el("span", { class: `state ${state}` }, driver ? state : "not running")],
    ["epoch", "Epoch", status.epoch < 0 ? "none yet" : count(status.epoch)],
    ["lag", "Lag", count(status.lag)],
    ["rate", "Requests", rate(status.requests_per_s)],
  ];
  show(
    at("strip"),
    entries.map(([id, name, value]) =>
      el("div", { id: `now-${id}` }, el("dt", {}, name), el("dd", {}, value)),
    ),
  );
}

function theme() {
  const root = document.documentElement;
  const dark = () =>
    (root.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = at("theme");
  const name = () => {
    button.textContent = dark() ? "Light theme" : "Dark theme";
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("penstock-theme", root.dataset.theme);
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

/** In a narrow window the pages are behind a button; a choice or Escape closes the list. */
function menu() {
  const button = at("menu");
  const set = (isOpen) => button.setAttribute("aria-expanded", String(isOpen));
  const isOpen = () => button.getAttribute("aria-expanded") === "true";
  button.addEventListener("click", () => set(!isOpen()));
  at("pages").addEventListener("click", ({ target }) => target.closest("a") && set(false));
  button.parentElement.addEventListener("keydown", ({ key: pressed }) => {
    if (pressed !== "Escape" || !isOpen()) return;
    set(false);
    button.focus();
  });
}

function signIn() {
  const dialog = at("key-dialog");
  const button = at("sign-in");
  const ask = () => {
    button.hidden = false;
    button.textContent = key.get() ? "Change key" : "Sign in";
  };
  const openDialog = () => {
    at("key").value = key.get();
    if (!dialog.open) dialog.showModal();
  };
  let asked = false;
  document.addEventListener("penstock:unauthenticated", () => {
    ask();
    if (!asked) openDialog();
    asked = true;
  });
  button.addEventListener("click", openDialog);
  at("key-cancel").addEventListener("click", () => dialog.close());
  at("key-form").addEventListener("submit", () => {
    key.set(at("key").value.trim());
    ask();
    shown = "";
    open();
  });
  if (key.get()) ask();
}

show(
  at("pages"),
  PAGES.map(([name, title]) =>
    el("li", { hidden: name in USED }, el("a", { href: `#/${name}`, "data-page": name }, title)),
  ),
);
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
theme();
menu();
chooseTimes(at("times"));
signIn();
live.addEventListener("change", strip);
live.addEventListener("change", showLinks);
window.addEventListener("hashchange", open);
live.start();
open();
