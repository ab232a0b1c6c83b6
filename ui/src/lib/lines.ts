// Lines of logs as people read them.

/** Without the colours of terminals: a browser shows their codes as boxes. */
// eslint-disable-next-line no-control-regex
export const plainLine = (text: string) => text.replace(/\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])/g, '').replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '�');
