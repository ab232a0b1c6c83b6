//! A plan as a Graphviz or Mermaid graph. Names come from files, so all text is escaped.

use stepwell_kernel::plan::{Edge, Plan, Step, StepNo, WaitOn, Work};

use crate::plan::work;
use crate::term::{cut, one_line};

/// The longest guard on an edge, in columns.
const GUARD: usize = 60;

/// The kind of a step in the graph; each kind has its own shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeShape {
    Work,
    Loop,
    Gate,
    Wait,
    Timer,
    Child,
}

fn shape(step: &Step) -> NodeShape {
    match &step.work {
        _ if step.each.is_some() => NodeShape::Loop,
        _ if step.gate.is_some() => NodeShape::Gate,
        Work::Wait(wait) => match wait.on {
            WaitOn::Approval => NodeShape::Gate,
            WaitOn::Timer { .. } => NodeShape::Timer,
            WaitOn::Manual | WaitOn::Event { .. } => NodeShape::Wait,
        },
        Work::Child(_) => NodeShape::Child,
        Work::Task { .. } | Work::Pipeline { .. } => NodeShape::Work,
    }
}

fn guard(edge: &Edge) -> Option<String> {
    let when = edge.when.as_ref()?.source().trim();
    let bare = when
        .strip_prefix("{{")
        .and_then(|it| it.strip_suffix("}}"))
        .filter(|it| !it.contains("{{"))
        .unwrap_or(when);
    Some(cut(&one_line(bare.trim()), GUARD))
}

/// The plan for Graphviz.
pub(crate) fn dot(plan: &Plan) -> String {
    let escaped = |text: &str| one_line(text).replace('\\', "\\\\").replace('"', "\\\"");
    let quoted = |text: &str| format!("\"{}\"", escaped(text));
    let mut text = format!("digraph {} {{\n", quoted(&plan.net().plan_id));
    text.push_str("  rankdir=TB;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n");
    text.push_str("  edge [fontname=\"sans-serif\", fontsize=10];\n");
    for (no, step) in plan.net().steps.iter().enumerate() {
        let shape = match shape(step) {
            NodeShape::Work => "box",
            NodeShape::Loop => "box3d",
            NodeShape::Gate => "diamond",
            NodeShape::Wait => "hexagon",
            NodeShape::Timer => "octagon",
            NodeShape::Child => "folder",
        };
        let is_final = plan.policy().final_step == Some(StepNo(no as u32));
        let lines = if is_final { ", peripheries=2" } else { "" };
        // `\n` is Graphviz's own line break, so it is put between what is already escaped.
        let label = format!("\"{}\\n{}\"", escaped(&step.name), escaped(&work(step)));
        text.push_str(&format!("  s{no} [shape={shape}{lines}, label={label}];\n"));
    }
    for edge in &plan.net().edges {
        let label =
            guard(edge).map_or_else(String::new, |guard| format!(" [label={}]", quoted(&guard)));
        text.push_str(&format!("  s{} -> s{}{label};\n", edge.from.0, edge.to.0));
    }
    text.push_str("}\n");
    text
}

/// The plan for Mermaid.
pub(crate) fn mermaid(plan: &Plan) -> String {
    let mut text = String::from("flowchart TD\n");
    for (no, step) in plan.net().steps.iter().enumerate() {
        let (open, close) = match shape(step) {
            NodeShape::Work => ("[", "]"),
            NodeShape::Loop => ("[[", "]]"),
            NodeShape::Gate => ("{", "}"),
            NodeShape::Wait => ("{{", "}}"),
            NodeShape::Timer => ("([", "])"),
            NodeShape::Child => ("[/", "/]"),
        };
        let label = format!("{}<br/>{}", entities(&step.name), entities(&work(step)));
        text.push_str(&format!("  s{no}{open}\"{label}\"{close}\n"));
    }
    for edge in &plan.net().edges {
        let label =
            guard(edge).map_or_else(String::new, |guard| format!("|\"{}\"|", entities(&guard)));
        text.push_str(&format!("  s{} -->{label} s{}\n", edge.from.0, edge.to.0));
    }
    text
}

/// Mermaid has no escapes inside quotes, only entities.
fn entities(text: &str) -> String {
    let mut out = String::new();
    for c in one_line(text).chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            '&' => out.push_str("#amp;"),
            '#' => out.push_str("#35;"),
            '`' => out.push_str("#96;"),
            '\\' => out.push_str("#92;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use stepwell_kernel::plan::{Dialect, Net, RunPolicy, SourceRef};

    fn plan() -> Plan {
        let pipeline = || Work::Pipeline {
            tasks: serde_json::json!([{"kind": "http"}]),
        };
        let mut edge = Edge::plain(StepNo(0), StepNo(1));
        edge.when = stepwell_kernel::expr::Template::parse("{{ a == \"x\" and b < 2 }}").ok();
        Plan::new(Net {
            dialect: Dialect::Playbook,
            plan_id: "say \"hi\"".into(),
            plan_version: "1".into(),
            schema_version: "v2".into(),
            source: SourceRef::default(),
            workload: serde_json::Value::Null,
            steps: vec![
                Step::new("a \\ \"quoted\"", pipeline()),
                Step::new("<b>&", pipeline()),
            ],
            edges: vec![edge],
            policy: RunPolicy::default(),
            library: std::collections::BTreeMap::new(),
            extra: serde_json::Value::Null,
        })
        .unwrap()
    }

    #[test]
    fn names_cannot_break_out_of_graphviz() {
        let text = dot(&plan());
        assert!(text.starts_with("digraph \"say \\\"hi\\\"\" {\n"), "{text}");
        assert!(text.contains(r#"label="a \\ \"quoted\"\nhttp"]"#), "{text}");
        assert!(
            text.contains(r#"s0 -> s1 [label="a == \"x\" and b < 2"];"#),
            "{text}"
        );
    }

    #[test]
    fn names_cannot_break_out_of_mermaid() {
        let text = mermaid(&plan());
        assert!(
            text.contains("s0[\"a #92; #quot;quoted#quot;<br/>http\"]"),
            "{text}"
        );
        assert!(text.contains("s1[\"#lt;b#gt;#amp;<br/>http\"]"), "{text}");
        assert!(
            text.contains("s0 -->|\"a == #quot;x#quot; and b #lt; 2\"| s1"),
            "{text}"
        );
    }
}
