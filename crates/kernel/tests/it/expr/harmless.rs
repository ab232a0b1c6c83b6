//! That no text, however odd, makes a template panic or answer twice differently.

use proptest::prelude::*;
use stepwell_kernel::expr::{Template, TemplateError};

use super::{scope, world};

fn fragment() -> impl Strategy<Value = String> {
    let words = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-%}",
        "{{-",
        "ctx",
        "event",
        ".",
        "page",
        "items",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "|",
        "int",
        "join",
        "replace",
        "sort",
        "tojson",
        "default",
        "split",
        "get",
        "is",
        "not",
        "in",
        "if",
        "else",
        "for",
        "endfor",
        "endif",
        "set",
        "raw",
        "endraw",
        "and",
        "or",
        "~",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "<",
        ">=",
        "==",
        "=",
        ",",
        ":",
        "'a'",
        "\"",
        "'",
        "\\",
        "1",
        "0",
        "2.5",
        "1e308",
        "9223372036854775807",
        "range",
        "namespace",
        "loop",
        "none",
        "é",
        "_",
        " ",
        "\n",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..24)
        .prop_map(|w| w.join(" "))
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "ctx",
        "ctx.items",
        "ctx.page",
        "ctx.name",
        "nothing.x",
        "'a'",
        "''",
        "1",
        "0",
        "-3",
        "2.5",
        "[1, 'b']",
        "{'k': none}",
        "true",
        "None",
        "quote",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let op = proptest::sample::select(vec![
            "+", "-", "*", "/", "//", "%", "**", "~", "<", ">=", "==", "in", "not in", "and", "or",
        ]);
        let filter = proptest::sample::select(vec![
            "int",
            "float",
            "length",
            "first",
            "last",
            "sort",
            "join(',')",
            "sum",
            "list",
            "unique",
            "tojson",
            "upper",
            "round",
            "string",
            "default(1)",
            "min",
            "abs",
            "items",
            "replace('a', 'b')",
            "map('int')",
            "batch(2)",
            "reverse",
            "groupby('id')",
            "bool",
            "trim",
        ]);
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), filter).prop_map(|(a, f)| format!("({a} | {f})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} if {b} else {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a})[{b}:{c}]")),
        ]
    })
}

fn never_panics_and_repeats(source: &str) -> Result<(), TestCaseError> {
    // `caught` would hide a panic of the engine, so its message must not appear either.
    let hidden = |e: &TemplateError| e.message.contains("gave up");
    match Template::parse(source) {
        Err(error) => prop_assert!(!hidden(&error), "{source}"),
        Ok(template) => {
            let scope = scope(world());
            let first = template.evaluate(&scope);
            if let Err(error) = &first {
                prop_assert!(!hidden(error), "{source}");
                if let Some(range) = &error.range {
                    prop_assert!(range.end <= source.len(), "{source}");
                }
            }
            prop_assert_eq!(&first, &template.evaluate(&scope));
            let again = Template::parse(source).expect("it parsed before");
            prop_assert_eq!(first, again.evaluate(&scope));
            let _ = template.truthy(&scope);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_text_is_harmless(source in any::<String>()) {
        never_panics_and_repeats(&source)?;
    }

    #[test]
    fn arbitrary_tags_are_harmless(source in fragment()) {
        never_panics_and_repeats(&source)?;
        never_panics_and_repeats(&format!("{{{{ {source} }}}}"))?;
        never_panics_and_repeats(&format!("{{% if {source} %}}x{{% endif %}}"))?;
    }

    #[test]
    fn arbitrary_expressions_are_harmless(source in expression()) {
        never_panics_and_repeats(&format!("{{{{ {source} }}}}"))?;
        never_panics_and_repeats(&format!("a {{{{ {source} }}}}"))?;
    }
}
