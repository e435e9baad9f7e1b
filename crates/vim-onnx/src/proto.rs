//! The messages of an ONNX file, with the fields that are written here.
//!
//! # Source
//!
//! `onnx.proto3` of onnx 1.23; numbers of fields never change.

use prost::{Message, Oneof};

/// The type of an element, as `TensorProto.DataType` numbers them.
pub(crate) mod element {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const UINT8: i32 = 2;
    pub(crate) const INT64: i32 = 7;
    pub(crate) const FLOAT16: i32 = 10;
}

/// The kind of an attribute, as `AttributeProto.AttributeType` numbers them.
pub(crate) mod kind {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const STRING: i32 = 3;
    pub(crate) const GRAPH: i32 = 5;
    pub(crate) const INTS: i32 = 7;
}

/// A file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    /// Of the format, not of the operators.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// What wrote it.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// What it computes.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    /// The versions of its operators.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<Opset>,
    /// Whatever else is known of it, by key.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<Entry>,
}

/// A set of operators.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Opset {
    /// Whose: empty for ONNX's own.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A text by its key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The text.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A computation.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    /// Its steps, each after those that it depends on.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants: weights.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    /// What it is given.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<Info>,
    /// What it computes.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<Info>,
}

/// An operator applied.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Names of what it reads; empty for what is left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of its results.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Its settings.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    /// Whose operator: empty for ONNX's own.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A setting of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, tag = "2")]
    pub(crate) f: f32,
    #[prost(int64, tag = "3")]
    pub(crate) i: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) s: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    pub(crate) g: Option<Graph>,
    #[prost(int64, repeated, tag = "8")]
    pub(crate) ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub(crate) r#type: i32,
}

/// An array.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Its shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// The type of its elements.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Its elements, little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// The name, type and shape of an array.
#[derive(Clone, PartialEq, Message)]
pub struct Info {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The rest.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

/// A type that may be that of an array.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    /// Of an array.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

/// The type of an array.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// Of its elements.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Its shape.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    /// Its sides.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// A side.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// How long it is.
    #[prost(oneof = "Length", tags = "1, 2")]
    pub length: Option<Length>,
}

/// The length of a side.
#[derive(Clone, PartialEq, Oneof)]
pub enum Length {
    /// Fixed.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// The caller's, by name.
    #[prost(string, tag = "2")]
    Parameter(String),
}

pub(crate) const BATCH: &str = "batch";

impl Info {
    /// A side of `None` is the caller's.
    pub(crate) fn new(name: &str, elem_type: i32, sides: &[Option<usize>]) -> Self {
        let dimension = |side: &Option<usize>| Dimension {
            length: Some(match side {
                Some(side) => Length::Value(*side as i64),
                None => Length::Parameter(BATCH.to_owned()),
            }),
        };
        let shape = Some(Shape { dim: sides.iter().map(dimension).collect() });
        let tensor_type = Some(TensorType { elem_type, shape });
        Self { name: name.to_owned(), r#type: Some(Type { tensor_type }) }
    }
}
