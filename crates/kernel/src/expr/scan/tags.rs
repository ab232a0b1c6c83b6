//! The `{{ … }}` tags of a template one by one: what each reads, and the filter that all of its value goes
//! through. For those who ask where values get to; nothing is evaluated.

use std::collections::BTreeSet;
use std::ops::Range;

use super::reads::collect_reads;
use super::token::{ExprToken, TemplateTag, TokenKind, at_top_level};
use super::{OPERATOR_WORDS, comment_end, next_tag};

/// One `{{ … }}` of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTag {
    /// The bytes of the tag in the source, with its braces.
    pub range: Range<usize>,
    /// The dotted paths that it reads. A name that a statement binds counts as read.
    pub reads: BTreeSet<String>,
    /// The last filter, if all of the value goes through it: `quote` in `{{ (a ~ b) | quote }}`, none in
    /// `{{ a ~ b | quote }}`, where it takes `b` only.
    pub last_filter: Option<String>,
}

/// The tags of a source that write a value, in order. A source that is no template has none.
#[must_use]
pub fn output_tags(source: &str) -> Vec<OutputTag> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = next_tag(source, at) {
        let sign = source.as_bytes()[open + 1];
        let end = match sign {
            b'#' => comment_end(source, open).ok(),
            _ => TemplateTag::read(source, open, sign == b'%')
                .ok()
                .map(|tag| {
                    if sign == b'{' {
                        found.push(output_tag(&tag));
                    }
                    tag.range.end
                }),
        };
        let Some(end) = end else { break };
        at = end;
    }
    found
}

fn output_tag(tag: &TemplateTag<'_>) -> OutputTag {
    let mut sites = Vec::new();
    collect_reads(&tag.tokens, &[], &mut sites);
    OutputTag {
        range: tag.range.clone(),
        reads: sites.into_iter().map(|site| site.path).collect(),
        last_filter: last_filter(&tag.tokens).map(str::to_owned),
    }
}

/// The filter at the end of a chain that is the whole expression.
fn last_filter<'s>(tokens: &[ExprToken<'s>]) -> Option<&'s str> {
    let binds_looser = |token: &ExprToken<'_>| match token.kind {
        TokenKind::Op => !matches!(token.text, "|" | "."),
        TokenKind::Word => OPERATOR_WORDS.contains(&token.text),
        TokenKind::Number | TokenKind::Text => false,
    };
    if at_top_level(tokens, binds_looser).is_some() {
        return None;
    }
    let mut rest = tokens;
    let mut last = None;
    while let Some(pipe) = at_top_level(rest, |token| token.is_op("|")) {
        rest = &rest[pipe + 1..];
        last = rest.first().filter(|it| it.kind == TokenKind::Word);
    }
    // After its name there are its arguments and nothing else.
    let is_end = match rest {
        [_] => true,
        [_, open, .., close] => {
            let inside = at_top_level(&rest[1..], |_| true);
            open.is_op("(") && close.is_op(")") && inside.is_none()
        }
        _ => false,
    };
    last.filter(|_| is_end).map(|it| it.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(source: &str) -> Vec<Option<String>> {
        let tags = output_tags(source).into_iter();
        tags.map(|tag| tag.last_filter).collect()
    }

    #[test]
    fn a_filter_counts_if_all_of_the_value_goes_through_it() {
        for (source, filter) in [
            ("{{ a | quote }}", Some("quote")),
            ("{{- a.b['c'] | default('x') | quote -}}", Some("quote")),
            ("{{ (a ~ b) | quote }}", Some("quote")),
            ("{{ a | one_of(['x', f(1)]) }}", Some("one_of")),
            ("{{ a | quote | lower }}", Some("lower")),
            ("{{ a ~ b | quote }}", None),
            ("{{ a if b else c | quote }}", None),
            ("{{ a | quote ~ 'x' }}", None),
            ("{{ -a | quote }}", None),
            ("{{ a | first.b }}", None),
            ("{{ (a | quote) }}", None),
            ("{{ a }}", None),
        ] {
            assert_eq!(filters(source), [filter.map(str::to_owned)], "{source}");
        }
    }

    #[test]
    fn statements_and_comments_write_nothing() {
        let source = "{# {{ a }} #}{% for x in ctx.list %}{{ x.y | int }}, {% endfor %}{{ b.c }}";
        let tags = output_tags(source);
        let reads: Vec<Vec<&str>> = tags
            .iter()
            .map(|tag| tag.reads.iter().map(String::as_str).collect())
            .collect();
        assert_eq!(reads, [["x.y"], ["b.c"]]);
        assert_eq!(&source[tags[1].range.clone()], "{{ b.c }}");
        for odd in ["", "{{", "{{ }}", "{% if", "{{ 'a }}", "{#"] {
            assert!(
                output_tags(odd).iter().all(|tag| tag.reads.is_empty()),
                "{odd}"
            );
        }
    }
}
