// What the graph shows: where each step is drawn, which arcs were taken, which were refused, and what each step is doing.
import dagre from '@dagrejs/dagre';
import type { Net, RunEvent } from './model.svelte';

export interface Place {
  x: number;
  y: number;
}
export const WIDTH = 216;
export const HEIGHT = 62;
/** How large steps are drawn at most when all of them are shown, and the room around them. */
export const MAX_ZOOM = 1.1;
export const MARGIN = 36;
/** Above this many steps the layers are computed in one pass. */
const MANY = 250;

/** Lists and chains are drawn downwards, graphs to the right, and downwards too where there is no room to the right. */
export function isChain(net: Net): boolean {
  if (net.dialect === 'linear') return true;
  return net.edges.length === net.steps.length - 1 && net.edges.every((edge, i) => edge.from === i && edge.to === i + 1);
}

/** Where the steps are, whether arcs go down, and how much room all of it needs. */
export interface Layout {
  places: Place[];
  /** Where the guard of each arc is written; absent: in the middle of the arc. */
  labels: (Place | undefined)[];
  down: boolean;
  width: number;
  height: number;
}

/** Of both directions the one in which the steps can be read better in the room that there is. */
export function layout(net: Net, room = { width: 1000, height: 600 }): Layout {
  if (isChain(net)) return sized({ places: chain(net), labels: [] }, true);
  if (net.steps.length > MANY) return sized({ places: layered(net), labels: [] }, false);
  const right = sized(ranked(net, false), false);
  const zoom = zoomOf(right, room);
  if (zoom >= 0.85) return right;
  const down = sized(ranked(net, true), true);
  return zoomOf(down, room) > zoom ? down : right;
}

function sized({ places, labels }: Pick<Layout, 'places' | 'labels'>, down: boolean): Layout {
  const [left, top] = [Math.min(...places.map((it) => it.x)), Math.min(...places.map((it) => it.y))];
  return { places, labels, down, width: Math.max(...places.map((it) => it.x)) - left + WIDTH, height: Math.max(...places.map((it) => it.y)) - top + HEIGHT };
}

/** How large everything can be drawn in a room. */
export function zoomOf(it: { width: number; height: number }, room: { width: number; height: number }): number {
  return Math.min(MAX_ZOOM, (room.width - 2 * MARGIN) / it.width, (room.height - 2 * MARGIN) / it.height);
}

/** A chain goes down, and begins a new column where it would become too long to be seen. */
function chain(net: Net): Place[] {
  const count = net.steps.length;
  const most = count <= 12 ? count : Math.ceil(Math.sqrt(count) * 1.6);
  // A guard is written on the arc above its step, between both.
  const guards = new Map(net.edges.flatMap((edge) => (edge.when && edge.from + 1 === edge.to ? [[edge.to, guardText(edge.when)] as const] : [])));
  let y = 0;
  return net.steps.map((_, i) => {
    const guard = guards.get(i);
    y = i % most === 0 ? 0 : y + HEIGHT + Math.max(34, guard === undefined ? 0 : labelHeight(guard) + 16);
    return { x: Math.floor(i / most) * (WIDTH + 70), y };
  });
}

/** How high the label of a guard is: at most two lines, and one that says what was recorded. */
function labelHeight(guard: string): number {
  return (guard.length > 26 ? 2 : 1) * 13 + 13 + 4;
}

function ranked(net: Net, narrow: boolean): Pick<Layout, 'places' | 'labels'> {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: narrow ? 'TB' : 'LR', nodesep: 28, ranksep: narrow ? 34 : 56, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  net.steps.forEach((_, i) => graph.setNode(String(i), { width: WIDTH, height: HEIGHT }));
  net.edges.forEach((edge, i) => {
    // Guards are written on their arcs: they need room.
    if (edge.from !== edge.to) graph.setEdge(String(edge.from), String(edge.to), edge.when ? { width: 188, height: 46, labelpos: 'c' } : { width: 20, height: 1 }, `e${i}`);
  });
  dagre.layout(graph);
  const places = net.steps.map((_, i) => {
    const node = graph.node(String(i)) as { x: number; y: number };
    return { x: node.x - WIDTH / 2, y: node.y - HEIGHT / 2 };
  });
  const labels = net.edges.map((edge, i) => {
    if (!edge.when || edge.from >= edge.to) return undefined;
    const found = graph.edge({ v: String(edge.from), w: String(edge.to), name: `e${i}` }) as Partial<Place> | undefined;
    return found?.x === undefined || found.y === undefined ? undefined : { x: found.x, y: found.y };
  });
  return { places, labels };
}

/** The layer of a step is its longest way from a start; inside a layer steps stand near the steps before them. */
function layered(net: Net): Place[] {
  const count = net.steps.length;
  const after: number[][] = Array.from({ length: count }, () => []);
  const before: number[][] = Array.from({ length: count }, () => []);
  const degree = new Array<number>(count).fill(0);
  for (const edge of net.edges) {
    // An arc back is no way forward.
    if (edge.from >= edge.to && reaches(after, edge.to, edge.from)) continue;
    after[edge.from]?.push(edge.to);
    before[edge.to]?.push(edge.from);
    degree[edge.to]!++;
  }
  const layer = new Array<number>(count).fill(0);
  const ready = degree.flatMap((it, i) => (it === 0 ? [i] : []));
  for (let i = 0; i < ready.length; i++) {
    const step = ready[i]!;
    for (const next of after[step]!) {
      layer[next] = Math.max(layer[next]!, layer[step]! + 1);
      if (--degree[next]! === 0) ready.push(next);
    }
  }
  const layers: number[][] = [];
  for (const step of ready.length === count ? ready : layer.map((_, i) => i)) (layers[layer[step]!] ??= []).push(step);
  const row = new Array<number>(count).fill(0);
  for (const steps of layers) {
    if (!steps) continue;
    const wanted = (step: number) => {
      const found = before[step]!;
      return found.length ? found.reduce((sum, it) => sum + row[it]!, 0) / found.length : step;
    };
    steps.sort((a, b) => wanted(a) - wanted(b));
    steps.forEach((step, i) => (row[step] = i - (steps.length - 1) / 2));
  }
  return layer.map((it, i) => ({ x: it * (WIDTH + 84), y: row[i]! * (HEIGHT + 26) }));
}

function reaches(after: number[][], from: number, to: number): boolean {
  const seen = new Set<number>([from]);
  const open = [from];
  while (open.length) {
    const step = open.pop()!;
    if (step === to) return true;
    for (const next of after[step] ?? []) if (!seen.has(next)) open.push(next), seen.add(next);
  }
  return false;
}

export interface Arc {
  /** How often a token took it. */
  taken: number;
  /** How often it was looked at and refused. */
  refused: number;
  /** How often another arc was taken before it was looked at. */
  passed: number;
  /** The last event about it. */
  seq: number;
}

/** The result of each arc, as the log recorded it. */
export function arcsOf(net: Net, events: RunEvent[]): Arc[] {
  const arcs: Arc[] = net.edges.map(() => ({ taken: 0, refused: 0, passed: 0, seq: 0 }));
  const leaving: number[][] = net.steps.map(() => []);
  net.edges.forEach((edge, i) => leaving[edge.from]?.push(i));
  for (const event of events) {
    if (event.eventType !== 'StepCompleted' && event.eventType !== 'StepRouted') continue;
    const ext = event.ext;
    if (typeof ext.step !== 'object' || ext.step.item != null) continue;
    const step = net.steps[ext.step.step];
    const all = leaving[ext.step.step] ?? [];
    if (!step) continue;
    if (!ext.routing) {
      if (step.route === 'edges') for (const i of all) mark(arcs[i], 'taken', event.runSeq);
      continue;
    }
    const taken = new Set((ext.routing.taken ?? []).map((it) => it.edge));
    let found = false;
    for (const i of all) {
      if (taken.has(i)) {
        mark(arcs[i], 'taken', event.runSeq);
        found = true;
      } else mark(arcs[i], step.route === 'exclusive' && found ? 'passed' : 'refused', event.runSeq);
    }
  }
  return arcs;
}

function mark(arc: Arc | undefined, what: 'taken' | 'refused' | 'passed', seq: number) {
  if (!arc) return;
  arc[what]++;
  arc.seq = seq;
}

/** A guard as its author wrote it. */
export function guardText(when: unknown): string {
  if (typeof when === 'string') return when.replace(/^\{\{\s*|\s*\}\}$/g, '');
  return when === undefined || when === null ? '' : JSON.stringify(when);
}

/** What a step does, in a few words. */
export function workText(work: Net['steps'][number]['work']): string {
  if (work.kind === 'pipeline') {
    const tasks = Array.isArray(work.tasks) ? (work.tasks as { kind?: string }[]) : [];
    return [...new Set(tasks.map((it) => it.kind ?? ''))].join(', ') || 'tools';
  }
  if (work.kind === 'task') return `${work.queue} · ${work.operation}`;
  if (work.kind === 'child') return `runs ${work.path}`;
  return work.on.what === 'event' ? `event ${work.on.event_type}` : work.on.what;
}

/** A step as it can be found. */
export interface Findable {
  /** What is chosen: the last visit, or the name of a step that was never visited. */
  id: string;
  name: string;
  word?: string;
}

/** The steps whose name or state has a text: those that begin with it first, then as the graph has them. */
export function found(steps: Findable[], text: string): Findable[] {
  const wanted = text.trim().toLowerCase();
  const rank = (it: Findable) => {
    const name = it.name.toLowerCase();
    if (name === wanted) return 0;
    if (name.startsWith(wanted)) return 1;
    if (name.includes(wanted)) return 2;
    return it.word?.toLowerCase().startsWith(wanted) ? 3 : 4;
  };
  const ranked = steps.map((it) => ({ it, rank: rank(it) })).filter((it) => it.rank < 4);
  return ranked.sort((a, b) => a.rank - b.rank).map(({ it }) => it);
}

/** How large the steps of a graph must be drawn for their names to be read. */
export const READABLE = 0.7;

/** How a large graph is shown at first: all of it if it can be read, else what is around a step, as large as can be read and
 * without room beyond the edges of the graph. `above` is kept free above its first row. */
export function firstView(drawn: Layout, room: { width: number; height: number }, focus = 0, above = 0) {
  const zoom = Math.max(READABLE, zoomOf(drawn, room));
  const place = drawn.places[focus] ?? { x: 0, y: 0 };
  const along = (size: number, begin: number, length: number, middle: number, before = MARGIN) => {
    if (length * zoom <= size - MARGIN - before) return (size - length * zoom) / 2 - begin * zoom;
    return Math.min(before - begin * zoom, Math.max(size - MARGIN - (begin + length) * zoom, size / 2 - middle * zoom));
  };
  return {
    x: along(room.width, Math.min(...drawn.places.map((it) => it.x)), drawn.width, place.x + WIDTH / 2),
    y: along(room.height, Math.min(...drawn.places.map((it) => it.y)), drawn.height, place.y + HEIGHT / 2, MARGIN + above),
    zoom,
  };
}
