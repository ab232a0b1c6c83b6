//! What serde asks of a serializer. Everything that is written is written in `twin`.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::{NoJson, OpenList, OpenObject, TwinSerializer};

type Done = Result<(), NoJson>;

impl<'t, 'a> Serializer for &'t mut TwinSerializer<'a> {
    type Ok = ();
    type Error = NoJson;
    type SerializeSeq = OpenList<'t, 'a>;
    type SerializeTuple = OpenList<'t, 'a>;
    type SerializeTupleStruct = OpenList<'t, 'a>;
    type SerializeTupleVariant = OpenList<'t, 'a>;
    type SerializeMap = OpenObject<'t, 'a>;
    type SerializeStruct = OpenObject<'t, 'a>;
    type SerializeStructVariant = OpenVariant<'t, 'a>;

    fn serialize_bool(self, value: bool) -> Done {
        self.both(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Done {
        self.integer(value < 0, value.unsigned_abs());
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        self.integer(false, value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Done {
        match value.is_finite() {
            true => self.fraction(&value),
            false => self.serialize_unit(),
        }
    }

    fn serialize_f64(self, value: f64) -> Done {
        match value.is_finite() {
            true => self.fraction(&value),
            false => self.serialize_unit(),
        }
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Done {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.both(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        self.both(b"{");
        self.text(variant);
        self.both(b":");
        value.serialize(&mut *self)?;
        self.both(b"}");
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<OpenList<'t, 'a>, NoJson> {
        Ok(self.list(b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<OpenList<'t, 'a>, NoJson> {
        Ok(self.list(b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<OpenList<'t, 'a>, NoJson> {
        Ok(self.list(b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<OpenList<'t, 'a>, NoJson> {
        self.both(b"{");
        self.text(variant);
        self.both(b":");
        Ok(self.list(b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<OpenObject<'t, 'a>, NoJson> {
        Ok(self.object())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<OpenObject<'t, 'a>, NoJson> {
        Ok(self.object())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<OpenVariant<'t, 'a>, NoJson> {
        self.both(b"{");
        self.text(variant);
        self.both(b":");
        Ok(OpenVariant(self.object()))
    }
}

impl SerializeSeq for OpenList<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.item(value)
    }

    fn end(self) -> Done {
        self.twin.both(self.closing);
        Ok(())
    }
}

impl SerializeTuple for OpenList<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.item(value)
    }

    fn end(self) -> Done {
        SerializeSeq::end(self)
    }
}

impl SerializeTupleStruct for OpenList<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.item(value)
    }

    fn end(self) -> Done {
        SerializeSeq::end(self)
    }
}

impl SerializeTupleVariant for OpenList<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.item(value)
    }

    fn end(self) -> Done {
        SerializeSeq::end(self)
    }
}

impl SerializeMap for OpenObject<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        let begin = self.separate();
        key.serialize(&mut *self.twin)?;
        self.named(begin)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.value(value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

impl SerializeStruct for OpenObject<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.field(name, value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

/// The members of an enum's variant: an object within an object.
pub(crate) struct OpenVariant<'t, 'a>(OpenObject<'t, 'a>);

impl SerializeStructVariant for OpenVariant<'_, '_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.0.field(name, value)
    }

    fn end(self) -> Done {
        let twin = self.0.close();
        twin.both(b"}");
        Ok(())
    }
}
