//! Puts nodes together, one step at a time, within the limits.
//!
//! Here: nesting, limits, anchors and aliases. An alias replays the
//! recorded steps of its anchor through the same checks as everything else,
//! so a bomb runs into the same limits as a large file and nothing is copied
//! beyond them. Not here: keys, which are in [`crate::mapping`], and the YAML
//! parser with its types.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use crate::codes;
use crate::mapping::Mapping;
use crate::problem::Problems;
use crate::scalar::{self, CoreTag};
use crate::source::{Source, Span};
use crate::tree::{MAX_COPIED_BYTES, MAX_DEPTH, MAX_NODES, MAX_SCALAR_BYTES, Node, Value};

/// Reading cannot go on; the reason is among the problems.
#[derive(Debug)]
pub(crate) struct ParseAborted;

/// One step in building a tree.
#[derive(Debug, Clone)]
pub(crate) enum BuildStep {
    Scalar {
        text: Rc<str>,
        plain: bool,
        tag: Option<CoreTag>,
    },
    OpenSeq,
    OpenMap,
    /// The span is that of a closing bracket, or empty.
    Close,
    /// A copy of the anchor with this number.
    Alias(usize),
}

#[derive(Debug)]
enum Content {
    Seq(Vec<Node>),
    Map(Mapping),
}

/// A collection that is still open.
#[derive(Debug)]
struct Frame {
    span: Span,
    content: Content,
    /// Its anchor and where its steps begin in the log.
    anchor: Option<(usize, usize)>,
}

#[derive(Debug)]
pub(crate) struct TreeBuilder<'s> {
    source: &'s Source,
    stack: Vec<Frame>,
    root: Option<Node>,
    nodes: usize,
    copied: usize,
    /// The steps inside anchors, to be replayed by aliases.
    log: Vec<(BuildStep, Span)>,
    anchors: HashMap<usize, Range<usize>>,
    /// How many open collections have an anchor, and so need the log.
    recording: usize,
    /// Set while an alias is copied.
    copying: Option<Copying>,
}

/// The alias that is being copied.
#[derive(Debug, Clone, Copy)]
struct Copying {
    /// The number of open collections at the outermost alias.
    base: usize,
    /// The number of open collections at this alias.
    depth: usize,
    span: Span,
}

impl<'s> TreeBuilder<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        TreeBuilder {
            source,
            stack: Vec::new(),
            root: None,
            nodes: 0,
            copied: 0,
            log: Vec::new(),
            anchors: HashMap::new(),
            recording: 0,
            copying: None,
        }
    }

    /// Whether the next value is the root.
    pub(crate) fn at_root(&self) -> bool {
        self.stack.is_empty()
    }

    pub(crate) fn into_root(self) -> Option<Node> {
        self.root
    }

    /// Takes a step from the source. `anchor` is 0 for none.
    pub(crate) fn feed(
        &mut self,
        step: BuildStep,
        span: Span,
        anchor: usize,
        problems: &mut Problems,
    ) -> Result<(), ParseAborted> {
        let start = self.log.len();
        if self.recording > 0 || anchor > 0 {
            self.log.push((step.clone(), span));
        }
        let opens = matches!(step, BuildStep::OpenSeq | BuildStep::OpenMap);
        if anchor > 0 && !opens {
            self.anchors.insert(anchor, start..self.log.len());
        }
        self.apply(step, span, problems)?;
        if anchor > 0 && opens {
            self.recording += 1;
            if let Some(frame) = self.stack.last_mut() {
                frame.anchor = Some((anchor, start));
            }
        }
        if problems.is_full() {
            return Err(ParseAborted);
        }
        Ok(())
    }

    fn apply(
        &mut self,
        step: BuildStep,
        span: Span,
        problems: &mut Problems,
    ) -> Result<(), ParseAborted> {
        match step {
            BuildStep::Scalar { text, plain, tag } => {
                self.scalar(&text, plain, tag, span, problems)
            }
            BuildStep::OpenSeq => self.open(Content::Seq(Vec::new()), span, problems),
            BuildStep::OpenMap => self.open(Content::Map(Mapping::default()), span, problems),
            BuildStep::Close => {
                self.close(span, problems);
                Ok(())
            }
            BuildStep::Alias(anchor) => self.copy(anchor, span, problems),
        }
    }

    /// Calls itself for aliases inside of anchors. Each such call stands in
    /// one more open collection, so the depth limit bounds these calls too.
    fn copy(
        &mut self,
        anchor: usize,
        span: Span,
        problems: &mut Problems,
    ) -> Result<(), ParseAborted> {
        let Some(range) = self.anchors.get(&anchor).cloned() else {
            problems
                .error(
                    codes::SOURCE_BAD_ALIAS,
                    span,
                    "this alias stands inside of its own anchor",
                )
                .help("a definition cannot contain itself; copy the part that is meant");
            return Err(ParseAborted);
        };
        let outer = self.copying;
        let depth = self.stack.len();
        self.copying = Some(Copying {
            base: outer.map_or(depth, |outer| outer.base),
            depth,
            span: self.place(span),
        });
        for at in range {
            let Some((step, original)) = self.log.get(at).cloned() else {
                break;
            };
            self.apply(step, original, problems)?;
        }
        self.copying = outer;
        Ok(())
    }

    /// The span a node or key gets: the alias's if it is what the alias names.
    fn place(&self, original: Span) -> Span {
        match self.copying {
            Some(copying) if copying.depth == self.stack.len() => copying.span,
            _ => original,
        }
    }

    /// The open mapping that waits for a key, if one does.
    fn awaiting_key(&mut self) -> Option<&mut Mapping> {
        match self.stack.last_mut() {
            Some(Frame {
                content: Content::Map(mapping),
                ..
            }) if mapping.awaits_key() => Some(mapping),
            _ => None,
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        plain: bool,
        tag: Option<CoreTag>,
        original: Span,
        problems: &mut Problems,
    ) -> Result<(), ParseAborted> {
        let span = self.place(original);
        if text.len() > MAX_SCALAR_BYTES {
            let length = text.len();
            problems
                .error(
                    codes::SOURCE_SCALAR_TOO_LONG,
                    span,
                    format!("this text is {length} bytes; at most {MAX_SCALAR_BYTES} are allowed"),
                )
                .help("move large data out of the definition and refer to it");
            return Err(ParseAborted);
        }
        if self.copying.is_some() {
            self.copied += text.len();
            if self.copied > MAX_COPIED_BYTES {
                problems.error(
                    codes::SOURCE_TOO_LARGE,
                    span,
                    format!("aliases copy more than {MAX_COPIED_BYTES} bytes of text"),
                );
                return Err(ParseAborted);
            }
        }
        let copying = self.copying.is_some();
        if let Some(mapping) = self.awaiting_key() {
            mapping.key(text, plain, span, copying, problems);
            return Ok(());
        }
        self.count(span, problems)?;
        let value = scalar::resolve(text, plain, tag).unwrap_or_else(|bad| {
            // Inside of an alias it was reported where it stands.
            if self.copying.is_none() {
                bad.report(text, span, problems);
            }
            Value::Null
        });
        self.complete(Node { span, value }, problems);
        Ok(())
    }

    fn open(
        &mut self,
        content: Content,
        span: Span,
        problems: &mut Problems,
    ) -> Result<(), ParseAborted> {
        let place = self.place(span);
        if self.stack.len() >= MAX_DEPTH {
            problems
                .error(
                    codes::SOURCE_TOO_DEEP,
                    place,
                    format!("nested more than {MAX_DEPTH} levels deep"),
                )
                .help("flatten the structure");
            return Err(ParseAborted);
        }
        self.count(place, problems)?;
        if self.copying.is_none() && self.awaiting_key().is_some() {
            problems
                .error(
                    codes::SOURCE_BAD_KEY,
                    place,
                    "a mapping or list cannot be a key",
                )
                .help("keys are text; put it in quotes if `{`, `[` or `?` is meant literally");
        }
        self.stack.push(Frame {
            span,
            content,
            anchor: None,
        });
        Ok(())
    }

    fn count(&mut self, span: Span, problems: &mut Problems) -> Result<(), ParseAborted> {
        self.nodes += 1;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let copies = if self.copying.is_some() {
            " once its aliases are copied"
        } else {
            ""
        };
        problems
            .error(
                codes::SOURCE_TOO_MANY_NODES,
                span,
                format!("the definition holds more than {MAX_NODES} values{copies}"),
            )
            .help("split the definition, or move data out of it");
        Err(ParseAborted)
    }

    fn close(&mut self, bracket: Span, problems: &mut Problems) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        if let Some((anchor, start)) = frame.anchor {
            self.recording = self.recording.saturating_sub(1);
            self.anchors.insert(anchor, start..self.log.len());
        }
        let mut span = frame.span;
        let value = match frame.content {
            Content::Seq(items) => {
                span.end = span.end.max(items.last().map_or(0, |item| item.span.end));
                Value::Seq(items)
            }
            Content::Map(mapping) => {
                span.end = span.end.max(mapping.end());
                Value::Map(mapping.finish())
            }
        };
        span.end = span.end.max(bracket.end);
        let span = self.place(span);
        self.complete(Node { span, value }, problems);
    }

    /// Hands a finished node to the collection it stands in.
    fn complete(&mut self, node: Node, problems: &mut Problems) {
        // Inside of a copied collection everything was reported before.
        let quiet = self.copying.is_some_and(|it| it.base < self.stack.len());
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.content {
            Content::Seq(items) => items.push(node),
            Content::Map(mapping) => mapping.value(node, self.source, quiet, problems),
        }
    }
}
