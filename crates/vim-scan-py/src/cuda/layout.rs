//! The buffers of a recording: which tensor of a launch each is, and where those lie that live
//! within a call.

#![expect(unsafe_code, reason = "a function of the driver")]

use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::sys;
use vim_kernels::burn::tensor::DType;

use super::{Begin, Launch, Parameter, Plan, Server, failed, text};
use crate::call::Error;

/// Bytes at which buffers begin.
const ALIGNMENT: u64 = 512;

/// A buffer of the recording.
struct Buffer {
    first: u64,
    bytes: u64,
    /// Which tensor of a launch it is; none of those that live within the call.
    tensor: Option<usize>,
    /// The first and the last launch that has it as a parameter.
    used: Option<(usize, usize)>,
    /// Of one that lives within the call: where.
    offset: u64,
}

impl Buffer {
    fn new(of: &CubeTensor, tensor: Option<usize>) -> Result<Self, Error> {
        let resource = of.client.get_resource::<Server>(of.handle.clone());
        let resource = resource.map_err(text).map_err(failed)?;
        // A part of a buffer ends where its shape says: its resource is all that is behind it.
        let bytes = (of.meta.shape().num_elements() * of.dtype.size()) as u64;
        Ok(Self { first: resource.resource().ptr, bytes, tensor, used: None, offset: 0 })
    }

    fn end(&self) -> u64 {
        self.first + self.bytes
    }

    fn is_used_with(&self, other: &Self) -> bool {
        match (self.used, other.used) {
            (Some((a, b)), Some((c, d))) => a <= d && c <= b,
            _ => false,
        }
    }
}

/// The buffers of a recording.
pub(super) struct Layout {
    all: Vec<Buffer>,
    /// The results, which are the tensors behind the inputs.
    results: Vec<Buffer>,
    inputs: usize,
}

impl Layout {
    pub(super) fn new(
        inputs: &[CubeTensor],
        results: &[CubeTensor],
        made: &[CubeTensor],
    ) -> Result<Self, Error> {
        let of_inputs = inputs.iter().enumerate().map(|(i, of)| Buffer::new(of, Some(i)));
        let mut all: Vec<Buffer> = of_inputs.collect::<Result<_, _>>()?;
        let results = results.iter().map(|of| Buffer::new(of, None));
        let results: Vec<Buffer> = results.collect::<Result<_, _>>()?;
        for of in made {
            let mut buffer = Buffer::new(of, None)?;
            let whole = |of: &Buffer| (of.first, of.bytes) == (buffer.first, buffer.bytes);
            buffer.tensor = results.iter().position(whole).map(|i| inputs.len() + i);
            all.push(buffer);
        }
        Ok(Self { all, results, inputs: inputs.len() })
    }

    /// The buffer that `address` is in.
    fn holds(&self, address: u64) -> Option<usize> {
        self.all.iter().position(|of| (of.first..of.end()).contains(&address))
    }

    /// The launches with places for addresses.
    pub(super) fn plan(
        mut self,
        mut launches: Vec<Launch>,
        results: &[CubeTensor],
        context: usize,
    ) -> Result<Plan, Error> {
        let address = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        for (at, launch) in launches.iter().enumerate() {
            for parameter in &launch.parameters {
                let Parameter::Bytes(bytes) = parameter else { continue };
                let Some(address) = address(bytes) else { continue };
                if let Some(found) = self.holds(address) {
                    self.use_at(found, at);
                } else if is_of_a_device(address) {
                    return Err(failed("a kernel of a call reads memory that is not its".into()));
                }
            }
        }
        let mut copies = Vec::new();
        for i in 0..self.results.len() {
            let Buffer { first, bytes, .. } = self.results[i];
            let Some(found) = self.holds(first) else {
                return Err(failed("a result that no kernel writes".into()));
            };
            let tensor = self.inputs + i;
            if self.all[found].tensor != Some(tensor) {
                self.use_at(found, launches.len());
                copies.push((first, tensor, bytes as usize));
            }
        }
        let scratch = self.place();
        let tensors = self.inputs + self.results.len() + 1;
        let place = |address: u64| {
            let of = &self.all[self.holds(address)?];
            let offset = of.offset + (address - of.first);
            Some(Begin { tensor: of.tensor.unwrap_or(tensors - 1), offset })
        };
        for parameter in launches.iter_mut().flat_map(|launch| &mut launch.parameters) {
            let Parameter::Bytes(bytes) = &*parameter else { continue };
            if let Some(place) = address(bytes).and_then(place) {
                *parameter = Parameter::Address(place);
            }
        }
        let copies =
            copies.into_iter().filter_map(|(from, to, bytes)| Some((place(from)?, to, bytes)));
        let name = |of: &CubeTensor| if of.dtype == DType::BF16 { "bfloat16" } else { "float32" };
        let kind = |of: &CubeTensor| (of.meta.shape().to_vec(), name(of).to_owned());
        Ok(Plan {
            copies: copies.collect(),
            launches,
            results: results.iter().map(kind).collect(),
            scratch,
            tensors,
            context,
        })
    }

    fn use_at(&mut self, buffer: usize, launch: usize) {
        let used = &mut self.all[buffer].used;
        *used = Some(used.map_or((launch, launch), |(first, _)| (first, launch)));
    }

    /// Places what lives within the call, the largest first, so that no two lie over one another
    /// while both are used; returns how many bytes that takes.
    fn place(&mut self) -> u64 {
        let inner = |of: &Buffer| of.tensor.is_none() && of.used.is_some();
        let mut order: Vec<usize> = (0..self.all.len()).filter(|&i| inner(&self.all[i])).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.all[i].bytes));
        let mut placed: Vec<usize> = Vec::new();
        let mut end = 0;
        for i in order {
            let mut taken: Vec<(u64, u64)> = placed
                .iter()
                .map(|&other| &self.all[other])
                .filter(|other| other.is_used_with(&self.all[i]))
                .map(|other| (other.offset, other.offset + other.bytes))
                .collect();
            taken.sort_unstable();
            let bytes = self.all[i].bytes;
            let mut offset = 0;
            for (first, last) in taken {
                if offset + bytes <= first {
                    break;
                }
                offset = offset.max(last.next_multiple_of(ALIGNMENT));
            }
            self.all[i].offset = offset;
            end = end.max(offset + bytes);
            placed.push(i);
        }
        end
    }
}

/// Whether the driver knows the address.
fn is_of_a_device(address: u64) -> bool {
    let mut kind = 0_u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: room for what the attribute is; the address is not read.
    let status = unsafe {
        sys::cuPointerGetAttribute(std::ptr::from_mut(&mut kind).cast(), attribute, address)
    };
    status == sys::CUresult::CUDA_SUCCESS
}
