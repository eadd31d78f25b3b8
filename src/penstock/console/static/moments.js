// Instants in the time zone of the browser, as its pickers have them, and in UTC, as they are sent.

/** Return the name of the browser's time zone. */
export const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Return the instant of a local time `2026-01-31T12:00`, in UTC as RFC 3339. */
export const instantOf = (local) => new Date(local).toISOString().replace(".000Z", "Z");

/** Return the local time of an instant, for a picker; empty for a text that is no instant. */
export function localText(instant) {
  const date = new Date(instant);
  if (instant === "" || Number.isNaN(date.getTime())) return "";
  const two = (number) => String(number).padStart(2, "0");
  const day = [String(date.getFullYear()).padStart(4, "0"), two(date.getMonth() + 1), two(date.getDate())];
  return `${day.join("-")}T${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
}
