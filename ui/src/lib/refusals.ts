// Refusals as people read them. Messages of the server may have the codes of what was found on the way before the words:
// `address: WEBHOOK_UNUSABLE: HOST_DENIED: the address … is inside this machine`.

const CODE = /\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+): /g;

/** The words of a message, and the codes that stood before them. */
export function plainRefusal(detail: string): { words: string; codes: string[] } {
  const codes = [...detail.matchAll(CODE)].map((it) => it[1]!);
  const words = detail.replace(CODE, '').replace(/, or send RETRY_RUN to repeat it/, ', or retry it');
  return { words, codes: [...new Set(codes)] };
}
