// What a person gives back: fields with a name and a type. No language declares them, so the person names them. Also what the
// definition says about the work, beyond its name.
import type { Net } from './model.svelte';

export const TYPES = ['text', 'number', 'yes or no', 'JSON'] as const;
export interface AnswerField {
  name: string;
  type: (typeof TYPES)[number];
  text: string;
}
export interface ReadAnswer {
  /** Absent: nothing was given, or something is wrong. */
  value?: Record<string, unknown>;
  /** What is wrong with which field. */
  wrong: Map<number, string>;
}

export function readFields(fields: AnswerField[]): ReadAnswer {
  const wrong = new Map<number, string>();
  const value: Record<string, unknown> = {};
  fields.forEach((it, i) => {
    const name = it.name.trim();
    if (!name && !it.text.trim()) return;
    if (!name) return void wrong.set(i, 'The field has no name.');
    if (Object.hasOwn(value, name)) return void wrong.set(i, `There is another field ${name}.`);
    if (it.type === 'text') value[name] = it.text;
    else if (it.type === 'yes or no') value[name] = it.text === 'yes';
    else if (it.type === 'number') {
      const number = Number(it.text.trim().replace(',', '.'));
      if (!it.text.trim() || !Number.isFinite(number)) wrong.set(i, 'This is not a number.');
      else value[name] = number;
    } else
      try {
        value[name] = JSON.parse(it.text);
      } catch {
        wrong.set(i, 'This is not JSON: texts are in "quotes".');
      }
  });
  return { value: wrong.size || !Object.keys(value).length ? undefined : value, wrong };
}

/** The fields of a value, for who goes back from JSON; none if the value is no object. */
export function fieldsOf(value: unknown): AnswerField[] | undefined {
  if (!value || typeof value !== 'object' || Array.isArray(value)) return undefined;
  return Object.entries(value).map(([name, it]): AnswerField => {
    if (typeof it === 'string') return { name, type: 'text', text: it };
    if (typeof it === 'number') return { name, type: 'number', text: String(it) };
    if (typeof it === 'boolean') return { name, type: 'yes or no', text: it ? 'yes' : 'no' };
    return { name, type: 'JSON', text: JSON.stringify(it) };
  });
}

export interface AboutWork {
  description?: string | null;
  /** What is done, such as `money:pay`. */
  operation?: string;
  /** Where it belongs, such as `port family demo` or `queue payments`. */
  by?: string;
  /** The input of the step, as the definition has it. */
  input?: unknown;
  /** Where the definition says that the schema of the output is. */
  schema?: string;
}

/** What the definition says about the work of a step. */
export function aboutWork(net: Pick<Net, 'steps' | 'extra'>, name: string): AboutWork {
  const step = net.steps.find((it) => it.name === name);
  const extra = (net.extra as { actions?: Record<string, Record<string, string | undefined> | undefined> } | null | undefined)?.actions?.[name];
  const task = step?.work.kind === 'task' ? step.work : undefined;
  const input = step?.input && typeof step.input === 'object' && !Object.keys(step.input).length ? undefined : (step?.input ?? undefined);
  return { description: step?.description, operation: extra?.operation ?? task?.operation, by: extra?.portFamily ? `port family ${extra.portFamily}` : task && `queue ${task.queue}`, input, schema: extra?.outputSchemaRef };
}
