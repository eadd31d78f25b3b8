// Times as elements: to the second, and with their fraction once a person asks for exact times.

import { el } from "./dom.js";
import { moment, momentText } from "./format.js";

const STORED = "penstock-times";
const FRACTION = /\.\d+/;

/** Return day and time of microseconds since the Unix epoch, in the time zone of the browser. */
export const momentNode = (microseconds) => timed(moment(microseconds));

/** Return a time in few letters: without the day if that is today, without the year if it is this one, else the day alone. */
export function shortMoment(microseconds) {
  const whole = moment(microseconds);
  const [day, time] = whole.split(" ");
  const [today] = moment(Date.now() * 1_000).split(" ");
  if (day === today) return timed(time, whole);
  return day.slice(0, 4) === today.slice(0, 4) ? timed(`${day.slice(5)} ${time}`, whole) : timed(day, whole);
}

/** Return the microseconds since the Unix epoch of a time of RFC 3339. */
export function microsecondsOf(text) {
  const finer = /\.\d{3}(\d{1,3})/.exec(text)?.[1] ?? "";
  return Date.parse(text) * 1_000 + Number(finer.padEnd(3, "0"));
}

/** Return a time of RFC 3339 with a space, and with the name of its zone. */
export const instantNode = (text) => timed(momentText(text));

function timed(text, title = text) {
  const fraction = FRACTION.exec(text)?.[0];
  if (!fraction) return el("time", { title }, text);
  const [before, after] = text.split(fraction);
  return el("time", { title }, before, el("span", { class: "fraction" }, fraction), after);
}

/** Let a button choose between times to the second and exact ones; the browser keeps the choice. */
export function chooseTimes(button) {
  const root = document.documentElement;
  const set = (isExact) => {
    root.dataset.times = isExact ? "exact" : "seconds";
    button.setAttribute("aria-pressed", String(isExact));
  };
  button.addEventListener("click", () => {
    const isExact = root.dataset.times !== "exact";
    localStorage.setItem(STORED, isExact ? "exact" : "seconds");
    set(isExact);
  });
  set(localStorage.getItem(STORED) === "exact");
}
