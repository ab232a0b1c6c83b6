//! The macro behind enums that are one table: a row is a variant with its name and documentation. No such enum
//! lives here.

/// Defines an enum from one table: each row is the documentation, the variant and the name of the variant in
/// files and events. The names, the list of all variants, parsing, serde and the JSON Schema derive from it.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $enum:ident { $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        pub enum $enum {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl $enum {
            /// Every variant, in the order of the table.
            pub const ALL: &'static [$enum] = &[$($enum::$variant,)+];

            /// The name in files and events.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)+ }
            }

            /// The variant of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$enum> {
                $enum::ALL.iter().copied().find(|it| it.name() == name)
            }
        }
    };
}

pub(super) use named;
