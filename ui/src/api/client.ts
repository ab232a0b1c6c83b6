// Requests to the server. The types come from its OpenAPI document (`npm run types`).
import { asHeader } from '../lib/names';
import type { components, paths } from './schema';

export type Schemas = components['schemas'];
type Method = 'get' | 'post' | 'put' | 'delete';
type Json<T> = T extends { content: { 'application/json': infer B } } ? B : unknown;
type Answers<R> = R extends { 200: infer A } ? Json<A> : R extends { 201: infer A } ? Json<A> : unknown;
type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M & keyof paths[P]]>;
export type Answer<P extends keyof paths, M extends Method> = Operation<P, M> extends { responses: infer R } ? Answers<R> : unknown;
type BodyOf<O> = O extends { requestBody: { content: { 'application/json': infer B } } } ? B : undefined;
type QueryOf<O> = O extends { parameters: { query?: infer Q } } ? Q : never;

/** A refusal of the server, or no answer at all. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly problems: unknown[] = [],
  ) {
    super(detail);
  }
  get isOffline() {
    return this.status === 0;
  }
  /** What was thrown, as something that can be shown. JSON that a person wrote wrongly is told as such. */
  static of(error: unknown): Problem {
    if (error instanceof Problem) return error;
    const text = error instanceof Error ? error.message : String(error);
    return error instanceof SyntaxError ? new Problem(-1, 'not JSON', `The text is not JSON: ${text}.`) : new Problem(-1, 'UI_FAULT', text);
  }
}

/** What is said of something that is read until the server answers. */
export const OFFLINE = 'The server cannot be reached. The page tries again by itself.';

/** Who acts: set by the session. */
export const identity: { csrf?: string; actor?: string; role?: string; onUnauthorised?: () => void; onReach?: (isThere: boolean) => void } = {};

/** Where the API is: beside the page, under whatever path a proxy has given both. */
export const base = new URL('.', location.href.split('#')[0]).href;

export function headers(): Record<string, string> {
  const found: Record<string, string> = {};
  if (identity.csrf) found['x-stepwell-csrf'] = identity.csrf;
  if (identity.actor) found['stepwell-actor'] = asHeader(identity.actor);
  if (identity.role) found['stepwell-role'] = identity.role;
  return found;
}

export function address(path: string, params: Record<string, string | number> = {}, query: object = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(params[name] ?? '')));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  const text = search.toString();
  return `${base}${filled.replace(/^\//, '')}${text ? `?${text}` : ''}`;
}

export async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers: { ...headers(), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    identity.onReach?.(false);
    // Whether a change was made is not known: the answer may have been lost. It is never sent again without being asked for.
    if (method !== 'GET') throw new Problem(0, 'NO_ANSWER', 'The server did not answer. This is not sent again by itself: when the server is back, look whether it was done, and press again if it was not.');
    throw new Problem(0, 'OFFLINE', OFFLINE);
  }
  identity.onReach?.(true);
  if (response.ok) return response;
  if (response.status === 401) identity.onUnauthorised?.();
  const text = await response.text();
  try {
    const json = JSON.parse(text) as Schemas['ApiProblem'];
    throw new Problem(response.status, json.code, json.detail, json.problems ?? []);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(response.status, `HTTP_${response.status}`, text.slice(0, 300) || response.statusText);
  }
}

interface Options<O> {
  path?: Record<string, string | number>;
  query?: QueryOf<O>;
  body?: BodyOf<O>;
  signal?: AbortSignal;
}

async function call<P extends keyof paths, M extends Method>(method: M, path: P, options: Options<Operation<P, M>> = {}): Promise<Answer<P, M>> {
  const response = await send(method.toUpperCase(), address(path, options.path, (options.query ?? {}) as object), options.body, options.signal);
  const kind = response.headers.get('content-type') ?? '';
  const value: unknown = response.status === 204 ? undefined : kind.includes('json') ? await response.json() : await response.text();
  return value as Answer<P, M>;
}

export const api = {
  get: <P extends keyof paths>(path: P, options?: Options<Operation<P, 'get'>>) => call('get', path, options),
  post: <P extends keyof paths>(path: P, options?: Options<Operation<P, 'post'>>) => call('post', path, options),
  put: <P extends keyof paths>(path: P, options?: Options<Operation<P, 'put'>>) => call('put', path, options),
  delete: <P extends keyof paths>(path: P, options?: Options<Operation<P, 'delete'>>) => call('delete', path, options),
};
