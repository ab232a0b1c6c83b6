// Names of people on an open server. They are sent in a header, in UTF-8.

const MOST = 200;
// The characters that nobody sees, which the server refuses, too: two names that differ only in them look the same.
const UNSEEN = /[\p{Cc}\p{Cs}\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/u;
/** Whether a name can be sent. One that cannot must never be kept: every request would fail, also the one that changes it. */
export const isSendable = (name: string) => name.length > 0 && [...name].length <= MOST && name === name.trim() && !UNSEEN.test(name);
export const NAME_RULE = `A name has 1 to ${MOST} characters that can be seen.`;

/** A text as the value of a header: a browser sends each of its characters as one byte. */
export const asHeader = (text: string) => String.fromCharCode(...new TextEncoder().encode(text));
