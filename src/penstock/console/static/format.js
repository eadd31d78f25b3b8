// Numbers, times and sizes as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Return a whole number with separators. */
export const count = (value) =>
  typeof value === "number" || typeof value === "bigint" ? whole.format(value) : "–";

/** Return a number in three digits or so. */
export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10_000) return compact.format(value);
  if (size >= 100) return whole.format(value);
  return Number(value.toPrecision(size >= 1 ? 3 : 2)).toString();
}

/** Return a rate, which may be less than one a second. */
export const rate = (perSecond) => `${short(perSecond)}/s`;

/** Return milliseconds, seconds or minutes. */
export function duration(milliseconds) {
  if (milliseconds < 1_000) return `${short(milliseconds)} ms`;
  return age(milliseconds / 1_000);
}

/** Return how long something has lasted, in two units at most. */
export function age(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return how long ago something was, in one unit. */
export function ago(seconds) {
  if (seconds < 60) return "just now";
  const [unit, size] = [["d", 86_400], ["h", 3_600], ["min", 60]].find(([, least]) => seconds >= least);
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

/** Return bytes in binary units. */
export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; size >= 1024 && at < units.length - 1; at += 1) size /= 1024;
  return `${size >= 100 || at === 0 ? Math.round(size) : size.toFixed(1)} ${units[at]}`;
}

const two = (number) => String(number).padStart(2, "0");

/** Return the time of day of milliseconds since the Unix epoch. */
export function clock(milliseconds) {
  const date = new Date(milliseconds);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Return day and time of microseconds since the Unix epoch, in the time zone of the browser, to the microsecond. */
export function moment(microseconds) {
  const date = new Date(Math.floor(microseconds / 1_000));
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const rest = String(((microseconds % 1_000_000) + 1_000_000) % 1_000_000).padStart(6, "0");
  return `${day} ${clock(date.getTime())}.${rest}`;
}

/** Return a noun with its number. */
export const plural = (number, noun, nouns = `${noun}s`) =>
  `${count(number)} ${number === 1 ? noun : nouns}`;

/** Return a time of RFC 3339 with a space, and with the name of its zone. */
export function momentText(text) {
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)?$/.exec(text);
  if (!found) return text;
  const [, day, time, fraction = "", zone] = found;
  const rest = fraction.replace(/0+$/, "").replace(/^\.$/, "");
  return `${day} ${time}${rest}${zone ? " UTC" : ""}`;
}
