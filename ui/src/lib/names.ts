// Names of people on an open server. They are sent in a header, which takes visible characters of ASCII and no others.

const MOST = 200;
/** Whether a name can be sent. One that cannot must never be kept: every request would fail, also the one that changes it. */
export const isSendable = (name: string) => name.length <= MOST && /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(name);
export const NAME_RULE = `A name has 1 to ${MOST} letters, digits and signs of ASCII: write Zoe Mueller for Zoë Müller.`;
