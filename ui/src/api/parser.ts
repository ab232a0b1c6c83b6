// The form of server-sent events.

export interface Told {
  id?: string;
  event: string;
  data: string;
}

/** Cuts a stream of text into events. */
export class Parser {
  private rest = '';
  private id: string | undefined;
  push(text: string, tell: (told: Told) => void) {
    this.rest += text;
    for (let end = this.rest.search(/\r?\n\r?\n/); end >= 0; end = this.rest.search(/\r?\n\r?\n/)) {
      const block = this.rest.slice(0, end);
      this.rest = this.rest.slice(end).replace(/^\r?\n\r?\n/, '');
      let event = 'message';
      const data: string[] = [];
      for (const line of block.split(/\r?\n/)) {
        const cut = line.indexOf(':');
        if (cut === 0) continue;
        const name = cut < 0 ? line : line.slice(0, cut);
        const value = cut < 0 ? '' : line.slice(cut + 1).replace(/^ /, '');
        if (name === 'event') event = value;
        else if (name === 'data') data.push(value);
        else if (name === 'id') this.id = value;
      }
      if (data.length) tell({ id: this.id, event, data: data.join('\n') });
    }
  }
}
