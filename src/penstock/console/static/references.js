// Links to the pages of requests and streams.

import { named } from "./api.js";
import { el } from "./dom.js";

/** Return the address of a request's trace. */
export const traceLink = (id) => `#/requests/${encodeURIComponent(id)}/trace`;

/** Return a link to a request's trace, named by its stored id. */
export const traceOf = (id) => el("a", { href: traceLink(named(id)), class: "reference" }, id);

/** Return the address of a stream. */
export const streamLink = (name) => `#/streams/${encodeURIComponent(name)}`;

/** Return a link to a stream. */
export const streamOf = (name) => el("a", { href: streamLink(name), class: "reference" }, name);
