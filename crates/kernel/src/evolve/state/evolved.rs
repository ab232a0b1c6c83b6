//! The macro that seals the parts of a state: `evolve` can write their fields, everyone else reads them
//! through methods of the same names. No rule about workflows lives here.

/// Defines a struct whose fields only `crate::evolve` can see, with one reading method for each field.
///
/// After `=>` stands how a field is read: `copy` returns the value, `get` a reference to the field,
/// `deref(T)` a `&T` through the field's own `Deref`, `opt(T)` an `Option<&T>`, and `opt_deref(T)` an
/// `Option<&T>` through the `Deref` of what is inside the option.
macro_rules! evolved {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                $field:ident : $type:ty => $how:ident $(($to:ty))?,
            )*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[serde($($serde)*)])?
                pub(in crate::evolve) $field: $type,
            )*
        }

        impl $name {
            $(
                evolved!(@$how $field, $type, $($to)?, $(#[doc = $doc])+);
            )*
        }
    };
    (@copy $field:ident, $type:ty, , $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        #[inline]
        #[must_use]
        pub fn $field(&self) -> $type {
            self.$field
        }
    };
    (@get $field:ident, $type:ty, , $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        #[inline]
        #[must_use]
        pub fn $field(&self) -> &$type {
            &self.$field
        }
    };
    (@deref $field:ident, $type:ty, $to:ty, $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        #[inline]
        #[must_use]
        pub fn $field(&self) -> &$to {
            &self.$field
        }
    };
    (@opt $field:ident, $type:ty, $to:ty, $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        #[inline]
        #[must_use]
        pub fn $field(&self) -> Option<&$to> {
            self.$field.as_ref()
        }
    };
    (@opt_deref $field:ident, $type:ty, $to:ty, $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        #[inline]
        #[must_use]
        pub fn $field(&self) -> Option<&$to> {
            self.$field.as_deref()
        }
    };
}

pub(super) use evolved;
