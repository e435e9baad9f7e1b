//! What a stream recorded, read back from the driver.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::collections::HashMap;
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::{Launch, Parameter, checked, failed};
use crate::call::Error;

/// A recorded graph.
pub(super) struct Graph(sys::CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `end`, and destroyed here alone.
        unsafe { sys::cuGraphDestroy(self.0) };
    }
}

impl Graph {
    pub(super) fn end(stream: sys::CUstream) -> Result<Self, Error> {
        let mut graph = null_mut();
        // SAFETY: the capture was begun on this stream.
        checked("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream, &mut graph) })?;
        Ok(Self(graph))
    }

    /// Its nodes, each behind the one that it depends on.
    fn nodes(&self) -> Result<Vec<sys::CUgraphNode>, Error> {
        let mut count = 0;
        // SAFETY: without room for nodes their number is asked for.
        let status = unsafe { sys::cuGraphGetNodes(self.0, null_mut(), &mut count) };
        checked("cuGraphGetNodes", status)?;
        let mut nodes = vec![null_mut(); count];
        if count == 0 {
            return Ok(nodes);
        }
        // SAFETY: room for as many.
        let status = unsafe { sys::cuGraphGetNodes(self.0, nodes.as_mut_ptr(), &mut count) };
        checked("cuGraphGetNodes", status)?;
        let mut behind = HashMap::new();
        for &node in &nodes {
            let (mut before, mut count) = ([null_mut(); 1], 1);
            // SAFETY: room for one, as `count` says; what is left over is set to null.
            let status = unsafe {
                let before = before.as_mut_ptr();
                sys::cuGraphNodeGetDependencies_v2(node, before, null_mut(), &mut count)
            };
            checked("cuGraphNodeGetDependencies", status)?;
            behind.insert(before[0] as usize, node);
        }
        let next = |node: &sys::CUgraphNode| behind.get(&(*node as usize)).copied();
        let chain: Vec<_> = std::iter::successors(next(&null_mut()), next).collect();
        if chain.len() != nodes.len() {
            return Err(failed("the kernels of a call do not follow one another".into()));
        }
        Ok(chain)
    }

    /// The launches in their order, all parameters as bytes.
    pub(super) fn launches(&self) -> Result<Vec<Launch>, Error> {
        self.nodes()?.into_iter().map(launch_of).collect()
    }
}

fn launch_of(node: sys::CUgraphNode) -> Result<Launch, Error> {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a node of a graph that is there.
    checked("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &mut kind) })?;
    if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
        return Err(failed(format!("a call has something else than kernels: {kind:?}")));
    }
    // SAFETY: null pointers and zeros are values of all its fields.
    let mut of: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let status = unsafe { sys::cuGraphKernelNodeGetParams_v2(node, &mut of) };
    checked("cuGraphKernelNodeGetParams", status)?;
    if of.func.is_null() || of.kernelParams.is_null() {
        return Err(failed("the driver does not tell a kernel's parameters".into()));
    }
    let mut parameters = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        let at = parameters.len();
        // SAFETY: a function that was launched.
        let status = unsafe { sys::cuFuncGetParamInfo(of.func, at, &mut offset, &mut size) };
        if status == sys::CUresult::CUDA_ERROR_INVALID_VALUE {
            break;
        }
        checked("cuFuncGetParamInfo", status)?;
        // SAFETY: the node holds `size` bytes of its parameter number `at`.
        let bytes = unsafe {
            let first = (*of.kernelParams.add(at)).cast::<u8>();
            std::slice::from_raw_parts(first, size)
        };
        parameters.push(Parameter::Bytes(bytes.into()));
    }
    Ok(Launch {
        function: of.func as usize,
        grid: [of.gridDimX, of.gridDimY, of.gridDimZ],
        block: [of.blockDimX, of.blockDimY, of.blockDimZ],
        shared_memory: of.sharedMemBytes,
        parameters,
    })
}
