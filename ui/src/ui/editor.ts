// CodeMirror for definitions: YAML with problems in place, and completion from the JSON Schema of the language.
import { autocompletion, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { EditorState, type Extension } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { beginnings, complete } from './completion';
import type { Schemas } from '../api/client';

export interface Handle {
  view: EditorView;
  goto: (line: number) => void;
  setProblems: (problems: Schemas['FoundProblem'][]) => void;
  destroy: () => void;
}

const theme = EditorView.theme({
  '&': { height: '100%', fontSize: '12.5px', backgroundColor: 'var(--surface)', color: 'var(--ink)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--font-mono)', lineHeight: '1.6', overflow: 'auto' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--dim)', border: 'none' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in oklab, var(--sunken) 60%, transparent)' },
  '.cm-activeLineGutter': { backgroundColor: 'transparent', color: 'var(--ink)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--accent-soft) !important' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--ink)', border: '1px solid var(--line-strong)', borderRadius: '8px', overflow: 'hidden' },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--accent-soft)', color: 'var(--ink)' },
  '.cm-completionDetail': { color: 'var(--dim)', fontStyle: 'normal' },
  '.cm-diagnostic': { fontFamily: 'var(--font-sans)', fontSize: '12.5px', padding: '6px 10px' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--bad-bar) 1.5px', textUnderlineOffset: '3px' },
  '.cm-lintRange-warning': { backgroundImage: 'none', textDecoration: 'underline wavy var(--wait-bar) 1.5px', textUnderlineOffset: '3px' },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--busy)' },
  { tag: tags.comment, color: 'var(--dim)', fontStyle: 'italic' },
  { tag: [tags.keyword, tags.typeName, tags.labelName], color: 'var(--hold)' },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: 'var(--dim)' },
]);

/** Text over a selection is put in by the editor. Left to the browser, lines that become one get attributes `style`, which the policy of
 * the page forbids: each of them would be a message in the console. */
const replaces = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const { state } = view;
    if (event.inputType !== 'insertText' || !event.data || event.isComposing || !event.cancelable || state.readOnly || state.selection.ranges.every((it) => it.empty)) return false;
    event.preventDefault();
    view.dispatch(state.update(state.replaceSelection(event.data), { userEvent: 'input.type', scrollIntoView: true }));
    return true;
  },
});

export function startEditor(host: HTMLElement, options: { text: string; readonly: boolean; label: string; changed: (text: string) => void; schema: () => object | undefined; templates?: Record<string, string> }): Handle {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const parent = document.createElement('div');
  root.replaceChildren(parent);
  parent.style.height = '100%';
  const source = (context: CompletionContext): CompletionResult | null => {
    const schema = options.schema();
    const text = context.state.doc.toString();
    const line = context.state.doc.lineAt(context.pos);
    const found = (options.templates && beginnings(options.templates, text)) ?? (schema ? complete(schema, text, line.number, context.pos - line.from) : null);
    // Nothing opens by itself where nothing was written.
    if (!found || (!context.explicit && !found.word && found.kind === 'key')) return null;
    return {
      from: context.pos - found.word.length,
      options: found.options.map((it): Completion => ({ label: it.label, detail: it.detail, info: it.info, apply: it.apply, type: found.kind === 'key' ? 'property' : 'enum' })),
      validFor: /^[\w-]*$/,
    };
  };
  const extensions: Extension[] = [
    lineNumbers(),
    EditorView.lineWrapping,
    history(),
    drawSelection(),
    indentOnInput(),
    indentUnit.of('  '),
    bracketMatching(),
    yaml(),
    syntaxHighlighting(colours),
    theme,
    lintGutter(),
    EditorView.contentAttributes.of({ 'aria-label': options.label, ...(options.readonly ? { tabindex: '0' } : {}) }),
    options.readonly ? [EditorState.readOnly.of(true), EditorView.editable.of(false)] : [replaces, highlightActiveLine(), autocompletion({ override: [source], activateOnTyping: true, icons: false }), keymap.of([...completionKeymap, indentWithTab])],
    keymap.of([...defaultKeymap, ...historyKeymap]),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) options.changed(update.state.doc.toString());
    }),
  ];
  const view = new EditorView({ state: EditorState.create({ doc: options.text, extensions }), parent, root });
  // The keyboard scrolls it too.
  view.scrollDOM.tabIndex = 0;
  return {
    view,
    goto: (line) => {
      const at = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
      view.dispatch({ selection: { anchor: at.from }, scrollIntoView: true });
      view.focus();
    },
    setProblems: (problems) => setProblems(view, problems),
    destroy: () => view.destroy(),
  };
}

function setProblems(view: EditorView, problems: Schemas['FoundProblem'][]) {
  const doc = view.state.doc;
  const place = (line: number, column: number) => {
    const found = doc.line(Math.min(Math.max(1, line), doc.lines));
    return Math.min(found.to, found.from + Math.max(0, column - 1));
  };
  const found: Diagnostic[] = problems.map((it) => {
    const from = place(it.line ?? 1, it.column ?? 1);
    const word = doc.sliceString(from, doc.lineAt(from).to).match(/^[^\s:,#]+/)?.[0].length ?? 1;
    return { from, to: Math.min(doc.length, from + word), severity: it.severity === 'error' ? 'error' : 'warning', message: `${it.message}${it.help ? `\n${it.help}` : ''}`, source: it.code };
  });
  view.dispatch(setDiagnostics(view.state, found));
}
