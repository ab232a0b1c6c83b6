//! A statement with its values, and the values' types. Where statements cannot be prepared, as behind a
//! pooler, the types are sent with them.

use tokio_postgres::types::{ToSql, Type};

/// A value of a statement.
pub(super) trait Param: ToSql + Sync {
    /// The type that the statement has in its place.
    fn pg_type(&self) -> Type;

    /// The value, as the driver takes it.
    fn value(&self) -> &(dyn ToSql + Sync);
}

impl<T: ToSql + Sync + Typed> Param for T {
    fn pg_type(&self) -> Type {
        T::pg_type()
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a dyn Param];

/// A statement with its values.
pub(super) struct Query<'a> {
    pub(super) sql: &'static str,
    values: Vec<Box<dyn Param + 'a>>,
}

impl<'a> Query<'a> {
    pub(super) fn new(sql: &'static str) -> Query<'a> {
        Query {
            sql,
            values: Vec::new(),
        }
    }

    pub(super) fn with(mut self, value: impl Param + 'a) -> Query<'a> {
        self.values.push(Box::new(value));
        self
    }

    pub(super) fn values(&self) -> Vec<&dyn Param> {
        self.values
            .iter()
            .map(|value| &**value as &dyn Param)
            .collect()
    }
}

/// The type of the database that a type of this program has.
pub(super) trait Typed {
    fn pg_type() -> Type;
}

macro_rules! typed {
    ($($own:ty => $theirs:ident),* $(,)?) => {
        $(impl Typed for $own {
            fn pg_type() -> Type {
                Type::$theirs
            }
        })*
    };
}

typed! {
    bool => BOOL,
    i16 => INT2,
    i32 => INT4,
    i64 => INT8,
    // Alone it is never sent; a vector of it is a `bytea`.
    u8 => CHAR,
    str => TEXT,
    String => TEXT,
    [u8] => BYTEA,
}

impl<T: Typed + ?Sized> Typed for &T {
    fn pg_type() -> Type {
        T::pg_type()
    }
}

impl<T: Typed> Typed for Option<T> {
    fn pg_type() -> Type {
        T::pg_type()
    }
}

impl<T: Typed> Typed for Vec<T> {
    fn pg_type() -> Type {
        match T::pg_type() {
            Type::CHAR => Type::BYTEA,
            Type::BOOL => Type::BOOL_ARRAY,
            Type::INT2 => Type::INT2_ARRAY,
            Type::INT4 => Type::INT4_ARRAY,
            Type::INT8 => Type::INT8_ARRAY,
            Type::BYTEA => Type::BYTEA_ARRAY,
            _ => Type::TEXT_ARRAY,
        }
    }
}
