// Addresses of views. They are in the part after `#`, so that the page works under any path of a proxy without being told.

export interface Route {
  path: string;
  parts: string[];
  query: URLSearchParams;
}

/** A part of an address. One that is cut or broken is taken as it is written: it leads to a page that says that there is no such thing. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function read(): Route {
  const text = location.hash.replace(/^#/, '') || '/';
  const cut = text.indexOf('?');
  const path = cut < 0 ? text : text.slice(0, cut);
  return {
    path,
    parts: path.split('/').filter(Boolean).map(decode),
    query: new URLSearchParams(cut < 0 ? '' : text.slice(cut + 1)),
  };
}

class Router {
  route: Route = $state.raw(read());
  constructor() {
    addEventListener('hashchange', () => (this.route = read()));
  }
  go(to: string) {
    location.hash = to;
  }
  /** Changes the query of this view; the way back leads to the view before, or, with `adds`, to the query before. */
  set(changes: Record<string, string | number | null | undefined>, adds = false) {
    const query = new URLSearchParams(this.route.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === '') query.delete(name);
      else query.set(name, String(value));
    }
    const text = query.toString();
    const to = `#${this.route.path}${text ? `?${text}` : ''}`;
    if (!adds) history.replaceState(history.state, '', to);
    else if (text !== this.route.query.toString()) history.pushState(null, '', to);
    this.route = read();
  }
}
export const router = new Router();

/** The address of a view. */
export function to(parts: (string | number)[], query: Record<string, string | number | null | undefined> = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== null && value !== undefined && value !== '') found.set(name, String(value));
  const text = found.toString();
  return `#/${parts.map((it) => encodeURIComponent(it)).join('/')}${text ? `?${text}` : ''}`;
}
export const toRun = (run: string, query = {}) => to(['runs', run], query);
