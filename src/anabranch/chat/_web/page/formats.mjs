// Numbers and times as text. A browser takes milliseconds to make a formatter, so each is made on its first use.
function formatter(Kind, options) {
  let made;
  return (value) => (made ??= new Kind("en", options)).format(value);
}

export const count = formatter(Intl.NumberFormat);
export const short = formatter(Intl.NumberFormat, { notation: "compact", maximumFractionDigits: 1 });
export const price = formatter(Intl.NumberFormat, { maximumSignificantDigits: 3 });
const day = formatter(Intl.DateTimeFormat, { month: "short", day: "numeric" });
const time = formatter(Intl.DateTimeFormat, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export const moment = formatter(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

/** A moment, in seconds, in short form: the time if it is today, else the day. */
export function timeOrDay(seconds) {
  const moment = new Date(seconds * 1000);
  return (moment.toDateString() === new Date().toDateString() ? time : day)(moment);
}
