//! The section `[engines]` of the configuration file: engines outside that a server serves, and which definitions run there.

use std::collections::BTreeMap;

use serde::Deserialize;
use stepwell_engine::EngineRoute;
use stepwell_engines::EngineAddress;

/// The name of the server's own engine.
const NATIVE: &str = "native";

/// The section `[engines]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EngineTable")]
pub struct EngineSection {
    /// At most one of each kind.
    pub engines: Vec<NamedEngine>,
    /// Which definitions run where; the first that fits counts.
    pub routes: Vec<EngineRoute>,
}

/// An engine outside and its name in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEngine {
    pub name: String,
    pub address: EngineAddress,
}

/// The section as it is written.
#[derive(Default, Deserialize)]
struct EngineTable {
    #[serde(default)]
    definitions: Vec<RouteTable>,
    #[serde(flatten)]
    engines: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    name: String,
    engine: String,
    tenant: Option<String>,
    project: Option<String>,
}

impl TryFrom<EngineTable> for EngineSection {
    type Error = String;

    fn try_from(table: EngineTable) -> Result<EngineSection, String> {
        let mut engines: Vec<NamedEngine> = Vec::new();
        for (name, text) in table.engines {
            if [NATIVE, "mock"].contains(&name.as_str()) {
                return Err(format!(
                    "engines.{name}: this is the name of an engine of the program itself; choose another name"
                ));
            }
            let address = match EngineAddress::parse(&text) {
                Some(Ok(address)) => address,
                Some(Err(error)) => return Err(format!("engines.{name}: {error}")),
                None => {
                    return Err(format!(
                        "engines.{name}: ENGINE_ADDRESS: {text:?} is not the address of an engine outside; write \
                         temporal://HOST:PORT/NAMESPACE or conductor+http://HOST:PORT/api"
                    ));
                }
            };
            let kind = address.engine();
            if let Some(other) = engines.iter().find(|it| it.address.engine() == kind) {
                return Err(format!(
                    "engines.{name} and engines.{} are both of the kind `{kind}`: a server serves one engine of each kind, since \
                     events name the kind of the engine",
                    other.name
                ));
            }
            engines.push(NamedEngine { name, address });
        }
        let mut routes = Vec::new();
        for route in table.definitions {
            let named = engines.iter().find(|it| it.name == route.engine);
            let engine = match named {
                Some(named) => Some(named.address.engine()),
                None if route.engine == NATIVE => None,
                None => {
                    return Err(format!(
                        "engines.definitions: there is no engine {:?} for the definition {:?}; write {NATIVE:?} or a name of the \
                         section [engines]",
                        route.engine, route.name
                    ));
                }
            };
            if route.name.is_empty() {
                return Err("engines.definitions: name: a text is needed".to_owned());
            }
            routes.push(EngineRoute {
                definition: route.name,
                tenant: route.tenant,
                project: route.project,
                engine,
            });
        }
        Ok(EngineSection { engines, routes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EngineSection, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn engines_have_names_and_definitions_run_there() {
        let section = read(
            "orders = 'temporal://127.0.0.1:7233/default'\nbatch = 'conductor+http://127.0.0.1:8080/api'\n\
             [[definitions]]\nname = 'order-test'\nengine = 'native'\n\
             [[definitions]]\nname = 'order-*'\nengine = 'orders'\ntenant = 'acme'",
        )
        .unwrap();
        let names: Vec<&str> = section.engines.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["batch", "orders"]);
        let engines: Vec<_> = section.routes.iter().map(|it| it.engine).collect();
        assert_eq!(engines, [None, Some("temporal")]);
        assert_eq!(read("").unwrap(), EngineSection::default());
    }

    #[test]
    fn slips_are_errors_that_say_what_to_write() {
        for (text, part) in [
            ("a = 'nowhere'", "temporal://HOST:PORT"),
            ("a = 'temporal://h:1/n?colour=red'", "options are"),
            ("native = 'temporal://h'", "choose another name"),
            (
                "a = 'temporal://h'\nb = 'temporal://i'",
                "one engine of each kind",
            ),
            ("[[definitions]]\nname = 'x'\nengine = 'a'", "no engine"),
            ("[[definitions]]\nname = 'x'", "engine"),
            ("[[definitions]]\nname = ''\nengine = 'native'", "a text"),
            (
                "[[definitions]]\nname = 'x'\nengine = 'native'\nwhere = 1",
                "where",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
