//! Vision Mamba as a graph of ONNX, for inference outside of this program.
//!
//! Every method's gains are computed in the graph, at run time and in f32, from delta and `a_log`,
//! by forms that lose no digits (`gains.rs`). They follow from the method's [`Form`]: a new method
//! needs nothing here. The recurrence is a loop of ONNX's own, which every runtime has, or one node
//! of linear attention ([`ScanNode`]).
//!
//! ```
//! use vim_model::burn::tensor::Device;
//! use vim_model::{NamedArrays, VimConfig};
//! use vim_onnx::{Options, classifier, write};
//!
//! let config = VimConfig {
//!     image_size: 32.into(),
//!     depth: 2,
//!     d_model: 32,
//!     num_classes: 10,
//!     ..VimConfig::default()
//! };
//! let model = config.init(&Device::flex(), 0)?;
//! let graph = classifier(&config, &NamedArrays::of(&model), &Options::default())?;
//! let file = write(graph, &Options::default(), "0.1.0", &[("classes", "[]".to_owned())])?;
//! assert!(file.len() as u64 > 4 * model.config().cost()?.parameters());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Letters: `B` batch, `L` tokens, `M` `d_model`, `D` `d_inner`, `N` `d_state`, `K` classes.
//!
//! [`Form`]: vim_kernels::Form

mod backbone;
mod gains;
mod graph;
pub mod probe;
mod proto;
mod scan;
mod segmenter;
#[cfg(test)]
mod tests;

use prost::Message;
use vim_model::{NamedArrays, Pool, StateMatrix, VimConfig};

use backbone::{IMAGES, Network, PIXELS, Stream};
use graph::{MICROSOFT, int};
pub use proto::Graph;
use proto::{Entry, Info, Model, Opset, element};
pub use segmenter::segmenter;

/// The opset of a graph where nobody asks for another one.
pub const OPSET: u32 = 17;
/// The least that has all operators in this form.
pub const LEAST_OPSET: u32 = 13;
/// The one that brought `LinearAttention`, and the last that is tested.
pub const ATTENTION_OPSET: u32 = 27;

/// What computes the recurrence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanNode {
    /// ONNX's `Scan`, token by token.
    #[default]
    Loop,
    /// ONNX's `LinearAttention`, of opset 27.
    Attention,
    /// onnxruntime's own, `com.microsoft`, of any opset.
    Microsoft,
}

/// What images are normalized by: mean and standard deviation of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pixels {
    /// Means, of numbers from 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviations.
    pub std: [f32; 3],
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What computes the recurrence.
    pub scan: ScanNode,
    /// The version of ONNX's operators.
    pub opset: u32,
    /// Whether weights are stored in f16. Everything is computed in f32.
    pub half: bool,
    /// Whether the batch is of any size, instead of one image.
    pub dynamic: bool,
    /// Takes bytes, `[B, H, W, 3]`, and gives probabilities or labels beside the logits.
    pub pixels: Option<Pixels>,
}

impl Default for Options {
    fn default() -> Self {
        let scan = ScanNode::default();
        Self { scan, opset: OPSET, half: false, dynamic: false, pixels: None }
    }
}

impl Options {
    fn batch(&self) -> Option<usize> {
        (!self.dynamic).then_some(1)
    }

    fn input_name(&self) -> &'static str {
        if self.pixels.is_some() { PIXELS } else { IMAGES }
    }
}

/// Why there is no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnnxError {
    /// The operators are not in the opset.
    #[error("opset {opset} lacks what the graph needs ({what}): use {least} to {ATTENTION_OPSET}")]
    Opset {
        /// The opset asked for.
        opset: u32,
        /// What it lacks, or why it is refused.
        what: &'static str,
        /// The first that has it.
        least: u32,
    },
    /// A is full.
    #[error(
        "ssm.a = \"full\" has no graph: no operator of ONNX solves the linear system of each token; use ssm.a = \"diagonal\""
    )]
    FullA,
    /// A message of protobuf has at most 2 GiB.
    #[error("the weights take {bytes} bytes, and a file of ONNX at most {}", i32::MAX)]
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
}

/// The graph of a classifier with `arrays`: `logits`, `[B, K]`, and with [`Options::pixels`]
/// `probabilities`, `[B, K]`, before it.
///
/// # Errors
///
/// [`OnnxError`].
pub fn classifier(
    config: &VimConfig,
    arrays: &NamedArrays,
    options: &Options,
) -> Result<Graph, OnnxError> {
    check(config, options)?;
    let mut network = Network::new(config, arrays, "", options);
    let tokens = network.tokens();
    let stream = network.through_blocks(tokens, config.depth, |_, _| ());
    let class: Vec<i64> =
        config.class_token_positions().iter().map(|&position| position as i64).collect();
    let (class, is_pooled) = match (&class[..], config.pool()) {
        ([], Pool::Last) => (vec![config.num_tokens() as i64 - 1], false),
        ([], Pool::Mean | Pool::Max) => (class, true),
        (tokens, _) => (class.clone(), tokens.len() > 1),
    };
    let read = if class.is_empty() {
        stream
    } else {
        let at = |network: &mut Network<'_>, x: String| network.graph.gather(&x, &class, 1);
        Stream {
            hidden: at(&mut network, stream.hidden),
            residual: stream.residual.map(|residual| at(&mut network, residual)),
        }
    };
    let (mut read, _) = network.normed(&read, "norm_f");
    let is_max = class.is_empty() && config.pool() == Pool::Max;
    if is_pooled && !is_max {
        read = network.graph.reduce("ReduceMean", &read, 1);
    }
    let (weight, bias) = (network.weight("head.weight"), network.weight("head.bias"));
    let graph = &mut network.graph;
    let logits = graph.matmul(&read, &weight);
    let mut logits = graph.add(&logits, &bias);
    if is_max {
        logits = graph.reduce("ReduceMax", &logits, 1);
    }
    let logits = graph.squeeze(&logits, 1);
    graph.rename(&logits, "logits");
    let shape = [options.batch(), Some(config.num_classes)];
    let mut outputs = vec![Info::new("logits", element::FLOAT, &shape)];
    if options.pixels.is_some() {
        let probabilities = graph.op("Softmax", &[&logits], [int("axis", 1)]);
        graph.rename(&probabilities, "probabilities");
        outputs.insert(0, Info::new("probabilities", element::FLOAT, &shape));
    }
    let input = network.input();
    Ok(network.graph.finish("vision_mamba", vec![input], outputs))
}

/// Checks that `config` has a graph under `options`.
fn check(config: &VimConfig, options: &Options) -> Result<(), OnnxError> {
    if config.ssm.a == StateMatrix::Full {
        return Err(OnnxError::FullA);
    }
    let opset = options.opset;
    let (what, least) = match options.scan {
        ScanNode::Attention => ("LinearAttention came with 27", ATTENTION_OPSET),
        ScanNode::Loop | ScanNode::Microsoft => {
            ("axes of Squeeze, Split and Unsqueeze are inputs from 13 on", LEAST_OPSET)
        }
    };
    if opset < least {
        return Err(OnnxError::Opset { opset, what, least });
    }
    if opset > ATTENTION_OPSET {
        let what = "no later one has been tried";
        return Err(OnnxError::Opset { opset, what, least });
    }
    Ok(())
}

/// The bytes of a file with `graph`, which `options` made, and texts beside it. The same arguments
/// give the same bytes.
///
/// # Errors
///
/// [`OnnxError::TooLarge`].
pub fn write(
    graph: Graph,
    options: &Options,
    version: &str,
    texts: &[(&str, String)],
) -> Result<Vec<u8>, OnnxError> {
    let entry =
        |(key, value): &(&str, String)| Entry { key: (*key).to_owned(), value: value.clone() };
    let weights_type = if options.half { "float16" } else { "float32" };
    let own_texts = [("weights_type", weights_type.to_owned())];
    let own = Opset { domain: String::new(), version: i64::from(options.opset) };
    let mut opset_import = vec![own];
    if options.scan == ScanNode::Microsoft {
        opset_import.push(Opset { domain: MICROSOFT.to_owned(), version: 1 });
    }
    let model = Model {
        // What onnx 1.13 and 1.16 write, that old runtimes take the file.
        ir_version: if options.opset < 21 { 8 } else { 10 },
        producer_name: "vim-train".to_owned(),
        producer_version: version.to_owned(),
        graph: Some(graph),
        opset_import,
        metadata_props: texts.iter().chain(&own_texts).map(entry).collect(),
    };
    let bytes = model.encoded_len();
    if bytes > i32::MAX as usize {
        return Err(OnnxError::TooLarge { bytes });
    }
    Ok(model.encode_to_vec())
}
